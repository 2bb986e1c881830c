"""Define findings: facts that `init`, `check` or a run noticed about input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seglake.advice.words import describe


@dataclass(frozen=True)
class Finding:
    """A fact about input, as plain values.

    `code` names the kind of finding, and `subject` the setting, field or file that it is about.
    `facts` has the values that its sentence contains. `count` is the number of rows, times or files
    with the problem, or 0 if there is nothing to count.
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
    """Merge findings with equal code and format: keep the first, with the sum of their counts."""
    counts = dict[tuple[str, Any], Finding]()
    for each in findings:
        key = each.code, each.facts.get("format")
        before = counts.get(key)
        counts[key] = each if before is None else replace(before, count=before.count + each.count)
    return [*counts.values()]
