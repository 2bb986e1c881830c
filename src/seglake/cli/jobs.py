"""`seglake jobs`: the files that spark-submit takes."""

from pathlib import Path

import seglake
from seglake.cli.terminal.tables import Column, Rows
from seglake.errors import UsageError


def job_files() -> dict[str, Path]:
    """The file of each job, by its name."""
    folder = Path(seglake.__file__).resolve().parent / "jobs"
    return {path.stem: path for path in sorted(folder.glob("[a-z]*.py"))}


def job_file(name: str) -> Path:
    """The file of one job. Raises UsageError for an unknown one."""
    known = job_files()
    if name not in known:
        raise UsageError(f"there is no job {name!r}; there are {', '.join(known)}")
    return known[name]


def job_rows() -> Rows:
    """A row for each job."""
    columns = [Column("job", "job"), Column("module", "module"), Column("file", "file")]
    rows = (
        {"job": name, "module": f"seglake.jobs.{name}", "file": str(file)}
        for name, file in job_files().items()
    )
    return Rows(columns, rows)
