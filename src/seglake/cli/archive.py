"""`seglake archive`: take what is new in topics of a broker into the lake."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seglake.cli.ingest import on_spark
from seglake.cli.terminal.tables import Column, Rows, show


def run(
    root: str,
    topics: Sequence[str],
    bootstrap: str,
    options: tuple[Sequence[str], Path | None],
    run_id: str | None,
    master: str | None,
    *,
    as_json: bool,
) -> int:
    """Archive the topics; `options` are pairs for Kafka's clients, and a properties file.

    Returns the exit code.
    """
    from seglake.write.live.archive import archive
    from seglake.write.live.broker import kafka_options

    given = kafka_options(bootstrap, *options)
    with on_spark() as progress:
        report = archive(root, topics, given, run_id=run_id, master=master, progress=progress)
    if as_json:
        print(report.as_json())
        return report.exit_code
    columns = [
        Column("kafka_topic", "kafka topic"),
        Column("topic", "topic"),
        Column("summary", "result"),
    ]
    show("archive", Rows(columns, report.as_dict()["topics"]), as_json=False)
    return report.exit_code
