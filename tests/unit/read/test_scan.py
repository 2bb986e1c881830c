"""Fetching, decoding and keeping against the plain list, however small the parts and the memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import CorruptData
from seglake.log import record_cache
from seglake.log.execute import SCHEMA, ReadStats, execute, side_by_side
from seglake.log.fetch import Fetch, LogFetch
from seglake.log.record_cache import CachedFetch, RecordCache
from seglake.log.segment import Window
from tests.judges.oracle import as_written
from tests.makers.lakes import Shape, Written
from tests.makers.logs import MadeLog, Shelf, made
from tests.makers.strategies import T, event_lists, examples

shapes = st.builds(
    Shape,
    codec=st.sampled_from(["none", "zstd", "lz4"]),
    batch_bytes=st.sampled_from([100, 400, 16384]),
)
logs = st.lists(st.tuples(event_lists(max_size=150), shapes), min_size=1, max_size=4).map(
    lambda drawn: [made(rows, shape, partition=i) for i, (rows, shape) in enumerate(drawn)]
)
bounds = st.one_of(st.integers(T - 100, T + 400), st.sampled_from([-1, 0, 2**62]))
windows = st.tuples(bounds, bounds).map(lambda pair: Window(min(pair), max(pair)))


def read(fetch: Fetch, asked: list[MadeLog], window: Window, **options: Any) -> list[Written]:
    pieces = [log.piece(window) for log in asked]
    batches = list(execute(fetch, pieces, SCHEMA, **options))
    assert all(len(batch) for batch in batches)
    return as_written(pa.Table.from_batches(batches, SCHEMA))


def expected(asked: list[MadeLog], window: Window) -> list[Written]:
    records = (record for log in asked for record in log.records)
    return [record for record in records if window[0] <= record.timestamp < window[1]]


@given(
    logs, windows, st.sampled_from([1, 2, 3, 7]), st.sampled_from([1, 5_000, 70_000, 2**25]),
    st.booleans(),
)  # fmt: skip
@examples(60)
def test_threads_and_memory_change_nothing(
    asked: list[MadeLog], window: Window, threads: int, memory_bytes: int, remote: bool
) -> None:
    store: Any = Shelf(asked, remote=remote)
    stats = ReadStats()
    options = {"threads": threads, "memory_bytes": memory_bytes, "stats": stats}
    found = read(LogFetch(store), asked, window, **options)
    assert found == expected(asked, window)
    assert stats.records == len(found)
    claimed = sum(log.piece(window).size_bytes for log in asked)
    assert claimed <= store.bytes_read <= stats.bytes_fetched
    if not remote:  # which joins ranges over gaps; what a request cuts off is read again
        assert claimed <= stats.bytes_fetched <= 2 * claimed
    matching = {(record.partition, record.offset) for record in found}
    assert stats.bytes_matching == sum(
        int(row["size"])
        for log in asked
        for row in log.table
        if any(
            (log.segment.partition, offset) in matching
            for offset in range(row["base_offset"], row["last_offset"] + 1)
        )
    )


@given(
    logs, st.lists(windows, min_size=2, max_size=6), st.sampled_from([0, 3_000, 20_000, 2**26]),
    st.sampled_from([1, 3]),
)  # fmt: skip
@examples(40)
def test_what_is_cached_changes_nothing(
    asked: list[MadeLog], wanted: list[Window], cache_bytes: int, threads: int
) -> None:
    """Windows that meet, in a cache that holds nothing, some, or all; it keeps what comes again."""
    cache = RecordCache(cache_bytes)
    for window in 4 * wanted:  # what is read the third time is kept
        store: Any = Shelf(asked, remote=False)
        stats = ReadStats()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_cache, "_LARGEST_SHARE", 1)
            fetch = CachedFetch(LogFetch(store), cache)
            found = read(fetch, asked, window, stats=stats, threads=threads)
        assert found == expected(asked, window)
        assert store.bytes_read == stats.bytes_fetched
    assert store.bytes_read == 0 or cache_bytes < 2**26


@given(logs, st.integers(30, 3_000), st.integers(1, 4), st.booleans())
@examples(60)
def test_chunks_are_the_batches_of_their_ranges(
    asked: list[MadeLog], fetch_bytes: int, every: int, remote: bool
) -> None:
    """Any batches of any logs as ranges, cut into fetches of any size."""
    kept = [np.arange(len(log.table)) % every == 0 for log in asked]
    pieces = [log.part(Window(), keep) for log, keep in zip(asked, kept, strict=True)]
    wanted = [
        (log.segment.log_key, at, log.data[at : at + size])
        for log, keep in zip(asked, kept, strict=True)
        for at, size in log.table[keep][["position", "size"]].tolist()
    ]
    found = []
    store: Any = Shelf(asked, remote=remote)
    fetch = LogFetch(store)
    for chunk in fetch.chunks(pieces, fetch_bytes=fetch_bytes):
        view = memoryview(chunk.data)
        places = zip(chunk.owner_of.tolist(), chunk.log_positions.tolist(), strict=True)
        for (owner, log_position), row in zip(places, chunk.table, strict=True):
            at, size = int(row["position"]), int(row["size"])
            key = chunk.pieces[owner].segment.log_key
            found.append((key, log_position, bytes(view[at : at + size])))
    assert found == wanted


class TestShares:
    @given(st.lists(st.lists(st.integers(), max_size=4), max_size=6), st.integers(1, 5))
    def test_items_come_in_order(self, runs: list[Any], threads: int) -> None:
        found = list(side_by_side(iter([iter(run) for run in runs]), threads))
        assert found == [item for run in runs for item in run]

    @pytest.mark.parametrize("threads", [1, 2, 4])
    @pytest.mark.parametrize("where", ["run", "runs"])
    def test_what_is_raised_comes_in_its_place(self, threads: int, where: str) -> None:
        def items() -> Iterator[Any]:
            yield 2
            if where == "run":
                raise CorruptData("bad")

        def runs() -> Iterator[Any]:
            yield iter([1])
            yield items()
            raise CorruptData("bad")

        found = side_by_side(runs(), threads)
        assert (next(found), next(found)) == (1, 2)
        with pytest.raises(CorruptData, match="bad"):
            next(found)
