"""A log that is open while its version goes: each question is answered, or says that it expired."""

import itertools
import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import seglake
from seglake.catalog import deletions
from seglake.catalog.delta import delta_rs, file_merges
from seglake.datasource import tasks
from seglake.datasource.batch import SparkBatchReader
from seglake.datasource.options import Options
from seglake.errors import MissingObject, StoreError, VersionExpired
from seglake.format.index import IndexPolicy
from seglake.log import links
from seglake.log.execute import SCHEMA
from seglake.log.links import Chunks, LakeLogs, Link
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.vacuum import vacuum
from seglake.read import origin
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.store import Store, open_store
from tests.harness.counting import CountingStore
from tests.harness.tiers import rest_but_today
from tests.makers.gaps import Loss, lose
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.unit.datasource.spark_rows import tables
from tests.unit.maintain.erasure.test_open_readers import open_deleted

SHAPE = Shape(batch_bytes=100, policy=IndexPolicy(1))
SOME_GO = Loss(seed=1, single=0.2, whole=0, stretch=1, tail=1, joined=3, headers=1, dated=False)
AROUND = pa.table({"at": [T + 5, T + 30]})

ASKED: dict[str, Callable[[Log], Any]] = {
    "window": lambda log: log.read_range(T + 3, T + 20).read_all(),
    "all": lambda log: log.read_range(0, T + 10**6).read_all(),
    "window by time": lambda log: log.read_range(T, T + 20, order="time").read_all(),
    "planned window": lambda log: log.plan_range(T + 3, T + 9).execute().read_all(),
    "offsets": lambda log: log.plan_offsets({0: (3, 9)}).execute().read_all(),
    "pickled plan": lambda log: (
        pickle.loads(pickle.dumps(log.plan_offsets({0: (0, 9)}))).execute().read_all()
    ),
    "pickled log": lambda log: pickle.loads(pickle.dumps(log)).record_at(1, 30),
    "fetch": lambda log: log.read(0, 7),
    "record": lambda log: log.record_at(0, 3),
    "records": lambda log: log.records_at(0, [1, 40]),
    "time": lambda log: log.offsets_for_times({0: T + 7}),
    "times": lambda log: log.offsets_for_times_array(1, [T + 7, T + 11]),
    "newest": lambda log: log.max_timestamps(),
    "lag": lambda log: log.lag({0: 5}),
    "failover": lambda log: log.translate({0: 5, 1: 10}, log),
    "around": lambda log: log.read_around(AROUND, "at", after_ms=9).read_all(),
}
ROWS: dict[str, Callable[[Log], Any]] = {  # which ask the catalog
    "closed": lambda log: log.closed(T, T + 10),
    "pickled closed": lambda log: pickle.loads(pickle.dumps(log)).closed(T, T + 10),
    "same version": lambda log: log.at(log.version - 1).at(log.version).end_offsets(),
}


def made(root: Path) -> LakeMaker:
    maker = LakeMaker(root, partitions=2)
    shape = Shape(batch_bytes=100, policy=SHAPE.policy, segment_bytes=700)
    for _ in range(2):
        rows = [Event(T + i, b"k", b"v" * 40) for i in range(50)]
        maker.run({0: rows, 1: rows}, shape, interval=(T, T + 100))
    return maker


def vacuum_all(maker: LakeMaker) -> None:
    """Delete what the newest version does not name, however young."""
    for path in maker.root.rglob("*"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    assert vacuum(str(maker.root), retention_hours=0, dry_run=False).deleted


def open_log(maker: LakeMaker) -> Log:
    return seglake.open(str(maker.root)).topic("events")


def without_caches(pickled: bytes) -> Log:
    """The log; others that were unpickled before would share what they read."""
    origin._origin_at.cache_clear()
    log: Log = pickle.loads(pickled)
    return log


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A pickled log whose segments were written anew and vacuumed."""
    maker = made(tmp_path_factory.mktemp("lake"))
    log = open_log(maker)
    lose(maker, SOME_GO)
    vacuum_all(maker)
    return pickle.dumps(log)


@pytest.mark.parametrize("name", ASKED)
def test_every_question_to_a_log_whose_files_were_vacuumed(expired: bytes, name: str) -> None:
    with pytest.raises(VersionExpired, match=r"\.log was deleted"):
        ASKED[name](without_caches(expired))


def test_a_log_that_is_lost_costs_little_again(tmp_path: Path) -> None:
    """Whoever asks for it does so for ever: the catalog is not opened anew each time."""
    maker = made(tmp_path)
    store = CountingStore(open_store(str(maker.root)))
    log = Lake(store).topic("events")
    for path in maker.root.glob("topics/**/*.log"):
        path.unlink()
    costs = list[int]()
    for _ in range(4):
        before = store.counts.requests
        with pytest.raises(MissingObject):
            log.record_at(0, 3)
        costs.append(store.counts.requests - before)
    assert max(costs[1:]) <= 5 < costs[0]


def test_a_log_that_was_vacuumed_after_a_rebuild_has_expired(tmp_path: Path) -> None:
    """Also for a reader that had asked for a lost log, and so knows the old catalog."""
    maker = made(tmp_path)
    root, log = str(maker.root), open_log(maker)
    logs = maker.root / "topics"
    logs.rename(maker.root / "away")
    with pytest.raises(MissingObject):
        log.record_at(0, 3)
    (maker.root / "away").rename(logs)
    rebuild_catalog(root, dry_run=False, force=True)
    seglake.merge(root, "events", everything=True)
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    with pytest.raises(VersionExpired, match="no longer retained"):
        log.record_at(0, 3)


def plainly(answer: Any) -> Any:
    return answer.to_pylist() if isinstance(answer, pa.Table) else str(answer)


@pytest.mark.parametrize("before", rest_but_today(ASKED, 6))
def test_what_was_asked_before_is_answered_as_then_or_expired(tmp_path: Path, before: str) -> None:
    """From the caches; no answer is a mixture."""
    maker = made(tmp_path)
    wanted = {name: plainly(ask(open_log(maker))) for name, ask in ASKED.items()}
    log = open_log(maker)
    ASKED[before](log)
    lose(maker, SOME_GO)
    vacuum_all(maker)
    for name, ask in ASKED.items():
        with suppress(VersionExpired):
            assert plainly(ask(log)) == wanted[name]


@pytest.fixture
def merged_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeMaker:
    """Two small data files of one kind are merged at once."""
    monkeypatch.setattr(file_merges, "FAN_IN", 2)
    return made(tmp_path)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_catalog_that_were_vacuumed(merged_catalog: LakeMaker, name: str) -> None:
    log = open_log(merged_catalog)
    assert log.closed(T, T + 10)
    for _ in range(5):
        merged_catalog.run({0: [Event(T)]})
    for path in merged_catalog.root.rglob("*"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    assert vacuum(str(merged_catalog.root), retention_hours=0, dry_run=False).catalog_files
    with pytest.raises(VersionExpired):
        ROWS[name](log)
    assert log.record_at(0, 3).offset == 3


def test_rows_of_the_newest_version_are_lost(tmp_path: Path) -> None:
    maker = made(tmp_path)
    log = open_log(maker)
    for path in maker.root.glob("catalog/log/kind=run/*/*.parquet"):
        path.unlink()
    with pytest.raises(MissingObject, match=r"\.parquet"):
        log.closed(T, T + 10)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A pickled log of the newest version, whose files somebody deleted."""
    maker = made(tmp_path_factory.mktemp("lake"))
    for path in maker.root.rglob("*.log"):
        path.unlink()
    return pickle.dumps(open_log(maker))


@pytest.mark.parametrize("name", ASKED)
def test_a_log_that_the_newest_version_names_is_lost(lost: bytes, name: str) -> None:
    with pytest.raises(MissingObject, match=r"\.log does not exist"):
        ASKED[name](without_caches(lost))


@pytest.fixture(scope="module")
def indexed_again(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    """A pickled log whose index files were replaced and vacuumed; what it answered before."""
    maker = made(tmp_path_factory.mktemp("lake"))
    log = open_log(maker)
    answers = {name: plainly(ask(log)) for name, ask in ASKED.items()}
    reindex(str(maker.root), "events", IndexPolicy(0))
    vacuum_all(maker)
    return pickle.dumps(log), answers


@pytest.mark.parametrize("name", ASKED)
def test_index_files_that_were_vacuumed_are_made_again(
    indexed_again: tuple[bytes, dict[str, Any]], name: str
) -> None:
    """The log is there, and an index never changes an answer."""
    log, answers = indexed_again
    assert plainly(ASKED[name](without_caches(log))) == answers[name]


def test_a_storage_failure_is_no_expired_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = made(tmp_path)
    log = seglake.open(str(maker.root)).topic("events")

    def failing(store: Store, folder: str, version: int | None = None) -> DeltaTable:
        raise DeltaError(f"Generic S3 error: no answer for version {version}")

    with monkeypatch.context() as patch:
        patch.setattr(delta_rs, "_table", failing)
        with pytest.raises(StoreError, match=r"version 1 cannot be read: .* no answer"):
            log.at(1)
        (maker.root / f"catalog/log/_delta_log/{0:020}.json").unlink()
        with pytest.raises(VersionExpired, match="not retained"):
            log.at(1)


# What is deleted leaves caches and open files of readers that nobody asks anew.

GONE, SECRET = b"gone", b"secret of the erased"
SMALL_BLOCKS = Shape(batch_bytes=200, segment_bytes=1200)


def blocks(root: Path, runs: int = 1) -> LakeMaker:
    maker = LakeMaker(root)
    for _ in range(runs):
        rows = [Event(T + i, GONE if i % 7 == 0 else b"k", SECRET if i % 7 == 0 else b"v")
                for i in range(100)]  # fmt: skip
        maker.run({0: rows}, SMALL_BLOCKS, interval=(T, T + 100))
    return maker


def erased(root: Path) -> None:
    assert erase(str(root), "events", [GONE], vacuum=True, grace_hours=0).deleted


@pytest.fixture
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "_LOCAL_S", 0.0)


@pytest.mark.usefixtures("_looks_at_once")
@pytest.mark.parametrize("times", [1, 3])
def test_a_plan_that_is_executed_again_has_no_erased_record(tmp_path: Path, times: int) -> None:
    """Neither from the cache nor from files that are open."""
    blocks(tmp_path)
    plan = seglake.open(str(tmp_path)).topic("events").plan_range(T, T + 100)
    for _ in range(times):
        assert SECRET in plan.execute().read_all()["value"].to_pylist()
    erased(tmp_path)
    with pytest.raises(VersionExpired):
        plan.execute().read_all()
    assert not open_deleted(tmp_path)


@pytest.mark.usefixtures("_looks_at_once")
def test_a_stream_that_is_under_way_lets_go_of_its_files(tmp_path: Path) -> None:
    blocks(tmp_path, runs=10)
    log = seglake.open(str(tmp_path)).topic("events")
    stream = log.plan_range(T, T + 100).execute(memory_bytes=2**16)
    assert stream.read_next_batch().num_rows
    erased(tmp_path)
    with pytest.raises(VersionExpired):
        stream.read_all()
    assert not open_deleted(tmp_path)


def outside(folder: Path) -> LakeLogs:
    """A link to a log in chunks."""
    data = SECRET * 100
    frames = [zstandard.compress(data[at : at + 512]) for at in range(0, len(data), 512)]
    bucket = open_store(str(folder / "bucket"))
    bucket.put("log", b"".join(frames))
    lake = open_store(str(folder / "lake"))
    cut = Chunks(len(data), 512, tuple(map(len, frames)))
    lake.put("a.link", Link(bucket.uri, "log", 0, len(data), cut).dump())
    return LakeLogs(lake)


def test_what_lies_behind_links_is_let_go_of(tmp_path: Path) -> None:
    logs = outside(tmp_path)
    assert SECRET in bytes(logs.read("a.link", 0, 600))
    assert links._chunk.cache_info().currsize
    (tmp_path / "bucket/log").unlink()
    assert open_deleted(tmp_path)
    logs.forget()
    assert not links._chunk.cache_info().currsize
    assert not open_deleted(tmp_path)


def test_the_stores_behind_links_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_store(str(tmp_path / "lake"))
    for number in range(20):
        bucket = open_store(str(tmp_path / f"bucket{number}"))
        bucket.put("log", b"%02d" % number)
        lake.put(f"{number}.link", Link(bucket.uri, "log", 0, 2, Chunks(2)).dump())
    logs = LakeLogs(lake)
    for number in [*range(20), *range(20)]:
        assert bytes(logs.read(f"{number}.link", 0, 2)) == b"%02d" % number
    assert logs._stores.cache_info().currsize <= 8


@pytest.mark.usefixtures("_looks_at_once")
def test_a_task_of_spark_forgets_links_and_zone_maps_too(tmp_path: Path) -> None:
    blocks(tmp_path, runs=2)
    given = {"path": str(tmp_path), "subscribe": "events", "maxRecordsPerPartition": "50"}
    options = Options(given)
    (first, *_) = SparkBatchReader(options).partitions()
    reader = tasks._TaskReader(open_store(str(tmp_path)), SCHEMA, fail_on_data_loss=True)
    found = reader.records(first.value.parts[0])
    assert next(found).num_rows
    reads, before = reader._reads, reader._reads.forgotten
    assert reads._cache.size_bytes
    erased(tmp_path)
    with pytest.raises(VersionExpired):
        list(itertools.chain(found, *map(reader.records, first.value.parts)))
    assert reads.forgotten > before
    assert not open_deleted(tmp_path)


def test_a_worker_that_waits_for_a_task_has_no_file_open(tmp_path: Path) -> None:
    """Nobody looks for deletions there until the next task."""
    blocks(tmp_path)
    reader = SparkBatchReader(Options({"path": str(tmp_path), "subscribe": "events"}))
    (table,) = tables(reader, reader.partitions())
    assert SECRET in table["value"].to_pylist()
    erased(tmp_path)
    assert not open_deleted(tmp_path)
