"""What is due: the rules in plain words, at their edges."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seglake.catalog.schema import SegmentRow, TopicRow
from seglake.config import Topic
from seglake.errors import UsageError
from seglake.maintain.compaction.passes import (
    CompactedLog,
    compacted_topic,
    group_segments,
    log_to_clean,
)
from tests.makers.catalog_rows import segment

NOW = 1_000_000


def topic(**settings: object) -> TopicRow:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return TopicRow(
        topic="t", sequence=1, partitions=1, partitioner="murmur2", timestamp_type="CreateTime",
        settings=json.dumps(names),
    )  # fmt: skip


def rows(*times: tuple[int, int], size: int = 100) -> list[SegmentRow]:
    """Segments of ten offsets, with these smallest and largest timestamps."""
    return [
        segment(
            base_offset=10 * number, end_offset=10 * number + 10, min_timestamp=low,
            max_timestamp=high, log_bytes=size, created_at_ms=NOW - 50,
        )
        for number, (low, high) in enumerate(times)
    ]  # fmt: skip


def settings(**values: object) -> Topic:
    """Settings with these values, which need not be valid."""
    return Topic(name="t").model_copy(update=values)


def planned(
    segments: list[SegmentRow], topic_settings: Topic, start: int = 0, cleaned: int = 0
) -> CompactedLog:
    end = segments[-1].end_offset if segments else 0
    view: Any = SimpleNamespace(
        partition=0, log_start_offset=start, end_offset=end, cleaned_end=cleaned
    )
    return log_to_clean(view, segments, topic_settings, NOW).state


def test_a_topic_that_is_not_compacted_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cleanup\.policy = 'delete'.* alter lake t "):
        compacted_topic(topic(cleanup_policy="delete"), "lake")


def test_a_log_is_dirty_from_where_the_last_round_ended() -> None:
    segments = rows((1, 1), (2, 2), (3, 3), (4, 4))
    fresh = planned(segments, settings())
    assert (fresh.first_dirty_offset, fresh.first_uncleanable_offset) == (0, 40)
    assert (fresh.clean_bytes, fresh.dirty_bytes, fresh.dirty_ratio) == (0, 400, 1.0)
    half = planned(segments, settings(), cleaned=20)
    assert (half.first_dirty_offset, half.clean_bytes, half.dirty_bytes) == (20, 200, 200)
    assert not half.due  # the ratio is not above a half
    assert planned(segments, settings(min_cleanable_dirty_ratio=0.49), cleaned=20).due
    merged = planned(segments, settings(), cleaned=25)
    assert (merged.first_dirty_offset, merged.clean_bytes) == (25, 200)
    started = planned(segments, settings(), start=30, cleaned=20)
    assert (started.first_dirty_offset, started.dirty_bytes) == (30, 100)


def test_nothing_is_due_without_records() -> None:
    empty = planned([], settings(min_cleanable_dirty_ratio=0.0))
    assert (empty.dirty_ratio, empty.due) == (0.0, False)


def test_the_young_are_held_back_and_all_behind_them() -> None:
    segments = rows((1, NOW - 100), (2, NOW - 99), (3, 3))
    held = planned(segments, settings(min_compaction_lag_ms=100))
    assert (held.first_uncleanable_offset, held.dirty_bytes, held.segments) == (10, 100, 1)
    assert planned(segments, settings(min_compaction_lag_ms=99)).first_uncleanable_offset == 30
    assert planned(segments, settings(min_compaction_lag_ms=0)).first_uncleanable_offset == 30
    # what is clean holds nobody
    clean = planned(segments, settings(min_compaction_lag_ms=100), cleaned=20)
    assert (clean.first_uncleanable_offset, clean.dirty_bytes) == (30, 100)


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    segments = rows((-1, -1))
    assert planned(segments, settings(min_compaction_lag_ms=51)).segments == 0
    assert planned(segments, settings(min_compaction_lag_ms=50)).segments == 1


def test_the_old_are_due_whatever_the_ratio() -> None:
    segments = rows((NOW - 5, NOW), (NOW - 11, NOW), (-1, -1))
    never = settings(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=11)
    assert not planned(segments, never).due
    late = settings(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10)
    assert planned(segments, late).due
    assert not planned(segments, late, cleaned=20).due
    held = late.model_copy(update={"min_compaction_lag_ms": 10**5})
    assert not planned(segments, held).due  # there is nothing that may be cleaned


def test_groups_end_where_a_segment_would_be_too_large() -> None:
    segments = rows(*[(1, 1)] * 5)
    segments = [replace(row, index_bytes=8, timeindex_bytes=12) for row in segments]

    def groups(**limits: Any) -> list[tuple[int, int]]:
        return [(g.start, g.stop) for g in group_segments(segments, settings(**limits))]

    assert groups() == [(0, 5)]
    assert groups(segment_bytes=200) == [(0, 2), (2, 4), (4, 5)]
    assert groups(segment_bytes=1) == [(n, n + 1) for n in range(5)]
    assert groups(segment_index_bytes=36) == [(0, 3), (3, 5)]
    segments[4] = replace(segments[4], end_offset=2**31 + 1)
    assert groups() == [(0, 4), (4, 5)]
    segments[4] = replace(segments[4], end_offset=2**31)
    assert groups() == [(0, 5)]
    assert list(group_segments([], settings())) == []
