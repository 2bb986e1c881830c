"""The summary of a unit, which the driver gets beside its blobs.

It has counts, reasons, lateness, and the fields that no row has.

The driver needs the line count of each split to turn line numbers within a split into line numbers
of the file.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from seglake.advice.conclude import AbsentFields
from seglake.advice.file_times import FileTimes
from seglake.advice.finding import Finding, merge_findings
from seglake.write.map.lateness import Arrivals, largest_lateness_ms
from seglake.write.rows.records import Extracted
from seglake.write.rows.rows import REASON_TEXTS
from seglake.write.spool.spool import SUMMARY, Blob

_MOST_FINDINGS = 100  # of a unit: each is of one kind, or of one file


class SplitCount(NamedTuple):
    """The lines of a split, the rows among them, and the times of its records."""

    lines: int
    rows: int
    times: FileTimes = FileTimes()


class UnitSummary:
    """Counts the lines, rows and rejects of one unit."""

    def __init__(self) -> None:
        self._splits: dict[int, SplitCount] = {}
        self._reasons: Counter[str] = Counter()
        self._absent = AbsentFields()
        self._skipped = 0
        self._findings: list[Finding] = []

    def begin(self, split: int) -> None:
        """Begin a split, which may turn out to be empty."""
        self._splits[split] = SplitCount(0, 0)

    def add(self, split: int, chunk: Extracted) -> None:
        """Count a chunk of a split, after `begin` for that split."""
        before, times = self._splits[split], chunk.records.timestamps
        self._splits[split] = SplitCount(
            before.lines + chunk.line_count,
            before.rows + chunk.row_count,
            before.times.then(FileTimes.from_timestamps(times)),
        )
        reasons, counts = np.unique(chunk.rejects.reasons, return_counts=True)
        texts = REASON_TEXTS[reasons].tolist()
        self._reasons.update(dict(zip(texts, counts.tolist(), strict=True)))
        if chunk.absent is not None:
            self._absent = self._absent.merge(AbsentFields.from_row(*chunk.absent))
        self._skipped += chunk.skipped
        self._findings = merge_findings([*self._findings, *chunk.findings])[:_MOST_FINDINGS]

    def blob(self, unit: int, arrivals: Arrivals | None = None) -> Blob:
        """The summary as a blob; `arrivals` only if the unit's records have an order of arrival."""
        ranges = None if arrivals is None else arrivals.ranges()
        counted = {"splits": self._splits, "reasons": self._reasons, "absent": self._absent}
        counted |= {
            "skipped": self._skipped,
            "findings": [each.as_dict() for each in self._findings],
        }
        return Blob(SUMMARY, unit, text=json.dumps({**counted, "unit": unit, "arrivals": ranges}))


class Summary(NamedTuple):
    """The summaries of all units together.

    `splits` has the counts of every split, `reasons` the count of rejects for each reason.
    `max_lateness_ms` is None without an order of arrival. `absent` are the fields that no row has.
    `skipped` counts the rows whose offset the log has already.
    """

    splits: dict[int, SplitCount]
    reasons: dict[str, int]
    max_lateness_ms: int | None
    absent: AbsentFields
    skipped: int
    findings: list[Finding]


def add_up(texts: Iterable[str]) -> Summary:
    """The summary of all units, given their texts in any order."""
    splits: dict[int, SplitCount] = {}
    reasons: Counter[str] = Counter()
    absent, findings = AbsentFields(), list[Finding]()
    summaries = sorted(map(json.loads, texts), key=lambda summary: int(summary["unit"]))
    for summary in summaries:
        splits |= {
            int(number): SplitCount(lines, rows, FileTimes(*times))
            for number, (lines, rows, times) in summary["splits"].items()
        }
        reasons.update(summary["reasons"])
        absent = absent.merge(AbsentFields(*summary["absent"]))
        found = (Finding(**each) for each in summary["findings"])
        findings = merge_findings([*findings, *found])[:_MOST_FINDINGS]
    arrivals = [summary["arrivals"] for summary in summaries]
    lateness = None if None in arrivals else largest_lateness_ms(arrivals)
    skipped = sum(summary["skipped"] for summary in summaries)
    by_reason = dict(sorted(reasons.items()))
    return Summary(splits, by_reason, lateness, absent, skipped, findings)
