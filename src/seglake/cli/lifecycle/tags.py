"""`seglake tags`: the tags of a lake, and what each of them holds."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from seglake.cli.arguments.options import Json, Root
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, number, second, short_time, size

if TYPE_CHECKING:
    from seglake.maintain.tagging import Hold

_COLUMNS = [
    Column("name", "tag", fit="whole"),
    number("version", "version"),
    second("created_at_ms", "made", rank=2),
    Column("until_ms", "until", lambda ms: "deleted" if ms is None else short_time(ms), rank=1),
    number("segments", "segments", rank=3),
    number("held_segments", "held segments", rank=2),
    size("held_bytes", "held bytes"),
    number("erased_records", "erased", rank=3),
]


def tags(root: Root, json: Json = False) -> None:
    """List the tags, and the files that the newest version lacks and a tag holds."""
    from seglake.catalog.table import CatalogTable
    from seglake.maintain.tagging import holds
    from seglake.store import open_store

    show("tags", tag_rows(holds(CatalogTable.open(open_store(root)))), as_json=json)


def tag_rows(holds: Iterable[Hold]) -> Listing:
    """A row for each tag: what it holds."""
    return Listing(_COLUMNS, (hold.as_dict() for hold in holds))
