"""Define the commands `serve`, `import`, `attach`, `export` and `replay`, for Kafka."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # imports when a command runs; options are arguments

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import DryRun, End, Json, Last, Root, Start, Topic, Version, Zone
from seglake.cli.arguments.window import absolute, window
from seglake.cli.result import finish
from seglake.cli.terminal.output import log_lines
from seglake.cli.terminal.progress import display
from seglake.errors import StoreError, UsageError
from seglake.extras import extra
from seglake.terminal.progress import line_every
from seglake.terminal.tables import Column, Listing, number, show, size
from seglake.terminal.wording import counted

if TYPE_CHECKING:
    from seglake.kafka.importing import ImportResult

_EXPORT_COLUMNS = [
    Column("folder", "folder"),
    number("log_start_offset", "begins at"),
    number("end_offset", "ends at"),
    number("segments", "segments"),
    size("log_bytes", "bytes"),
]


def export(
    root: Root,
    topic: Topic,
    dest: str,
    start: str | None = None,
    end: str | None = None,
    zone: Zone = None,
    topic_id: str | None = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Write a topic as partition folders that a broker mounts, each record at its offset.

    Args:
        dest: An empty folder: path or URI.
        start: Only records at or after this time.
        end: Only records before this time.
        topic_id: The topic's id on the broker, for partition.metadata.

    Example:
        seglake export ./lake web ./kafka-logs --start 2026-11-20T10:00Z
    """
    from seglake.kafka.exporting import export_logs

    start, end = absolute(start, zone), absolute(end, zone)
    with display("exporting") as shown:
        report = export_logs(
            root, topic, dest, start=start, end=end, topic_id=topic_id, version=version,
            progress=shown.amount,
        )  # fmt: skip
    parts = Listing(_EXPORT_COLUMNS, [part.as_dict() for part in report.partitions])
    title = f"{report.topic}, version {report.version}, for a broker"
    finish(report, lambda _: show(title, parts), as_json=json)


_IMPORTED = [
    Column("topic", "topic"),
    number("partition", "partition"),
    number("start_offset", "from"),
    number("end_offset", "up to"),
    number("segments", "segments"),
    size("log_bytes", "bytes"),
    number("aborted_transactions", "aborted"),
]

_GONE = 3  # limit of the objects that a line names


def import_(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...")],
    root: Annotated[str, typer.Option()],
    topic: str | None = None,
    name: str | None = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import logs of a stopped broker, or copies, at the same offsets. Later calls add new records.

    Args:
        sources: A log.dir, a folder TOPIC-PARTITION, or a bucket of tiered storage.
        root: The lake: a path or URI. It is created if it does not exist.
        topic: Only this topic. Default: all topics except internal ones.
        name: Name of the topic in the lake. Only valid for a single topic.

    Example:
        seglake import /var/kafka-logs --root ./lake --topic web
    """
    from seglake.kafka.importing import import_logs

    with display("reading logs") as shown:
        reports = import_logs(
            root, sources, topic=topic, name=name, dry_run=dry_run, progress=shown.amount
        )
    _show_logs(reports, as_json=json)


def attach(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...")],
    root: Annotated[str, typer.Option()],
    topic: list[str] | None = None,
    name: str | None = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Attach logs in tiered storage without copying them. Later calls attach only new segments.

    Args:
        sources: A folder or a key prefix in a bucket of tiered storage.
        root: The lake: a path or URI. It is created if it does not exist.
        topic: Only this topic. Repeatable. Default: all topics except internal ones.
        name: Name of the topic in the lake. Only valid for a single topic.

    Example:
        seglake attach s3://bucket/tiered --root ./lake --dry-run
    """
    from seglake.kafka.attach import attach_logs

    with display("reading logs") as shown:
        reports = attach_logs(
            root, sources, topic=topic or None, name=name, dry_run=dry_run, progress=shown.amount
        )
    _show_logs(reports, as_json=json)
    raise typer.Exit(int(any(report.refused or report.gone for report in reports)))


def _show_logs(reports: list[ImportResult], *, as_json: bool) -> None:
    """Print the offsets that were imported, or would be."""
    if as_json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return
    new = []
    for report in reports:
        for note in _notes(report):
            print(f"seglake: {note}", file=sys.stderr)
        parts = [part for part in report.partitions if part.end_offset > part.start_offset]
        new += [{"topic": report.topic, **part.as_dict()} for part in parts]
    if not new:
        amiss = any(report.refused or report.gone for report in reports)
        print("Found no other new records." if amiss else "Found no new records.")
        return
    would = any(report.dry_run for report in reports)
    show("offsets to import" if would else "imported offsets", Listing(_IMPORTED, new))
    records = sum(report.records for report in reports)
    size = sum(report.new_log_bytes for report in reports)
    print(f"{counted(records, 'record')}, {counted(size, 'byte')} of log")


def _notes(report: ImportResult) -> Iterator[str]:
    """Yield notes about an imported topic, for standard error."""
    yield from report.notes
    if report.refused:
        yield f"topic {report.topic!r} was left out: {report.refused}"
    if count := len(report.gone):
        are = "are" if count > 1 else "is"
        named = f"{', '.join(report.gone[:_GONE])}{', …' * (count > _GONE)}"
        yield (
            f"{counted(count, 'object')} of topic {report.topic!r} {are} missing from the bucket, "
            f"and reads of the records in them fail: {named}. Set the topic's retention in the "
            f"lake below the broker's"
        )


_LINE_S = 5.0  # interval between two lines about the progress

_REPLAY_COLUMNS = [
    number("partition", "partition"),
    number("records", "records sent"),
    number("resumed_after", "resumed after offset"),
]


def replay(
    root: Root,
    topic: Topic,
    to: Annotated[str, typer.Option()],
    start: Start = None,
    end: End = None,
    last: Last = None,
    zone: Zone = None,
    speed: float | None = None,
    new_topic: Annotated[str | None, typer.Option("--topic")] = None,
    name: str | None = None,
    kafka: list[str] | None = None,
    kafka_file: Path | None = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Write a window into a real Kafka, each record exactly once, even after a kill.

    Args:
        to: Bootstrap servers of the target Kafka: HOST:PORT,…
        speed: 1 keeps the original pace, 10 is ten times as fast. Default: as fast as possible.
        new_topic: Name of the target topic. Default: the name of the topic in the lake.
        name: Name of the replay. Another name sends everything again.
        kafka: KEY=VALUE, a setting of librdkafka. Repeatable.
        kafka_file: A properties file with more Kafka settings.

    Example:
        seglake replay ./lake web --to broker:9092 --last 1h --speed 10
    """
    import seglake

    with extra("replay", "`seglake replay`"):
        from seglake.replay.run import Tempo, replay_window
        from seglake.replay.target import Target

    start, end = window(start, end, last, zone)
    if start is None or end is None:
        raise UsageError("a replay needs --start and --end, or --last")
    if speed is not None and not 0 < speed < float("inf"):
        pace = "1 is the original speed, 10 is ten times as fast"
        raise UsageError(f"--speed must be a finite number above 0, not {speed}. {pace}")
    target = Target(to, new_topic or topic, _client_settings(kafka or [], kafka_file))
    log = seglake.open(root, version).topic(topic)
    with log_lines(), line_every(_LINE_S):
        report = replay_window(log, start, end, target, name=name, tempo=Tempo(speed))
    rows, records = list(report.partitions()), counted(report.records, "record")
    if not json:
        show(f"{records} sent to {report.target}", Listing(_REPLAY_COLUMNS, rows))
        return
    document = {**asdict(report), "records": report.records, "partitions": rows}
    del document["sent"], document["resumed_after"]
    typer.echo(dumps(document, ensure_ascii=False))


def _client_settings(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Return the settings of the file and of the pairs. A pair overrides the file.

    In the file, # and ! begin a comment, and a backslash at the end of a line continues it.

    Raises:
        UsageError: A setting has another form than KEY=VALUE, or the file cannot be read.
    """
    try:
        text = "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the properties file {file} cannot be read: {error}") from error
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    settings = {}
    for pair in [*(line for line in lines if line and line[0] not in "#!"), *pairs]:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            # The message does not quote the setting, which may be a secret.
            what = "a setting of --kafka or --kafka-file is not of the form KEY=VALUE"
            raise UsageError(f"{what}. Correct it")
        settings[key.strip()] = value.strip()
    return settings


def serve(
    root: Root,
    listen: str | None = None,
    advertise: str | None = None,
    topics: str | None = None,
    listed: Annotated[list[str] | None, typer.Option("--list")] = None,
    conf_file: Path | None = None,
    insecure: bool = False,
) -> None:
    """Serve the lake read-only to Kafka clients.

    Log lines go to standard error.

    Args:
        listen: Address to listen on. Default: 127.0.0.1:9092.
        advertise: Address that clients connect to. Default: the listen address.
        topics: Topics to serve, separated by commas. Default: all topics.
        listed: A window, version or tag to list as a topic: web.v12, 'web.q3-*'. Repeatable.
        conf_file: A settings file (TOML).
        insecure: Accept connections of other machines without TLS and SASL.

    Examples:
        seglake serve ./lake
        seglake serve s3://bucket/lake --conf-file server.toml --topics web,users
        seglake serve ./lake --list web.v12 --list 'web.q3-*'
    """
    import logging

    from seglake.serve.settings import load

    with extra("serve", "`seglake serve`"):
        from seglake.serve import run
    names = [*filter(None, topics.split(","))] if topics else None
    opts = {"listen": listen, "advertise": advertise, "topics": names, "insecure": insecure or None}
    opts["list"] = listed or None
    settings = load(conf_file, {f"server.{key}": v for key, v in opts.items() if v is not None})
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run.serve_lake(root, settings, started=lambda at: typer.echo(f"serving {root} at {at}"))
    except OSError as error:
        why, *_ = str(error.strerror or error).split(" (while ")  # the rest repeats the address
        where = settings.server.listen
        raise StoreError(f"cannot listen at {where} ({why}). Give another --listen") from None
