"""`seglake replay`: a window of a topic, written into a real Kafka."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

import seglake
from seglake.cli.terminal.output import log_lines
from seglake.cli.terminal.tables import Rows, number, show
from seglake.errors import ConfigError, UsageError
from seglake.extras import extra
from seglake.pace import told_every
from seglake.replay.tempo import Tempo

with extra("replay", "`seglake replay`"):
    from seglake.replay.run import partition_rows, replay
    from seglake.replay.target import Target

_LINE_S = 5.0  # between two lines about the progress

_COLUMNS = [
    number("partition", "partition"),
    number("records", "records sent"),
    number("resumed_after", "resumed after offset"),
]


def tempo_of(speed: float | None, max_rate: int | None) -> Tempo:
    """How fast the replay goes. Raises UsageError."""
    if speed is not None and not 0 < speed < float("inf"):
        raise UsageError(f"--speed {speed} is no speed: write 1 for as fast as it was, 10, 0.5 …")
    return Tempo(speed, max_rate)


def target_of(servers: str, topic: str, client_conf: Path | None) -> Target:
    """The topic that the replay goes to. Raises ConfigError."""
    return Target(servers, topic, {} if client_conf is None else _settings(client_conf))


def _settings(file: Path) -> dict[str, str]:
    """Lines key=value; # begins a comment."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    settings = dict[str, str]()
    for number_, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{file}: line {number_} is not of the form key=value")
        settings[key.strip()] = value.strip()
    return settings


def run(
    root: str,
    topic: str,
    version: int | None,
    window: tuple[str | None, str | None],
    target: Target,
    tempo: Tempo,
    name: str | None,
    *,
    as_json: bool,
) -> None:
    """Replay, with lines about the progress on standard error, and show what was sent."""
    start, end = window
    if start is None or end is None:
        raise UsageError("a replay needs --start and --end, or --last")
    log = seglake.open(root, version).topic(topic)
    with log_lines(), told_every(_LINE_S):
        report = replay(log, start, end, target, name=name, tempo=tempo)
    rows = list(partition_rows(report))
    if as_json:
        document = {**asdict(report), "records": report.records, "partitions": rows}
        del document["sent"], document["resumed_after"]
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    show(f"{report.records:,} records sent to {report.target}", Rows(_COLUMNS, rows))
