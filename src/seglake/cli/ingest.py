"""`seglake ingest`, also the job: the files that a pipeline names become records."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # a command imports when it runs; an option is an argument

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import Conf, Json, Local, Master, RunId, Source
from seglake.cli.terminal.progress import in_threads, on_spark
from seglake.cli.terminal.tables import show_report
from seglake.errors import UsageError

if TYPE_CHECKING:
    from seglake.write.driver.report import Report


def ingest(
    context: typer.Context,
    conf_file: Conf,
    run_id: RunId = None,
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
    local: Local = False,
    json: Json = False,
) -> None:
    """Ingest what a pipeline file names: with Spark, or without it on this machine."""
    from seglake.config import load
    from seglake.reporting.run import reported

    changes = {"pipeline.root": root, "input.paths": source or None}
    settings = {name: value for name, value in changes.items() if value is not None}
    pipeline, interval = load(conf_file, settings), (interval_start, interval_end)
    if replace or replace_interval:
        work = _replacement(run_id, whole_interval=replace_interval, nothing=replace_with_nothing)
    else:
        work = _plain_run(run_id, nothing=replace_with_nothing)
    where: dict[str, Any] = {"master": master, "local": local}
    steps = in_threads if local else on_spark
    with steps(context.obj) as progress, reported(pipeline, interval) as run:
        run.report = work(pipeline, interval=interval, progress=progress, **where)
    print_report(run.report, pipeline.root, as_json=json)
    raise typer.Exit(run.report.exit_code)


def _plain_run(run_id: str | None, *, nothing: bool) -> Callable[..., Report]:
    from seglake.write.api import run_pipeline

    if nothing:
        raise UsageError(
            "--replace-with-nothing needs --replace or --replace-interval, which say what is "
            "replaced"
        )
    return partial(run_pipeline, run_id=run_id)


def _replacement(
    run_id: str | None, *, whole_interval: bool, nothing: bool
) -> Callable[..., Report]:
    from seglake.maintain.replace import replace

    if run_id is None:
        raise UsageError("--replace needs --run-id: the run that is replaced")
    return partial(replace, run_id=run_id, whole_interval=whole_interval, with_nothing=nothing)


def print_report(report: Report, root: str, *, as_json: bool, title: str = "ingest") -> None:
    """Print the report of a run; for people with the lake, and without empty values."""
    if as_json:
        print(report.as_json())
        return
    fields = {"lake": _lake(report, root), **report.as_dict()}
    print(fields.pop("summary"))
    show_report(title, fields)


def _lake(report: Report, root: str) -> str:
    """The whole path of the lake, and whether this run made it."""
    from seglake.store import open_store

    made = report.status == "committed" and report.version == 1  # version 0 is empty
    return f"{open_store(root).uri}{', a new lake' * made}"
