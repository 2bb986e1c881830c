"""`seglake replay`: a window of a topic, written into a real Kafka."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # a command imports when it runs; an option is an argument

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import End, Json, Last, Root, Start, Topic, Version, Zone
from seglake.cli.arguments.window import window
from seglake.cli.kafka.groups import print_groups
from seglake.cli.terminal.output import log_lines
from seglake.cli.terminal.tables import Listing, show
from seglake.errors import UsageError
from seglake.extras import extra
from seglake.pace import line_every
from seglake.shown import counted, number

if TYPE_CHECKING:
    from seglake.replay.run import ReplayReport

_LINE_S = 5.0  # between two lines about the progress

_COLUMNS = [
    number("partition", "partition"),
    number("records", "records sent"),
    number("resumed_after", "resumed after offset"),
]


def replay(
    root: Root,
    topic: Topic,
    to: Annotated[str, typer.Option(help="The Kafka it goes to: HOST:PORT,…")],
    start: Start = None,
    end: End = None,
    last: Last = None,
    zone: Zone = None,
    speed: Annotated[
        float | None, typer.Option(help="10 is ten times as fast as it was; default: no waiting.")
    ] = None,
    max_rate: Annotated[
        int | None, typer.Option(min=1, help="At most so many records a second.")
    ] = None,
    new_topic: Annotated[
        str | None, typer.Option("--topic", help="The topic there; default the same name.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the replay; another name sends everything again.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="A group of the archive that goes on there; repeatable."),
    ] = None,
    kafka: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for librdkafka; repeatable.")
    ] = None,
    kafka_file: Annotated[
        Path | None, typer.Option(help="A properties file with more of them.")
    ] = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Write a window into a real Kafka: every record once, also after a kill, at any speed."""
    import seglake
    from seglake.config.client_settings import client_settings

    with extra("replay", "`seglake replay`"):
        from seglake.replay.run import replay_window
        from seglake.replay.target import Target
    from seglake.replay.run import Tempo

    start, end = window(start, end, last, zone)
    if start is None or end is None:
        raise UsageError("a replay needs --start and --end, or --last")
    if speed is not None and not 0 < speed < float("inf"):
        raise UsageError(f"--speed {speed} is no speed: write 1 for as fast as it was, 10, 0.5 …")
    target = Target(to, new_topic or topic, client_settings(kafka or [], kafka_file))
    log = seglake.open(root, version).topic(topic)
    with log_lines(), line_every(_LINE_S):
        report = replay_window(
            log, start, end, target, name=name, tempo=Tempo(speed, max_rate), groups=group or []
        )
    _show(report, as_json=json)


def _show(report: ReplayReport, *, as_json: bool) -> None:
    rows = list(report.partitions())
    if not as_json:
        records = counted(report.records, "record")
        show(f"{records} sent to {report.target}", Listing(_COLUMNS, rows))
        print_groups(report.groups)
        return
    document = {**asdict(report), "records": report.records, "partitions": rows}
    del document["sent"], document["resumed_after"]
    typer.echo(dumps(document, ensure_ascii=False))
