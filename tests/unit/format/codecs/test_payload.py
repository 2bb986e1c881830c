"""Batches decompressed together: as each by itself, whatever their codecs, sound or damaged."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import CorruptData
from seglake.format.batch import OVERHEAD, TABLE, BatchTable
from seglake.format.codecs import codec_kernels, framing, native
from seglake.format.codecs.compression import IDS, NAMES, Zstd, compressor, decompress
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.encode import EncodedBatches, Encoding, encode_batches, encode_bodies
from seglake.format.records import Bytes, Headers, Records, Spans, read_only

LIMIT = 1 << 20

contents = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 30_000)).map(lambda x: x[0] * x[1]),
)
batches = st.lists(st.tuples(st.integers(0, 4), contents), max_size=12)


def packed(codec: int, content: bytes) -> bytes:
    compress = compressor(NAMES[codec])
    return content if compress is None else compress(content)


def log_of(parts: list[tuple[int, bytes]]) -> tuple[Bytes, BatchTable]:
    """Bytes with a batch of each codec and payload, and their table."""
    table, at = np.zeros(len(parts), TABLE), 0
    for row, (codec, payload) in zip(table, parts, strict=True):
        row["position"], row["size"], row["attributes"] = at, OVERHEAD + len(payload), codec
        at += OVERHEAD + len(payload)
    return read_only(b"".join(bytes(OVERHEAD) + payload for _, payload in parts)), table


def texts_of(payload: Payload) -> list[Any]:
    return Spans(payload.data, payload.starts, payload.ends - payload.starts).tolist()


def one_by_one(parts: list[tuple[int, bytes]]) -> list[bytes] | int:
    """The records of each batch; or the number of the first one that is damaged."""
    found = list[bytes]()
    for codec, payload in parts:
        try:
            found.append(decompress(codec, payload, LIMIT) if codec else payload)
        except CorruptData:
            return len(found)
    return found


def together(parts: list[tuple[int, bytes]]) -> list[bytes] | int:
    log, table = log_of(parts)
    try:
        return texts_of(payload_of(log, table, max_bytes=LIMIT))
    except CorruptData as damage:
        return int(np.flatnonzero(table["position"] == damage.position)[0])


@given(batches)
def test_batches_of_any_codecs(items: list[tuple[int, bytes]]) -> None:
    assert together([(codec, packed(codec, each)) for codec, each in items]) == [
        each for _, each in items
    ]


@given(batches, st.data())
def test_damage_is_found_where_it_is(items: list[tuple[int, bytes]], data: st.DataObject) -> None:
    parts = [(codec, packed(codec, each)) for codec, each in items]
    for _ in range(data.draw(st.integers(1, 3)) if parts else 0):
        number = data.draw(st.integers(0, len(parts) - 1))
        codec, payload = parts[number]
        cut = data.draw(st.integers(0, len(payload)))
        stranger = data.draw(st.binary(max_size=3))
        rest = data.draw(st.sampled_from([b"", payload[cut:], payload[cut + len(stranger) :]]))
        parts[number] = codec, payload[:cut] + stranger + rest
    assert together(parts) == one_by_one(parts)


@given(st.sampled_from([3, 4]), st.binary(max_size=200))
def test_hostile_bytes_behind_a_sound_head(codec: int, tail: bytes) -> None:
    parts = [(codec, packed(codec, b"sound" * 50)[:7] + tail), (codec, packed(codec, b"next"))]
    assert together(parts) == one_by_one(parts)


def test_several_frames_and_frames_of_unknown_size() -> None:
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(b"b" * 70_000)
    frames = packed(4, b"a" * 200_000) + streamed + packed(4, b"c")
    parts = [(4, frames), (4, streamed), (4, packed(4, b"")), (0, b"plain")]
    assert together(parts) == one_by_one(parts) == [
        b"a" * 200_000 + b"b" * 70_000 + b"c", b"b" * 70_000, b"", b"plain",
    ]  # fmt: skip


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_no_batch_yields_more_than_its_limit(codec: int) -> None:
    parts = [(codec, packed(codec, bytes(LIMIT))), (codec, packed(codec, bytes(LIMIT + 1)))]
    assert together(parts[:1]) == [bytes(LIMIT)]
    assert together(parts) == 1


def test_the_libraries_are_here() -> None:
    """Or every read would take longer, and nobody would notice."""
    assert (native.addresses() != 0).all()


@given(batches)
def test_without_the_libraries(items: list[tuple[int, bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "addresses", lambda: np.zeros(codec_kernels.ADDRESSES, np.int64))
        test_batches_of_any_codecs.hypothesis.inner_test(items)  # type: ignore[attr-defined]


def test_threads_have_contexts_of_their_own() -> None:
    rng = np.random.default_rng(5)
    texts = [rng.integers(97, 101, 9_000, np.uint8).tobytes() for _ in range(200)]
    log, table = log_of(
        [(3 + row % 2, packed(3 + row % 2, text)) for row, text in enumerate(texts)]
    )

    def read(_: int) -> bool:
        return texts_of(payload_of(log, table)) == texts

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(40)))


# Whole batches by one kernel are, byte for byte, those that are compressed one by one.

LEVELS = [-7, 1, 3, 4, 9, 19]
items = st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"a" * 3000, b"ab" * 40_000])
rows = st.lists(
    st.tuples(items, items, st.lists(st.tuples(st.binary(max_size=9), items), max_size=2),
              st.integers(-1, 2**41)), max_size=40,
)  # fmt: skip
offsets = st.lists(st.integers(1, 2**32), min_size=40, max_size=40)


def records_of(given_rows: list[Any]) -> Records:
    headers = [header for _, _, some, _ in given_rows for header in some]
    firsts = np.cumsum([0, *(len(some) for _, _, some, _ in given_rows)])
    return Records(
        np.array([time for *_, time in given_rows], np.int64),
        Spans.from_list([key for key, *_ in given_rows]),
        Spans.from_list([value for _, value, *_ in given_rows]),
        Headers(
            firsts,
            Spans.from_list([n for n, _ in headers]),
            Spans.from_list([v for _, v in headers]),
        ),
    )


def encoded(made: Records, encoding: Encoding, gaps: list[int] | None = None) -> EncodedBatches:
    bodies = encode_bodies(made, np.arange(len(made)))
    places = None if gaps is None else np.cumsum(gaps[: len(made)], dtype=np.int64)
    return encode_batches(made.timestamps, bodies, encoding, offsets=places)


def same(some: EncodedBatches, others: EncodedBatches) -> bool:
    return some.data.tobytes() == others.data.tobytes() and bool((some.table == others.table).all())


@given(rows, st.sampled_from(LEVELS), st.sampled_from([1, 200, 16384, 10**6]),
       st.none() | offsets, st.none() | st.just(5))  # fmt: skip
def test_one_kernel_writes_what_one_by_one_is_written(
    given_rows: list[Any], level: int, batch_bytes: int, gaps: list[int] | None, stamp: int | None
) -> None:
    made, zstd = records_of(given_rows), Zstd(level)
    at_once = encoded(made, Encoding(zstd, IDS["zstd"], batch_bytes, stamp), gaps)
    one_by_one = encoded(made, Encoding(zstd.__call__, IDS["zstd"], batch_bytes, stamp), gaps)
    assert same(at_once, one_by_one)


def test_the_kernel_is_used_here() -> None:
    assert framing._has_zstd()  # else the test above compares nothing
    assert native.addresses()[codec_kernels.CRC32C]


@pytest.mark.parametrize("codec", IDS)
def test_without_the_libraries_the_bytes_are_the_same(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = records_of([(b"k", b"v" * n, [(b"h", None)], n) for n in range(400)])
    encoding = Encoding(compressor(codec), IDS[codec], 700)
    before = encoded(made, encoding)
    monkeypatch.setattr(native, "addresses", lambda: np.zeros(codec_kernels.ADDRESSES, np.int64))
    assert same(encoded(made, encoding), before)


@pytest.mark.parametrize("codec", IDS)
@pytest.mark.parametrize("size", [2**17 - 200, 2**17, 3_000_000])
def test_what_does_not_compress_has_room(codec: str, size: int) -> None:
    noise = np.random.default_rng(size).bytes(size)
    made = records_of([(None, noise, [], 1), (b"", b"after", [], 2)])
    batches = encoded(made, Encoding(compressor(codec), IDS[codec], 1000))
    assert len(batches.table) == 2
    assert size <= batches.table["size"][0] <= size + (size >> 5) + 500
    assert int(batches.table["position"][1]) + int(batches.table["size"][1]) == len(batches.data)
