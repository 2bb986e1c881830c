"""What is deleted leaves caches and open files of readers that nobody asks anew."""

import itertools
from pathlib import Path

import pytest
import zstandard

import seglake
from seglake.catalog import deletions
from seglake.datasource import tasks
from seglake.datasource.batch import SparkBatchReader
from seglake.datasource.options import parse
from seglake.errors import VersionExpired
from seglake.log import links
from seglake.log.execute import SCHEMA
from seglake.log.links import Chunks, LakeLogs, Link
from seglake.maintain.erasure.erase import erase
from seglake.store import open_store
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import T
from tests.unit.datasource.spark_rows import tables
from tests.unit.maintain.erasure.test_open_readers import open_deleted

GONE, SECRET = b"gone", b"secret of the erased"
SHAPE = Shape(batch_bytes=200, segment_bytes=1200)


def made(root: Path, runs: int = 1) -> LakeMaker:
    maker = LakeMaker(root)
    for _ in range(runs):
        rows = [Event(T + i, GONE if i % 7 == 0 else b"k", SECRET if i % 7 == 0 else b"v")
                for i in range(100)]  # fmt: skip
        maker.run({0: rows}, SHAPE, interval=(T, T + 100))
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
    made(tmp_path)
    plan = seglake.open(str(tmp_path)).topic("events").plan_range(T, T + 100)
    for _ in range(times):
        assert SECRET in plan.execute().read_all()["value"].to_pylist()
    erased(tmp_path)
    with pytest.raises(VersionExpired):
        plan.execute().read_all()
    assert not open_deleted(tmp_path)


@pytest.mark.usefixtures("_looks_at_once")
def test_a_stream_that_is_under_way_lets_go_of_its_files(tmp_path: Path) -> None:
    made(tmp_path, runs=10)
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
    made(tmp_path, runs=2)
    options = parse({"path": str(tmp_path), "subscribe": "events", "maxRecordsPerPartition": "50"})
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
    made(tmp_path)
    reader = SparkBatchReader(parse({"path": str(tmp_path), "subscribe": "events"}))
    (table,) = tables(reader, reader.partitions())
    assert SECRET in table["value"].to_pylist()
    erased(tmp_path)
    assert not open_deleted(tmp_path)
