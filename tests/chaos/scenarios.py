"""What is ingested while processes die, and what the lake may hold then."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from seglake.catalog.table import CatalogTable
from seglake.errors import UnknownTopic, UsageError
from seglake.layout import success_key
from seglake.store import open_store
from tests.chaos.victim import Job
from tests.raw_events import (
    TINY,
    Line,
    T,
    ingest,
    pipeline_of,
    quarantined,
    read_lake,
    read_raw,
    segments_of,
    write_file,
)

RUN, NEXT = "the run", "the next run"
State = dict[int, list[tuple[Any, ...]]]  # of each partition, what is the same in every attempt


class Shape(NamedTuple):
    """A kind of run; `first` is whether the lake is empty before it."""

    name: str
    order: str
    clock: str
    first: bool
    overtaken: bool


SHAPES = [
    Shape("into an empty lake", "time", "CreateTime", first=True, overtaken=False),
    Shape("in arrival order", "arrival", "CreateTime", first=False, overtaken=False),
    Shape("overtaken", "time", "CreateTime", first=False, overtaken=True),
    Shape("overtaken, append time", "arrival", "LogAppendTime", first=False, overtaken=True),
]


class Scenario:
    """Input files of one shape below `folder`, and what an undisturbed lake comes to hold."""

    def __init__(self, shape: Shape, folder: Path, chance: random.Random) -> None:
        self.shape, self._folder = shape, folder
        for name, files in {"before": 1, "run": 3, "overtaking": 1, "next": 1}.items():
            for number in range(files):
                _write_some(folder / name / f"{number}.jsonl", chance)
        lake = folder / "undisturbed"
        self.before = self._prepare(lake)
        self.overtaken = self.before
        if shape.overtaken:
            ingest(pipeline_of(**self._settings(lake, "overtaking")), "overtaking")
            self.overtaken = state_of(lake)
        ingest(pipeline_of(**self._settings(lake, "run")), RUN)
        self.after, self.segments = state_of(lake), boundaries_of(lake)
        self.rejects = quarantined(lake)
        ingest(pipeline_of(**self._settings(lake, "next")), NEXT)
        self.last = state_of(lake)

    def lake(self, name: str) -> Path:
        """A lake as it stands before the run, made anew."""
        path = self._folder / name
        shutil.rmtree(path, ignore_errors=True)
        self._prepare(path)
        return path

    def job(self, lake: Path, *, spark: bool = False) -> Job:
        """The run."""
        other = self._tables(lake, "overtaking") if self.shape.overtaken else None
        return Job(self._tables(lake, "run"), RUN, other, spark)

    def next_run(self, lake: Path) -> None:
        """A run after it, over its files too."""
        paths = [self._folder / "run", self._folder / "next"]
        report = ingest(pipeline_of(**self._settings(lake, "next") | {"paths": paths}), NEXT)
        assert report.input_files == 1
        assert len(report.skipped_files) == 3

    def assert_old_or_new(self, lake: Path) -> str:
        """What readers see after a kill; "old" or "new"."""
        found = state_of(lake)
        if found == self.after:
            return "new"
        assert found in (self.before, self.overtaken), "readers see something between"
        return "old"

    def assert_undisturbed(self, lake: Path) -> None:
        """After the rerun: records, boundaries, rejects, and marks of success."""
        assert state_of(lake) == self.after
        assert {p: log for p, log in read_lake(lake).items() if log} == read_raw(lake)
        assert boundaries_of(lake) == self.segments
        assert quarantined(lake) == self.rejects
        store, catalog = open_store(str(lake)), CatalogTable.open(str(lake))
        runs = catalog.runs(catalog.snapshot(), "events")
        assert len({run.run_id for run in runs}) == len(runs)
        for run in runs:
            assert store.size(success_key(run.attempt_id)) == 0

    def assert_last(self, lake: Path) -> None:
        """After the run that follows it."""
        assert state_of(lake) == self.last

    def _prepare(self, lake: Path) -> State:
        if not self.shape.first:
            ingest(pipeline_of(**self._settings(lake, "before")), "before")
        return state_of(lake)

    def _settings(self, lake: Path, name: str) -> dict[str, Any]:
        topic = {
            "message.timestamp.type": self.shape.clock, "batch.size": 300, "segment.bytes": 1500,
        }  # fmt: skip
        return {
            "root": lake, "paths": self._folder / name, "name": name, "order": self.shape.order,
            "topic": topic, "task": TINY,
        }  # fmt: skip

    def _tables(self, lake: Path, name: str) -> dict[str, Any]:
        settings = pipeline_of(**self._settings(lake, name))
        return settings.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _write_some(path: Path, chance: random.Random) -> None:
    """A file of a few dozen lines, broken ones among them."""
    content = [
        Line(T + chance.randrange(200), chance.choice(["a", "b", "c", None]),
             broken="{" if chance.random() < 0.1 else None)
        for _ in range(30)
    ]  # fmt: skip
    write_file(path.with_name(f"{path.parent.name}-{path.name}"), content)


def state_of(lake: Path) -> State:
    """The log, without the times of a LogAppendTime topic."""
    try:
        found = read_lake(lake)
    except (UnknownTopic, UsageError):
        return {}
    return {
        partition: [(r.offset, r.timestamp_type or r.timestamp, r.key, r.value) for r in log]
        for partition, log in found.items()
    }


def boundaries_of(lake: Path) -> list[tuple[int, ...]]:
    """Where the segments begin and end, and how large their files are."""
    return [
        (row.partition, row.base_offset, row.end_offset, row.log_bytes, row.index_bytes)
        for row in segments_of(lake)
    ]
