"""Records that Spark cannot deliver; tests/kafka/test_live_archive.py has some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seglake.write.live.archive import ranges_between, unreadable_offsets
from tests.makers.strategies import examples


@examples(100)
@given(st.integers(0, 50), st.integers(0, 60), st.sets(st.integers(0, 120)))
def test_all_of_them_are_found_and_the_others_stay(start: int, count: int, bad: set[int]) -> None:
    end = start + count
    inside = sorted(bad & set(range(start, end)))
    asked: list[tuple[int, int]] = []

    def reads(low: int, high: int) -> bool:
        assert start <= low < high <= end
        asked.append((low, high))
        return not any(low <= each < high for each in bad)

    assert list(unreadable_offsets(reads, start, end)) == inside
    assert len(asked) <= (len(inside) + 1) * (count.bit_length() + 2)
    left = [
        offset for low, high in ranges_between(start, end, inside) for offset in range(low, high)
    ]
    assert left == [offset for offset in range(start, end) if offset not in bad]
