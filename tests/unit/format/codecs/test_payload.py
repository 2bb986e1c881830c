"""Batches decompressed together: as each by itself, whatever their codecs, sound or damaged."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import CorruptData
from seglake.format.batch import OVERHEAD, TABLE, BatchTable
from seglake.format.codecs import codec_kernels, native
from seglake.format.codecs.compression import NAMES, compressor, decompress
from seglake.format.codecs.payload import payload_of
from seglake.format.records import Bytes, read_only

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
        return list(map(bytes, payload_of(log, table, max_bytes=LIMIT).parts()))
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
        return list(map(bytes, payload_of(log, table).parts())) == texts

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(40)))
