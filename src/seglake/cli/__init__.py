"""The command line. `main` is the `seglake` program."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import sys

from seglake.cli.terminal.interrupt import ends_by_interrupt
from seglake.errors import SeglakeError


def main() -> None:
    """Run the program. A SeglakeError becomes a line on standard error and the exit code."""
    with ends_by_interrupt():
        from seglake.cli.app import app  # here, so that the package imports fast

        try:
            app()
        except SeglakeError as error:
            print(f"seglake: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
