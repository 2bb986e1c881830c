"""The summary of a unit, which the driver gets beside its blobs.

It has counts, reasons, lateness, and the fields that no row has.

The driver needs the line count of each split to turn line numbers within a split into line numbers
of the file.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seglake.write.map.absent import NO_ROWS, AbsentFields, absent_in
from seglake.write.map.january import count_early
from seglake.write.map.lateness import Arrivals, largest_lateness_ms
from seglake.write.map.years import Course, course_of
from seglake.write.rows.hints import agreed
from seglake.write.rows.records import Extracted
from seglake.write.rows.rows import REASON_TEXTS
from seglake.write.spool.spool import SUMMARY, Blob

_HINTS = 5  # that are kept


class SplitCount(NamedTuple):
    """The size of a split: its lines, and the rows among them.

    `newest_ms` is the latest time of its `records`; -1 if there is none. `early` times lie in
    January 1970. `course` is how the times go.
    """

    lines: int
    rows: int
    newest_ms: int = -1
    early: int = 0
    records: int = 0
    course: Course = Course()


class UnitSummary:
    """Counts the lines, rows and rejects of one unit; with `courses` also how the times go."""

    def __init__(self, *, courses: bool = False) -> None:
        self._courses = courses
        self._splits: dict[int, SplitCount] = {}
        self._reasons: Counter[str] = Counter()
        self._absent = NO_ROWS
        self._skipped = 0
        self._hints: list[str] = []
        self._times_meant: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()

    def begin(self, split: int) -> None:
        """Begin a split, which may turn out to be empty."""
        self._splits[split] = SplitCount(0, 0)

    def add(self, split: int, chunk: Extracted) -> None:
        """Count a chunk of a split, after `begin` for that split."""
        before, times = self._splits[split], chunk.records.timestamps
        self._splits[split] = SplitCount(
            before.lines + chunk.line_count,
            before.rows + chunk.row_count,
            int(times.max(initial=before.newest_ms)),
            before.early + count_early(times),
            before.records + len(times),
            before.course.then(course_of(times)) if self._courses else before.course,
        )
        reasons, counts = np.unique(chunk.rejects.reasons, return_counts=True)
        texts = REASON_TEXTS[reasons].tolist()
        self._reasons.update(dict(zip(texts, counts.tolist(), strict=True)))
        self._absent = self._absent.and_in(absent_in(chunk))
        self._skipped += chunk.skipped
        self._hints = _joined(self._hints, chunk.hints)
        self._times_meant.update(chunk.times_meant)
        self._noted.update(chunk.noted)

    def blob(self, unit: int, arrivals: Arrivals | None = None) -> Blob:
        """The summary as a blob; `arrivals` only if the unit's records have an order of arrival."""
        ranges = None if arrivals is None else arrivals.ranges()
        counted = {"splits": self._splits, "reasons": self._reasons, "absent": self._absent}
        counted |= {"skipped": self._skipped, "hints": self._hints}
        counted |= {"times_meant": self._times_meant, "noted": self._noted}
        return Blob(SUMMARY, unit, text=json.dumps({**counted, "unit": unit, "arrivals": ranges}))


class Summary(NamedTuple):
    """The summaries of all units together.

    `splits` has the counts of every split, `reasons` the count of rejects for each reason.
    `max_lateness_ms` is None without an order of arrival. `absent` are the fields that no row has.
    `skipped` counts the rows whose offset the log has already. `hints` say what rejects
    are meant to be. `times_meant` counts the times that cannot be read, by the format that reads
    them, and `noted` what `clock_notes` and `continued_notes` tell of.
    """

    splits: dict[int, SplitCount]
    reasons: dict[str, int]
    max_lateness_ms: int | None
    absent: AbsentFields
    skipped: int
    hints: list[str]
    times_meant: dict[str, int]
    noted: dict[str, int]


def add_up(texts: Iterable[str]) -> Summary:
    """The summary of all units, given their texts in any order."""
    splits: dict[int, SplitCount] = {}
    reasons: Counter[str] = Counter()
    absent, hints, meant, noted = NO_ROWS, list[str](), Counter[str](), Counter[str]()
    summaries = sorted(map(json.loads, texts), key=lambda summary: int(summary["unit"]))
    for summary in summaries:
        splits |= {int(number): _count(*counts) for number, counts in summary["splits"].items()}
        reasons.update(summary["reasons"])
        absent = absent.and_in(AbsentFields(*summary["absent"]))
        hints = _joined(hints, summary["hints"])
        meant.update(summary["times_meant"])
        noted.update(summary["noted"])
    arrivals = [summary["arrivals"] for summary in summaries]
    lateness = None if None in arrivals else largest_lateness_ms(arrivals)
    skipped = sum(summary["skipped"] for summary in summaries)
    by_reason = dict(sorted(reasons.items()))
    return Summary(splits, by_reason, lateness, absent, skipped, hints, meant, noted)


def _count(
    lines: int, rows: int, newest_ms: int, early: int, records: int, course: Sequence[int]
) -> SplitCount:
    return SplitCount(lines, rows, newest_ms, early, records, Course(*course))


def _joined(hints: list[str], more: list[str]) -> list[str]:
    return agreed(list(dict.fromkeys([*hints, *more])))[:_HINTS]
