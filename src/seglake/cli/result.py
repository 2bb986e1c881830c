"""Print the result of a command as JSON or text, and exit with its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from seglake.maintain.commit import MaintenanceReport

_Result = TypeVar("_Result", bound="MaintenanceReport")


def finish(result: _Result, show: Callable[[_Result], None], *, as_json: bool) -> None:
    """Print a result, as JSON or by `show`. Raises typer.Exit for an exit code other than 0."""
    if as_json:
        print(result.as_json())
    else:
        show(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
