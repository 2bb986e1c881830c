"""Whole batches by one kernel are, byte for byte, those that are compressed one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.format.codecs import codec_kernels, framing, native
from seglake.format.codecs.compression import IDS, Zstd, compressor
from seglake.format.encode import EncodedBatches, Encoding, encode_batches, encode_bodies
from seglake.format.records import Headers, Records, Spans

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
