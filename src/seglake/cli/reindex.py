"""`seglake reindex`, also the job: a topic's index files are written anew."""

# ruff: noqa: PLC0415  # a command imports when it runs; an option is an argument

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import Json, Root, Topic
from seglake.cli.terminal.job import Job
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import show_report
from seglake.errors import UsageError

if TYPE_CHECKING:
    from seglake.format.index import IndexPolicy


def reindex(
    context: typer.Context,
    root: Root,
    topic: Topic,
    partition: Annotated[list[int] | None, typer.Option(help="Repeatable; default all.")] = None,
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
    from seglake.maintain.health.reindex import reindex as write_indexes

    intervals = {
        "bytes": index_interval_bytes,
        "records": index_interval_records,
        "ms": index_interval_ms,
    }
    policy = _policy_of(intervals)
    job: Job | None = context.obj
    spark = job.session() if job else None
    with bar("indexing", job) as progress:
        report = write_indexes(
            root, topic, policy, partitions=partition, spark=spark, progress=progress
        )
    if json:
        print(report.as_json())
    else:
        show_report("reindex", report.as_dict())
    raise typer.Exit(report.exit_code)


def _policy_of(intervals: Mapping[str, int | None]) -> IndexPolicy | None:
    """The index policy that is asked for; None keeps that of each segment. Raises UsageError."""
    from seglake.format.index import IndexPolicy

    policies = [IndexPolicy(unit, size) for unit, size in intervals.items() if size is not None]
    if len(policies) > 1:
        raise UsageError(
            "several index intervals contradict each other: keep one of --index-interval-bytes, "
            "--index-interval-records and --index-interval-ms"
        )
    return policies[0] if policies else None
