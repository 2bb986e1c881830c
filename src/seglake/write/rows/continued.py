"""Lines that continue an event though they begin with a time.

A program may write its lines in another form from some moment on: all that it writes then would
belong to the last event before. So a run says how many there were.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from seglake.config import Pipeline
from seglake.shown import counted
from seglake.text.spans import to_arrow
from seglake.write.rows.rows import Rows

_CONTINUED = "continued"
_TIME = (
    r"\n\W?(?:\d{4}[-/.]\d{2}[-/.]\d{2}[T ]\d{2}:\d{2}"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{4},? \d{1,2}:\d{2}"
    r"|[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}|\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2})"
)


def continued_times(rows: Rows, pipeline: Pipeline) -> dict[str, int]:
    """How many such lines the events of a chunk have; only events of several lines are searched."""
    if pipeline.input.multiline_start_pattern is None:
        return {}
    several = np.flatnonzero(np.diff(rows.numbers, append=rows.line_count) > 1)
    if not len(several):
        return {}
    lines = pc.sum(pc.count_substring_regex(to_arrow(rows.take_raw(several)), _TIME)).as_py()
    return {_CONTINUED: int(lines)} if lines else {}


def continued_notes(noted: Mapping[str, int]) -> list[str]:
    """The note on the count of such lines."""
    count = noted.get(_CONTINUED, 0)
    lines = f"{counted(count, 'line')} that {'continues' if count == 1 else 'continue'} an event"
    remedy = "correct input.multiline_start_pattern and input.pattern"
    begin = f"begin{'s' * (count == 1)} with a time"
    return [f"{lines} {begin}: if events begin there, {remedy}"] if count else []
