"""`seglake merge`: small neighbouring segments become few."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Partition, Root, Topic
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, number, prose, size

if TYPE_CHECKING:
    from seglake.maintain.merge import Merged

_PLAN = [
    number("partition", "partition"),
    number("base_offset", "from"),
    number("end_offset", "up to"),
    number("segments", "segments"),
    size("log_bytes", "log bytes"),
]
_NONE_FIT = "no neighbouring segments fit into one: segment.bytes and segment.ms bound it"
_FEW_FIT = "too few small segments are neighbours; --all merges whatever fits into one"
_DAMAGED = [Column("file", "file"), number("position", "byte", rank=1), prose("problem", "problem")]


def merge(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Merge all that fits in one segment, for any gain.")
    ] = False,
    rebatch: Annotated[
        bool, typer.Option("--rebatch", help="Join small record batches up to batch.size, too.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Make few segments of many small neighbours; records, offsets and batches stay."""
    from seglake.maintain.merge import merge as merge_segments

    chosen = None if partition is None else [partition]
    with bar("merging") as progress:
        report = merge_segments(
            root, topic, partitions=chosen, everything=everything, rebatch=rebatch,
            dry_run=dry_run, progress=progress,
        )  # fmt: skip
    if json:
        print(report.as_json())
    else:
        _tell(report, dry_run=dry_run, everything=everything)
    raise typer.Exit(report.exit_code)


def _tell(report: Merged, *, dry_run: bool, everything: bool) -> None:
    if report.plan and dry_run:
        show("would become one segment", Listing(_PLAN, [group.as_dict() for group in report.plan]))
    if report.damaged:
        show("not merged", Listing(_DAMAGED, [damaged.as_dict() for damaged in report.damaged]))
    if not (report.segments or report.damaged or report.skipped):
        print(f"nothing to merge: {_NONE_FIT if everything else _FEW_FIT}")
        return
    groups = counted(report.skipped, "group")
    changed = f", {groups} changed meanwhile" if report.skipped else ""
    became = "would become" if dry_run else "became"
    print(
        f"{counted(report.segments, 'segment')} {became} {report.new_segments:,}: "
        f"{counted(report.log_bytes, 'byte')} read, {report.new_log_bytes:,} written{changed}"
    )
