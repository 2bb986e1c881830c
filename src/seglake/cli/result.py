"""The end of a command that makes a report: JSON or text, then the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import typer


class Result(Protocol):
    """A report that a command prints."""

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""

    def as_json(self) -> str:
        """Return one JSON object."""


def finish(result: Result, show: Callable[[], None], *, as_json: bool) -> None:
    """Print a result, as JSON or by `show`. Raises typer.Exit for an exit code other than 0."""
    if as_json:
        print(result.as_json())
    else:
        show()
    if result.exit_code:
        raise typer.Exit(result.exit_code)
