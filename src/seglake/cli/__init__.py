"""The command line. `main` is the `seglake` program."""

# ruff: noqa: PLC0415  # what is imported where it is used is not needed by every command

from __future__ import annotations

import sys

from seglake.errors import SeglakeError


def main() -> None:
    """Run the program; an error that Seglake raises on purpose is one line on standard error."""
    from seglake.cli.app import app  # so that importing the package stays cheap

    try:
        app()
    except SeglakeError as error:
        print(f"seglake: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
