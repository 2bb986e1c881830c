"""Small files become few: commits are simulated, whatever their sizes, and merges counted."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.delta.file_merges import ENOUGH_ROWS, FAN_IN, STEP, groups_to_merge
from seglake.catalog.schema import Kind, PartitionRow
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file
from tests.makers.strategies import examples

SIZES = st.lists(
    st.one_of(st.integers(1, 3), st.integers(1, 2000), st.integers(1, 2 * ENOUGH_ROWS)),
    min_size=1,
    max_size=40,
)
MINUTES = 1440  # of a day
STEPS = math.floor(math.log(ENOUGH_ROWS - 1, STEP)) + 1  # sizes that a small file may have


class Grown(NamedTuple):
    """What some commits leave: files, rows written again, merges, and the most small files."""

    files: set[DataFile]
    written: int
    merges: int
    most: int


def _file(number: int, rows: int, topic: str = "t") -> DataFile:
    return DataFile(f"{number:06}", "segment", topic, 10 * rows, rows)


def _grown(sizes: Sequence[int], fan_in: int) -> Grown:
    """Files after a commit of each size."""
    files: set[DataFile] = set()
    written = merges = most = 0
    for number, rows in enumerate(sizes):
        files.add(_file(2 * number, rows))
        for group in groups_to_merge(files, fan_in):
            files -= set(group)
            total = sum(file.rows for file in group)
            written, merges = written + total, merges + 1
            files.add(_file(2 * number + 1, total))
        most = max(most, sum(file.rows < ENOUGH_ROWS for file in files))
    return Grown(files, written, merges, most)


@given(SIZES, st.integers(2, 16), st.integers(1, 40))
@examples(100)
def test_files_stay_few__and_rows_are_rarely_written_again(
    sizes: list[int], fan_in: int, repeated: int
) -> None:
    sizes = sizes * repeated
    grown = _grown(sizes, fan_in)
    assert sum(file.rows for file in grown.files) == sum(sizes)
    assert grown.most <= max(fan_in - 1, STEPS)
    small = sum(rows for rows in sizes if rows < ENOUGH_ROWS)
    assert grown.written <= (STEP - 1) * STEPS * small


@pytest.mark.parametrize(("rows", "again"), [(1, 20), (70, 7), (100, 6)])
def test_ten_thousand_commits__leave_some_files_and_a_few_merges(rows: int, again: int) -> None:
    """`again`: how often a row is written again in all, at most on average."""
    grown = _grown([rows] * 10_000, FAN_IN)
    assert grown.most < FAN_IN
    final = sum(file.rows >= ENOUGH_ROWS for file in grown.files)
    assert final <= 10_000 * rows / ENOUGH_ROWS
    assert grown.written <= again * 10_000 * rows
    assert grown.merges <= 10_000 / 4


def test_kinds_and_topics__are_merged_each_by_itself() -> None:
    """All kinds of a topic at the same time."""
    files = [_file(number, 5, "ab"[number % 2]) for number in range(7)]
    files += [replace(file, kind="run") for file in files[:4]]
    assert groups_to_merge(files, 5) == []
    found = [(group[0].topic, group[0].kind, len(group)) for group in groups_to_merge(files, 4)]
    assert sorted(found) == [("a", "run", 2), ("a", "segment", 4)]
    assert all(
        len({(file.topic, file.kind) for file in group}) == 1 for group in groups_to_merge(files, 3)
    )
    assert len(groups_to_merge(files, 3)) == 4


def test_files_of_other_sizes__are_left_alone() -> None:
    """Of those that are as large as another one, the largest are merged, and what is smaller."""
    rows = [1, 3, 20, 300, 300, 5000]
    files = [_file(number, each) for number, each in enumerate(rows)]
    assert groups_to_merge(files, 7) == []
    assert groups_to_merge(files, 6) == [files[:5]]
    assert groups_to_merge([*files[1:4], files[5]], 4) == []


def test_large_files__are_left_alone() -> None:
    large = [_file(number, ENOUGH_ROWS) for number in range(40)]
    assert groups_to_merge(large, FAN_IN) == []
    small = [_file(100 + number, ENOUGH_ROWS - 1) for number in range(FAN_IN)]
    assert groups_to_merge([*large, *small], FAN_IN) == [small]


@pytest.mark.rest
def test_a_run_a_minute_and_a_folder_a_day__ask_twenty_files() -> None:
    """With 100,000 files of random names a day, all of which lie in the folder of the day."""
    files: dict[DataFile, set[int]] = {}  # the days of its rows
    asked = []
    for minute in range(4 * MINUTES):
        day = minute // MINUTES
        sources = [file for file, days in files.items() if file.kind == "source" and day in days]
        segments = [file for file in files if file.kind == "segment"]
        asked.append(1 + len(sources) + len(segments))
        come = (minute + 1) * 100_000 // MINUTES - minute * 100_000 // MINUTES
        rows: dict[Kind, int] = {"source": come, "segment": 100, "run": 1}
        for kind, count in rows.items():
            files[replace(_file(2 * minute, count), kind=kind)] = {day}
        for group in groups_to_merge(files, FAN_IN):
            days = set[int]().union(*map(files.pop, group))
            total = replace(_file(2 * minute + 1, sum(f.rows for f in group)), kind=group[0].kind)
            if total.kind == "segment" and total.rows >= ENOUGH_ROWS:  # the others are past
                total = replace(total, rows=100)
            files[total] = days
    assert max(asked) <= 20
    assert sum(asked) <= 12 * len(asked)


# What the catalog does to itself, and what removes records, disturbs no ingest.


def test_append_time__is_not_forgotten_with_the_last_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, now = tmp_path / "lake", time.time_ns()
    topic = {"message.timestamp.type": "LogAppendTime", "partitions": 2}

    def run(number: int, step_s: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: now + step_s * 10**9)
        path = write_file(tmp_path / f"{number}.jsonl", [Line(T, key) for key in "abcdef"])
        ingest(pipeline_of(lake, path, topic=topic), str(number))

    def remove_all() -> None:
        catalog = open_catalog(str(lake))
        base = catalog.snapshot()
        views = base.partitions("events")
        rows = [
            PartitionRow(
                topic="events",
                partition=view.partition,
                sequence=view.sequence + 1,
                log_start_offset=view.end_offset,
                next_offset=view.end_offset,
            )
            for view in views
        ]
        gone = [(v.partition, base) for v in views for base in v.segments.base_offsets.tolist()]
        commit_rows(catalog, rows, base=base, replaced=gone)

    run(1, 60)
    remove_all()
    run(2, -3600)
    times = {record.timestamp for log in read_lake(lake).values() for record in log}
    assert times == {now // 10**6 + 60_000}
    remove_all()
    remove_all()
    run(3, 59)
    times = {record.timestamp for log in read_lake(lake).values() for record in log}
    assert times == {now // 10**6 + 60_000}
