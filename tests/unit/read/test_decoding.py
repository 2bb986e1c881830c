"""Reads give the records of the reference decoder, or find the damage that it finds."""

from contextlib import nullcontext
from typing import Any

import crc32c
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from seglake.errors import CorruptData
from seglake.format import reference
from seglake.format.batch import COUNT_AT, CRC_AT, CRC_START, OVERHEAD
from seglake.format.codecs import codec_kernels, native
from seglake.format.sought_kernels import SoughtKeys
from seglake.log.caches import ByteCache
from seglake.log.execute import SCHEMA, execute, schema_of
from seglake.log.fetch import Chunk, LogFetch
from seglake.log.reads import BlockSearch
from seglake.log.record_cache import CachedFetch, RecordCache
from seglake.log.segment import Window
from seglake.log.zone_maps import Block
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


def by_reference(log: MadeLog) -> list[reference.Record]:
    records = list[reference.Record]()
    for start, size in zip(log.table["position"], log.table["size"], strict=True):
        records += reference.read_batch(bytes(log.data[start : start + size]), 2**25)
    return records


@given(logs, windows, names, st.sampled_from([1, 5_000, 2**25]), st.booleans(), st.data())
@examples(120)
def test_the_wanted_records_of_the_reference_decoder(
    asked: list[MadeLog], window: Window, columns: list[str], memory_bytes: int,
    with_libraries: bool, data: st.DataObject,
) -> None:  # fmt: skip
    """With the codecs' libraries by address, and without."""
    records = [(p, record) for p, log in enumerate(asked) for record in by_reference(log)]
    some = [record.key for _, record in records if record.key is not None]
    keys = data.draw(st.lists(st.sampled_from(some))) if some else []
    schema = schema_of([*dict.fromkeys([*columns, "partition", "offset", "timestamp"])])
    with pytest.MonkeyPatch.context() as patch:
        if not with_libraries:
            nowhere = np.zeros(codec_kernels.ADDRESSES, np.int64)
            patch.setattr(native, "addresses", lambda: nowhere)
        sought = SoughtKeys.from_keys(keys)
        found = read(asked, window, schema, memory_bytes=memory_bytes, keys=sought)
    wanted = [
        (partition, record)
        for partition, record in records
        if window.start_ms <= record.timestamp < window.end_ms and (not keys or record.key in keys)
    ]
    places = zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
    assert list(places) == [(partition, record.offset) for partition, record in wanted]
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [record.timestamp for _, record in wanted]
    for name in {"key", "value"} & {*columns}:
        assert found[name].to_pylist() == [getattr(record, name) for _, record in wanted]
    if "headers" in columns:
        headers = [
            [(h["key"].encode(), h["value"]) for h in row.as_py()] for row in found["headers"]
        ]
        assert headers == [record.headers for _, record in wanted]


@given(
    event_lists(min_size=1, max_size=8), st.sampled_from(CODECS), st.integers(0, 200),
    st.integers(1, 255), st.sampled_from([["offset"], ["key", "value"], SCHEMA.names]),
)  # fmt: skip
@examples(200)
def test_a_record_that_the_reference_refuses_is_damage(
    rows: list[Event], codec: str, place: int, flip: int, columns: list[str]
) -> None:
    """One byte of the batch changes, and the checksum with it."""
    log = made(rows, Shape(codec=codec, batch_bytes=2**20))
    batch = bytearray(log.data)
    batch[OVERHEAD + place % max(1, len(batch) - OVERHEAD)] ^= flip
    damaged = log._replace(data=with_checksum(batch))
    schema = schema_of([*dict.fromkeys(["offset", *columns])])
    try:
        expected = [record.offset for record in by_reference(damaged)]
    except CorruptData:
        if columns == SCHEMA.names:  # else the fields that nobody asks for are not looked at
            with pytest.raises(CorruptData) as caught:
                read([damaged], EVERYTHING, schema)
            assert (caught.value.file, caught.value.position) == (log.segment.log_key, 0)
    else:
        assert read([damaged], EVERYTHING, schema)["offset"].to_pylist() == expected


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_larger_than_the_columns_follows_small_batches(codec: str) -> None:
    noise = np.random.default_rng(3).bytes(2**20)
    sizes = [10, 20, 300_000, 30, 2**20, 2**20, 5]
    rows = [Event(T + i, b"k%d" % i, noise[:size]) for i, size in enumerate(sizes)]
    table = read([made(rows, Shape(codec))], EVERYTHING, SCHEMA, memory_bytes=2**16)
    assert table["value"].to_pylist() == [row.value for row in rows]
    assert table["key"].to_pylist() == [row.key for row in rows]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_kept_batches_are_read_from_memory(codec: str) -> None:
    """A local log's batches are kept at the third reading; then nothing is fetched."""
    log, found = made(events(500), Shape(codec=codec, batch_bytes=400)), []
    cache = RecordCache(2**26)
    for _ in range(4):
        store: Any = Shelf([log], remote=False)
        fetch = CachedFetch(LogFetch(store), cache)
        batches = execute(fetch, [log.piece(EVERYTHING)], SCHEMA)
        found.append((pa.Table.from_batches(batches, SCHEMA), store.bytes_read))
    assert [size > 0 for _, size in found] == [True, True, True, False]
    assert all(table.equals(found[0][0]) for table, _ in found)


def events(count: int) -> list[Event]:
    return [Event(T + i, b"k%d" % i, b"v" * (i % 50)) for i in range(count)]


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
    return data[:start] + with_checksum(batch) + data[end:]


def with_checksum(batch: bytearray) -> bytes:
    batch[CRC_AT:CRC_START] = crc32c.crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


# One record of an index block: the kernel, the long way and a plain search agree.


small_shapes = st.builds(
    Shape, codec=st.sampled_from(CODECS), batch_bytes=st.sampled_from([100, 400])
)
questions = st.lists(st.tuples(st.integers(T - 5, T + 150), st.integers(0, 60)), min_size=1)


def searched(log: MadeLog) -> tuple[BlockSearch, Block]:
    store: Any = Shelf([log], remote=False)
    block = Block(0, 0, len(log.data), 0, log.segment.end_offset)
    return BlockSearch(LogFetch(store), ByteCache(2**20)), block


@given(event_lists(min_size=1, max_size=60), small_shapes, questions, st.booleans())
@examples(100)
def test_the_first_record_at_a_time_from_an_offset_on(
    rows: list[Event], shape: Shape, asked: list[tuple[int, int]], compiled: bool
) -> None:
    log = made(rows, shape)
    search, block = searched(log)
    with nullcontext() if compiled else pytest.MonkeyPatch.context() as patch:
        if patch is not None:
            patch.setattr(native, "addresses", lambda: np.zeros(codec_kernels.ADDRESSES, np.int64))
        for time, least in [*asked, *asked]:  # the second time from what is known
            reaching = [(r.offset, r.timestamp) for r in log.records if r.timestamp >= time]
            right = next((each for each in reaching if each[0] >= least), None)
            assert search.first_reaching(log.segment, block, time, least) == right


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_the_kernel_needs_no_other_way(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = made([Event(T + i) for i in range(50)], Shape(codec=codec, batch_bytes=200))
    search, block = searched(log)
    monkeypatch.delattr(Chunk, "decode_in_parts")
    assert search.first_reaching(log.segment, block, T + 40, 0) == (40, T + 40)


@given(st.sampled_from(CODECS), st.data())
@examples(60)
def test_a_wrong_byte_is_found_and_its_file_named(codec: str, data: st.DataObject) -> None:
    log = made([Event(T + i, b"k", b"v" * i) for i in range(20)], Shape(codec, batch_bytes=200))
    damaged, at = bytearray(log.data), data.draw(st.integers(21, len(log.data) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    search, block = searched(log._replace(data=bytes(damaged)))
    batch = int(log.table["position"].searchsorted(at, "right")) - 1
    if at - int(log.table["position"][batch]) < 21:  # outside the checksum
        return
    with pytest.raises(CorruptData, match=log.segment.log_key):
        search.first_reaching(log.segment, block, T + 19, 0)
