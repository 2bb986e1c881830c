"""The commands of `seglake`: each turns its options into one call and shows the result.

A command imports what it needs when it runs, so `seglake --help` answers at once.
"""

# ruff: noqa: A002, PLC0415, PLR0913, PLR0917  # see above; an option is an argument of its name

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import (
    Conf,
    DryRun,
    Json,
    Master,
    Partition,
    Root,
    Source,
    Topic,
    Version,
    Zone,
)
from seglake.cli.kafka.archive import live
from seglake.cli.kafka.commands import broker
from seglake.cli.kafka.replay import sending
from seglake.cli.lifecycle.commands import lifecycle
from seglake.cli.serve import server
from seglake.cli.terminal.tables import show

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(live)
app.add_typer(broker)
app.add_typer(lifecycle)
app.add_typer(sending)
app.add_typer(server)


class Format(StrEnum):
    """How `read` writes records."""

    JSONL = "jsonl"
    TABLE = "table"
    ARROW = "arrow"
    PARQUET = "parquet"


class Order(StrEnum):
    """In which order `read` gives a window."""

    OFFSET = "offset"
    TIME = "time"


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version of this program.")
    ] = False,
) -> None:
    """Seekable, Kafka-format event logs on shared storage."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"seglake {version_of('seglake')}")
        raise typer.Exit


@app.command()
def demo(
    root: Annotated[Path, typer.Argument(help="Where the lake goes.")] = Path("demo-lake"),
    events: Annotated[Path, typer.Option(help="Where the events go.")] = Path("demo-events"),
    count: Annotated[int, typer.Option(min=1000, help="How many events to make.")] = 1_000_000,
) -> None:
    """Generate events, ingest them with Spark, and look some up."""
    from seglake.cli.demo.run import run

    run(root, events, count)


@app.command()
def jobs(
    name: Annotated[str | None, typer.Argument(help="Print only this job's file.")] = None,
    json: Json = False,
) -> None:
    """Show the files of the jobs, for spark-submit."""
    from seglake.cli.jobs import job_file, job_rows

    if name is not None:
        typer.echo(job_file(name))
        return
    show("jobs", job_rows(), as_json=json)


@app.command()
def warm() -> None:
    """Compile every kernel now, so that nobody waits for it later. No Spark, no Java."""
    from runpy import run_module

    run_module("seglake.warm", run_name="__main__")  # above this layer: it warms this one, too


@app.command()
def check(
    conf_file: Conf,
    sample: Annotated[int, typer.Option(min=1, max=10_000, help="How many rows to show.")] = 20,
    source: Source = None,
    json: Json = False,
) -> None:
    """Show which files a pipeline reads and what becomes of some rows. Nothing is written.

    Exit code 3 if a row is rejected, or if times of January 1970 would stop a run.
    """
    from seglake.cli.check import run

    changes = {} if not source else {"input.paths": source}
    raise typer.Exit(run(conf_file, changes, sample, as_json=json))


@app.command()
def topics(root: Root, version: Version = None, json: Json = False) -> None:
    """List the topics of a lake."""
    import seglake
    from seglake.cli.catalog import topic_rows

    show("topics", topic_rows(seglake.open(root, version)), as_json=json)


@app.command()
def segments(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """List the segments of a topic."""
    import seglake
    from seglake.cli.catalog import segment_rows

    log = seglake.open(root, version).topic(topic)
    show(f"segments of {topic}", segment_rows(log, partition), as_json=json)


@app.command()
def offsets(
    root: Root,
    topic: Topic,
    time: Annotated[
        str, typer.Option(help="ISO 8601 with a zone, epoch ms, earliest, latest or max-timestamp.")
    ],
    zone: Zone = None,
    partition: Partition = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Find the first record at a time or later, in each partition."""
    import seglake
    from seglake.cli.arguments.times import absolute
    from seglake.cli.catalog import offset_rows

    log = seglake.open(root, version).topic(topic)
    rows = offset_rows(log, absolute(time, zone) or time, partition)
    show(f"offsets of {topic} at {time}", rows, as_json=json)


@app.command()
def history(
    root: Root,
    topic: Annotated[str | None, typer.Option(help="One topic.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Instead: attempts that failed, with their run ids.")
    ] = False,
    json: Json = False,
) -> None:
    """List the runs that were committed, and what maintenance committed, oldest first."""
    import seglake
    from seglake.cli.catalog import history_rows
    from seglake.cli.runs import failed_rows

    if failed:
        show("failed attempts", failed_rows(root, topic), as_json=json)
        return

    lake = seglake.open(root)
    rows = history_rows([*lake.history(topic), *lake.maintenance(topic)], as_json=json)
    show("commits", rows, as_json=json)


@app.command()
def report(
    root: Root,
    topic: Annotated[str | None, typer.Argument(help="One topic; without it all.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the page to this file.")
    ] = None,
    list_objects: Annotated[
        bool | None, typer.Option(help="Also list all objects, for what a vacuum would free.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a lake looks like: alerts here, with -o one page that needs no network.

    It is made from the catalog and zone maps; no record is read.
    """
    from seglake.cli import report as shown

    shown.report(root, topic, output, list_objects=list_objects, as_json=json)


@app.command()
def metrics(
    root: Root,
    topic: Annotated[str | None, typer.Argument(help="One topic; without it all.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file, replaced as a whole.")
    ] = None,
    push: Annotated[str | None, typer.Option(help="The URL of a Prometheus push gateway.")] = None,
) -> None:
    """Print the figures of a lake as Prometheus text, write them to a file, or push them."""
    from seglake.cli import report as shown

    shown.metrics(root, topic, output, push)


@app.command()
def run_status(
    root: Root,
    topic: Topic,
    run_id: Annotated[str, typer.Option(help="The run's id.")],
    pipeline: Annotated[str | None, typer.Option(help="If several have this run id.")] = None,
    json: Json = False,
) -> None:
    """Say what became of a run: exit code 0 committed, 3 rejected too much, 1 failed or unknown."""
    from json import dumps

    from seglake.cli.runs import Runs, exit_code_of, status_rows

    status = Runs(root, topic).status(run_id, pipeline)
    if json:
        typer.echo(dumps(status, ensure_ascii=False))
    else:
        show(f"run {run_id}", status_rows(status), as_json=False)
    raise typer.Exit(exit_code_of(status))


@app.command()
def quarantine(
    root: Root,
    topic: Topic,
    run_id: Annotated[
        str | None, typer.Option(help="Rejects of this run; a sample if it failed.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="At most this many rows; default 20, with --json all.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the rows that were rejected: file, line, reason and bytes.

    A sample has rows of every reason and of many files, and says what it leaves out.
    """
    from seglake.cli.runs import Runs

    Runs(root, topic).rejects(run_id).show(limit, as_json=json)


@app.command()
def read(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    offset: Annotated[int | None, typer.Option(help="From this offset on.")] = None,
    max_records: Annotated[int | None, typer.Option(min=0, help="Stop after this many.")] = None,
    start: Annotated[str | None, typer.Option(help="From this time on.")] = None,
    end: Annotated[str | None, typer.Option(help="Up to this time, exclusive.")] = None,
    last: Annotated[
        str | None, typer.Option(help="The time up to now, as in 90s, 15m, 1h, 2d or 1w.")
    ] = None,
    zone: Zone = None,
    order: Annotated[Order | None, typer.Option(help="Order of a window; default offset.")] = None,
    format: Annotated[Format | None, typer.Option(help="How to write; default jsonl.")] = None,
    output: Annotated[Path | None, typer.Option(help="A file; default standard output.")] = None,
    version: Version = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what would be read, and read nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Read records: from an offset, in a window of time, or all.

    A record without a timestamp is in no window; where all are read by time, it comes first.
    """
    import seglake
    from seglake.cli import records
    from seglake.cli.arguments.times import window

    start, end = window(start, end, last, zone)
    how = {"--format": format, "--order": order, "--max-records": max_records, "--output": output}
    records.check_options(how, explain=explain, as_json=json)
    log = seglake.open(root, version).topic(topic)
    wanted = records.Wanted(partition, offset, start, end, order or "offset")
    if explain:
        show("byte ranges", records.plan_rows(records.plan(log, wanted)), as_json=json)
        return
    records.write(log, wanted, format or "jsonl", max_records, output)
    records.tell_newest(log, partition, start, last)


@app.command()
def dump(
    file: Annotated[str, typer.Argument(help="A .log, .index, .timeindex or .zonemap file.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Print a .log's records as JSON lines.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a segment's file as text, whatever wrote it."""
    from seglake.cli.dump import dump_file

    dump_file(file, deep=deep, as_json=json)


@app.command()
def ingest(
    conf_file: Conf,
    run_id: Annotated[str | None, typer.Option(help="Makes a repeated run the same run.")] = None,
    source: Source = None,
    root: Annotated[str | None, typer.Option(help="The lake, instead of the file's.")] = None,
    interval_start: Annotated[str | None, typer.Option(help="Start of what it covers.")] = None,
    interval_end: Annotated[str | None, typer.Option(help="Its end, exclusive.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what the run ingested before.")
    ] = False,
    replace_interval: Annotated[
        bool, typer.Option("--replace-interval", help="… and the pipeline's runs in the interval.")
    ] = False,
    replace_with_nothing: Annotated[
        bool, typer.Option("--replace-with-nothing", help="… even if nothing takes its place.")
    ] = False,
    master: Master = None,
    json: Json = False,
) -> None:
    """Ingest what a pipeline file names, with Spark."""
    from seglake.cli.ingest import run
    from seglake.maintain.replace import Replaces

    replaces: Replaces = "interval" if replace_interval else "run" if replace else None
    interval = (interval_start, interval_end)
    changes = {"pipeline.root": root, "input.paths": source or None}
    given = {name: value for name, value in changes.items() if value is not None}
    how = {"with_nothing": replace_with_nothing, "as_json": json}
    raise typer.Exit(run(conf_file, given, run_id, interval, replaces, master, **how))


@app.command()
def redrive(
    root: Root,
    topic: Topic,
    run_id: Annotated[str, typer.Option(help="The run whose rejects are ingested.")],
    conf_file: Annotated[Path, typer.Option(help="A TOML file with corrected settings.")],
    dry_run: DryRun = False,
    master: Master = None,
    json: Json = False,
) -> None:
    """Ingest rows that a run rejected, with corrected settings, with Spark."""
    from seglake.cli import ingest

    how = {"dry_run": dry_run, "as_json": json}
    raise typer.Exit(ingest.redrive(root, topic, run_id, conf_file, master, **how))


@app.command()
def verify(
    root: Root,
    topic: Annotated[list[str] | None, typer.Option(help="Some topics; default all.")] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Decode every record, rebuild every index.")
    ] = False,
    json: Json = False,
) -> None:
    """Check catalog, sizes and checksums; with --deep every record and index entry."""
    from seglake.cli import maintain

    raise typer.Exit(maintain.verify(root, topic, deep=deep, as_json=json))


@app.command()
def vacuum(
    root: Root,
    dry_run: DryRun = False,
    grace_hours: Annotated[float, typer.Option(help="Spare attempts younger than this.")] = 24.0,
    json: Json = False,
) -> None:
    """Remove objects that no retained version names: what dead attempts left."""
    from seglake.cli import maintain

    how = {"dry_run": dry_run, "as_json": json}
    raise typer.Exit(maintain.vacuum(root, grace_hours=grace_hours, **how))


@app.command()
def repair(
    root: Root,
    catalog: Annotated[
        bool, typer.Option("--catalog", help="Rebuild the catalog from manifests.")
    ] = False,
    dry_run: DryRun = False,
    trust: Annotated[
        list[str] | None, typer.Option(help="With --catalog: an attempt known as committed.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --catalog: even if it can be read.")
    ] = False,
    json: Json = False,
) -> None:
    """Make lost or damaged index files anew; with --catalog the catalog table."""
    from seglake.cli import maintain

    how = {"catalog": catalog, "dry_run": dry_run, "force": force, "as_json": json}
    raise typer.Exit(maintain.repair(root, trust=trust or [], **how))


@app.command()
def reindex(
    root: Root,
    topic: Topic,
    index_interval_bytes: Annotated[
        int | None, typer.Option(help="Bytes between entries; 0: an entry for every batch.")
    ] = None,
    index_interval_records: Annotated[
        int | None, typer.Option(help="Records between entries.")
    ] = None,
    index_interval_ms: Annotated[
        int | None, typer.Option(help="Milliseconds of event time between entries.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a topic's index files anew, at the same density or another."""
    from seglake.cli import maintain

    intervals = {
        "bytes": index_interval_bytes,
        "records": index_interval_records,
        "ms": index_interval_ms,
    }
    policy = maintain.policy_of(intervals)
    raise typer.Exit(maintain.reindex(root, topic, policy, as_json=json))
