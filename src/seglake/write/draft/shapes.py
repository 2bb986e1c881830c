"""Shapes of log lines: expressions that find the time in a line, and what else is known of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

ENOUGH = 0.02
"""Of the lines of a file, so many must match: an event may have many lines."""
_NEARLY = 0.99  # as many as another shape, or as there are events: then it is taken


class Shape(NamedTuple):
    """A pattern for `input.pattern`, and the one with which an event of several lines begins."""

    pattern: str
    start: str | None = None

    @property
    def expression(self) -> re.Pattern[str]:
        """The pattern, compiled; RE2 and Python read it alike."""
        return re.compile(self.pattern)


_CLF = r"\d{2}/[A-Z][a-z]{2}/\d{4}:[\d:]{8} [+-]\d{4}"
_ISO = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"
_PART = r"(?:[.,]\d+)?"  # of a second
_SYSLOG = rf"[A-Z][a-z]{{2}} +\d{{1,2}} \d{{2}}:\d{{2}}:\d{{2}}{_PART}"
_OTHERS = (
    r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}" + _PART,
    r"\d{2}\.\d{2}\.\d{4} \d{2}:\d{2}:\d{2}" + _PART,
    r"\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}:\d{2}" + _PART,
    r"\d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2}" + _PART,
    r"\d{2}-[A-Z][a-z]{2}-\d{4} \d{2}:\d{2}:\d{2}(?:\.\d+)?",
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d{2}:\d{2}:\d{2}(?:\.\d+)? \d{4}",
    r"1\d{9}(?:\.\d+|\d{3})?\b",
)
_GLOG = r"\d{4}(?:\d{4})? \d{2}:\d{2}:\d{2}\.\d{6}"  # month and day, in new files after the year
_REQUEST = r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}|-)'


_TIMES = (_ISO, *_OTHERS, _SYSLOG)
_SHAPES = (
    Shape(rf"(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>{_CLF})\] {_REQUEST}"),
    Shape(rf"(?P<time>{_SYSLOG}) (?P<host>\S+) (?P<process>[^\s\[:]+)", _SYSLOG),
    Shape(rf"\W?(?P<time>{_ISO})\W+(?P<level>[A-Z]{{4,8}})\b", rf"\W?{_ISO}"),
    Shape(rf"(?P<level>[IWEF])(?P<time>{_GLOG})", rf"[IWEF]{_GLOG}"),
    *(Shape(rf"\W?(?P<time>{time})", rf"\W?{time}") for time in _TIMES),
    *(Shape(rf".*?(?P<time>{time})", rf".*?{time}") for time in (_CLF, *_TIMES)),
)


def log_shape_of(lines: Sequence[str]) -> Shape | None:
    """The shape of an access log, of syslog, glog, or a time and a level, if nearly all have it."""
    for shape in _SHAPES[:4]:
        first = re.compile(shape.start) if shape.start else None
        events = [line for line in lines if first is None or first.match(line)]
        matches = sum(map(bool, map(shape.expression.match, events)))
        if matches and matches >= _NEARLY * len(events) and shape.expression.match(lines[0]):
            return shape
    return None


def shape_of(lines: Sequence[str]) -> Shape | None:
    """The first shape that matches nearly as many lines as any does; None if none does."""
    counts = [sum(map(bool, map(shape.expression.match, lines))) for shape in _SHAPES]
    most = max(counts)
    if most < max(1, ENOUGH * len(lines)):
        return None
    return next(
        shape for shape, count in zip(_SHAPES, counts, strict=True) if count >= _NEARLY * most
    )
