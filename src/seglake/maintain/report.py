"""Reports of maintenance, as plain values and as JSON, and the catalog's row of a commit."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from seglake.catalog.schema import MaintenanceRow, in_a_row
from seglake.clock import now_ms
from seglake.layout import new_attempt
from seglake.terminal.tables import ShowsTable, Table, of_report

Status = Literal["committed", "already done", "dry run"]


@dataclass(repr=False)
class MaintenanceReport(ShowsTable):
    """A report as plain values, as JSON, and as a small table."""

    def _table(self) -> Table:
        return of_report(type(self).__name__, self.as_dict())

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 unless a class says otherwise."""
        return 0

    def as_dict(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)

    def as_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


@dataclass(repr=False)
class TopicReport(MaintenanceReport):
    """The report of an attempt to maintain a topic; `version` is that of its commit, else -1.

    `SAMPLED` are lists that may have an item for each file: a row has a few of them.
    """

    SAMPLED: ClassVar[tuple[str, ...]] = ()
    topic: str
    attempt_id: str = field(default_factory=new_attempt)
    version: int = -1
    started_at_ms: int = field(default_factory=now_ms)

    def row(self, operation: str) -> MaintenanceRow:
        """The row that the commit adds; `operation` is the command's name."""
        return MaintenanceRow(
            topic=self.topic,
            operation=operation,
            attempt_id=self.attempt_id,
            started_at_ms=self.started_at_ms,
            finished_at_ms=now_ms(),
            report=in_a_row(self.as_dict(), self.SAMPLED),
        )
