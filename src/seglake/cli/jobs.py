"""Define the command `jobs`, which lists the files for spark-submit."""

from pathlib import Path
from typing import Annotated

import typer

import seglake
from seglake.cli.arguments.options import Json
from seglake.errors import UsageError
from seglake.terminal.tables import Column, Listing, show


def jobs(name: Annotated[str | None, typer.Argument()] = None, json: Json = False) -> None:
    """Show the files of the jobs, for spark-submit.

    Args:
        name: Print only this job's file.

    Examples:
        seglake jobs
        seglake jobs ingest > ingest.py
    """
    folder = Path(seglake.__file__).resolve().parent / "jobs"
    files = {path.stem: str(path) for path in sorted(folder.glob("[a-z]*.py"))}
    if name is None:
        columns = [Column("job", "job"), Column("module", "module"), Column("file", "file")]
        rows = [
            {"job": job, "module": f"seglake.jobs.{job}", "file": file}
            for job, file in files.items()
        ]
        show("jobs", Listing(columns, rows), as_json=json)
    elif name in files:
        typer.echo(files[name])
    else:
        raise UsageError(f"unknown job {name!r}. The jobs are {', '.join(files)}")
