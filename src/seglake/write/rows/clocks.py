"""Local times: of no zone, or such as clocks show twice or skip when the hour changes.

What such a time means is a setting, so a run says how many there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seglake.config import Pipeline
from seglake.format.records import Flags, Int64s
from seglake.shown import counted
from seglake.times.time_kernels import AMBIGUOUS, NONEXISTENT
from seglake.times.zones import is_near_a_change
from seglake.write.rows.rows import Rows, times_of

_TWICE, _NEVER, _NO_ZONE = "twice", "never", "no zone"


def clock_changes(rows: Rows, pipeline: Pipeline, timestamps: Int64s) -> dict[str, int]:
    """How many of some times, which were read as `timestamps` in ms, are such local times.

    Those that the pipeline rejects do not count. Times are read again if one is near a change.
    """
    settings = pipeline.timestamp
    form = settings.time_format
    if not settings.names or not is_near_a_change(timestamps, form.zone):
        return {}
    strict = form._replace(ambiguous="reject", nonexistent="reject")
    codes = times_of(rows, settings, strict).codes
    ways = (_TWICE, form.ambiguous, AMBIGUOUS), (_NEVER, form.nonexistent, NONEXISTENT)
    counts = {name: int((codes == code).sum()) for name, way, code in ways if way != "reject"}
    return {name: count for name, count in counts.items() if count}


def without_zone(pipeline: Pipeline, local: Flags) -> dict[str, int]:
    """How many times are `local`, if the pipeline does not say of which zone."""
    is_said = "zone" in pipeline.timestamp.model_fields_set
    return {} if is_said or not local.any() else {_NO_ZONE: int(local.sum())}


def clock_notes(pipeline: Pipeline, clocks: Mapping[str, int]) -> list[str]:
    """Notes on the counts of local times, and how they were read."""
    return [*_of_changes(pipeline, clocks), *_of_no_zone(clocks.get(_NO_ZONE, 0))]


def _of_no_zone(count: int) -> Iterator[str]:
    read = "names no zone and is" if count == 1 else "name no zone and are"
    if count:
        yield (
            f"{counted(count, 'time')} {read} read in UTC: set timestamp.zone to the region that "
            "they are of, or to 'UTC'"
        )


def _of_changes(pipeline: Pipeline, clocks: Mapping[str, int]) -> list[str]:
    settings, notes = pipeline.timestamp, list[str]()
    if twice := clocks.get(_TWICE, 0):
        times = f"{counted(twice, 'local time')} {'occurs' if twice == 1 else 'occur'} twice"
        notes.append(f"{times} in {settings.zone}: ambiguous = {settings.ambiguous!r}")
    if never := clocks.get(_NEVER, 0):
        times = f"{counted(never, 'local time')} {'does' if never == 1 else 'do'} not exist"
        notes.append(f"{times} in {settings.zone}: nonexistent = {settings.nonexistent!r}")
    return [f"{note} of [timestamp] says which instant is meant" for note in notes]
