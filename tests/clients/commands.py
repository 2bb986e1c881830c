"""Every command that changes a topic, and a model that repeats their commits on plain lists.

Each commit reports its version and what it meant to do. Told again in the order of versions, that
is what the topic has in each version.
"""

import os
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.schema import PartitionRow
from seglake.catalog.topic_change import Change
from seglake.engine import LocalEngine
from seglake.format.index import IndexPolicy
from seglake.maintain.health.reindex import reindex
from seglake.maintain.undo import replace_files
from seglake.maintain.vacuum import vacuum
from seglake.write.driver.run import DeclaredRun
from tests.makers.murmur2 import murmur2
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_back, write_file

PARTITIONS, KEYS = 2, ("a", "b", "c", "d", "e")
LAYOUT = {"partitions": PARTITIONS, "batch.size": 200, "segment.bytes": 1200}
LIFE = {
    "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.2, "retention.bytes": 6000,
}  # fmt: skip
A_MINUTE = 1 / 60  # grace period in hours

Place = tuple[int, int]  # a partition and an offset
Record = tuple[int, bytes | None, bytes | None]  # timestamp, key and value
Records = dict[Place, Record]
Starts = dict[int, int]


class Deed(NamedTuple):
    """A commit: what it meant to do. A run is named; its file, if it has one, is what came in."""

    version: int
    verb: str
    starts: Starts  # of logs, where they moved
    cleaned: Starts  # the end of what was compacted
    run: str = ""
    path: str = ""
    keys: tuple[str, ...] = ()  # which left


class State(NamedTuple):
    """What a topic has in a version."""

    records: Records
    starts: Starts
    ends: Starts


# ------------------------------------------------------------------ the model


class Told:
    """The model: the commits in the order of their versions, on plain lists."""

    def __init__(self, deeds: list[Deed]) -> None:
        self._runs: dict[str, list[Place]] = {}
        self.files: dict[str, str] = {}  # of the runs that are there
        state = State({}, dict.fromkeys(range(PARTITIONS), 0), dict.fromkeys(range(PARTITIONS), 0))
        self._versions, self._states = [-1], [state]
        for deed in sorted(deeds, key=lambda each: each.version):
            state = State(dict(state.records), dict(state.starts), dict(state.ends))
            self._take(deed, state)
            self._versions.append(deed.version)
            self._states.append(state)
        assert len({*self._versions}) == len(self._versions), "two commits of one version"

    def at(self, version: int) -> State:
        """What the topic has in a version."""
        return self._states[bisect_right(self._versions, version) - 1]

    def states(self) -> Iterator[tuple[int, State]]:
        """Every version that a deed made, and what the topic has in it."""
        return zip(self._versions, self._states, strict=True)

    def _take(self, deed: Deed, state: State) -> None:
        if deed.run:
            for place in self._runs.pop(deed.run, []):
                state.records.pop(place, None)
            self.files.pop(deed.run, None)
        if deed.path:
            self._runs[deed.run] = list(_appended(Path(deed.path), state))
            self.files[deed.run] = deed.path
        gone = {key.encode() for key in deed.keys}
        latest = {
            (p, r[1]): o
            for (p, o), r in sorted(state.records.items())
            if o < deed.cleaned.get(p, 0)
        }
        state.starts.update(deed.starts)
        for (p, o), record in list(state.records.items()):
            superseded = o < deed.cleaned.get(p, 0) and latest[p, record[1]] != o
            if record[1] in gone or superseded or o < state.starts[p]:
                del state.records[p, o]


def _appended(path: Path, state: State) -> Iterator[Place]:
    """The places of a file's records, in the order of their times."""
    for told in sorted(read_back([path])[0], key=lambda each: (each.timestamp, each.place)):
        assert told.key is not None
        partition = murmur2(told.key) % PARTITIONS
        place = partition, state.ends[partition]
        state.ends[partition] += 1
        state.records[place] = told.timestamp, told.key, told.value
        yield place


# ------------------------------------------------------------------ the commands

_commits: list[tuple[int, list[Any]]] = []  # of this process: version and rows


def note_commits(variables: dict[str, str]) -> None:
    """Note the commits of this process."""
    os.environ.update(variables)
    real = CatalogCommits.make

    def commit(commits: CatalogCommits, change: Change, **named: Any) -> int:
        version: int = real(commits, change, **named)
        _commits.append((version, list(change.rows)))
        return version

    CatalogCommits.make = commit  # type: ignore[assignment,method-assign]


def commits_of(verb: str, do: Callable[[], Any], **meant: Any) -> list[Deed]:
    """Run a command. Return its commits."""
    _commits.clear()
    do()
    deeds = []
    for version, rows in _commits:
        bounds = [row for row in rows if isinstance(row, PartitionRow)]
        starts = {row.partition: row.log_start_offset for row in bounds}
        cleaned = {row.partition: row.cleaned_offset for row in bounds if row.cleaned_offset}
        deeds.append(Deed(version, verb, starts, cleaned, **meant))
    return deeds


def write(lake: str, folder: str, seed: str, steps: int) -> list[Deed]:
    """Runs that come; some are replaced or undone later."""
    chance, deeds, name = random.Random(seed), list[Deed](), Path(folder).name
    mine: list[str] = []
    for number in range(steps):
        if mine and chance.random() < 0.2:
            run_id = mine.pop(chance.randrange(len(mine)))
            undo = partial(seglake.undo, lake, "events", run_id, pipeline=name, force=True)
            deeds += commits_of("undo", undo, run=f"{name} {run_id}")
            continue
        again = mine and chance.random() < 0.3
        run_id = chance.choice(mine) if again else f"run {number}"
        path = some_file(Path(folder) / str(number) / "in.jsonl", chance)
        pipeline = pipeline_of(lake, path, name=name, topic=LAYOUT)
        run = DeclaredRun(run_id)
        bring = partial(replace_files, LocalEngine(), pipeline, run, force=True)
        come = bring if again else partial(ingest, pipeline, run_id)
        deeds += commits_of(
            "replace" if again else "ingest", come, run=f"{name} {run_id}", path=str(path)
        )
        mine += [] if again else [run_id]
    return deeds


def some_file(path: Path, chance: random.Random) -> Path:
    """Write an input file of random records and one reject."""
    lines = [Line(T + chance.randrange(500), chance.choice(KEYS)) for _ in range(16)]
    return write_file(path, [*lines, Line(T, broken="{")])


def _delete_records(lake: str, chance: random.Random) -> None:
    log, partition = seglake.open(lake).topic("events"), chance.randrange(PARTITIONS)
    start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
    seglake.delete_records(lake, "events", {partition: start + (end - start) // 5})


def _alter(lake: str, chance: random.Random) -> None:
    seglake.alter(lake, "events", {"compression.type": chance.choice(["lz4", "zstd", "none"])})


def _reindex(lake: str, chance: random.Random) -> None:
    reindex(lake, "events", IndexPolicy(chance.choice([0, 100, 300])))


def _maintain(lake: str, _chance: random.Random) -> None:
    seglake.maintain_lake(lake, grace_hours=A_MINUTE)


def _erase(lake: str, _chance: random.Random, key: str, *, gone: bool = False) -> None:
    seglake.erase(lake, "events", [key], vacuum=gone, grace_hours=0)


KEEPING: dict[str, Callable[..., Any]] = {
    "merge": lambda lake, _: seglake.merge(lake, "events", everything=True),
    "merge anew": lambda lake, _: seglake.merge(lake, "events", everything=True, rebatch=True),
    "compact": lambda lake, _: seglake.compact(lake, "events", force=True),
    "retain": lambda lake, _: seglake.retain(lake, "events"),
    "vacuum": lambda lake, _: vacuum(lake, dry_run=False, grace_hours=A_MINUTE),
    "delete-records": _delete_records,
    "alter": _alter,
    "reindex": _reindex,
    "maintain": _maintain,
    "erase": _erase,
    "erase objects": partial(_erase, gone=True),
}
