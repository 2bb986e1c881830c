"""Small files become few: commits are simulated, whatever their sizes, and merges counted."""

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.delta.file_merges import ENOUGH_ROWS, due
from tests.makers.strategies import examples

SIZES = st.lists(
    st.one_of(st.integers(1, 3), st.integers(1, 2000), st.integers(1, 2 * ENOUGH_ROWS)),
    min_size=1,
    max_size=40,
)


def _file(number: int, rows: int, topic: str = "t") -> DataFile:
    return DataFile(f"{number:06}", "segment", topic, 10 * rows, rows)


def _grown(sizes: Sequence[int], fan_in: int) -> tuple[set[DataFile], int, int]:
    """Files after a commit of each size; rows written again in all; the most small files."""
    files: set[DataFile] = set()
    written = most = 0
    for number, rows in enumerate(sizes):
        files.add(_file(2 * number, rows))
        for group in due(files, fan_in):
            files -= set(group)
            total = sum(file.rows for file in group)
            written += total
            files.add(_file(2 * number + 1, total))
        most = max(most, sum(file.rows < ENOUGH_ROWS for file in files))
    return files, written, most


@given(SIZES, st.integers(2, 16), st.integers(1, 40))
@examples(100)
def test_files_stay_few__and_rows_are_rarely_written_again(
    sizes: list[int], fan_in: int, repeated: int
) -> None:
    sizes = sizes * repeated
    files, written, most = _grown(sizes, fan_in)
    assert sum(file.rows for file in files) == sum(sizes)
    levels = math.floor(math.log(ENOUGH_ROWS, fan_in) + 1e-9) + 1
    assert most <= levels * (fan_in - 1) + 1
    small = sum(rows for rows in sizes if rows < ENOUGH_ROWS)
    assert written <= levels * small


def test_ten_thousand_commits__leave_some_dozen_files() -> None:
    files, written, most = _grown([100] * 10_000, 16)
    assert len(files) <= 70
    assert most <= 60
    assert written <= 3 * 1_000_000


def test_kinds_and_topics__are_merged_each_by_itself() -> None:
    files = [_file(number, 5, "ab"[number % 2]) for number in range(7)]
    files += [replace(file, kind="run") for file in files[:4]]
    assert due(files, 5) == []
    (group,) = due(files, 4)
    assert [(file.topic, file.kind) for file in group] == [("a", "segment")] * 4
    assert len(due(files, 3)) == 2


def test_large_files__are_left_alone() -> None:
    large = [_file(number, ENOUGH_ROWS) for number in range(40)]
    assert due(large, 16) == []
    small = [_file(100 + number, ENOUGH_ROWS - 1) for number in range(16)]
    assert due([*large, *small], 16) == [small]
