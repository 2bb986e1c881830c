"""The command line. `main` is the `seglake` program."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from seglake.cli.terminal.arrow import run_alone
from seglake.cli.terminal.frame import (
    checked_output,
    ends_by_interrupt,
    remedy,
    tell_error,
    wants_json,
)
from seglake.errors import SeglakeError, UsageError

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the program. A SeglakeError is told on standard error, and gives the exit code."""
    os.environ.setdefault("RUST_LOG", "error")  # warnings of delta-rs say what the error says
    run_alone()
    with ends_by_interrupt():
        from seglake.cli.app import app  # here, so that the package imports fast

        try:
            with checked_output():
                if wants_json():
                    sys.exit(_exit_code(app))
                app()
        except SeglakeError as error:
            tell_error(type(error).__name__, f"{error}{remedy(error)}", error.exit_code)
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
