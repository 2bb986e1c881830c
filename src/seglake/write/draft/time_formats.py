"""The formats that texts of times may be in, and what the texts are in each."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seglake.clock import now_ms
from seglake.format.records import Flags, Int64s, Spans
from seglake.times.grammar import EPOCH_POWERS, TimeFormat
from seglake.times.readers import read_times
from seglake.times.time_kernels import OUT_OF_RANGE, READ
from seglake.write.rows.hints import PATTERNS, PLAUSIBLE, orders_of

MOST = 0.95  # of the values must be times in the same format
DAY_MS = 86_400_000
BLANK = "[ \u00a0\u202f]?"
_PADDING = b"\0" * 64  # kernels read some bytes after a text
_OF_ISO = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S")
_HALF = re.compile(f"\\d({BLANK})[AaPp](?:\\.{BLANK})?[Mm]\\b")  # of a day
_PART = re.compile(r":\d{2}([.,])\d+|:\d{2}:\d{2}(:)\d{3}")  # of a second


class Span(NamedTuple):
    """The first and the last time of some values, and how many lie before 1970."""

    first_ms: int
    last_ms: int
    early: int

    @property
    def width_ms(self) -> int:
        """The time from the first to the last."""
        return self.last_ms - self.first_ms


class Fit(NamedTuple):
    """A format that reads some values, with the year that is set if it has none."""

    form: str
    year: int | None
    span: Span


class Read(NamedTuple):
    """Times in ms: which are read and plausible, read and not plausible, or before 1970."""

    ms: Int64s
    good: Flags
    misread: Flags
    early: Flags


def likeliest(fits: list[Fit]) -> Fit:
    """The format with the newest times that do not lie ahead.

    Of days and months that may change places, those count that lie closest together: a file has
    the days of a month rather than one day of each month.
    """
    newest = max(fits, key=lambda fit: (not lies_ahead(fit.span), fit.span.last_ms))
    orders = [fit for fit in fits if fit.form[:8] in orders_of(newest.form)]
    return max(orders or [newest], key=lambda fit: (not lies_ahead(fit.span), -fit.span.width_ms))


def lies_ahead(span: Span) -> bool:
    """Whether times are of the future."""
    return span.last_ms > now_ms() + DAY_MS


def patterns_of(values: list[str], more: Sequence[str] = ()) -> Iterator[str]:
    """The patterns, also with a half of a day, an offset, a fraction of seconds, if these have it.

    Those with an offset or a fraction come first.
    """
    forms = [*_OF_ISO, *PATTERNS, *more]
    if half := _HALF.search(values[0]):
        clocks = [form for form in forms if form.endswith(("%H:%M", "%H:%M:%S"))]
        blank = " " if half[1] else ""  # stands for any
        forms += [f"{form.replace('%H', '%I')}{blank}%p" for form in clocks]
    if offset := re.search(r"[\dMm]( ?)[+-]\d{2}:?\d{2}$", values[0]):
        clocks = [form for form in forms if form.endswith(("%M", "%S", "%p"))]
        forms = [f"{form}{offset[1]}%z" for form in clocks] + forms
    if part := _PART.search(values[0]):
        mark = part[1] or part[2]
        whole = (form for form in forms if "%S" in form and "%f" not in form)
        yield from (form.replace("%S", f"%S{mark}%f") for form in whole)
    yield from dict.fromkeys(forms)


def has_year(form: str) -> bool:
    """Whether times in a format name their year."""
    return "%" not in form or "%Y" in form or "%y" in form


def year_of(values: list[str], form: str) -> int:
    """This year, or the last one if this one lies ahead of the clock with these times."""
    now = dt.datetime.fromtimestamp(now_ms() / 1000, dt.UTC)
    span = span_of(values, form, now.year)
    return now.year - (span is not None and lies_ahead(span))


def times_in(values: list[str], form: str, year: int | None, zone: str = "UTC") -> Read:
    """What the texts are in a format."""
    texts = Spans.of([*(value.encode() for value in values), _PADDING])
    ms, codes, _ = read_times(texts.take(np.arange(len(values))), TimeFormat(form, zone, year))
    good = (codes == READ) & (ms < PLAUSIBLE.stop)
    early = (codes == OUT_OF_RANGE) & (ms < 0) & (form not in EPOCH_POWERS)
    if form in EPOCH_POWERS:
        good &= ms >= PLAUSIBLE.start
    return Read(ms, good, (codes == READ) & ~good, early)


def span_of(values: list[str], form: str, year: int | None, zone: str = "UTC") -> Span | None:
    """What some texts are in a format; None unless nearly all are times, and plausible ones."""
    ms, good, _, early = times_in(values, form, year, zone)
    if (good | early).sum() < MOST * len(values) or not good.any():
        return None
    return Span(int(ms[good].min()), int(ms[good].max()), int(early.sum()))


def other_ways(values: list[str], form: str) -> Iterator[str]:
    """The doubts about a format whose days, months and years may change places."""
    date, clock = form[:8], form[8:]
    for other in orders_of(form):
        swapped = other + clock
        if other != date and span_of(values, swapped, None) is not None:
            what = "days and months" if "%Y" in other else "days, months and years"
            yield f"{what} may be the other way round: timestamp.format = {swapped!r}"
