"""`seglake redrive`, also the job: rejects of a run become records."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Local, Master
from seglake.cli.ingest import print_report
from seglake.cli.terminal.progress import in_threads, on_spark
from seglake.errors import UsageError


def redrive(
    context: typer.Context,
    run_id: Annotated[str, typer.Option(help="The run whose rejects are ingested.")],
    conf_file: Annotated[Path, typer.Option(help="A TOML file with corrected settings.")],
    root: Annotated[str | None, typer.Argument(help="The lake; default the file's.")] = None,
    topic: Annotated[str | None, typer.Argument(help="The topic; it must be the file's.")] = None,
    dry_run: DryRun = False,
    master: Master = None,
    local: Local = False,
    json: Json = False,
) -> None:
    """Ingest rows that a run rejected, with corrected settings: with Spark, or without it."""
    from seglake.config import load
    from seglake.write.api import redrive_run

    pipeline = load(conf_file, {} if root is None else {"pipeline.root": root})
    if topic not in {None, pipeline.topic.name}:
        raise UsageError(
            f"{conf_file} is for the topic {pipeline.topic.name!r}, not {topic!r}: correct one"
        )
    with (in_threads if local else on_spark)(context.obj) as progress:
        report = redrive_run(
            pipeline, run_id, dry_run=dry_run, master=master, local=local, progress=progress
        )
    print_report(report, pipeline.root, as_json=json, title="redrive")
    raise typer.Exit(report.exit_code)
