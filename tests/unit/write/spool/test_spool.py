"""Blobs between the stages: what comes back, what damage does, what stays behind."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import Item, LocalEngine, Result, Task
from seglake.errors import CorruptData, MissingObject, SeglakeError, StoreError
from seglake.layout import ATTEMPTS, new_attempt
from seglake.limits import INT32_MAX
from seglake.maintain.vacuum import vacuum
from seglake.store import Store, object_store, open_store
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.map.unit import MapUnits
from seglake.write.spool.spool import (
    BATCHES,
    OBJECT_BYTES,
    RECORDS,
    SPOOLED,
    Blob,
    SpoolWriter,
    delete_blobs,
    intern_names,
    pack_rows,
    packed_size,
    read_blobs,
    rows_at,
    unpack_rows,
)
from tests.harness.counting import CountingStore
from tests.harness.engines import dying
from tests.harness.object_server import ObjectServer, object_server
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_files
from tests.makers.sorted_blobs import Item as Record
from tests.makers.sorted_blobs import items_of, run_of

ints, longs = st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
blobs = st.builds(
    Blob, st.integers(0, 4), longs, st.binary(max_size=50), ints, ints,
    longs, longs, longs, longs, longs, longs, st.text(max_size=3),
)  # fmt: skip


@given(
    st.lists(st.lists(blobs, max_size=5), max_size=3), st.randoms(), st.integers(0, 200),
    st.integers(1, 200), st.none() | st.integers(1, 200),
)  # fmt: skip
def test_staged_blobs_come_back_in_any_order(
    tasks: list[list[Blob]],
    chance: Any,
    plain_bytes: int,
    object_bytes: int,
    hold_bytes: int | None,
) -> None:
    limits = {"plain_bytes": plain_bytes, "object_bytes": object_bytes}
    with tempfile.TemporaryDirectory() as folder:
        store, attempt = open_store(folder), new_attempt()
        if hold_bytes is not None:
            store, limits["hold_bytes"] = open_store("memory://"), hold_bytes
        for task in tasks:
            with SpoolWriter(store, attempt, **limits) as stage:
                for blob in task:
                    stage.add(blob)
            order = chance.sample(range(len(task)), len(task))
            found = list(read_blobs(store, stage.rows().take(pa.array(order, pa.int64()))))
            wanted = [task[at]._asdict() for at in order]
            assert [bytes(each.data) for each in found] == [each.pop("data") for each in wanted]
            assert [{name: each.row[name] for name in wanted[0]} for each in found] == wanted
        delete_blobs(store, attempt)
        assert not list(store.list())


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 50))
def test_an_object_ends_before_it_is_too_large(sizes: list[int], object_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        with SpoolWriter(store, new_attempt(), object_bytes=object_bytes) as stage:
            for number, size in enumerate(sizes):
                stage.add(Blob(RECORDS, number, bytes([number]) * size))
        wanted, total = list[int](), 0
        for size in filter(None, sizes):
            if not wanted or total + size > object_bytes:
                wanted, total = [*wanted, 0], 0
            total += size
            wanted[-1] = total
        assert sorted(found.size for found in store.list()) == sorted(wanted)
        rows = stage.rows().to_pylist()
        assert [row["end"] - row["start"] for row in rows] == sizes
        assert [bytes(each.data) for each in read_blobs(store, stage.rows())] == [
            bytes([number]) * size for number, size in enumerate(sizes)
        ]


def test_what_stays_plain_is_counted_over_the_objects_of_a_task(tmp_path: Path) -> None:
    run = run_of([Record(T, 0, T, b"body" * 50)], seconds=False)
    size, store = packed_size(run), open_store(str(tmp_path))
    limits = {"plain_bytes": size * 5 // 2, "object_bytes": size}
    with SpoolWriter(store, new_attempt(), **limits) as stage:
        for number in range(4):
            stage.add(Blob(RECORDS, number, run))
    assert stage.rows()["squeezed"].to_pylist() == [False, False, True, True]
    assert len(set(stage.rows()["object"].to_pylist())) == len(list(store.list())) == 3
    assert [items_of(each.records()) for each in read_blobs(store, stage.rows())] == [
        items_of(run)
    ] * 4


@pytest.mark.parametrize(("hold_bytes", "most"), [(1, 64), (10**6, 4)])
def test_blobs_of_a_log_partition_are_read_together(hold_bytes: int, most: int) -> None:
    """64 units with a little of each of 16 log partitions."""
    store = CountingStore(open_store("memory://"))
    with SpoolWriter(store, new_attempt(), hold_bytes=hold_bytes) as stage:
        for unit, partition in product(range(64), range(16)):
            data = bytes([unit, partition]) * 1_000
            stage.add(Blob(BATCHES, unit, data, partition, partition + 1))
    rows = stage.rows().to_pylist()
    asked = [row for row in rows if row["partition"] == 7]
    before = store.counts.requests
    found = [*read_blobs(store, pa.Table.from_pylist(asked, SPOOLED))]
    assert [bytes(each.data) for each in found] == [bytes([unit, 7]) * 1_000 for unit in range(64)]
    assert store.counts.requests - before <= most


PART_BYTES, MOST_PARTS = 64 * 1024, 16


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An object store whose uploads have at most a MiB."""
    monkeypatch.setattr(object_store, "_PART_BYTES", PART_BYTES)
    with object_server() as server:
        server.most_parts = MOST_PARTS
        yield server


def _spooled(store: Store, object_bytes: int) -> tuple[list[bytes], pa.Table]:
    """Some MiB of blobs, and their rows."""
    data = [bytes([number]) * 150_000 for number in range(30)]
    with SpoolWriter(store, new_attempt(), object_bytes=object_bytes) as stage:
        for number, each in enumerate(data):
            stage.add(Blob(RECORDS, number, each))
    return data, stage.rows()


def test_a_task_has_more_blobs_than_an_upload_may_have_parts(narrow: ObjectServer) -> None:
    store = open_store(narrow.root, narrow.options)
    data, rows = _spooled(store, PART_BYTES * MOST_PARTS)
    assert [bytes(each.data) for each in read_blobs(store, rows)] == data
    assert len(narrow.objects) == len(set(rows["object"].to_pylist())) == 5
    with pytest.raises(StoreError):  # so the limit is one
        _spooled(store, 2 * PART_BYTES * MOST_PARTS)
    assert len(narrow.objects) == 5
    assert not narrow.uploads


def test_an_object_of_the_spool_has_parts_to_spare() -> None:
    assert object_store._PART_BYTES * 10_000 > OBJECT_BYTES + 4 * INT32_MAX  # a blob is below 2 GiB


@given(st.lists(st.lists(st.text(max_size=3), max_size=4), max_size=4), st.data())
def test_rows_whose_names_are_held_once_are_the_same_rows(
    tables: list[list[str]], data: st.DataObject
) -> None:
    told = [SPOOLED.empty_table()]
    for names in tables:
        same = dict.fromkeys(SPOOLED.names, 7) | {"text": "", "squeezed": True}
        rows = [same | {"object": name} for name in names]
        told.append(pa.Table.from_pylist(rows, SPOOLED))
    spooled = pa.concat_tables(told)
    wanted = data.draw(st.lists(st.integers(0, len(spooled) - 1), max_size=9) if len(spooled)
                       else st.just([]))  # fmt: skip
    for once in (intern_names(spooled), unpack_rows(map(pack_rows, told))):
        found = rows_at(once.combine_chunks(), np.array(wanted, np.int64))
        assert found.schema == SPOOLED
        assert found.to_pylist() == [spooled.to_pylist()[at] for at in wanted]


def test_a_million_blobs_are_far_below_spark_s_limit_of_results() -> None:
    """Of 1 GiB: Spark ends a job with more. Random bits of each row are in times and checksum."""
    chance, count = np.random.default_rng(7), 100_000
    numbers = np.arange(count)
    ends = np.cumsum(chance.integers(3_000, 5_000, count))
    times = T + numbers // 1000 * 60_000 + chance.integers(0, 2_000, count)
    columns: dict[str, Any] = dict.fromkeys(SPOOLED.names, np.zeros(count, np.int64)) | {
        "unit": numbers // 4000, "partition": numbers % 1000, "number": numbers % 4000,
        "records": chance.integers(30, 60, count),
        "size_bytes": chance.integers(9_000, 20_000, count),
        "sort_key": times, "last_sort_key": times + 55_000, "end": ends, "start": ends - 3_000,
        "crc32c": chance.integers(0, 2**32, count), "text": [""] * count,
        "object": [f"attempts/{new_attempt()}/blobs/{new_attempt()}"] * count,
    }  # fmt: skip
    rows = pa.table(columns).cast(SPOOLED)
    assert len(pack_rows(rows)) < 30 * count
    assert unpack_rows([pack_rows(rows)]).cast(SPOOLED) == rows


@pytest.mark.parametrize("at", range(9))
def test_damage_between_stages_is_an_error_that_names_the_object(tmp_path: Path, at: int) -> None:
    store = open_store(str(tmp_path))
    with SpoolWriter(store, new_attempt(), plain_bytes=9) as stage:
        stage.add(Blob(RECORDS, 0, b"one"))
        stage.add(Blob(RECORDS, 1, b"second"))
    (found,) = store.list()
    content = bytearray((tmp_path / found.key).read_bytes())
    content[at] ^= 1
    (tmp_path / found.key).write_bytes(content)
    with pytest.raises(CorruptData, match=f"{found.key} at byte {0 if at < 3 else 3}"):
        list(read_blobs(open_store(str(tmp_path)), stage.rows()))


class Losing(LocalEngine):
    """Does something to the lake once its input was read."""

    def __init__(self, lake: Path, suffix: str) -> None:
        super().__init__()
        self.lake, self.suffix = lake, suffix

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        results = super().map(task, items)
        if isinstance(task, MapUnits):
            for path in self.lake.glob(f"{ATTEMPTS}/*/blobs/*"):
                path.unlink() if self.suffix == "lost" else path.write_bytes(b"")
        return results


@pytest.mark.parametrize(("damage", "error"), [("lost", MissingObject), ("empty", StoreError)])
def test_a_run_that_loses_blobs_commits_nothing(
    tmp_path: Path, damage: str, error: type[SeglakeError]
) -> None:
    write_files(tmp_path / "in", [([Line(T, key) for key in "abcdefgh"], "")])
    lake = tmp_path / "lake"
    settings = pipeline_of(lake, tmp_path / "in")
    with pytest.raises(error, match="/blobs/"):
        ingest_files(Losing(lake, damage), settings, DeclaredRun("1"))
    assert not open_catalog(str(lake)).snapshot().files
    assert ingest(settings, "1").records == 8


@pytest.mark.parametrize("writes", range(12))
def test_no_blob_outlives_its_run(tmp_path: Path, writes: int) -> None:
    write_files(tmp_path / "in", [([Line(T, key) for key in "abcd"] + [Line(0, broken="{")], "")])
    settings = pipeline_of(tmp_path / "lake", tmp_path / "in")
    with dying(writes), suppress(StoreError):
        ingest(settings, "1")
    assert not list((tmp_path / "lake").glob(f"{ATTEMPTS}/*/blobs/*"))
    ingest(settings, "1")
    assert sum(map(len, read_lake(tmp_path / "lake").values())) == 4
    assert not list((tmp_path / "lake").glob(f"{ATTEMPTS}/*/blobs/*"))


def test_vacuum_takes_what_a_killed_run_staged(tmp_path: Path) -> None:
    write_files(tmp_path / "in", [([Line(T)], "")])
    report = ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"), "1")
    store = open_store(str(tmp_path / "lake"))
    for attempt in (report.attempt_id, new_attempt()):  # of a committed attempt, too
        with SpoolWriter(store, attempt) as stage:
            stage.add(Blob(RECORDS, 0, b"left behind"))
    staged = sorted(found.key for found in store.list(ATTEMPTS) if "/blobs/" in found.key)
    assert len(staged) == 2
    found = vacuum(str(tmp_path / "lake"), dry_run=False, grace_hours=0)
    assert sorted(found.deleted) == staged
    assert not [found for found in store.list(ATTEMPTS) if "/blobs/" in found.key]
