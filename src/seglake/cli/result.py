"""Print the result of a command as JSON or text, and exit with its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import typer


class Result(Protocol):
    """The result that a command prints."""

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""

    def as_json(self) -> str:
        """Return the result as one JSON object."""


_Result = TypeVar("_Result", bound=Result)


def finish(result: _Result, show: Callable[[_Result], None], *, as_json: bool) -> None:
    """Print a result, as JSON or by `show`. Raises typer.Exit for an exit code other than 0."""
    if as_json:
        print(result.as_json())
    else:
        show(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
