"""Every command beside ingests, readers and a stream, all at once.

Writers bring in, replace and undo runs; keepers do all else that changes a topic; a reader and a
stream look on. Each is a process of its own, and nobody waits for anybody. Each commit tells its
version and what it meant to do. Told again in the order of versions, on plain lists, that is what
the topic has in each version: whatever anybody saw must be it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import seglake
from seglake.catalog.schema import PartitionRow
from seglake.catalog.table import CatalogTable
from seglake.datasource.options import parse
from seglake.datasource.stream import START, VERSION, StreamReader
from seglake.engine import LocalEngine
from seglake.errors import AttemptAbandoned, CommitConflict, UsageError, VersionExpired
from seglake.format.index import IndexPolicy
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.undo import replace_files
from seglake.maintain.vacuum import vacuum
from seglake.read.lake import Lake
from seglake.write.driver.run import DeclaredRun
from tests.chaos.account import SEEN
from tests.harness.observed import records_of
from tests.makers.murmur2 import murmur2
from tests.makers.raw_events import Line, T, ingest, pipeline_of, quarantined, read_back, write_file

WRITERS, KEEPERS = 2, 2
PARTITIONS, KEYS = 2, ("a", "b", "c", "d", "e")
LAYOUT = {"partitions": PARTITIONS, "batch.size": 200, "segment.bytes": 1200}
LIFE = {
    "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.2, "retention.bytes": 6000,
}  # fmt: skip
A_MINUTE = 1 / 60  # of grace in hours: nobody's commit takes so long
LOST = (AttemptAbandoned, CommitConflict)  # what may befall whoever races

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


class Seen(NamedTuple):
    """What somebody saw in a version, of the offsets from `starts` to `ends` (exclusive)."""

    version: int
    starts: Starts
    ends: Starts
    records: Records
    whole: bool  # the starts and ends are those of the logs


class State(NamedTuple):
    """What a topic has in a version."""

    records: Records
    starts: Starts
    ends: Starts


# ------------------------------------------------------------------ the model


class Told:
    """The deeds in their order, on plain lists."""

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

    def assert_is(self, seen: Seen) -> None:
        """What was seen is what there is in its version."""
        state = self.at(seen.version)
        if seen.whole:
            assert (seen.starts, seen.ends) == (state.starts, state.ends), seen.version
        wanted = {
            (p, o): record
            for (p, o), record in state.records.items()
            if seen.starts.get(p, 0) <= o < seen.ends.get(p, 0)
        }
        lost, more = wanted.items() - seen.records.items(), seen.records.items() - wanted.items()
        assert not lost, f"version {seen.version} lacks {sorted(lost)[:3]}"
        assert not more, f"version {seen.version} also has {sorted(more)[:3]}"


def _appended(path: Path, state: State) -> Iterator[Place]:
    """The places of a file's records, in the order of their times."""
    for told in sorted(read_back([path])[0], key=lambda each: (each.timestamp, each.place)):
        assert told.key is not None
        partition = murmur2(told.key) % PARTITIONS
        place = partition, state.ends[partition]
        state.ends[partition] += 1
        state.records[place] = told.timestamp, told.key, told.value
        yield place


# ------------------------------------------------------------------ who takes part

_commits: list[tuple[int, list[Any]]] = []  # of this process: version and rows
_over: Any = None  # an event: nothing more is to come


def _begin(over: Any, variables: dict[str, str]) -> None:
    """In each process: note its commits."""
    global _over  # noqa: PLW0603  # a process takes an event only when it starts
    _over = over
    os.environ.update(variables)
    real = CatalogTable.commit

    def commit(table: CatalogTable, rows: Any, **named: Any) -> int:
        version: int = real(table, rows, **named)
        _commits.append((version, list(rows)))
        return version

    CatalogTable.commit = commit  # type: ignore[assignment,method-assign]


def _done(verb: str, do: Callable[[], Any], **meant: Any) -> list[Deed]:
    """The commits that something made, also if it failed then, as whoever races may."""
    _commits.clear()
    try:
        do()
    except LOST:
        pass
    except UsageError as error:  # of an erasure: it refuses
        if "may still run" not in str(error):
            raise
    except VersionExpired:  # its logs were erased with their objects
        pass
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
            deeds += _until_done("undo", undo, run=f"{name} {run_id}")
            continue
        again = mine and chance.random() < 0.3
        run_id = chance.choice(mine) if again else f"run {number}"
        path = _some_file(Path(folder) / str(number) / "in.jsonl", chance)
        pipeline = pipeline_of(lake, path, name=name, topic=LAYOUT)
        run = DeclaredRun(run_id)
        bring = partial(replace_files, LocalEngine(), pipeline, run, force=True)
        come = bring if again else partial(ingest, pipeline, run_id)
        deeds += _until_done(
            "replace" if again else "ingest", come, run=f"{name} {run_id}", path=str(path)
        )
        mine += [] if again else [run_id]
    return deeds


def _until_done(verb: str, do: Callable[[], Any], **meant: Any) -> list[Deed]:
    """Until it is committed: an erasure may give the attempt up."""
    while not (deeds := _done(verb, do, **meant)):
        pass
    assert len(deeds) == 1
    return deeds


def _some_file(path: Path, chance: random.Random) -> Path:
    lines = [Line(T + chance.randrange(500), chance.choice(KEYS)) for _ in range(16)]
    return write_file(path, [*lines, Line(T, broken="{")])


def keep(lake: str, seed: str, steps: int) -> list[Deed]:
    """All else that changes a topic, in any order."""
    chance, deeds = random.Random(seed), list[Deed]()
    for _ in range(steps):
        verb = chance.choice(sorted(_KEEPING))
        meant = {"keys": (chance.choice(KEYS),)} if verb.startswith("erase") else {}
        deeds += _done(verb, partial(_KEEPING[verb], lake, chance, *meant.get("keys", ())), **meant)
    return deeds


def _delete_records(lake: str, chance: random.Random) -> None:
    log, partition = seglake.open(lake).topic("events"), chance.randrange(PARTITIONS)
    start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
    seglake.delete_records(lake, "events", {partition: start + (end - start) // 5})


def _alter(lake: str, chance: random.Random) -> None:
    seglake.alter(lake, "events", {"compression.type": chance.choice(["lz4", "zstd", "none"])})


def _reindex(lake: str, chance: random.Random) -> None:
    reindex(lake, "events", IndexPolicy("records", chance.randint(1, 5)))


def _maintain(lake: str, _chance: random.Random) -> None:
    seglake.maintain_lake(lake, grace_hours=A_MINUTE)


def _erase(lake: str, _chance: random.Random, key: str, *, gone: bool = False) -> None:
    seglake.erase(lake, "events", [key], vacuum=gone, grace_hours=0)


_KEEPING: dict[str, Callable[..., Any]] = {
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


def look(lake: str) -> list[Seen]:
    """A reader that refreshes, beside one that opens the lake each time, and one that stays."""
    found, last = list[Seen](), False
    follower, held = seglake.open(lake), seglake.open(lake)
    first = _all_of(held)
    while not last:
        last = _over.is_set()
        try:
            follower = follower.refresh()
            found += [_all_of(follower), _all_of(seglake.open(lake))]
        except VersionExpired:
            assert not last
        try:
            assert _all_of(held) == first, "an open version changed"
        except VersionExpired:
            held = seglake.open(lake)
            first = _all_of(held)
    return found


def _all_of(lake: Lake) -> Seen:
    log, records = lake.topic("events"), records_of(lake)
    found = {(row[1], row[2]): (row[3], row[5], row[6]) for row in records}
    assert len(found) == len(records), "an offset is there twice"
    return Seen(lake.version, log.beginning_offsets(), log.end_offsets(), found, whole=True)


def follow(lake: str) -> list[Seen]:
    """A stream from the beginning, in micro-batches of a few offsets, up to the end."""
    options = {
        "path": lake, "subscribe": "events", "startingOffsets": "earliest",
        "failOnDataLoss": "false", "maxOffsetsPerTrigger": "25",
    }  # fmt: skip
    stream, found = StreamReader(parse(options)), list[Seen]()
    start: dict[str, Any] = stream.initialOffset()
    while True:
        last = _over.is_set()
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        if end == start:
            if last:
                return found
            _over.wait(0.05)
            continue
        try:
            batches = [b for part in stream.partitions(start, end) for b in stream.read(part)]
        except VersionExpired:  # its logs were erased with their objects: the query starts again
            continue
        places = {
            (row["partition"], row["offset"]): (_ms(row["timestamp"]), row["key"], row["value"])
            for batch in batches
            for row in batch.to_pylist()
        }
        assert len(places) == sum(map(len, batches)), "an offset came twice"
        low = _numbers(end.get(START, start))
        found.append(Seen(end[VERSION], low, _numbers(end), places, whole=False))
        start = end


def _ms(time: Any) -> int:
    milliseconds: int = round(time.timestamp() * 1000)
    return milliseconds


def _numbers(offsets: dict[str, Any]) -> Starts:
    return {int(partition): offset for partition, offset in offsets["events"].items()}


# ------------------------------------------------------------------ a round


def race(lake: str, folder: Path, seed: int, steps: int) -> Counter[str]:
    """One round; how often each command made a commit, and how much was seen.

    A writer does so many steps, a keeper half as many again. Raises AssertionError.
    """
    first = _some_file(folder / "first" / "in.jsonl", random.Random(seed))
    version = ingest(pipeline_of(lake, first, name="first", topic=LAYOUT), "1").version
    seglake.alter(lake, "events", LIFE)
    deeds, seen = _carried_out(lake, folder, seed, steps)
    told = Told([Deed(version, "ingest", {}, {}, "first 1", str(first)), *deeds])
    for each in seen:
        told.assert_is(each)
    told.assert_is(_all_of(seglake.open(lake)))
    _assert_sound(lake, told)
    return Counter(deed.verb for deed in deeds) + Counter({SEEN: len(seen)})


def _carried_out(lake: str, folder: Path, seed: int, steps: int) -> tuple[list[Deed], list[Seen]]:
    """Let all of them do their steps; what they did, and what the others saw."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.race"])
    over: Event = context.Event()  # type: ignore[assignment]
    workers = WRITERS + KEEPERS + 2
    with ProcessPoolExecutor(workers, context, _begin, (over, dict(os.environ))) as pool:
        looking = [pool.submit(each, lake) for each in (look, follow)]
        acting: list[Future[list[Deed]]] = []
        for number in range(WRITERS):
            where = str(folder / f"writer {number}")
            acting.append(pool.submit(write, lake, where, f"{seed} write {number}", steps))
        acting += [
            pool.submit(keep, lake, f"{seed} keep {number}", steps * 3 // 2)
            for number in range(KEEPERS)
        ]
        wait_for(acting)
        over.set()
        deeds = [deed for future in acting for deed in future.result()]
        return deeds, [each for future in looking for each in future.result()]


def _assert_sound(lake: str, told: Told) -> None:
    """Nothing is damaged; a vacuum leaves nothing over; every reject is there once."""
    rejects = [each for path in told.files.values() for each in read_back([Path(path)])[1]]
    assert quarantined(lake) == sorted(rejects)
    vacuum(lake, dry_run=False, grace_hours=0, retention_hours=0)
    report = verify(lake, deep=True)
    assert report.findings == []
    assert report.orphans == []
    told.assert_is(_all_of(seglake.open(lake)))
