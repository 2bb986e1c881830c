"""`seglake compact`: the latest record of each key stays."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, number, size

if TYPE_CHECKING:
    from seglake.maintain.compaction.compact import Compacted

_PLAN = [
    number("partition", "partition"),
    number("segments", "segments"),
    size("clean_bytes", "clean bytes", rank=2),
    size("dirty_bytes", "dirty bytes", rank=2),
    Column("dirty_ratio", "dirty ratio", "{:.2f}".format, right=True, rank=1, fit="whole"),
    Column("due", "due", lambda due: "yes" if due else "no"),
]
_OUTCOME = [
    number("segments_after", "segments after", rank=1),
    size("bytes_after", "bytes after", rank=1),
    number("records", "records"),
    number("superseded", "superseded"),
    number("expired_tombstones", "expired tombstones", rank=3),
    number("null_keys", "null keys", rank=3),
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
        rows = Listing([*_PLAN, *_OUTCOME], report.as_dict()["partitions"])
        show(f"log partitions of {topic}", rows)
    else:
        _tell(report)


def _tell(report: Compacted) -> None:
    partitions = report.as_dict()["partitions"]
    cleaned = [partition for partition in partitions if partition["cleaned"]]
    if cleaned:
        show(f"compacted in version {report.version}", Listing([*_PLAN[:-1], *_OUTCOME], cleaned))
    due = counted(len(cleaned), "log partition")
    print(f"{due} of {len(partitions)} {'was' if len(cleaned) == 1 else 'were'} due.")
