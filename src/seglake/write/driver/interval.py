"""The interval that a run declares, and the times of its records."""

from collections.abc import Sequence

from seglake.catalog.schema import SegmentRow
from seglake.config import Pipeline
from seglake.shown import counted
from seglake.times.instants import format_ms


def interval_notes(
    pipeline: Pipeline, interval: tuple[int, int] | None, segments: Sequence[SegmentRow]
) -> list[str]:
    """A note if no segment has a time in the interval: the input may be that of another one.

    Some records outside of it are nothing odd: events come late. Nothing is said of times that are
    the run's own.
    """
    filled = [row for row in segments if row.record_count]
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    if interval is None or stamped or not pipeline.timestamp.names or not filled:
        return []
    start_ms, end_ms = interval
    low, high = min(row.min_timestamp for row in filled), max(row.max_timestamp for row in filled)
    if any(row.min_timestamp < end_ms and row.max_timestamp >= start_ms for row in filled):
        return []
    count = sum(row.record_count for row in filled)
    lie = f"{counted(count, 'record')} {'lies' if count == 1 else 'lie'}"
    note = (
        f"{lie} outside of the declared interval {format_ms(start_ms)} to {format_ms(end_ms)}, and "
        f"none in it: the times are {format_ms(low)} to {format_ms(high)}; if this is the input of "
        "another interval, `seglake undo` takes the run out"
    )
    return [note]
