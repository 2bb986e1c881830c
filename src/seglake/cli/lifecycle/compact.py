"""`seglake compact`: the latest record of each key stays."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from seglake.cli.maintain import bar
from seglake.cli.terminal.tables import Column, Rows, number, show

_PLAN = [
    number("partition", "partition"),
    number("segments", "segments"),
    number("clean_bytes", "clean bytes"),
    number("dirty_bytes", "dirty bytes"),
    Column("dirty_ratio", "dirty ratio", "{:.2f}".format, right=True),
    Column("due", "due", lambda due: "yes" if due else "no"),
]
_OUTCOME = [
    number("segments_after", "segments after"),
    number("bytes_after", "bytes after"),
    number("records", "records"),
    number("superseded", "superseded"),
    number("expired_tombstones", "expired tombstones"),
    number("null_keys", "null keys"),
]


def run(root: str, topic: str, *, force: bool, dry_run: bool, as_json: bool) -> int:
    """Compact a topic, or say what is due. Returns the exit code."""
    from seglake.maintain.compaction.compact import compact

    with bar("compacting") as progress:
        report = compact(root, topic, force=force, dry_run=dry_run, progress=progress)
    if as_json:
        print(report.as_json())
        return 0
    partitions = report.as_dict()["partitions"]
    if dry_run:
        show(f"log partitions of {topic}", Rows([*_PLAN, *_OUTCOME], partitions))
        return 0
    cleaned = [each for each in partitions if each["cleaned"]]
    if cleaned:
        show(f"compacted in version {report.version}", Rows([*_PLAN[:-1], *_OUTCOME], cleaned))
    print(f"{len(cleaned)} log partitions were due, {len(partitions) - len(cleaned)} were not.")
    return 0
