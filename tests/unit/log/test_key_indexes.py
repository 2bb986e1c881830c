"""Key indexes are read page by page: what the blocks in question need, and each page once."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.format import keyindex
from seglake.format.index import RECORD_KEYS
from seglake.log import key_indexes
from seglake.log.caches import ByteCache
from seglake.log.key_indexes import KeyIndexes

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
