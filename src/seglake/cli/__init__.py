"""The command line. `main` is the `seglake` program."""

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
    """Run the program. A SeglakeError is printed on standard error, and has the exit code."""
    os.environ.setdefault("RUST_LOG", "error")  # warnings of delta-rs say what the error says
    run_alone()
    with frame.ends_by_interrupt():
        from seglake.cli.app import app  # here, so that the package imports fast

        try:
            with frame.checked_output():
                if frame.wants_json():
                    sys.exit(_exit_code(app))
                app()
        except SeglakeError as error:
            frame.tell_error(type(error).__name__, f"{error}{frame.remedy(error)}", error.exit_code)
            sys.exit(error.exit_code)


def _exit_code(app: typer.Typer) -> int | None:
    """Run a command. Raises UsageError where typer would print a box for people."""
    from typer import BadParameter

    refused: Any = BadParameter.mro()[1]  # Click's UsageError, which typer does not name
    try:
        code: int | None = app(standalone_mode=False)
    except refused as error:
        raise UsageError(error.format_message()) from None
    return code
