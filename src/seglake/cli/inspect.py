"""Define the commands that show topics, segments, runs, rejects and figures of a lake."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import Json, Partition, Root, Topic, Version, Zone
from seglake.cli.arguments.window import absolute
from seglake.cli.lifecycle import tag_rows
from seglake.cli.terminal.output import complete_file
from seglake.cli.terminal.progress import display
from seglake.errors import QuarantineLimit, UsageError
from seglake.terminal.tables import (
    Column,
    Listing,
    moment,
    number,
    prose,
    second,
    show,
    show_report,
    size,
)
from seglake.terminal.wording import counted

if TYPE_CHECKING:
    from seglake.catalog.schema import MaintenanceRow, RunRow
    from seglake.log.reads import PartitionReader
    from seglake.read.lake import Lake
    from seglake.read.log import Log


def topics(root: Root, version: Version = None, json: Json = False) -> None:
    """List the topics of a lake.

    Examples:
        seglake topics ./lake
        seglake topics s3://bucket/lake --json
    """
    import seglake

    show("topics", topic_rows(seglake.open(root, version)), as_json=json)


def topic_rows(lake: Lake) -> Listing:
    """Return a row for each topic of a lake, with its clock, sizes and times."""
    columns = [
        Column("topic", "topic"),
        number("partitions", "partitions"),
        Column("timestamp_type", "clock"),
        number("segments", "segments"),
        number("records", "records"),
        size("log_bytes", "bytes"),
        moment("min_timestamp", "oldest"),
        moment("max_timestamp", "newest"),
    ]
    return Listing(columns, (_topic_row(lake.topic(name)) for name in lake.topics()))


def _oldest(reader: PartitionReader) -> int:
    """Return the smallest timestamp of a log partition, or -1 if no record has one."""
    from seglake.read.consumers import oldest_in

    if not len(reader.view):
        return -1
    times = [oldest_in(reader, 0), *reader.view.segments.min_timestamps[1:].tolist()]
    return min((time for time in times if time >= 0), default=-1)


def _topic_row(log: Log) -> dict[str, Any]:
    from seglake.read.listings import summed

    readers = [log.reader(partition) for partition in log.partitions()]
    lows = [_oldest(reader) for reader in readers]
    records, count, log_bytes, _, newest = summed([reader.view for reader in readers])
    return {
        "topic": log.topic,
        "version": log.version,
        "partitions": len(readers),
        "partitioner": log.settings.partitioner,
        "timestamp_type": log.settings.timestamp_type,
        "segments": count,
        "records": records,
        "log_bytes": log_bytes,
        "min_timestamp": min((low for low in lows if low >= 0), default=-1),
        "max_timestamp": newest,
    }


def segments(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """List the segments of a topic.

    Example:
        seglake segments ./lake web --partition 0
    """
    import seglake

    log = seglake.open(root, version).topic(topic)
    show(f"segments of {topic}", segment_rows(log, partition), as_json=json)


def segment_rows(log: Log, partition: int | None) -> Listing:
    """Return a row for each segment of a topic."""
    from seglake.read.listings import SEGMENT_COLUMNS

    *columns, codec = SEGMENT_COLUMNS
    columns += [size("index_bytes", "index bytes"), codec]
    chosen = log.partitions() if partition is None else [partition]
    return Listing(columns, (row for number in chosen for row in _segments_of(log, number)))


def _segments_of(log: Log, partition: int) -> Iterator[dict[str, Any]]:
    from seglake.read.consumers import oldest_in

    reader = log.reader(partition)
    view = reader.view
    counts = view.record_counts.tolist()
    for index in range(len(view.segments.base_offsets)):
        segment = view.segment(index)
        row = asdict(segment)
        del row["keyindex_kinds"]  # only searches need this
        sizes = row.pop("sizes")
        yield {
            **row,
            "record_count": counts[index],
            "min_timestamp": oldest_in(reader, index) if counts[index] else -1,
            "log_bytes": sizes["log"],
            "index_bytes": sum(sizes.values()) - sizes["log"],
            "log": segment.key("log"),
        }


_OFFSETS_COLUMNS = [
    number("partition", "partition"),
    number("offset", "offset"),
    moment("timestamp", "timestamp"),
]


def offsets(
    root: Root,
    topic: Topic,
    time: Annotated[str, typer.Option()],
    zone: Zone = None,
    partition: Partition = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Find the first record at or after a time, in each partition.

    Args:
        time: ISO 8601 with a zone, epoch ms, earliest, latest or max-timestamp.

    Examples:
        seglake offsets ./lake web --time 2026-11-20T10:00:00Z
        seglake offsets ./lake web --time latest
    """
    import seglake

    log = seglake.open(root, version).topic(topic)
    chosen = log.partitions() if partition is None else [partition]
    places = _find(log, absolute(time, zone) or time, chosen).items()
    rows = [{"partition": p, "offset": offset, "timestamp": at} for p, (offset, at) in places]
    show(f"offsets of {topic} at {time}", Listing(_OFFSETS_COLUMNS, rows), as_json=json)


def _find(log: Log, time: str, chosen: list[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return (offset, timestamp) in each partition at a time or at a special time of Kafka."""
    if time in ("earliest", "latest"):
        ends = log.beginning_offsets(chosen) if time == "earliest" else log.end_offsets(chosen)
        return {p: (offset, None) for p, offset in ends.items()}
    if time == "max-timestamp":
        places = log.max_timestamps(chosen)
    else:
        places = log.offsets_for_times(dict.fromkeys(chosen, time))
    return {p: answer or (None, None) for p, answer in places.items()}


_DESCRIBE_COLUMNS = [
    Column("key", "setting"),
    Column("value", "value"),
    Column("is_set", "is", lambda is_set: "set" if is_set else "default"),
    Column("default", "default"),
    prose("meaning", "meaning"),
]


def describe(root: Root, topic: Topic, json: Json = False) -> None:
    """Show the settings of a topic with their defaults, and the tags that keep some of its data.

    Example:
        seglake describe ./lake web
    """
    from seglake.catalog.table import CatalogTable
    from seglake.maintain.tagging import tag_usage
    from seglake.maintain.topic_settings import list_settings
    from seglake.store import open_store

    table = CatalogTable.open(open_store(root))
    settings = [dataclasses.asdict(setting) for setting in list_settings(table, topic)]
    tags = tag_usage(table, topic=topic)
    if json:
        document = {"settings": settings, "tags": [hold.as_dict() for hold in tags]}
        print(dumps(document, ensure_ascii=False))
        return
    show(f"settings of {topic}", Listing(_DESCRIBE_COLUMNS, settings))
    if tags:
        show(f"tags that keep {topic}", tag_rows(tags))


def history(root: Root, topic: str | None = None, failed: bool = False, json: Json = False) -> None:
    """List the commits of runs and of maintenance, newest first.

    A run that was undone or replaced is one row with that state.

    Args:
        topic: Only this topic. Default: all topics.
        failed: List failed attempts and their run ids instead.

    Examples:
        seglake history ./lake --topic web
        seglake history ./lake --failed
    """
    import seglake
    from seglake.cli.runs import failed_rows

    if failed:
        show("failed attempts", failed_rows(root, topic), as_json=json)
        return
    lake = seglake.open(root)
    rows = history_rows([*lake.history(topic), *lake.maintenance(topic)], as_json=json)
    show("commits", rows, as_json=json)


def history_rows(commits: Iterable[RunRow | MaintenanceRow], *, as_json: bool) -> Listing:
    """Return a row for each commit of an ingest or of maintenance, the newest first.

    JSON has all rows and columns of the catalog. A table has one row for each run, even if
    it was removed. It has some of the columns, and the interval, duration and reasons of a run.
    """
    ordered = sorted(commits, key=lambda commit: commit.finished_at_ms)[::-1]
    columns = [
        second("finished_at_ms", "finished"),
        Column("topic", "topic"),
        Column("operation", "operation"),
        Column("pipeline", "pipeline"),
        Column("run_id", "run"),
        Column("state", "state"),  # distinguishes undone runs from committed ones
        number("input_files", "files"),
        number("input_rows", "rows"),
        number("records", "records"),
        number("quarantined", "rejected"),
    ]
    empty = dict.fromkeys(column.field for column in columns) | {"operation": "ingest"}
    if as_json:
        return Listing(columns, ({**empty, **asdict(commit)} for commit in ordered))
    interval = Column("interval", "interval")
    took = Column("took", "took", right=True)
    columns = [*columns[:6], interval, took, *columns[6:], prose("reasons", "reasons")]
    empty |= {"interval": None, "reasons": None}
    return Listing(columns, ({**empty, **row} for row in _one_for_each_run(ordered)))


def _one_for_each_run(commits: Sequence[RunRow | MaintenanceRow]) -> Iterator[dict[str, Any]]:
    """Yield one row for each run and each maintenance. A removed run has its current state."""
    from seglake.catalog.schema import RunRow
    from seglake.read.listings import interval, took

    since = {run.attempt_id: run.state for run in commits
             if isinstance(run, RunRow) and run.state != "committed"}  # fmt: skip
    for commit in commits:
        report, row = loads(commit.report), {**asdict(commit), "took": took(commit)}
        if not isinstance(commit, RunRow):
            runs = ", ".join(report.get("runs") or ()) or None  # the runs that an undo removed
            yield {**row, "run_id": runs, "state": "committed"}
        elif commit.state == "committed":
            counts = (report.get("reasons") or {}).items()
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts) or None
            state = since.get(commit.attempt_id, commit.state)
            yield {**row, "interval": interval(commit), "reasons": reasons, "state": state}


def run_status(
    root: Root,
    topic: Topic,
    run_id: Annotated[str, typer.Option()],
    pipeline: str | None = None,
    json: Json = False,
) -> None:
    """Show the state of a run.

    Exit code: 0 committed, 3 too many rejects, 1 failed, undone, replaced or unknown.

    Args:
        run_id: The run's id.
        pipeline: The pipeline, if several have this run id.

    Example:
        seglake run-status ./lake web --run-id 2026-11-20T10
    """
    from seglake.cli.runs import Runs

    status = Runs(root, topic).status(run_id, pipeline)
    code = status["exit_code"]
    if json:
        typer.echo(dumps(status, ensure_ascii=False))
    else:
        status.pop("report", None)
        left = status.pop("open_rejects", None)
        if status.get("redrives"):
            status["open_rejects"] = f"{left:,}"  # text, because a report omits the number 0
        show_report(f"run {run_id}", status)
    raise typer.Exit(code if code in {0, QuarantineLimit.exit_code} else 1)


def quarantine(
    root: Root,
    topic: Topic,
    run_id: str | None = None,
    limit: Annotated[int | None, typer.Option(min=0)] = None,
    json: Json = False,
) -> None:
    """Show the rows that were rejected: file, line, reason and bytes.

    A sample has rows with every reason. The output counts the omitted rows.

    Args:
        run_id: Only rejects of this run. A failed run has only a sample.
        limit: Largest number of rows to show. Default: 20, or all with --json.

    Examples:
        seglake quarantine ./lake web --run-id 2026-11-20T10
        seglake quarantine ./lake web --json > rejects.json
    """
    from seglake.cli.runs import Runs

    Runs(root, topic).rejects(run_id).show(limit, as_json=json)


_REPORT_COLUMNS = [
    prose("topic", "topic"),
    Column("severity", "severity"),
    Column("kind", "alert"),
    prose("text", "what"),
    prose("help", "what helps"),
]


def report(
    root: Root,
    topic: Annotated[str | None, typer.Argument()] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    json: Json = False,
) -> None:
    """Print the alerts of a lake. With -o, write a self-contained HTML report.

    The report is made from the catalog and zone maps; no record is read.

    Args:
        topic: Only this topic. Default: all topics.
        output: Write the page to this file.

    Examples:
        seglake report ./lake
        seglake report ./lake web -o report.html
    """
    from seglake.reporting.alerts import join_alerts
    from seglake.reporting.report import report as lake_report

    with display("reading the catalog") as shown:
        made = lake_report(root, topic, progress=shown.step)
        if output is not None:
            shown.step(f"writing {output}")
            page = (made.as_json() if json else made.as_html()).encode()
    if output is not None:
        with complete_file(output) as file:
            file.write(page)
        alerts = counted(len(join_alerts(made.alerts)), "alert")
        typer.echo(f"Wrote {output} ({alerts}, {counted(len(page), 'byte')}).")
    elif json:
        typer.echo(made.as_json())
    else:
        rows = (alert._asdict() for alert in join_alerts(made.alerts))
        show("alerts", Listing(_REPORT_COLUMNS, rows))
        typer.echo("-o report.html writes a page with charts.")


def metrics(
    root: Root,
    topic: Annotated[str | None, typer.Argument()] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    push: str | None = None,
) -> None:
    """Print the figures of a lake as Prometheus text, write them to a file, or push them.

    Args:
        topic: Only this topic. Default: all topics.
        output: File to write. It is replaced in one step.
        push: URL of a Prometheus push gateway.

    Example:
        seglake metrics ./lake -o /var/lib/node_exporter/seglake.prom
    """
    from seglake.reporting import metrics as exported
    from seglake.reporting.report import report

    if output is not None and push is not None:
        raise UsageError("--output contradicts --push. Keep one")
    figures = report(root, topic)
    if output is not None:
        exported.write_file(figures, output)
    elif push is not None:
        exported.push(figures, push)
    else:
        typer.echo(exported.prometheus_text(figures), nl=False)
