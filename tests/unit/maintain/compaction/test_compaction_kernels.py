"""Hashes of keys, and the table of the last record of each key."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import LocalEngine
from seglake.maintain.compaction import latest_kernels
from seglake.maintain.compaction.passes import KeyTable
from tests.judges.latest import hash_of
from tests.makers.compacted import STEPS, Clean, History, Step
from tests.makers.strategies import T, examples

WORDS = st.integers(0, 2**64 - 1)


def hashed(data: bytes, low: int, high: int) -> tuple[int, int]:
    array = np.frombuffer(b"?" + data + b"?", np.uint8)
    first, second = latest_kernels.sip_hash_of(array, 1, len(data), np.uint64(low), np.uint64(high))
    return int(first), int(second)


def test_the_hash_is_siphash() -> None:
    """The first vectors of its authors (`vectors_sip128`): key 00 to 0f, data empty, and 00."""
    low, high = np.frombuffer(bytes(range(16)), "<u8").tolist()
    for data, told in (
        (b"", "a3817f04ba25a8e66df67214c7550293"),
        (b"\0", "da87c1d86b99af44347659119b22fc45"),
    ):
        found = np.array(hashed(data, low, high), "<u8").tobytes()
        assert found == bytes.fromhex(told) == np.array(hash_of(data, low, high), "<u8").tobytes()


@examples(100)
@given(st.binary(max_size=70), WORDS, WORDS)
def test_the_kernel_hashes_as_the_paper(data: bytes, low: int, high: int) -> None:
    assert hashed(data, low, high) == hash_of(data, low, high)


@examples(100)
@given(st.lists(st.tuples(WORDS, WORDS, st.integers(1, 2**60)), max_size=60), st.integers(1, 9))
def test_a_table_has_the_last_entry_of_each_hash(
    given_rows: list[tuple[int, int, int]], buckets: int
) -> None:
    """Also if all fall into few slots; a bucket has the same range of hashes in every table."""
    rows = np.array(given_rows, np.uint64).reshape(-1, 3)
    rows[::2, 0] &= np.uint64(3 << 62 | 3)
    table = KeyTable(len(rows))
    table.put_rows(rows[:20].tobytes())
    table.put_rows(rows[20:].tobytes())
    expected: dict[tuple[int, int], int] = {}
    for first, second, entry in rows.tolist():
        expected[first, second] = max(entry, expected.get((first, second), 0))
    parts = table.take(buckets)
    found = {(first, second): entry for part in parts for first, second, entry in part.tolist()}
    assert found == expected
    assert len(parts) == buckets
    assert sum(map(len, parts)) == len(expected)
    for number, part in enumerate(parts):
        assert {(first >> 32) * buckets >> 32 for first, _, _ in part.tolist()} <= {number}
    assert not sum(map(len, table.take(buckets)))


@examples(50)
@given(st.sets(st.integers(0, 500)))
def test_bits_are_set(numbers: set[int]) -> None:
    bits = np.zeros(63, np.uint8)
    latest_kernels.set_bits(bits, np.array(sorted(numbers), np.int64))
    assert set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()) == numbers


# Any history of records, deletions and compactions against plain lists.

LAST = Clean(0, LocalEngine(), 10**6, 10**6)


@examples(20)
@given(STEPS, st.sampled_from([None, None, T + 7]))
def test_any_history_is_that_of_plain_lists(steps: list[Step], append_time_ms: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), append_time_ms=append_time_ms)
        for step in [*steps, LAST]:
            history.take(step)
            history.assert_holds()
