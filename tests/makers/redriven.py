"""Input for redrives in every format, and which of its rows some settings make records of.

Every row has a number of its own and any of the times `a`, `b` and `c`; settings read one of them.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.catalog.quarantine.open_rejects import open_attempts
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.config import Pipeline
from seglake.engine import Engine, LocalEngine
from seglake.errors import UsageError
from seglake.write.driver.redrive import RedriveReport, redrive
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import TINY, T, read_lake

TIMES = ("a", "b", "c")
PATTERN = r"n=(?P<n>\S+)(?: a=(?P<a>\d+))?(?: b=(?P<b>\d+))?(?: c=(?P<c>\d+))?$"
INPUT: Mapping[str, dict[str, Any]] = {
    "jsonl": {},
    "csv": {},
    "text": {"pattern": PATTERN},
    "parquet": {},
}
FROM_RAW = ("jsonl", "text")  # formats whose rows can be made of their raw bytes


class Event(NamedTuple):
    """A row: which times it has; one without any may be broken, or have several lines."""

    times: str
    broken: bool = False
    long: bool = False


@dataclass
class File:
    """A file as it was written, with the line of each of its rows."""

    path: Path
    form: str
    events: Sequence[Event]
    lines: list[int] = field(default_factory=list)

    def rows(self) -> dict[tuple[str, int], str]:
        """The times that each row can be read by; a broken one by none."""
        return {
            (str(self.path), line): "" if event.broken and self.form != "parquet" else event.times
            for event, line in zip(self.events, self.lines, strict=True)
        }

    @property
    def _aside(self) -> Path:
        return self.path.parent.parent / f"aside-{self.path.name}"

    @property
    def is_there(self) -> bool:
        """Whether the file is the one that was written."""
        return not self._aside.exists()

    def take_away(self, *, change: bool) -> None:
        """Put the file aside, or another one in its place."""
        if self.is_there:
            self.path.rename(self._aside)
            if change:
                self.path.write_bytes(self._aside.read_bytes() + b"\n")

    def bring_back(self) -> None:
        if not self.is_there:
            self._aside.replace(self.path)


def write(path: Path, form: str, events: Sequence[Event], *, packed: bool = False) -> File:
    """A file of these rows; rows are numbered `<name>:<number>`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = File(path, form, events)
    if form == "parquet":
        file.lines = list(range(1, len(events) + 1))
        columns: dict[str, Any] = {"n": [f"{path.name}:{line}" for line in file.lines]}
        for name in TIMES:
            columns[name] = pa.array([T if name in e.times else None for e in events], pa.int64())
        pq.write_table(pa.table(columns), path, row_group_size=4)
        return file
    text = "n,a,b,c,m\n" if form == "csv" else ""
    for event in events:
        file.lines.append(text.count("\n") + 1)
        text += _line(form, f"{path.name}:{file.lines[-1]}", event) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return file


def _line(form: str, name: str, event: Event) -> str:
    if event.broken:
        return {"jsonl": "{" + name, "csv": name, "text": "?" + name}[form]
    if form == "jsonl":
        return json.dumps({"n": name, **dict.fromkeys(event.times, T)})
    if form == "text":
        return " ".join([f"n={name}", *(f"{each}={T}" for each in event.times)])
    times = ",".join(str(T) if each in event.times else "" for each in TIMES)
    last = "two\nlines" if event.long else "one"
    return f'{name},{times},"{last}"'


def pipeline_of(root: Path, paths: Sequence[Path], form: str, time: str, **more: Any) -> Pipeline:
    """Settings that read the time of this name."""
    tables: dict[str, Any] = {
        "name": "test", "root": str(root), "max_quarantine_ratio": 0.999, "task": TINY,
        "timestamp": {"field": time, "format": "epoch_ms", "allow_1970": True},
        "topic": {"name": "events", "partitions": 2, "batch.size": 300},
    }  # fmt: skip
    given = {"paths": [str(path) for path in paths], "format": form, **INPUT[form]}
    return Pipeline.model_validate({**tables, **more, "input": {**given, **more.get("input", {})}})


def redriven(
    settings: Pipeline, run_id: str, *, dry_run: bool = False, engine: Engine | None = None
) -> RedriveReport:
    """One redrive, in this process."""
    return redrive(engine or LocalEngine(), settings, run_id, dry_run=dry_run)


def records(root: Path) -> Counter[str]:
    """How often each row is a record."""
    try:
        logs = read_lake(root).values()
    except UsageError:
        return Counter()
    values = (record.value for log in logs for record in log)
    names = (re.search(rb"[\w.]+:\d+", value or b"") for value in values)
    return Counter(name[0].decode() for name in names if name)


def open_rejects(root: Path) -> Counter[tuple[str, int]]:
    """Source file and line of every open reject of the topic."""
    catalog = open_catalog(str(root))
    attempts = open_attempts(catalog.rows.runs(catalog.snapshot(), "events"))
    found: Counter[tuple[str, int]] = Counter()
    for rows in QuarantineTable(catalog.store).read("events", attempts):
        sources, lines = (rows[name].to_pylist() for name in ("source_file", "line"))
        pairs: Any = zip(sources, lines, strict=True)
        found.update(pairs)
    return found
