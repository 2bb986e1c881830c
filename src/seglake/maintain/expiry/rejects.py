"""Rejects expire: those of runs that ended longer ago than `quarantine.retention.ms`.

One commit says whose rejects no longer count. Their files go by a vacuum, which finds them in that
commit; so a kill in between loses nothing. The rows of the runs stay as they are, with their
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from seglake.catalog.quarantine.gone import EXPIRE, expired_attempts
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.maintain.commit import carry_out
from seglake.maintain.report import TopicReport
from seglake.maintain.topic_settings import topic_of


@dataclass(repr=False)
class ExpiredRejects(TopicReport):
    """The runs whose rejects expired, or would expire, by their attempts; and both counts.

    `now_ms` is the time by which they were old enough.
    """

    dry_run: bool = False
    now_ms: int = -1
    runs: int = 0
    rejects: int = 0
    attempts: list[str] = field(default_factory=list)


def expire_rejects(
    table: CatalogTable,
    topic: str,
    now_ms: int,
    *,
    dry_run: bool,
    careful_ms: Callable[[], int] | None = None,
) -> ExpiredRejects:
    """Let the rejects of a topic expire, as of the time `now_ms`. Raises as `retain`.

    `careful_ms` is that of `retain_topic`.
    """
    report = ExpiredRejects(topic, dry_run=dry_run, now_ms=now_ms)

    def plan(base: Snapshot) -> Change | None:
        retention_ms = topic_of(base.topic(topic)).quarantine_retention_ms
        if retention_ms < 0:
            return None
        before = expired_attempts(table.maintenance(base, topic))
        old = [
            run
            for run in table.runs(base, topic)
            if run.quarantined and now_ms - run.finished_at_ms > retention_ms
            and run.attempt_id not in before
        ]  # fmt: skip
        if old and careful_ms is not None:
            report.now_ms = careful_ms()
            old = [run for run in old if report.now_ms - run.finished_at_ms > retention_ms]
        report.runs, report.rejects = len(old), sum(run.quarantined for run in old)
        report.attempts = sorted(run.attempt_id for run in old)
        return Change([report.row(EXPIRE)]) if old else None

    carry_out(table, report, plan, dry_run=dry_run)
    return report
