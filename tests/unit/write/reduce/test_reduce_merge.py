"""Merging against a sort of everything, and the memory that it holds."""

import itertools
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import SegmentId
from seglake.errors import InputError
from seglake.format.codecs.compression import IDS, NAMES, compressor
from seglake.format.encode import Bodies, Encoding, encode_batches, encode_bodies
from seglake.format.records import Records, Spans
from seglake.layout import new_attempt
from seglake.log.writer import SegmentWriter
from seglake.store import open_store
from seglake.write.reduce.tasks import consecutive, encode, merge
from seglake.write.spool.sorted_records import Place, PlacedRecords, SortedRecords
from seglake.write.spool.spool import (
    compress_records,
    decompress_records,
    pack_batches,
    pack_records,
    packed_size,
    unpack_batches,
    unpack_records,
)
from tests.makers.sorted_blobs import Blobs, Item, blob_lists, items_of, run_of
from tests.makers.strategies import T, topic_of

places = st.builds(
    Place, st.integers(-6, 6), st.integers(-1, 30), st.integers(0, 4), st.integers(0, 4)
)


@given(blob_lists(), st.sampled_from([0, 1, 100, 500, 10**6]))
def test_a_merge_is_a_sort_of_everything(given_blobs: Blobs, buffer_bytes: int) -> None:
    runs = list(merge(iter(given_blobs.arranged()), buffer_bytes))
    assert [item for run in runs for item in items_of(run)] == given_blobs.items()
    assert all(len(run) for run in runs)


@given(blob_lists(), places)
def test_what_stands_before_a_place(given_blobs: Blobs, place: Place) -> None:
    for blob in given_blobs.blobs:
        if blob.records.tie_breakers is None:
            place = place._replace(tie_breaker=0)
        tail = blob.place[2:] if blob.records.tie_breakers is None else ()
        before = [i for i in items_of(blob.records) if (*i[:2], *tail) < place[: 2 + len(tail)]]
        assert blob.count_before(place) == len(before)


@given(blob_lists())
def test_blobs_come_back_from_their_packing(given_blobs: Blobs) -> None:
    for blob in given_blobs.blobs:
        packed = b"".join(pack_records(blob.records))
        assert packed_size(blob.records) == len(packed)
        found = unpack_records(packed)
        assert items_of(found) == items_of(blob.records)
        assert (found.tie_breakers is None) == (blob.records.tie_breakers is None)
        for start in range(len(found)):
            part = found.part(start, len(found))
            again = decompress_records(compress_records(part))
            assert items_of(again) == items_of(part) == items_of(part.detached())
        backwards = replace(found, bodies=found.bodies.take(slice(None, None, -1)))
        assert items_of(backwards.detached()) == items_of(backwards)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_keys_that_are_timestamps_are_packed_once(times: list[int]) -> None:
    items = [Item(time, 0, time, b"b") for time in sorted(times)]
    run = run_of(items, seconds=False, same=True)
    columns, bodies = pack_records(run)
    assert len(columns) == 16 + 2 * 8 * len(run)  # times and sizes
    for found in (
        unpack_records(columns + bytes(bodies)),
        decompress_records(compress_records(run)),
    ):
        assert items_of(found) == items
        assert found.timestamps is found.sort_keys
    part = found.part(0, 1)
    assert part.timestamps is part.sort_keys


@given(blob_lists(seconds=True), st.data(), st.sampled_from([0, 100, 10**6]))
def test_equal_places_of_a_dataframe_are_an_error(
    given_blobs: Blobs, data: st.DataObject, buffer_bytes: int
) -> None:
    list(merge(iter(given_blobs.arranged()), buffer_bytes, "id"))
    copied = items_of(data.draw(st.sampled_from(given_blobs.blobs)).records)[0]
    twice = PlacedRecords(Place(*copied[:2], 99, 1), run_of([copied], seconds=True))
    blobs = given_blobs._replace(blobs=[*given_blobs.blobs, twice])
    with pytest.raises(InputError, match=f"'id' has {copied.tie_breaker} twice"):
        list(merge(iter(blobs.arranged()), buffer_bytes, "id"))


# ------------------------------------------------------------------ memory

BLOB_RECORDS, BODY_BYTES = 500, 100
BLOB_BYTES = BLOB_RECORDS * (BODY_BYTES + 32)


def wide_blobs(count: int, overlap: int) -> Iterator[PlacedRecords]:
    """Blobs made one by one, each with keys that reach over so many of its successors."""
    sizes = np.full(BLOB_RECORDS, BODY_BYTES, np.int64)
    for number in range(count):
        keys = number * 1000 + np.arange(BLOB_RECORDS, dtype=np.int64) * 2 * overlap
        data = np.full(BLOB_RECORDS * BODY_BYTES, number % 256, np.uint8)
        bodies = Bodies(np.cumsum(sizes) - sizes, sizes.copy(), data)
        yield PlacedRecords(
            Place(int(keys[0]), 0, number, 1), SortedRecords(keys, None, keys, bodies)
        )


def peak_of(blobs: Iterator[PlacedRecords], buffer_bytes: int) -> int:
    tracemalloc.start()
    try:
        last = -1
        for run in merge(blobs, buffer_bytes):
            assert last <= run.sort_keys[0]
            assert np.all(run.sort_keys[1:] >= run.sort_keys[:-1])
            last = int(run.sort_keys[-1])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("overlap", [1, 8, 30])
def test_memory_is_bounded_by_the_buffer_and_the_overlap(overlap: int) -> None:
    buffer = 10 * BLOB_BYTES
    list(merge(wide_blobs(30, overlap), buffer))  # the kernels are loaded before memory is counted
    peak = peak_of(wide_blobs(400, overlap), buffer)
    # what is pending, and a joined copy of it with the columns of a sort
    assert peak < 5 * (buffer + overlap * BLOB_BYTES)
    assert peak < 400 * BLOB_BYTES / 2


def test_a_small_part_does_not_hold_a_large_blob() -> None:
    """What a piece takes of blobs that reach over many pieces is a few records of each."""
    blobs_data: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    def parts() -> Iterator[PlacedRecords]:
        for number in range(400):
            blob = next(wide_blobs(1, 1))
            blobs_data.append(weakref.ref(blob.records.bodies.data))
            yield PlacedRecords(blob.place._replace(unit=number), blob.records).part(100, 110)
            alive.append(sum(ref() is not None for ref in blobs_data))

    assert sum(len(run) for run in merge(parts(), 10**9)) == 400 * 10
    assert len(alive) == 400
    assert max(alive) <= 2  # the one that comes, and the one before


def test_total_disorder_is_looked_at_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    count_before = PlacedRecords.count_before

    def counting(blob: PlacedRecords, place: Place) -> int:
        looked.append(place)
        return count_before(blob, place)

    monkeypatch.setattr(PlacedRecords, "count_before", counting)
    blobs = wide_blobs(300, 10**6)  # each reaches over all that follow
    assert sum(len(run) for run in merge(blobs, 10 * BLOB_BYTES)) == 300 * BLOB_RECORDS
    distinct = [a for a, b in pairwise(looked) if a != b]
    assert len(distinct) <= 31  # not once for each blob


# Batches and segments on the reduce side: nothing depends on how records were buffered.


def whole_run(values: list[bytes], times: list[int]) -> SortedRecords:
    records = Records(
        np.array(times, np.int64), Spans.nulls(len(values)), Spans.from_list([*values])
    )
    bodies = encode_bodies(records, np.arange(len(values)))
    return SortedRecords(records.timestamps, None, records.timestamps, bodies)


records_lists = st.lists(
    st.tuples(st.binary(max_size=60), st.integers(T, T + 5000)), min_size=1, max_size=60
)


@given(records_lists, st.lists(st.integers(0, 60), max_size=8), st.sampled_from(NAMES),
       st.sampled_from([1, 100, 250, 10**5]))  # fmt: skip
def test_batches_do_not_depend_on_the_buffer(
    given_records: list[tuple[bytes, int]], cuts: list[int], codec: str, batch_bytes: int
) -> None:
    values, times = zip(*given_records, strict=True)
    run = whole_run([*values], [*times])
    encoding = Encoding(compressor(codec), IDS[codec], batch_bytes)
    whole = encode_batches(run.timestamps, run.bodies, encoding, base_offset=5)
    edges = [0, *sorted(min(cut, len(run)) for cut in cuts), len(run)]
    parts = (run.part(start, end) for start, end in itertools.pairwise(edges))
    found = list(encode(parts, encoding, 5))
    assert b"".join(part.data.tobytes() for part in found) == whole.data.tobytes()
    tables = np.concatenate([part.table for part in found])
    for name in set(whole.table.dtype.names or ()) - {"position"}:
        assert tables[name].tolist() == whole.table[name].tolist()


@given(
    records_lists, st.sampled_from(NAMES), st.integers(1, 9), st.sampled_from([1, 150, 10**5]),
    st.booleans(),
)  # fmt: skip
def test_finished_batches_travel_and_follow_each_other(
    given_records: list[tuple[bytes, int]], codec: str, size: int, batch_bytes: int, hashed: bool
) -> None:
    encoding = Encoding(compressor(codec), IDS[codec], batch_bytes, hash_keys=hashed)
    parts, expected, base = [], b"", 1000
    for at in range(0, len(given_records), size):
        some = given_records[at : at + size]
        values, times = zip(*some, strict=True)
        run = whole_run([*values], [*times])
        parts.append(encode_batches(run.timestamps, run.bodies, encoding))
        expected += encode_batches(
            run.timestamps, run.bodies, encoding, base_offset=base
        ).data.tobytes()
        base += len(some)
    arrived = (unpack_batches(pack_batches(part)) for part in parts)
    found = list(consecutive(arrived, 1000))
    assert b"".join(part.data.tobytes() for part in found) == expected
    offsets = [row for part in found for row in part.table[["base_offset", "last_offset"]].tolist()]
    assert offsets[0][0] == 1000
    for sent, part in zip(parts, found, strict=True):
        assert (part.keys is not None) is hashed
        if sent.keys and part.keys:
            assert [column.tolist() for column in part.keys] == [
                column.tolist() for column in sent.keys
            ]
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(offsets))


def test_after_an_error_no_file_is_published(tmp_path: Path) -> None:
    run = whole_run([b"v" * 50] * 40, [T] * 40)
    batches = encode_batches(run.timestamps, run.bodies, Encoding(None, 0, 200))
    attempt = new_attempt()
    first = SegmentId("events", 0, 0, attempt, attempt)

    def fail() -> None:
        with SegmentWriter(open_store(str(tmp_path)), first, topic_of(), T) as writer:
            writer.append(batches)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
