"""What large runs gather: the sizes of it, what comes back, and a disk that does not take it."""

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.config import Pipeline
from seglake.errors import StoreError
from seglake.format.records import Int64s
from seglake.write.map import unit
from seglake.write.map.frame import MapFrame
from seglake.write.map.unit import (
    Arrivals,
    ChunkBuffer,
    MapUnits,
    group_splits,
    largest_lateness_ms,
    map_sizes,
    map_sizes_for_frame,
    size_bytes,
)
from seglake.write.spool import spill_buffer
from seglake.write.spool.sorted_records import SortedRecords
from seglake.write.spool.spool import RECORDS, filter_kinds, unpack_rows
from tests.harness.large_runs import large_runs
from tests.makers.inputs import map_settings, splits_of
from tests.makers.raw_events import Line, T, pipeline_of, write_files
from tests.makers.sorted_blobs import Item, items_of, run_of

GB, TB = 10**9, 10**12


def pipeline(partitions: int) -> Pipeline:
    return pipeline_of("lake", ["in"], topic={"partitions": partitions})


@pytest.mark.parametrize(
    ("input_bytes", "partitions", "unit_bytes", "most_units", "most_blobs"),
    [
        (0, 4096, 16 * 2**20, 0, 0),
        (4 * GB, 200, 16 * 2**20, 240, 64_000),  # gathers nothing
        (1 * GB, 4_096, 16 * 2**20, 64, 270_000),
        (20 * GB, 200, 256 * 2**20, 75, 92_000),
        (417 * GB, 1, 16 * 2**20, 25_000, 1_700_000),
        (417 * GB, 200, 400 * 2**20, 1_030, 1_800_000),
        (10 * TB, 4_096, 14 * GB, 800, 4_510_000),
    ],
)
def test_the_sizes_of_runs(
    input_bytes: int, partitions: int, unit_bytes: int, most_units: int, most_blobs: int
) -> None:
    sizes = map_sizes(input_bytes, pipeline(partitions))
    units = input_bytes / sizes.unit_bytes
    assert sizes.unit_bytes == pytest.approx(unit_bytes, rel=0.1)
    assert sizes.gather_bytes in {0, 2 * sizes.unit_bytes}
    assert units <= most_units
    # each log partition of a unit has a blob that is not full
    assert units * partitions + input_bytes / sizes.blob_bytes <= most_blobs


chunks = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-9, 9)), max_size=20), max_size=8
)


def grouped(chunk: Sequence[tuple[int, int]], number: int) -> tuple[SortedRecords, Int64s]:
    in_order = sorted(enumerate(chunk), key=lambda each: each[1][0])
    records = run_of(
        [Item(key, 0, key, f"{number} {at}".encode()) for at, (_, key) in in_order],
        seconds=False, same=True,
    )  # fmt: skip
    partitions = [partition for _, (partition, _) in in_order]
    return records, np.cumsum(np.bincount(partitions, minlength=7))


@given(chunks, st.integers(1, 2_000))
def test_what_is_gathered_comes_back_in_order(
    given_chunks: list[list[tuple[int, int]]], gather_bytes: int
) -> None:
    wanted: dict[int, list[str]] = {}
    with large_runs():
        kept = ChunkBuffer(7, gather_bytes)
        for number, chunk in enumerate(given_chunks):
            kept.add(*grouped(chunk, number))
            for at, (partition, _) in enumerate(chunk):
                wanted.setdefault(partition, []).append(f"{number} {at}")
        found: dict[int, list[str]] = {}
        for records, partitions in kept.take():
            for item, partition in zip(items_of(records), partitions.tolist(), strict=True):
                found.setdefault(partition, []).append(item.body.decode())
        assert found == wanted
        assert [*kept.take()] == []
        kept.close()


def test_a_large_run_has_few_blobs(tmp_path: Path) -> None:
    """Each unit has one or two of each log partition, not one for each chunk."""
    some = [Line(T + number, key=str(number)) for number in range(2_000)]
    write_files(tmp_path / "in", [(some, "")])
    task = {"split_bytes": 600, "chunk_bytes": 600, "blob_bytes": 10_000}
    settings = pipeline_of(tmp_path / "lake", [tmp_path / "in"], task=task)
    counts = []
    for large in (False, True):
        made = map_settings(settings)
        splits = splits_of(settings)
        if large:
            with large_runs():
                made = made._replace(sizes=map_sizes(sum(map(size_bytes, splits)), settings))
        units = group_splits(splits, made.sizes.unit_bytes)
        rows = filter_kinds(unpack_rows([MapUnits(made)(units)]), RECORDS)
        assert rows["records"].to_numpy().sum() == 2_000
        each = Counter(zip(rows["unit"].to_pylist(), rows["partition"].to_pylist(), strict=True))
        counts.append((len(units), len(rows), max(each.values())))
    small, large_ones = counts
    assert large_ones[0] * 4 < small[0]
    assert large_ones[1] * 4 < small[1]
    assert large_ones[2] == 1


@pytest.mark.parametrize(("partitions", "gathers"), [(3, False), (50, True)])
@pytest.mark.parametrize("order", ["time", "arrival"])
def test_a_partition_of_a_dataframe_has_few_blobs(
    tmp_path: Path, partitions: int, gathers: bool, order: str
) -> None:
    settings = Pipeline.model_validate({
        "name": "a", "root": str(tmp_path), "order": order,
        "input": {"format": "dataframe", "order_column": "n"},
        "timestamp": {"field": "t", "format": "epoch_ms"}, "key": {"fields": ["k"]},
        "topic": {"name": "c", "partitions": partitions},
        "task": {"chunk_bytes": 4_000, "blob_bytes": 1_000},
    })  # fmt: skip
    numbers = np.random.default_rng(1).permutation(2_000)
    columns: dict[str, Any] = {"t": T + numbers % 500, "k": numbers % 300, "n": numbers}
    batch = pa.table(columns).to_batches()[0]
    sizes = map_sizes_for_frame(settings)
    assert bool(sizes.gather_bytes) is gathers
    task = MapFrame(map_settings(settings)._replace(sizes=sizes), "n", tuple(columns))
    blobs = [each for each in task.blobs([batch]) if each.kind == RECORDS]
    assert sum(each.records for each in blobs) == 2_000
    most = max(Counter(each.partition for each in blobs).values())
    assert most <= (6 if gathers else 60)
    assert gathers or most > 10
    for each in blobs:
        assert isinstance(each.data, SortedRecords)
        keys = [(item.sort_key, item.tie_breaker) for item in items_of(each.data)]
        assert keys == sorted(keys)


def test_memory_does_not_grow_with_what_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit, "_RANGE_BYTES", 2**20)
    monkeypatch.setattr(spill_buffer, "_MEMORY_BYTES", 2**20)
    body = np.random.default_rng(1).bytes(1_000)
    records = run_of([Item(T, 0, T, body)] * 1_000, seconds=False, same=True)
    tracemalloc.start()
    kept = ChunkBuffer(3, 30 * 2**20)
    for _ in range(30):
        kept.add(records, np.array([400, 400, 1_000]))
    for _ in kept.take():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * 2**20 < 30 * len(body) * 1_000


def test_a_disk_that_does_not_take_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    with large_runs():
        kept = ChunkBuffer(7, 10**6)
        chunk = grouped([(number % 7, number) for number in range(200)], 0)
        with pytest.raises(StoreError, match=r"gone .No such file .* spark\.local\.dir"):
            kept.add(*chunk)


# Lateness of events in order of arrival, against one pass over all of them.


PARTITIONS = 3
events = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(-1, 50) | st.integers(0, 2**60))
units = st.lists(st.lists(st.lists(events, max_size=5), max_size=3), max_size=5)


@given(units)
def test_units_joined_are_one_pass(units: list[list[list[tuple[int, int]]]]) -> None:
    noted = []
    for one in units:
        arrivals = Arrivals(PARTITIONS)
        for chunk in one:
            columns = np.array(chunk, np.int64).reshape(-1, 2)
            arrivals.add(columns[:, 1], columns[:, 0].astype(np.int32))
        noted.append(arrivals.ranges())
    worst, largest = 0, [-1] * PARTITIONS
    for partition, time in (event for one in units for chunk in one for event in chunk):
        worst = max(worst, largest[partition] - time)
        largest[partition] = max(largest[partition], time)
    assert largest_lateness_ms(noted) == worst
