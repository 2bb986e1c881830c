"""Local times that clocks show twice or skip, as they do when the hour changes.

What such a time means is a setting, so a run says how many there were.
"""

from __future__ import annotations

from collections.abc import Mapping

from seglake.config import Pipeline
from seglake.format.records import Int64s
from seglake.shown import counted
from seglake.times.time_kernels import AMBIGUOUS, NONEXISTENT
from seglake.times.zones import is_near_a_change
from seglake.write.rows.rows import Rows, times_of

_TWICE, _NEVER = "twice", "never"


def clock_changes(rows: Rows, pipeline: Pipeline, timestamps: Int64s) -> dict[str, int]:
    """How many of some times, which were read as `timestamps` in ms, are such local times.

    Those that the pipeline rejects do not count. Times are read again if one is near a change.
    """
    settings = pipeline.timestamp
    form = settings.time_format
    if not settings.names or not is_near_a_change(timestamps, form.zone):
        return {}
    strict = form._replace(ambiguous="reject", nonexistent="reject")
    _, codes = times_of(rows, settings, strict)
    ways = (_TWICE, form.ambiguous, AMBIGUOUS), (_NEVER, form.nonexistent, NONEXISTENT)
    counts = {name: int((codes == code).sum()) for name, way, code in ways if way != "reject"}
    return {name: count for name, count in counts.items() if count}


def clock_notes(pipeline: Pipeline, changes: Mapping[str, int]) -> list[str]:
    """Notes on the counts of such times, and how they were read."""
    settings, notes = pipeline.timestamp, list[str]()
    if twice := changes.get(_TWICE, 0):
        times = f"{counted(twice, 'local time')} {'occurs' if twice == 1 else 'occur'} twice"
        notes.append(f"{times} in {settings.zone}: ambiguous = {settings.ambiguous!r}")
    if never := changes.get(_NEVER, 0):
        times = f"{counted(never, 'local time')} {'does' if never == 1 else 'do'} not exist"
        notes.append(f"{times} in {settings.zone}: nonexistent = {settings.nonexistent!r}")
    return [f"{note} of [timestamp] says which instant is meant" for note in notes]
