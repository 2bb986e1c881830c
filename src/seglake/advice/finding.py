"""A finding: what `init`, `check` or a run noticed about its input, without a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seglake.advice.words import describe


@dataclass(frozen=True)
class Finding:
    """A value that says what was noticed.

    `code` names the kind of finding, and `subject` the setting, field or file that it is about.
    `facts` has what the sentence needs, as plain values. `count` is how many rows, times or files
    were seen; 0 if counting makes no sense.
    """

    code: str
    subject: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    count: int = 0

    def __str__(self) -> str:
        """Return the finding as a sentence."""
        return describe(self.code, self.subject, self.facts, self.count)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values, for JSON."""
        return asdict(self)


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Add the counts of findings of one code, or of one code and format; the first is kept."""
    counts = dict[tuple[str, Any], Finding]()
    for each in findings:
        key = each.code, each.facts.get("format")
        before = counts.get(key)
        counts[key] = each if before is None else replace(before, count=before.count + each.count)
    return [*counts.values()]
