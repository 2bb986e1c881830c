"""The partitions whose logs begin later than before, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, number, size

if TYPE_CHECKING:
    from seglake.maintain.expiry.log_start import Moved

_COLUMNS = [
    Column("topic", "topic"),
    number("partition", "partition"),
    number("before", "began at"),
    number("after", "begins at"),
    number("segments", "segments", rank=1),
    size("log_bytes", "bytes"),
]


def show_moves(moves: Sequence[tuple[str, Moved]], *, dry_run: bool) -> None:
    """Print the partitions of topics whose log starts moved, or would move."""
    if not moves:
        print("Nothing is to be removed." if dry_run else "Nothing was removed.")
        return
    title = "log starts that would move" if dry_run else "log starts that moved"
    rows = [{"topic": topic, **move.as_dict()} for topic, move in moves]
    show(title, Listing(_COLUMNS, rows), as_json=False)
