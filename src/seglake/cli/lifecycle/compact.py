"""`seglake compact`: the latest record of each key stays."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, number, size

if TYPE_CHECKING:
    from seglake.maintain.compaction.compact import Compacted

_PLAN = [
    number("partition", "partition"),
    number("segments", "segments", rank=2),
    size("clean_bytes", "clean bytes", rank=4),
    size("dirty_bytes", "dirty bytes", rank=4),
    Column("dirty_ratio", "dirty ratio", "{:.2f}".format, right=True, rank=2, fit="whole"),
    Column("due", "due", lambda due: "yes" if due else "no"),
]
_OUTCOME = [
    number("segments_after", "segments after", rank=3),
    size("bytes_after", "bytes after", rank=3),
    number("records", "records"),
    number("records_after", "records after"),
    number("superseded", "superseded"),
    number("expired_tombstones", "expired tombstones", rank=1),
    number("null_keys", "null keys"),
]


def compact(
    root: Root,
    topic: Topic,
    force: Annotated[
        bool, typer.Option("--force", help="Also log partitions with few or no dirty bytes.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Keep the latest record of each key, of a topic whose cleanup.policy has `compact`."""
    from seglake.maintain.compaction.compact import compact as compact_topic

    with bar("compacting") as progress:
        report = compact_topic(root, topic, force=force, dry_run=dry_run, progress=progress)
    if json:
        print(report.as_json())
    elif dry_run:
        rows = map(_planned, report.as_dict()["partitions"])
        show(f"log partitions of {topic}", Listing([*_PLAN, *_OUTCOME], rows))
    else:
        _tell(report)


def _planned(partition: dict[str, Any]) -> dict[str, Any]:
    """A row of a plan; a log partition that would stay as it is has no outcome."""
    none = {} if partition["cleaned"] else {column.field: None for column in _OUTCOME}
    return {**partition, **none}


def _tell(report: Compacted) -> None:
    partitions = report.as_dict()["partitions"]
    cleaned = [partition for partition in partitions if partition["cleaned"]]
    if cleaned:
        show(f"compacted in version {report.version}", Listing([*_PLAN[:-1], *_OUTCOME], cleaned))
    due = counted(len(cleaned), "log partition")
    print(f"{due} of {len(partitions)} {'was' if len(cleaned) == 1 else 'were'} due.")
