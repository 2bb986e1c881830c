"""What a replay did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ReplayReport:
    """What a replay did. `resumed_after` has, by partition, the last offset of earlier calls.

    `groups` has what this call committed at the target: offsets there, by group and partition.
    """

    name: str
    topic: str
    target: str
    version: int
    start_ms: int
    end_ms: int
    created: bool
    resumed_after: dict[int, int]
    sent: dict[int, int] = field(default_factory=dict)
    groups: dict[str, dict[int, int]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Records sent by this call."""
        return sum(self.sent.values())

    def partitions(self) -> Iterator[dict[str, Any]]:
        """A row for each partition that the replay has records in."""
        for partition in sorted(self.sent.keys() | self.resumed_after.keys()):
            yield {
                "partition": partition,
                "records": self.sent.get(partition, 0),
                "resumed_after": self.resumed_after.get(partition),
            }
