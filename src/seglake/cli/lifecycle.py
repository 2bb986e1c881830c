"""Define the commands that change topics, remove records, and tag versions."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # imports when a command runs; options are arguments

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from json import dumps, loads
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import DryRun, GraceHours, Json, OneOrAll, Partition, Root, Topic
from seglake.cli.result import finish
from seglake.cli.terminal.progress import display
from seglake.errors import UsageError
from seglake.limits import GRACE_HOURS
from seglake.terminal.tables import Column, Listing, number, prose, second, show, size
from seglake.terminal.wording import counted, short_bytes, short_time

if TYPE_CHECKING:
    from seglake.cli.terminal.progress import Job
    from seglake.maintain.compaction.compact import CompactResult
    from seglake.maintain.erasure.erase import EraseResult
    from seglake.maintain.expiry.retention import DeleteRecordsResult, RetainResult
    from seglake.maintain.merge import MergeResult
    from seglake.maintain.publish.publish import PublishResult
    from seglake.maintain.tagging import TagResult, TagUsage
    from seglake.maintain.topic_settings import AlterResult
    from seglake.maintain.undo import UndoResult

_LOG_STARTS_COLUMNS = [
    Column("topic", "topic"),
    number("partition", "partition"),
    number("before", "began at"),
    number("after", "begins at"),
    number("segments", "segments"),
    size("log_bytes", "bytes"),
]


def show_moves(reports: Sequence[DeleteRecordsResult | RetainResult], *, dry_run: bool) -> None:
    """Print the partitions of topics whose log starts moved, or would move."""
    rows = [{"topic": each.topic, **move.as_dict()} for each in reports for move in each.moved]
    if rows:
        title = "log starts that would move" if dry_run else "log starts that moved"
        show(title, Listing(_LOG_STARTS_COLUMNS, rows))
    else:
        print("Nothing would be removed." if dry_run else "Nothing was removed.")


def alter(
    root: Root,
    topic: Topic,
    given: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    delete: list[str] | None = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    r"""Change settings of a topic. They apply from its next run or maintenance.

    Args:
        given: Settings of the table \[topic].
        delete: A setting to reset to its default.

    Example:
        seglake alter ./lake web retention.ms=7d cleanup.policy=delete
    """
    from seglake.maintain.topic_settings import alter as change

    report = change(root, topic, _settings(given or []), delete=delete or [], dry_run=dry_run)
    finish(report, partial(_show_altered, root), as_json=json)


def _show_altered(root: str, report: AlterResult) -> None:
    topic = report.topic
    would = "would be changed" if report.dry_run else "changed"
    for key, (before, after) in report.changes.items():
        print(f"{key} {would} from {before} to {after}.")
    old, new = report.changes.get("cleanup.policy", ("", ""))
    if "compact" in new and "compact" not in old:
        count = f"`seglake compact {quote(root)} {topic} --dry-run`"
        print(
            f"Compaction will remove records without a key. To count them, run {count}. To give "
            f"new records keys, set key.fields in the pipeline."
        )
    if report.expired:
        records = counted(sum(each.records for each in report.expired), "record")
        segments = counted(sum(each.segments for each in report.expired), "segment")
        size = short_bytes(sum(each.log_bytes for each in report.expired))
        print(
            f"The next `seglake maintain` or `retain` will remove {records} in {segments} ({size})."
        )
    if report.unindexed:
        segments = counted(report.unindexed, "segment")
        have = "has" if report.unindexed == 1 else "have"
        reindex = f"`seglake reindex {quote(root)} {topic}`"
        print(f"{segments} {have} no key index for these settings yet. Build it with {reindex}.")
    if not report.changes:
        print(f"Topic {topic!r} already has these settings. Nothing was changed.")


def _settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return the settings of KEY=VALUE. A value is JSON, or else text. Raises UsageError."""
    from seglake.config.topic import DEFAULTS

    settings: dict[str, Any] = {}
    for setting in texts:
        key, equals, text = setting.partition("=")
        if not equals:
            has_default = key in DEFAULTS
            problem = f"{key} has no value" if has_default else f"{key!r} is not a setting"
            raise UsageError(f"{problem}. Write {key if has_default else 'KEY'}=VALUE")
        if not text and key in {"index.fields", "index.headers"}:
            raise UsageError(f"{key}= has an empty value. To remove the setting: --delete {key}")
        if key in settings:
            raise UsageError(f"{key} is set twice. Keep one")
        try:
            settings[key] = loads(text)
        except ValueError:
            settings[key] = text
    return settings


_COMPACT_PLAN = [
    number("partition", "partition"),
    number("segments", "segments"),
    size("clean_bytes", "clean bytes"),
    size("dirty_bytes", "dirty bytes"),
    Column("dirty_ratio", "dirty ratio", "{:.2f}".format, right=True),
    Column("due", "due", lambda due: "yes" if due else "no"),
]
_OUTCOME = [
    number("segments_after", "segments after"),
    size("bytes_after", "bytes after"),
    number("records", "records"),
    number("records_after", "records after"),
    number("superseded", "superseded"),
    number("expired_tombstones", "expired tombstones"),
    number("null_keys", "null keys"),
]


def compact(
    root: Root, topic: Topic, force: bool = False, dry_run: DryRun = False, json: Json = False
) -> None:
    """Keep only the latest record of each key. cleanup.policy must contain `compact`.

    Args:
        force: Also compact log partitions that are not due.

    Example:
        seglake compact ./lake users --dry-run
    """
    from seglake.maintain.compaction.compact import compact as compact_topic

    with display("compacting") as shown:
        report = compact_topic(root, topic, force=force, dry_run=dry_run, progress=shown.amount)
    finish(report, _show_compacted, as_json=json)


def _show_compacted(report: CompactResult) -> None:
    partitions = report.as_dict()["partitions"]
    if report.dry_run:
        columns = [*_COMPACT_PLAN, *_OUTCOME]
        no_outcome = {column.field: None for column in _OUTCOME}
        rows = [each if each["cleaned"] else {**each, **no_outcome} for each in partitions]
        show(f"log partitions of {report.topic}", Listing(columns, rows))
        return
    cleaned = [partition for partition in partitions if partition["cleaned"]]
    if cleaned:
        table = Listing([*_COMPACT_PLAN[:-1], *_OUTCOME], cleaned)
        show(f"compacted in version {report.version}", table)
    due = counted(len(cleaned), "log partition")
    print(f"Compacted {due} of {len(partitions)}.")


def delete_records(
    root: Root,
    topic: Topic,
    partition: list[int] | None = None,
    before_offset: int | None = None,
    before_time: str | None = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete the oldest records of a log, up to an offset or a time.

    Args:
        partition: A partition. Repeatable with --before-time. Default: all.
        before_offset: Delete records below this offset of one --partition. -1 deletes all.
        before_time: Delete records before the first one at or after this time.

    Examples:
        seglake delete-records ./lake web --before-time 2026-11-01T00:00Z
        seglake delete-records ./lake web --partition 0 --before-offset 1000
    """
    from seglake.maintain.expiry.retention import delete_records as move_starts

    offsets, chosen = None, partition or None
    if before_offset is None and before_time is None:
        raise UsageError("delete-records needs --before-offset or --before-time")
    if before_offset is not None:
        if before_time is not None:
            raise UsageError("--before-offset contradicts --before-time. Keep one")
        if chosen is None or len(chosen) != 1:
            raise UsageError(
                "--before-offset needs exactly one --partition, because offsets count "
                "within a partition"
            )
        offsets, chosen = {chosen[0]: before_offset}, None
    report = move_starts(
        root, topic, offsets, before_time=before_time, partitions=chosen, dry_run=dry_run
    )
    finish(report, lambda done: show_moves([done], dry_run=dry_run), as_json=json)


_RAN = "began while records were erased. Erase again when it has ended"


def erase(
    root: Root,
    topic: Topic,
    key: list[str] | None = None,
    keys_from: Path | None = None,
    raw_containing: str | None = None,
    vacuum: bool = False,
    wait: bool = False,
    dry_run: DryRun = False,
    grace_hours: float = GRACE_HOURS,
    json: Json = False,
) -> None:
    """Delete all records with the given keys, and all rejected rows that contain one of them.

    Exit code 1 if an attempt began during the erasure. Then erase again, or use --wait.

    Args:
        key: A key to erase. Repeatable. Write binary keys as base64:….
        keys_from: A file with a key in each line.
        raw_containing: Also erase rejected rows that contain this text.
        vacuum: Also delete the old objects that contain the records.
        wait: Wait for running attempts, then erase what they added.
        grace_hours: Treat attempts younger than this as running.

    Examples:
        seglake erase ./lake web --key ann --dry-run
        seglake erase ./lake web --keys-from keys.txt --vacuum
    """
    from seglake.maintain.erasure.criteria import parse_keys
    from seglake.maintain.erasure.erase import erase as erase_keys

    keys = parse_keys(key or [], keys_from)
    with display("searching" if dry_run else "erasing") as shown:
        report = erase_keys(
            root, topic, keys, raw_containing=raw_containing, vacuum=vacuum, wait=wait,
            dry_run=dry_run, grace_hours=grace_hours, progress=shown.amount,
        )  # fmt: skip
    finish(report, _show_erased, as_json=json)


def _show_erased(report: EraseResult) -> None:
    from seglake.maintain.erasure.erase import IF_RUNNING

    for key in report.deleted:
        print(key)
    counts = (
        f"{counted(report.records, 'record')} in {counted(report.segments, 'segment')}, "
        f"{counted(report.rejects + report.samples, 'rejected row')}"
    )
    old = counted(len(report.deleted), "old object")
    if report.dry_run:
        print(f"Would erase {counts}, and delete {old}.")
    elif report.version < 0:
        print(f"Found nothing to erase. Deleted {old}.")
    else:
        print(f"Erased {counts} (version {report.version}). Deleted {old}.")
    for name, count in report.tags.items():
        lost = "would lose" if report.dry_run else "lost"
        print(f"Tag {name!r} {lost} {counted(count, 'record')}.")
    for table, why in report.tables.items():
        print(f"Table {table} may still have erased records: {why}")
    for attempt_id in report.running:
        now = f"may still run: {IF_RUNNING}" if report.dry_run else _RAN
        print(f"Attempt {attempt_id} {now}.")


_MAINTAIN_COLUMNS = [
    Column("operation", "operation"),
    Column("topic", "topic"),
    prose("result", "result"),
    Column("seconds", "seconds", right=True),
]
_COUNTS = {
    "segments": "segment", "records": "record", "rejects": "reject", "log_bytes": "log byte",
    "deleted_bytes": "deleted byte", "superseded": "superseded record",
    "expired_tombstones": "expired tombstone", "null_keys": "keyless record", "added": "table file",
}  # fmt: skip
_OF_COMPACTION = ("superseded", "expired_tombstones", "null_keys")


def maintain(
    context: typer.Context,
    root: Root,
    topic: OneOrAll = None,
    dry_run: DryRun = False,
    grace_hours: GraceHours = GRACE_HOURS,
    json: Json = False,
) -> None:
    """Expire, compact and merge topics by their settings, then vacuum. Run it on a schedule.

    Example:
        seglake maintain ./lake --dry-run
    """
    from seglake.maintain.schedule import maintain_lake

    job: Job | None = context.obj
    with display("reading the catalog", job, logs=True) as shown:
        report = maintain_lake(
            root, topic, dry_run=dry_run, grace_hours=grace_hours, spark=shown.spark,
            progress=job.log if job else shown.step,
        )  # fmt: skip
    parts = [part.as_dict() for part in report.parts]
    table = Listing(_MAINTAIN_COLUMNS, ({**part, "result": _result(part)} for part in parts))
    finish(report, lambda _: show("maintenance", table), as_json=json)


def _result(part: dict[str, Any]) -> str:
    """Describe the result of a part: its error, or its counts."""
    if part["error"] is not None:
        return f"failed: {part['error']}"
    report = part["report"]
    counts = Counter({name: report[name] for name in _COUNTS if name in report})
    for log in report.get("partitions", ()):  # of a compaction
        counts.update({name: log[name] for name in _OF_COMPACTION})
    texts = [counted(counts[name], noun) for name, noun in _COUNTS.items() if counts[name]]
    if not texts:
        apart = report.get("apart")  # of a merge
        return f"nothing to do, because {_why_apart(apart)}" if apart else "nothing to do"
    deed = " would be removed" if report.get("dry_run") else " removed"
    return ", ".join(texts) + deed * ("partitions" in report)  # only a compaction has them


_MERGE_PLAN = [
    number("partition", "partition"),
    number("base_offset", "from"),
    number("end_offset", "up to"),
    number("segments", "segments"),
    size("log_bytes", "log bytes"),
]
_DAMAGED = [Column("file", "file"), number("position", "byte"), prose("problem", "problem")]


def _why_apart(apart: Mapping[str, int]) -> str:
    """Return the most frequent reason why two neighbouring segments were not merged."""
    if not apart:
        return "no two small segments are next to each other"
    limit, pairs = max(apart.items(), key=itemgetter(1))
    forbids = "merging saves too little (see --all)" if limit == "gain" else f"of {limit}"
    return f"{counted(pairs, 'pair')} of small segments stay separate because {forbids}"


def merge(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    everything: Annotated[bool, typer.Option("--all")] = False,
    rebatch: bool = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Merge small neighbouring segments. Records, offsets and batches do not change.

    Args:
        everything: Merge all segments that fit into one, however small the gain.
        rebatch: Also join small record batches, up to batch.size.

    Example:
        seglake merge ./lake web --dry-run
    """
    from seglake.maintain.merge import merge as merge_segments

    chosen = None if partition is None else [partition]
    with display("merging") as shown:
        report = merge_segments(
            root, topic, partitions=chosen, everything=everything, rebatch=rebatch,
            dry_run=dry_run, progress=shown.amount,
        )  # fmt: skip
    finish(report, _show_merged, as_json=json)


def _show_merged(report: MergeResult) -> None:
    if report.plan and report.dry_run:
        groups = Listing(_MERGE_PLAN, [group.as_dict() for group in report.plan])
        show("would become one segment", groups)
    if report.damaged:
        show("not merged", Listing(_DAMAGED, [damaged.as_dict() for damaged in report.damaged]))
    if not (report.segments or report.damaged or report.skipped):
        print(f"Nothing was merged, because {_why_apart(report.apart)}.")
        return
    skipped = counted(report.skipped, "group")
    changed = f". Skipped {skipped} that another commit changed" if report.skipped else ""
    became = "would become" if report.dry_run else "became"
    print(
        f"{counted(report.segments, 'segment')} {became} {report.new_segments:,}: "
        f"{counted(report.log_bytes, 'byte')} read, {report.new_log_bytes:,} written{changed}"
    )


def publish(
    context: typer.Context,
    root: Root,
    topic: Topic,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]")] = None,
    fields: str | None = None,
    value: bool = False,
    key_as: str = "binary",
    timestamp_ms: bool = False,
    strict: bool = False,
    replace: bool = False,
    forget: bool = False,
    memory_mib: int = 256,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    r"""Publish a topic as a Delta table, or update that table.

    The lake stores the columns, so give all of them the first time. After that, `maintain` updates
    the table, too.

    Args:
        table: The table's path or URI. By default, tables/TOPIC in the lake.
        fields: Columns from the values, such as user,status:int32,at=created_at:timestamp.
        value: Add a column with the whole value.
        key_as: The type of the key's column, binary or string.
        timestamp_ms: Add a column with the timestamp in milliseconds.
        strict: Fail if a value does not fit its column. Otherwise it is null, and counted.
        replace: Publish from the beginning, even over the table of another lake.
        forget: Stop publishing the table, but keep its files.
        memory_mib: Memory for each task, in MiB.

    Examples:
        seglake publish ./lake web --fields user,status:int32
        seglake publish ./lake web
    """
    from seglake.maintain.publish.columns import TableColumns
    from seglake.maintain.publish.publish import publish as publish_table

    with display("publishing", context.obj, logs=True) as shown:
        report = publish_table(
            root, topic, table, fields=None if fields is None else TableColumns.parse(fields),
            value=value, key=key_as, timestamp_ms=timestamp_ms, strict=strict, replace=replace,
            forget=forget, dry_run=dry_run, memory_bytes=memory_mib * 2**20, spark=shown.spark,
            progress=shown.amount,
        )  # fmt: skip
    finish(report, _show_published, as_json=json)


def _show_published(report: PublishResult) -> None:
    for change in report.mended:
        print(f"corrected: {change}")
    for column, count in report.misfits.items():
        print(f"{counted(count, 'value')} did not fit column {column!r}, and became null.")
    if report.forgotten:
        print(f"Stopped publishing {report.table}. The files of the table were not changed.")
        return
    files = f"{counted(report.added, 'file')} added, {report.removed:,} removed"
    if report.status == "dry run":
        print(f"Would publish {report.table}: {files}.")
    elif report.status == "already done":
        version = report.lake_version
        print(f"{report.table} already has the records of version {version}. Nothing was changed.")
    else:
        print(
            f"Published version {report.lake_version} of the lake as version {report.version} of "
            f"{report.table}: {files}, {counted(report.rows, 'row')}."
        )


def retain(root: Root, topic: OneOrAll = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove the oldest segments, by each topic's retention.ms and retention.bytes.

    Example:
        seglake retain ./lake web --dry-run
    """
    from seglake.maintain.expiry.retention import retain as apply_retention

    reports = apply_retention(root, topic, dry_run=dry_run)
    if json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return
    show_moves(reports, dry_run=dry_run)
    topics = [report.topic for report in reports]
    if reports and all(report.unlimited for report in reports):
        name = topics[0] if len(topics) == 1 else "TOPIC"
        print(
            "No limit is set, because retention.ms and retention.bytes are -1. To set one: "
            f"`seglake alter {quote(root)} {name} retention.ms=30d`"
        )
    for blocked in (move for report in reports for move in report.blocked):
        print(f"seglake: {blocked.help}", file=sys.stderr)


_TAGS_COLUMNS = [
    Column("name", "tag"),
    number("version", "version"),
    second("created_at_ms", "made"),
    Column("until_ms", "until", lambda ms: "deleted" if ms is None else short_time(ms)),
    number("segments", "segments"),
    number("held_segments", "held segments"),
    size("held_bytes", "held bytes"),
    number("erased_records", "erased"),
]


def tag_rows(holds: Iterable[TagUsage]) -> Listing:
    """Return a row for each tag, with the segments and bytes that it holds."""
    return Listing(_TAGS_COLUMNS, (hold.as_dict() for hold in holds))


def tag(
    root: Root,
    name: Annotated[str | None, typer.Argument()] = None,
    version: int | None = None,
    until: str | None = None,
    delete: bool = False,
    json: Json = False,
) -> None:
    """Name a version, or list the tags. The version is kept until the tag is deleted.

    The list shows, for each tag, the bytes that the newest version does not need.

    Args:
        name: The tag, such as q3-train. Without a name, list the tags.
        version: The version to tag. Default: the newest.
        until: When the tag expires, in UTC, such as 2027-06-01. A vacuum then deletes it.
        delete: Delete the tag.

    Examples:
        seglake tag ./lake
        seglake tag ./lake before-may --version 7 --until 2027-06-01
        seglake tag ./lake q3-train --delete
    """
    from seglake.catalog.table import CatalogTable
    from seglake.maintain.tagging import tag as change
    from seglake.maintain.tagging import tag_usage
    from seglake.store import open_store

    if name is None:
        if delete or version is not None or until is not None:
            raise UsageError("--version, --until and --delete need the NAME of a tag")
        show("tags", tag_rows(tag_usage(CatalogTable.open(open_store(root)))), as_json=json)
        return
    with display("reading the rows of the version"):
        report = change(root, name, version, until=until, delete=delete)
    finish(report, partial(_show_tagged, root, delete), as_json=json)


def _show_tagged(root: str, delete: bool, report: TagResult) -> None:
    until = "" if report.until_ms is None else f" until {short_time(report.until_ms)}"
    if delete:
        only = "the objects that only this tag kept"
        print(f"Deleted tag {report.name!r}. `seglake vacuum` deletes {only}.")
    elif report.status == "already done":
        remedy = f"`seglake tag {quote(root)} {report.name} --delete`"
        print(
            f"Tag {report.name!r} already names version {report.tagged}{until}. To use the name "
            f"for another version, delete the tag first: {remedy}"
        )
    else:
        print(f"Tagged version {report.tagged} as {report.name!r}{until}.")


def undo(
    root: Root,
    topic: Topic,
    run_id: Annotated[str, typer.Option()],
    pipeline: str | None = None,
    force: bool = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove a run: its records, redrives and rejects. Its files can be ingested again.

    Args:
        run_id: The run to remove.
        pipeline: The pipeline, if several have this run id.
        force: Undo the run even if compaction has cleaned its offsets.

    Example:
        seglake undo ./lake web --run-id 2026-11-20T10 --dry-run
    """
    from seglake.maintain.undo import undo as undo_run

    report = undo_run(root, topic, run_id, pipeline=pipeline, force=force, dry_run=dry_run)
    finish(report, _show_undone, as_json=json)


def _show_undone(report: UndoResult) -> None:
    gone = (
        f"removed {counted(report.records, 'record')}. {counted(report.files, 'input file')} can "
        f"be ingested again."
    )
    if report.status == "already done":
        print(f"Run {report.run_id!r} is already undone: {gone}")
        return
    ranges = [
        {"partition": partition, "start": start, "end": end}
        for partition, spans in report.offsets.items()
        for start, end in spans
    ]
    columns = [number("partition", "partition"), number("start", "from"), number("end", "up to")]
    if ranges:
        show("offsets without records", Listing(columns, ranges))
    runs = ", ".join(report.runs)
    if report.dry_run:
        segments, files = counted(report.segments, "segment"), counted(report.files, "input file")
        print(f"Would undo {runs}: {counted(report.records, 'record')} in {segments}, {files}.")
    else:
        print(f"Undid {runs} (version {report.version}): {gone}")
