"""One record of an index block: the kernel, the long way and a plain search agree."""

from contextlib import nullcontext
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from seglake.errors import CorruptData
from seglake.format.codecs import codec_kernels, native
from seglake.log.caches import ByteCache
from seglake.log.fetch import Chunk, LogFetch
from seglake.log.reads import BlockSearch
from seglake.log.zone_maps import Block
from tests.makers.lakes import Event, Shape
from tests.makers.logs import MadeLog, Shelf, made
from tests.makers.strategies import T, event_lists, examples

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
shapes = st.builds(Shape, codec=st.sampled_from(CODECS), batch_bytes=st.sampled_from([100, 400]))
questions = st.lists(st.tuples(st.integers(T - 5, T + 150), st.integers(0, 60)), min_size=1)


def searched(log: MadeLog) -> tuple[BlockSearch, Block]:
    store: Any = Shelf([log], remote=False)
    block = Block(0, 0, len(log.data), 0, log.segment.end_offset)
    return BlockSearch(LogFetch(store), ByteCache(2**20)), block


@given(event_lists(min_size=1, max_size=60), shapes, questions, st.booleans())
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
