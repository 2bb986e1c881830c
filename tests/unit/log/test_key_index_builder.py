"""The key index: no key is missed, and its bytes depend on the records alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import CorruptData
from seglake.format import keyindex
from seglake.format.batch import CONTROL
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.decode import decode_batches, scan_batches
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.index import (
    RECORD_KEYS,
    IndexPolicy,
    subjects_as_json,
    subjects_from_json,
    subjects_of,
)
from seglake.format.key_hashes import hashes_of_keys
from seglake.format.key_kernels import REST_BITS
from seglake.format.segment import choose_indexed
from seglake.log import key_indexes
from seglake.log.caches import ByteCache
from seglake.log.key_indexes import KeyIndexBuilder, KeyIndexes
from tests.makers.lakes import Event, records_of

KEYS = st.one_of(
    st.none(), st.just(b""), st.sampled_from([b"a", b"b", b"user-17"]), st.binary(max_size=40)
)
OF = (RECORD_KEYS,)
OTHERS = {"index.fields": ["order.id", "ü"], "index.headers": ["tenant"]}
POLICIES = [IndexPolicy(0, OF), IndexPolicy(300, OF), IndexPolicy(420, OF)]


def _log(keys: list[bytes | None], codec: str = "none", batch_bytes: int = 120) -> bytes:
    records = records_of([Event(1_700_000_000_000 + i, key) for i, key in enumerate(keys)])
    bodies = encode_bodies(records, np.arange(len(keys)))
    encoding = Encoding(compressor(codec), IDS[codec], batch_bytes, None)
    return encode_batches(records.timestamps, bodies, encoding, base_offset=0).data.tobytes()


def _built(log: bytes, policy: IndexPolicy, cuts: list[int] | None = None) -> bytes:
    builder, table, start = KeyIndexBuilder(0, policy), scan_batches(log), 0
    for stop in [*sorted(cuts or []), len(table)]:
        if some := len(part := table[start : max(start, stop)]):
            at = int(part["position"][0])
            builder.add(part, log[at : at + int(part["size"].sum())])
            start += some
    return builder.finish(len(log))["keyindex"]


def _marked(data: bytes, keys: list[bytes]) -> np.ndarray:
    tables = keyindex.decode_head(data, len(data))
    marks = np.zeros(tables.blocks, np.bool_)
    for row in tables.rows:
        start = int(row["position"])
        keyindex.check_page(row, data[start : start + int(row["bytes"])])
    hashes = hashes_of_keys(keys)
    keyindex.may_hold(np.frombuffer(data, np.uint8), tables.rows, hashes, marks)
    return marks


def _blocks(log: bytes, policy: IndexPolicy) -> list[tuple[bytes | None, int]]:
    """Each key with the number of its block, by the rule of the zone map."""
    table = scan_batches(log)
    decoded = decode_batches(log, table)
    number = np.cumsum(choose_indexed(table, policy))
    return list(zip(decoded.records.keys.tolist(), number[decoded.batch].tolist(), strict=True))


@given(
    st.lists(KEYS, min_size=1, max_size=80),
    st.sampled_from(["none", "zstd", "gzip"]),
    st.sampled_from(POLICIES),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_no_key_is_missed_however_the_log_came(
    keys: list[bytes | None], codec: str, policy: IndexPolicy, cuts: list[int]
) -> None:
    log = _log(keys, codec)
    data, pairs = _built(log, policy), _blocks(log, policy)
    assert data == _built(log, policy, cuts)
    for key in {key for key in keys if key is not None}:
        marks = _marked(data, [key])
        assert all(marks[block] for each, block in pairs if each == key)
    every = _marked(data, [key for key in keys if key is not None])
    assert all(every[block] for key, block in pairs if key is not None)


def test_blocks_of_other_keys_are_rarely_marked() -> None:
    policy = IndexPolicy(0, OF)
    log = _log([b"user-%d" % n for n in range(20_000)], "none", 2_000)
    data, blocks = _built(log, policy), len(scan_batches(log))
    marked = sum(int(_marked(data, [b"other-%d" % n]).sum()) for n in range(300))
    assert marked / 300 < 2 * blocks / keyindex.PAGE_BLOCKS * 2**-REST_BITS + 0.1
    assert len(data) < 20_000 * 14.5 / 8 + 500


def test_a_page_ends_after_256_blocks_or_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log([b"%d" % (n % 50) for n in range(3_000)], batch_bytes=1)
    data = _built(log, IndexPolicy(0, OF))
    rows = keyindex.decode_head(data, len(data)).rows
    assert rows["blocks"].tolist() == [256] * 11 + [3_000 - 11 * 256]
    monkeypatch.setattr(keyindex, "PAGE_PAIRS", 100)
    few = _built(log, IndexPolicy(0, OF))
    assert set(keyindex.decode_head(few, len(few)).rows["blocks"][:-1].tolist()) == {100}
    for n in range(50):
        assert _marked(data, [b"%d" % n])[n::50].all()
        assert _marked(few, [b"%d" % n])[n::50].all()


@given(
    st.lists(st.one_of(st.integers(0, 9), st.just(0)), min_size=1, max_size=700),
    st.integers(1, 60),
    st.lists(st.integers(0, 700), max_size=4),
)
def test_pages_are_those_of_one_block_after_another(
    counts: list[int], enough: int, cuts: list[int]
) -> None:
    pages = keyindex.Pages()
    random = np.random.default_rng(len(counts))
    blocks = np.repeat(np.arange(len(counts)), counts)
    hashes = random.integers(0, 2**63, len(blocks)).astype(np.uint64)
    hashes = hashes[random.integers(0, len(hashes), len(hashes))] if len(hashes) else hashes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyindex, "PAGE_PAIRS", enough)
        start = 0
        for stop in [*sorted({cut for cut in cuts if 0 < cut < len(counts)}), len(counts)]:
            some = (blocks >= start) & (blocks < stop)
            pages.add(hashes[some], blocks[some], stop - 1)
            start = stop
        pages.finish()
    wanted, first, pairs = list[tuple[int, int, int]](), 0, 0
    for block, count in enumerate([*counts, 0]):
        last = block == len(counts)
        if last or block - first == keyindex.PAGE_BLOCKS or (pairs >= enough and block > first):
            mine = (blocks >= first) & (blocks < block)
            prefixes = zip(hashes[mine] >> np.uint64(8), blocks[mine], strict=True)
            wanted.append((len({*prefixes}), first, block - first))
            first, pairs = block, 0
        pairs += count
    assert [row[1:4] for row in pages.rows] == wanted


def test_null_keys_and_markers_of_transactions_are_in_no_pair() -> None:
    policy = IndexPolicy(subjects=OF)
    data = _built(_log([None] * 30), policy)
    assert keyindex.decode_head(data, len(data)).rows["pairs"].tolist() == [0]
    log = _log([b"k"] * 3)
    table, builder = scan_batches(log), KeyIndexBuilder(0, policy)
    table["attributes"] |= CONTROL
    builder.add(table, log)
    marked = builder.finish(len(log))["keyindex"]
    assert keyindex.decode_head(marked, len(marked)).rows["pairs"].sum() == 0
    empty = KeyIndexBuilder(0, policy).finish(0)["keyindex"]
    assert keyindex.decode_head(empty, len(empty)).blocks == 0


@pytest.mark.parametrize("settings", [{"index.keys": True}, OTHERS], ids=["keys", "others"])
def test_every_changed_byte_is_noticed(settings: dict[str, Any]) -> None:
    subjects = subjects_of(settings)
    data = _built(_log([b"k%d" % (n % 9) for n in range(60)]), IndexPolicy(100, subjects))
    assert keyindex.decode_head(data, len(data)).subjects == subjects
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        with pytest.raises(CorruptData):
            _marked(bytes(changed), [b"k1"])
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            _marked(data[:end], [b"k1"])


def test_a_file_names_the_format_of_its_fields_once_and_keeps_the_order_of_kinds() -> None:
    settings = {
        "value.format": "csv", "value.columns": ["a", "ü", "z"], "index.keys": True,
        "index.fields": ["z", "ü"], "index.headers": ["tenant"],
    }  # fmt: skip
    subjects = subjects_of(settings)
    data = _built(_log([b"k"]), IndexPolicy(subjects=subjects))
    header = np.frombuffer(data, keyindex.HEADER, 1)[0]
    things = np.frombuffer(data, keyindex.THING, int(header["things"]), keyindex.HEADER.itemsize)
    assert things["kind"].tolist() == [1, 3, 4, 4, 5]
    assert things["pages"].tolist() == [1, 1, 1, 1, 0]
    assert keyindex.decode_head(data, len(data)).subjects == subjects
    assert subjects_from_json(subjects_as_json(subjects)) == subjects
    names = [keyindex.decode_head(data, len(data)).places[each] for each in subjects]
    assert sorted(names) == [(n, n + 1) for n in range(4)]


def test_fields_of_one_file_have_one_format() -> None:
    mixed = (*subjects_of({"index.fields": ["a"]}),
             *subjects_of({"value.format": "csv", "index.fields": ["a"]}))  # fmt: skip
    with pytest.raises(ValueError, match="unpack"):
        KeyIndexBuilder(0, IndexPolicy(subjects=mixed))


# Key indexes are read page by page: what the blocks in question need, and each page once.

BLOCKS, OF_A_BLOCK = 1000, 5
HASHES = np.random.default_rng(7).integers(0, 2**63, BLOCKS * OF_A_BLOCK).astype(np.uint64)


def an_index() -> bytes:
    pages = keyindex.Pages()
    pages.add(HASHES, np.repeat(np.arange(BLOCKS), OF_A_BLOCK), BLOCKS - 1)
    pages.finish()
    return keyindex.encode({RECORD_KEYS: pages}, BLOCKS, 10**6)


DATA = an_index()
SEGMENT: Any = SimpleNamespace(keyindex_key="a.keyindex", keyindex_bytes=len(DATA), log_bytes=10**6)


class Reads:
    """A store of one object, which keeps the ranges that were read."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def read_ranges(self, _key: str, starts: list[int], ends: list[int]) -> list[bytes]:
        self.ranges += zip(starts, ends, strict=True)
        return [DATA[start:end] for start, end in zip(starts, ends, strict=True)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, BLOCKS - 1), st.integers(1, BLOCKS), st.integers(0, len(HASHES) - 1)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_blocks_in_question_are_marked_and_each_page_is_read_once(
    asked: list[tuple[int, int, int]],
) -> None:
    store, cache = Reads(), ByteCache(10**6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_indexes, "_SMALL_BYTES", 0)
        patch.setattr(key_indexes, "_HEAD_BYTES", 100)
        indexes = KeyIndexes(store, cache)  # type: ignore[arg-type]
        for first, count, number in asked:
            stop, sought = min(first + count, BLOCKS), {RECORD_KEYS: HASHES[number : number + 1]}
            marks = indexes.open(SEGMENT).blocks(sought, BLOCKS, first, stop)
            assert marks is not None
            block = number // OF_A_BLOCK
            assert marks[block] or not first <= block < stop
    head, pages = store.ranges[:2], store.ranges[2:]
    assert [start for start, _ in head] == [0, 0]
    read = [at for start, end in pages for at in range(start, end, 8)]
    assert len(read) == len({*read})
    in_memory = sum(end - start for start, end in pages) + 2 * head[1][1]
    assert in_memory < cache.size_bytes < in_memory + 2000
    assert len(pages) <= -(-BLOCKS // keyindex.PAGE_BLOCKS)


def test_a_cache_that_is_too_small_changes_no_answer() -> None:
    indexes = KeyIndexes(Reads(), ByteCache(10))  # type: ignore[arg-type]
    for number in (0, 7, len(HASHES) - 1):
        sought = {RECORD_KEYS: HASHES[number : number + 1]}
        marks = indexes.open(SEGMENT).blocks(sought, BLOCKS, 0, BLOCKS)
        assert marks is not None
        assert marks[number // OF_A_BLOCK]
