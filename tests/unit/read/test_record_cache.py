"""The cache of decompressed batches: what is there is right, bounded, and leaves in its turn."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from seglake.format.batch import TABLE
from seglake.format.codecs.payload import Payload
from seglake.log.record_cache import RecordCache
from tests.makers.strategies import examples

SIZE = 50  # of each batch in its log
LOGS = "a", "b"

puts = st.lists(
    st.tuples(
        st.sampled_from(LOGS),
        st.lists(st.integers(0, 30), min_size=1, max_size=5, unique=True).map(sorted),
        st.booleans(),  # with records
    ),
    max_size=60,
)


def table_at(numbers: list[int]) -> Any:
    table = np.zeros(len(numbers), TABLE)
    table["position"], table["size"] = np.array(numbers) * SIZE, SIZE
    return table


def records_of(log: str, number: int, turn: int) -> bytes:
    return f"{log}{number}.{turn};".encode() * (1 + number % 7)


def payload_of(items: list[bytes]) -> Payload:
    ends = np.cumsum([len(item) for item in items])
    data = np.frombuffer(b"".join(items), np.uint8).copy()
    return Payload(data, np.append(0, ends)[:-1], ends)


@given(puts, st.sampled_from([0, 3_000, 8_000, 2**20]), st.integers(1, 7))
@examples(150)
def test_what_is_there_is_right_and_bounded(asked: Any, limit: int, every: int) -> None:
    """`known` has the records of each batch that may be found: those of any put are right."""
    cache, known = RecordCache(limit), dict[tuple[str, int], set[bytes]]()
    for turn, (log, numbers, with_records) in enumerate(asked):
        items = [records_of(log, number, turn) for number in numbers]
        cache.put(log, table_at(numbers), payload_of(items) if with_records else None)
        for number, item in zip(numbers, items, strict=True):
            known.setdefault((log, number), set()).add(item if with_records else b"")
        assert cache.size_bytes <= limit
        if turn % every == 0:
            require_right(cache, known)
    require_right(cache, known)
    if limit == 2**20:  # nothing left
        last = {(log, number) for log, numbers, _ in asked for number in numbers}
        assert last == {(log, n) for log in LOGS for n in range(31) if cache_has(cache, log, n)}


def cache_has(cache: RecordCache, log: str, number: int) -> bool:
    return bool(cache.at(log, np.array([number * SIZE]))[1][0])


def require_right(cache: RecordCache, known: dict[tuple[str, int], set[bytes]]) -> None:
    """Each batch has the records of one of its puts."""
    for log in LOGS:
        seen = dict[int, bytes]()
        held, here = cache.at(log, np.arange(31) * SIZE)
        for number in np.flatnonzero(here).tolist():
            entry = int(held.entries[number])
            stretch = slice(int(held.starts[number]), int(held.ends[number]))
            seen[number] = bytes(held.data[entry][stretch]) if entry >= 0 else b""
            assert seen[number] in known[log, number]


def test_the_oldest_leaves_first() -> None:
    cache = RecordCache(8_000)
    for number in range(30):
        cache.put("a", table_at([number]), payload_of([b"x" * 500]))
    here = [number for number in range(30) if cache_has(cache, "a", number)]
    assert here == list(range(here[0], 30))
    assert 0 < here[0] < 29
