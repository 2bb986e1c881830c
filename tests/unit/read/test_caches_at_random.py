"""One process uses many lakes and versions at once, with the smallest caches: no answer changes.

Lakes have the same topics and offsets with other records, and are made anew at the same root. Each
question is asked of readers with caches, of one without, and of the plain list of records.
"""

import pickle
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog import deletions
from seglake.credentials import from_environment
from seglake.datasource import batch
from seglake.datasource.batch import SparkBatchReader
from seglake.datasource.options import Options
from seglake.errors import UnknownTopic, VersionExpired
from seglake.format import zonemap
from seglake.log import execute, links, reads, record_cache
from seglake.log.execute import SCHEMA
from seglake.maintain.health.repair import rebuild_catalog
from seglake.read import origin
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.read.origin import Origin
from seglake.read.window.reader import Plan
from seglake.store import local, open_store
from tests.judges.log_questions import ASKED, Question, Row, expected, outcome, shown
from tests.makers.lakes import Event, LakeMaker
from tests.makers.lives import ACTS, PARTITIONS, SPAN, TOPICS, Content, Life, append
from tests.makers.strategies import T, examples
from tests.makers.versions import in_window
from tests.unit.datasource.spark_rows import as_written as as_written_by_spark
from tests.unit.datasource.spark_rows import tables
from tests.unit.log.test_segments import MEMORY

CACHES = (0, 30_000, 2**28, 2**28)
MOST_HANDLES, QUESTIONS = 8, 12


@contextmanager
def smallest_limits(chance: random.Random) -> Iterator[None]:
    """Of all caches beside those that `cache_bytes` bounds; and of the latter, whole shares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletions, "_LOCAL_S", 0.0)
        patch.setattr(local, "_open_files", lambda: 1)
        patch.setattr(local, "_MOST_SYNCED", 1)
        patch.setattr(reads, "_MOST_SEGMENTS", 1)
        patch.setattr(links, "_OPEN_LINKS", 1)
        patch.setattr(record_cache, "_SWEEP_EVERY", 2)
        patch.setattr(record_cache, "_LARGEST_SHARE", 1)
        patch.setattr(zonemap, "SMALL_BYTES", chance.choice([0, zonemap.SMALL_BYTES]))
        for module, name in (
            (origin, "_origin_at"), (batch, "_store"), (execute, "_schema_of"), (execute, "_shared")
        ):  # fmt: skip
            plain = getattr(module, name).__wrapped__
            patch.setattr(module, name, lru_cache(chance.choice([1, 8]))(plain))
        yield


class Handle(NamedTuple):
    """A log that stays open, and whose log it is."""

    life: Life
    lake: Lake | None
    log: Log

    @property
    def content(self) -> Content:
        return self.life.past[self.log.version][self.log.topic]

    @property
    def may_expire(self) -> bool:
        life = self.life
        return life.is_over or self.log.version < life.retained_from


def uncached(log: Log) -> Log:
    """The same log as a process has it that has read nothing yet, and caches nothing."""
    fresh = Origin(open_store(log.store.uri), 0, log._origin.catalog_id)
    return Log(log.detached()._snapshot, log.topic, fresh)


def executed(plan: Plan, log: Log) -> list[Row]:
    """A plan of this log, or of one that is the same."""
    return shown(replace(plan, fetch=log._origin.reads.cached_fetch).execute().read_all())


class World:
    """Two lakes, and what was opened of them."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.questions = [chance.randrange(2**32) for _ in range(QUESTIONS)]
        self.lives = [self._born(folder / name) for name in ("first", "second")]
        self.handles = list[Handle]()
        self.pickled = list[tuple[Life, str, bytes]]()
        self.plans = list[tuple[Handle, Plan, list[Row]]]()

    def _born(self, root: Path) -> Life:
        life = Life(LakeMaker(root, TOPICS[0], PARTITIONS))
        append(life, random.Random(root.name))
        life.remember()
        return life

    def change(self, chance: random.Random) -> None:
        """Let something happen to a lake; whoever has it open moves on, or not."""
        life = chance.choice(self.lives)
        chance.choice(ACTS)(life, chance)
        life.remember()
        for handle in [*self.handles]:
            if handle.life is life and chance.random() < 0.4:
                self._refresh(handle, chance)

    def make_anew(self, chance: random.Random) -> None:
        """Another lake at a root, whose versions have the same numbers."""
        number = chance.randrange(len(self.lives))
        over, root = self.lives[number], self.lives[number].maker.root
        over.is_over = True
        shutil.rmtree(root)
        self.lives[number] = self._born(root)

    def open(self, chance: random.Random) -> None:
        """Open a version, the newest or an older one."""
        life = chance.choice(self.lives)
        version = chance.choice([life.newest, chance.choice([*life.past])])
        try:
            lake = seglake.open(life.root, version, cache_bytes=chance.choice(CACHES))
            self._hold(life, lake, chance)  # reads the rows of the topics
        except VersionExpired:
            assert version < life.retained_from

    def _hold(self, life: Life, lake: Lake, chance: random.Random) -> None:
        for topic in life.past[lake.version]:
            self._add(Handle(life, lake, lake.topic(topic)), chance)

    def _add(self, handle: Handle, chance: random.Random) -> None:
        self.handles.append(handle)
        if len(self.handles) > MOST_HANDLES:
            self.handles.pop(chance.randrange(MOST_HANDLES))

    def send(self, chance: random.Random) -> None:
        """Pickle what is open; unpickle something that was pickled before, or just now."""
        if self.handles:
            handle = chance.choice(self.handles)
            whole = chance.choice([handle.log, handle.log, handle.lake or handle.log])
            catalog = handle.log._origin.catalog_id
            self.pickled.append((handle.life, catalog, pickle.dumps(whole)))
        if self.pickled:
            life, catalog, data = chance.choice([chance.choice(self.pickled), self.pickled[-1]])
            got = self._unpickled(life, catalog, data)
            if isinstance(got, Lake):
                self._hold(life, got, chance)
            elif got is not None:
                self._add(Handle(life, None, got), chance)

    def _unpickled(self, life: Life, catalog: str, data: bytes) -> Lake | Log | None:
        try:
            got: Lake | Log = pickle.loads(data)
        except VersionExpired:
            assert life.is_over or life.retained_from
            return None
        assert not isinstance(got, Lake) or (not life.is_over and life.catalog == catalog)
        return got

    def refresh(self, chance: random.Random) -> None:
        """Move a lake on to its newest version."""
        if self.handles:
            self._refresh(chance.choice(self.handles), chance)

    def _refresh(self, handle: Handle, chance: random.Random) -> None:
        life, lake = handle.life, handle.lake
        if lake is None:
            return
        try:
            lake.refresh() if lake._origin.catalog_id == life.catalog else lake.reopen()
        except VersionExpired:
            assert life.is_over
            return
        assert not life.is_over
        assert lake.version == life.newest
        self._hold(life, lake, chance)

    def ask(self, chance: random.Random) -> None:
        """Ask some logs the same questions again and again, side by side."""
        asked, seeds = [], chance.sample(self.questions, 2)
        for handle in chance.sample(self.handles, min(4, len(self.handles))):
            for same in map(random.Random, seeds):
                question = same.choice(ASKED)(handle.content, same)
                asked += [(handle, question)] * chance.choice([1, 3])
        with ThreadPoolExecutor(3) as threads:
            found = [threads.submit(outcome, question, handle.log) for handle, question in asked]
        for (handle, question), answer in zip(asked, found, strict=True):
            self._judge(handle, question, answer.result())
        expired = [handle for handle, _ in asked if handle.may_expire]
        if expired and chance.random() < 0.3:
            self.handles = [each for each in self.handles if each is not expired[0]]

    def _judge(self, handle: Handle, question: Question, answer: Any) -> None:
        plain = outcome(question, uncached(handle.log))
        if handle.may_expire and VersionExpired in (answer, plain):
            # nobody announces that a whole lake goes: what is open or cached is still right
            assert handle.life.is_over or answer == plain
            assert answer in (question.answer, VersionExpired)
            return
        assert answer == question.answer
        assert plain == question.answer

    def execute(self, chance: random.Random) -> None:
        """Execute plans that were made at any time, again and again."""
        if self.handles:
            handle = chance.choice(self.handles)
            bounds = chance.choice([(T + 20, T + 40), (0, T + SPAN)])
            with suppress(VersionExpired):
                plan = handle.log.plan_range(*bounds)
                records = in_window(list(handle.content.records), *bounds)
                self.plans.append((handle, plan, expected(handle.log.topic, records, SCHEMA.names)))
        for handle, plan, rows in self.plans[-4:]:
            question = Question(partial(executed, plan), rows)
            for _ in range(4):  # the fourth is read from the cache
                self._judge(handle, question, outcome(question, handle.log))

    def ask_catalog(self, chance: random.Random) -> None:
        """What a log asks its catalog, of its own version and of another one."""
        if self.handles:
            handle = chance.choice(self.handles)
            for version in {handle.log.version, chance.choice([*handle.life.past])}:
                self._judge_catalog(handle, version)

    def _judge_catalog(self, handle: Handle, version: int) -> None:
        life, log = handle.life, handle.log
        content = life.past[version].get(log.topic)

        def ask(log: Log) -> tuple[int, dict[int, int]]:
            there = log.at(version)
            segments: Any = there.segments().to_arrow()["record_count"]
            return sum(segments.to_pylist()), there.end_offsets()

        answer = outcome(Question(ask, None), log)
        if answer is VersionExpired:
            assert life.is_over or min(version, log.version) < life.retained_from
        elif content is None:
            assert answer is UnknownTopic
        else:
            records, ends = answer
            assert records >= len(content.records)
            assert ends == dict(enumerate(content.ends))

    def query(self, chance: random.Random) -> None:
        """A query of Spark, whose tasks share a store with all tasks before."""
        life = chance.choice(self.lives)
        topic, version = chance.choice([*life.past[life.newest]]), life.newest
        cut = chance.choice([{}, {"maxRecordsPerPartition": "20"}])
        reader = SparkBatchReader(Options({"path": life.root, "subscribe": topic, **cut}))
        found = as_written_by_spark(tables(reader, reader.partitions()))
        without_headers = [r._replace(headers=[]) for r in life.past[version][topic].records]
        assert found == without_headers


STEPS: list[Callable[[World, random.Random], None]] = [
    World.change, World.change, World.change, World.open, World.open, World.send, World.send,
    World.refresh, World.query, World.execute, World.execute, World.make_anew,
]  # fmt: skip


@pytest.mark.rest
@pytest.mark.long
@given(st.lists(st.integers(0, 2**32), min_size=16, max_size=32))
@examples(20)
def test_no_cache_changes_an_answer(seeds: list[int]) -> None:
    chance = random.Random(seeds[0])
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, smallest_limits(chance):
        world = World(Path(folder), chance)
        for seed in seeds:
            chance = random.Random(seed)
            chance.choice(STEPS)(world, chance)
            world.ask(chance)
            world.ask(chance)
            world.ask_catalog(chance)


# What is unpickled answers for the lake that was pickled, whatever is at its root by now.


def made(root: Path, runs: int = 1) -> LakeMaker:
    maker = LakeMaker(root)
    for _ in range(runs):
        maker.run({0: [Event(T + i, b"k", b"v") for i in range(100)]}, interval=(T, T + 100))
    return maker


def sent(thing: Any) -> Any:
    """What another process gets; this one has unpickled things of the same root before."""
    return pickle.loads(pickle.dumps(thing))


def test_a_log_of_a_lake_that_was_made_anew_finds_its_own_catalog(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    made(root)
    old = pickle.dumps(seglake.open(str(root)).topic("events"))
    assert len(pickle.loads(old).segments())
    shutil.rmtree(root)
    made(root, runs=2)
    log = seglake.open(str(root), 1).topic("events")
    assert sent(log).segments().to_arrow().equals(log.segments().to_arrow())
    assert sent(log).at(2).end_offsets() == {0: 200}


def test_a_log_of_a_rebuilt_catalog_finds_that(tmp_path: Path) -> None:
    made(tmp_path)
    assert len(sent(seglake.open(str(tmp_path)).topic("events")).segments())
    rebuild_catalog(str(tmp_path), dry_run=False, force=True)
    log = seglake.open(str(tmp_path)).topic("events")
    assert sent(log).segments().to_arrow().equals(log.segments().to_arrow())


@pytest.mark.parametrize("fresh", [True, False])
def test_another_lake_does_not_answer_for_the_one_that_was_pickled(
    fresh: bool, tmp_path: Path
) -> None:
    """It has the same topic, and the same number of a version."""
    root = tmp_path / "lake"
    made(root)
    lake = seglake.open(str(root))
    pickled, whole = pickle.dumps(lake.topic("events")), pickle.dumps(lake)
    assert fresh or len(pickle.loads(pickled).segments())
    shutil.rmtree(root)
    made(root)
    if fresh:
        origin._origin_at.cache_clear()
    for ask in (Log.segments, Log.coverage):
        with pytest.raises(VersionExpired):
            ask(pickle.loads(pickled))
    with pytest.raises(VersionExpired):
        pickle.loads(whole)


def test_other_credentials_are_not_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store finds its credentials in the environment, once."""
    given, stores = Origin(open_store("s3://bucket/lake")), list[object]()
    for token in ("first", "second"):
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        assert sent(given) is sent(given)
        stores.append(sent(given).store)
        stores.append(batch._store("s3://bucket/lake", (), batch._items(from_environment())))
    assert len({id(store) for store in stores}) == 4
