"""A log that is open while its version goes: each question is answered, or says that it expired."""

import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import seglake
from seglake.catalog.delta import delta_rs, file_merges
from seglake.errors import MissingObject, StoreError, VersionExpired
from seglake.format.index import IndexPolicy
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
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_700_000_000_000
SHAPE = Shape(batch_bytes=100, policy=IndexPolicy("bytes", 1))
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


@pytest.mark.parametrize("before", rest_but_today(ASKED))
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
    reindex(str(maker.root), "events", IndexPolicy("bytes", 0))
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
