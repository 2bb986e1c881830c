"""Print the result of a command as JSON or text, and exit with its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import typer


class Result(Protocol):
    """The result that a command prints."""

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""

    def as_json(self) -> str:
        """Return the result as one JSON object."""


def finish(result: Result, show: Callable[[], None], *, as_json: bool) -> None:
    """Print a result, as JSON or by `show`. Raises typer.Exit for an exit code other than 0."""
    if as_json:
        print(result.as_json())
    else:
        show()
    if result.exit_code:
        raise typer.Exit(result.exit_code)
