"""From fetched bytes to columns in one kernel: equal to the long way, and what it leaves there."""

from __future__ import annotations

from typing import Any

import crc32c
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from seglake.errors import CorruptData
from seglake.format.batch import COUNT_AT, CRC_AT, CRC_START
from seglake.format.codecs import codec_kernels, native
from seglake.log.batch_cache import BatchCache
from seglake.log.chunk import Chunk
from seglake.log.decode.columns import SCHEMA, schema_of
from seglake.log.execute import execute
from seglake.log.fetch import LogFetch
from seglake.log.piece import Window
from seglake.log.slabs import SlabCache
from tests.makers.lakes import Event, Shape
from tests.makers.logs import MadeLog, Shelf, made
from tests.makers.strategies import T, event_lists, examples

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
EVERYTHING = Window()
names = st.lists(st.sampled_from(SCHEMA.names), unique=True, min_size=1)
shapes = st.builds(
    Shape, codec=st.sampled_from(CODECS), batch_bytes=st.sampled_from([100, 400, 16384])
)
logs = st.lists(st.tuples(event_lists(max_size=100), shapes), min_size=1, max_size=3).map(
    lambda drawn: [made(rows, shape, partition=i) for i, (rows, shape) in enumerate(drawn)]
)
windows = st.tuples(st.integers(T - 50, T + 200), st.integers(0, 200)).map(
    lambda pair: Window(pair[0], pair[0] + pair[1])
)


def read(asked: list[MadeLog], window: Window, schema: pa.Schema, **options: Any) -> pa.Table:
    store: Any = Shelf(asked, remote=False)
    pieces = [log.piece(window) for log in asked]
    return pa.Table.from_batches(execute(LogFetch(store), pieces, schema, **options), schema)


def long_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(native, "addresses", lambda: np.zeros(codec_kernels.ADDRESSES, np.int64))


def no_long_way(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("this batch went the long way")

    patch.setattr(Chunk, "decode_in_parts", refuse)


@given(logs, windows, names, st.sampled_from([1, 5_000, 2**25]))
@examples(80)
def test_both_ways_are_equal(
    asked: list[MadeLog], window: Window, columns: list[str], memory_bytes: int
) -> None:
    schema = schema_of(columns)
    direct = read(asked, window, schema, memory_bytes=memory_bytes)
    with pytest.MonkeyPatch.context() as patch:
        long_way(patch)
        assert read(asked, window, schema, memory_bytes=memory_bytes).equals(direct)


def events(count: int, headers: bool = False) -> list[Event]:
    with_headers = (("h", b"1"),) if headers else ()
    return [Event(T + i, b"k%d" % i, b"v" * (i % 50), with_headers) for i in range(count)]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("columns", [["key", "value", "timestamp"], ["offset"], SCHEMA.names])
def test_no_batch_goes_the_long_way(codec: str, columns: list[str]) -> None:
    log = made(events(500), Shape(codec=codec, batch_bytes=400))
    with pytest.MonkeyPatch.context() as patch:
        no_long_way(patch)
        assert len(read([log], EVERYTHING, schema_of(columns))) == 500


def test_headers_take_the_long_way_if_they_are_asked_for() -> None:
    log = made(events(50, headers=True), Shape(codec="zstd", batch_bytes=400))
    with pytest.MonkeyPatch.context() as patch:
        no_long_way(patch)
        assert len(read([log], EVERYTHING, schema_of(["key", "value"]))) == 50
        with pytest.raises(AssertionError, match="long way"):
            read([log], EVERYTHING, schema_of(["headers"]))
    assert read([log], EVERYTHING, schema_of(["headers"]))["headers"][49].as_py() == [
        {"key": "h", "value": b"1"}
    ]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_kept_batches_are_read_from_memory(codec: str) -> None:
    """A local log's batches are kept at the third reading; then nothing is fetched."""
    log, found = made(events(500), Shape(codec=codec, batch_bytes=400)), []
    slabs = SlabCache(2**26)
    for _ in range(4):
        store: Any = Shelf([log], remote=False)
        fetch = BatchCache(LogFetch(store), slabs)
        batches = execute(fetch, [log.piece(EVERYTHING)], SCHEMA)
        found.append((pa.Table.from_batches(batches, SCHEMA), store.bytes_read))
    assert [size > 0 for _, size in found] == [True, True, True, False]
    assert all(table.equals(found[0][0]) for table, _ in found)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_damage_behind_the_checksum_names_file_and_byte(codec: str) -> None:
    log = made(events(60), Shape(codec=codec, batch_bytes=400))
    start, size = log.table[2][["position", "size"]].tolist()
    damaged = log._replace(data=with_a_record_too_few(log.data, start, start + size))
    with pytest.raises(CorruptData, match="bytes are left") as caught:
        read([damaged], EVERYTHING, SCHEMA)
    assert (caught.value.file, caught.value.position) == (log.segment.log_key, start)


def with_a_record_too_few(data: bytes, start: int, end: int) -> bytes:
    """The log with one batch whose header counts a record less, and has the right checksum."""
    batch = bytearray(data[start:end])
    count = int.from_bytes(batch[COUNT_AT : COUNT_AT + 4], "big")
    batch[COUNT_AT : COUNT_AT + 4] = (count - 1).to_bytes(4, "big")
    batch[CRC_AT:CRC_START] = crc32c.crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return data[:start] + bytes(batch) + data[end:]
