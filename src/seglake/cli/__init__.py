"""The command line. `main` runs the program `seglake`."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from seglake.cli.terminal import frame
from seglake.cli.terminal.arrow import run_alone
from seglake.errors import SeglakeError, UsageError

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the program. Print a SeglakeError to standard error, and exit with its exit code."""
    # The warnings of delta-rs repeat its errors.
    os.environ.setdefault("RUST_LOG", "error")
    run_alone()
    with frame.exit_on_interrupt():
        from seglake.cli.app import app  # imported here, so that the package is fast to import

        try:
            with frame.checked_output():
                if frame.wants_json():
                    sys.exit(_exit_code(app))
                app()
        except SeglakeError as error:
            frame.print_error(
                type(error).__name__, f"{error}{frame.log_remedy(error)}", error.exit_code
            )
            sys.exit(error.exit_code)


def _exit_code(app: typer.Typer) -> int | None:
    """Run a command. Raises UsageError for bad usage, which typer would print in a box."""
    from typer import BadParameter

    refused: Any = BadParameter.mro()[1]  # Click's UsageError, which typer does not export
    try:
        code: int | None = app(standalone_mode=False)
    except refused as error:
        raise UsageError(error.format_message()) from None
    return code
