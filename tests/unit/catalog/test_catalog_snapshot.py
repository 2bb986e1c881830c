"""A snapshot answers as a plain list of rows would."""

import dataclasses
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import PartitionRow, SegmentRow, file_table, rows_of
from seglake.catalog.version.segments import segments_by_partition
from seglake.catalog.version.snapshot import EMPTY, PartitionView, Snapshot
from seglake.errors import CorruptData, UnknownTopic
from seglake.layout import ALL_SUFFIXES, SUFFIXES
from tests.makers.catalog_rows import segment, topic
from tests.makers.strategies import examples

INT32 = st.integers(0, 2**31 - 1)
UINT32 = st.integers(0, 2**32 - 1)
ATTEMPTS = st.one_of(st.sampled_from([uuid.UUID(int=n) for n in (0, 7)]), st.uuids())


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentRow]:
    """The segments of one log partition, in a random order, contiguous from 0."""
    rows = []
    base = 0
    for size in draw(st.lists(st.integers(1, 5), max_size=8)):
        smallest, largest = sorted(draw(st.tuples(st.integers(-1, 30), st.integers(-1, 30))))
        rows.append(
            segment(
                base,
                base + size,
                record_count=draw(st.integers(0, size)),
                min_timestamp=smallest,
                max_timestamp=largest,
                offset_of_max_timestamp=draw(st.sampled_from([-1, base, base + size - 1])),
                attempt_id=str(draw(ATTEMPTS)),
                index_attempt_id=draw(st.one_of(st.just(""), ATTEMPTS.map(str))),
                codec=draw(st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])),
                timestamp_type=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
                keyindex_bytes=draw(st.sampled_from([None, 88])),
                keyindex_of=draw(st.sampled_from([None, '["field:a", "field:b", "header:h"]'])),
                **{f"{suffix}_bytes": draw(INT32) for suffix in SUFFIXES},
                **{f"{suffix}_crc32c": draw(UINT32) for suffix in SUFFIXES},
            )
        )
        base += size
    return draw(st.permutations(rows))


def _snapshot(rows: list[SegmentRow], *bounds: PartitionRow) -> Snapshot:
    added = segments_by_partition([file_table(rows)]) if rows else {}
    named = {("orders", number): columns for number, columns in added.items()}
    return EMPTY.with_rows(1, frozenset(), topics=[topic()], partitions=bounds, added=named)


def _bounds(start: int, end: int, sequence: int = 1) -> PartitionRow:
    return PartitionRow(
        topic="orders", partition=0, sequence=sequence, log_start_offset=start, next_offset=end
    )


@given(logs())
def test_segment__says_what_the_row_said(rows: list[SegmentRow]) -> None:
    view = _snapshot(rows).partition("orders", 0)
    ordered = sorted(rows, key=lambda row: row.base_offset)
    assert len(view) == len(rows)
    for position, row in enumerate(ordered):
        found = view.segment(position)
        said = dataclasses.asdict(row)
        seen = dataclasses.asdict(found)
        for suffix in ALL_SUFFIXES:
            assert seen["sizes"][suffix] == (said[f"{suffix}_bytes"] or 0)
        del seen["sizes"]
        assert seen.pop("external") == (said["external"] is not None)
        assert seen.pop("keyindex_kinds") == sum({1 << s.kind for s in row.index_policy.subjects})
        assert seen == {name: said[name] for name in seen}
        for suffix in SUFFIXES:
            attempt = row.attempt_id if suffix == "log" else row.index_attempt_id
            expected = f"topics/orders-0/{attempt}/{row.base_offset:020d}.{suffix}"
            assert found.key(suffix) == row.key(suffix) == expected


@given(logs())
def test_index_of__finds_the_segment_that_covers_the_offset(rows: list[SegmentRow]) -> None:
    view = _snapshot(rows).partition("orders", 0)
    assert view.end_offset == max((row.end_offset for row in rows), default=0)
    for offset in range(view.end_offset):
        found = view.segment(view.index_of(offset))
        assert found.base_offset <= offset < found.end_offset


@given(logs(), st.data())
def test_check__finds_exactly_the_logs_that_are_not_covered(
    rows: list[SegmentRow], data: st.DataObject
) -> None:
    changed = [
        dataclasses.replace(
            row,
            base_offset=max(0, row.base_offset + data.draw(st.sampled_from([0, 0, 0, 0, 1, -1]))),
            end_offset=row.end_offset + data.draw(st.sampled_from([0, 0, 0, 0, 1, -1])),
        )
        for row in rows
        if data.draw(st.integers(0, 9))
    ]
    start = data.draw(st.sampled_from([0, 0, 1, 3]))
    end = data.draw(st.sampled_from([start, start, start + 2, start + 9]))
    covered = [n for row in changed for n in range(row.base_offset, row.end_offset)]
    log_end = max([end, *(row.end_offset for row in changed)])
    live = all(row.end_offset > max(start, row.base_offset) for row in changed)
    whole = live and sorted(covered) == list(range(min([start, *covered]), log_end))
    if whole:
        view = _snapshot(changed, _bounds(start, end)).partition("orders", 0)
        assert (view.log_start_offset, view.end_offset) == (start, log_end)
    else:
        with pytest.raises(CorruptData, match="orders-0"):
            _snapshot(changed, _bounds(start, end))


@given(logs(), st.data())
def test_with_rows__in_steps_equals_all_at_once(
    rows: list[SegmentRow], data: st.DataObject
) -> None:
    ordered = sorted(rows, key=lambda row: row.base_offset)
    cut = data.draw(st.integers(0, len(rows)))
    steps = _snapshot(ordered[:cut])
    if cut < len(rows):
        added = segments_by_partition([file_table(ordered[cut:])])
        steps = steps.with_rows(2, frozenset(), added={("orders", 0): added[0]})
    assert _listed(steps.partition("orders", 0)) == _listed(_snapshot(rows).partition("orders", 0))
    assert steps.partition("orders", 1).end_offset == 0


def _listed(view: PartitionView) -> list[object]:
    return [view.segment(n) for n in range(len(view))]


@given(logs())
def test_rows__are_read_back(rows: list[SegmentRow]) -> None:
    if rows:
        assert rows_of(SegmentRow, "orders", file_table(rows)) == rows


def test_partition_row__with_the_highest_sequence_holds() -> None:
    view = _snapshot([], _bounds(9, 9, 2), _bounds(4, 4, 1)).partition("orders", 0)
    assert (view.log_start_offset, view.end_offset, len(view)) == (9, 9, 0)
    view = _snapshot([segment(3, 9)], _bounds(5, 9)).partition("orders", 0)
    assert (view.log_start_offset, view.end_offset) == (5, 9)


def test_topic_row__with_the_highest_sequence_holds() -> None:
    rows = [topic(sequence=2, partitions=5), topic(sequence=1, partitions=3), topic("a")]
    snapshot = EMPTY.with_rows(1, frozenset(), topics=rows)
    assert snapshot.topic("orders").partitions == 5
    assert [row.topic for row in snapshot.topics()] == ["a", "orders"]
    assert len(snapshot.partitions("orders")) == 5


def test_unknown_names__are_refused() -> None:
    snapshot = _snapshot([])
    for name, partition in (("nope", 0), ("orders", 2), ("orders", -1)):
        with pytest.raises(UnknownTopic, match=name):
            snapshot.partition(name, partition)


def test_segments_of_no_topic__are_corruption() -> None:
    added = segments_by_partition([file_table([segment(0, 5)])])
    with pytest.raises(CorruptData, match="orders"):
        EMPTY.with_rows(1, frozenset(), added={("orders", 0): added[0]})


def _bytes(view: PartitionView) -> int:
    """What the columns of a log partition hold, with the room behind them."""
    held = [*view.segments.columns, view.running_max_timestamps, view.segments.attempts._ids]
    return sum(column.nbytes if column.base is None else column.base.nbytes for column in held)


def _steps(rows: list[SegmentRow], count: int) -> Snapshot:
    """A snapshot that got its rows a few at a time."""
    snapshot = EMPTY.with_rows(1, frozenset(), topics=[topic()])
    for first in range(0, len(rows), count):
        added = segments_by_partition([file_table(rows[first : first + count])])
        named = {("orders", number): segments for number, segments in added.items()}
        snapshot = snapshot.with_rows(2 + first, frozenset(), added=named)
    return snapshot


@pytest.mark.parametrize("count", [1, 7, 500, 1000])
def test_memory__is_at_most_100_bytes_a_segment(count: int) -> None:
    """Even if each segment has an attempt of its own."""
    rows = [segment(n, n + 1, attempt_id=str(uuid.UUID(int=n))) for n in range(1000)]
    view = _steps(rows, count).partition("orders", 0)
    assert len(view) == 1000
    assert _bytes(view) <= 100 * len(view)


def test_attempts__are_held_once_for_all_log_partitions_of_a_commit() -> None:
    rows = [
        segment(n, n + 1, partition=p, attempt_id=str(uuid.UUID(int=n)))
        for n in range(20)
        for p in range(2)
    ]
    views = _steps(rows, 2).partitions("orders")
    assert views[0].segments.attempts is views[1].segments.attempts
    assert len(views[0].segments.attempts) == 20
    for view in views:
        assert [view.segment(n).attempt_id for n in range(20)] == [
            str(uuid.UUID(int=n)) for n in range(20)
        ]


def test_growing__copies_nothing_but_what_is_new() -> None:
    old = _steps([segment(n, n + 1) for n in range(1000)], 1000)
    grown = [old]
    for n in range(1000, 1010):
        added = segments_by_partition([file_table([segment(n, n + 1)])])[0]
        grown.append(grown[-1].with_rows(n, frozenset(), added={("orders", 0): added}))
    columns = [snapshot.partition("orders", 0).segments.base_offsets for snapshot in grown]
    assert {len(column) for column in columns} == set(range(1000, 1011))
    assert all(np.shares_memory(column, columns[-1]) for column in columns)
    highest = [snapshot.partition("orders", 0).running_max_timestamps for snapshot in grown]
    assert all(np.shares_memory(column, highest[-1]) for column in highest)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4), st.booleans()), max_size=25))
def test_versions__never_change_whatever_is_made_of_them(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Each step takes any version so far, and adds segments to it or takes its first one away."""
    versions: list[tuple[Snapshot, list[int]]] = [(_snapshot([]), [])]
    for number, (of, count, takes) in enumerate(steps):
        base, ends = versions[of % len(versions)]
        end = ends[-1] if ends else base.partition("orders", 0).end_offset
        if takes and ends:
            removed = base.partition("orders", 0).segments.base_offsets[:1]
            row = _bounds(ends[0], end, base.partition("orders", 0).sequence + 1)
            new = base.with_rows(
                number, frozenset(), partitions=[row], removed={("orders", 0): removed}
            )
            versions.append((new, ends[1:]))
            continue
        rows = [
            segment(n, n + 1, max_timestamp=n * 7 % 5, attempt_id=str(uuid.UUID(int=number)))
            for n in range(end, end + count)
        ]
        added = {("orders", 0): segments_by_partition([file_table(rows)])[0]}
        new = base.with_rows(number, frozenset(), added=added)
        versions.append((new, ends + [row.end_offset for row in rows]))
        if number % 3 == 0:
            _ = new.partition("orders", 0).running_max_timestamps
    for snapshot, ends in versions:
        view = snapshot.partition("orders", 0)
        assert view.segments.end_offsets.tolist() == ends
        times = [(end - 1) * 7 % 5 for end in ends]
        assert (
            view.running_max_timestamps.tolist()
            == np.maximum.accumulate(times or [0])[: len(ends)].tolist()
        )


@given(logs(), logs(), st.data())
@examples(60)
def test_ends__are_enough_to_check_what_follows(
    rows: list[SegmentRow], more: list[SegmentRow], data: st.DataObject
) -> None:
    base = _snapshot(rows)
    end = base.partition("orders", 0).end_offset + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    moved = [
        dataclasses.replace(
            row, base_offset=max(0, row.base_offset + end), end_offset=row.end_offset + end
        )
        for row in more
    ]
    added = segments_by_partition([file_table(moved)]) if moved else {}
    named = {("orders", number): segments for number, segments in added.items()}

    def said(snapshot: Snapshot) -> str:
        try:
            snapshot.with_rows(2, frozenset(), added=named)
        except CorruptData as error:
            return str(error)
        return "right"

    assert said(base.only("orders", added)) == said(base)


@pytest.mark.parametrize(
    "change",
    [
        {"codec": "brotli"},
        {"timestamp_type": "Late"},
        {"attempt_id": "x"},
        {"base_offset": None},
        {"index_attempt_id": "x"},
        {"attempt_id": None, "index_attempt_id": None},
    ],
)
def test_strange_values__are_corruption(change: dict[str, object]) -> None:
    good, odd = segment(0, 5), segment(5, 9)
    table = file_table([good, dataclasses.replace(odd, **change)])  # type: ignore[arg-type]
    with pytest.raises(CorruptData):
        segments_by_partition([table])
