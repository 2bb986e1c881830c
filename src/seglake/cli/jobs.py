"""`seglake jobs`: the files that spark-submit takes."""

from pathlib import Path
from typing import Annotated

import typer

import seglake
from seglake.cli.arguments.options import Json
from seglake.errors import UsageError
from seglake.terminal.tables import Column, Listing, show


def jobs(
    name: Annotated[str | None, typer.Argument(help="Print only this job's file.")] = None,
    json: Json = False,
) -> None:
    """Show the files of the jobs, for spark-submit.

    Examples:
        seglake jobs
        seglake jobs ingest > ingest.py
    """
    if name is not None:
        typer.echo(job_file(name))
        return
    show("jobs", job_rows(), as_json=json)


def job_files() -> dict[str, Path]:
    """The file of each job, by its name."""
    folder = Path(seglake.__file__).resolve().parent / "jobs"
    return {path.stem: path for path in sorted(folder.glob("[a-z]*.py"))}


def job_file(name: str) -> Path:
    """The file of one job. Raises UsageError for an unknown one."""
    files = job_files()
    if name not in files:
        raise UsageError(f"there is no job {name!r}; there are {', '.join(files)}")
    return files[name]


def job_rows() -> Listing:
    """A row for each job."""
    columns = [Column("job", "job"), Column("module", "module"), Column("file", "file")]
    rows = (
        {"job": name, "module": f"seglake.jobs.{name}", "file": str(file)}
        for name, file in job_files().items()
    )
    return Listing(columns, rows)
