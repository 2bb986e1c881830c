"""The commit that makes an attempt visible, and how every race for it ends.

After a commit that failed, or whose reply was lost, the catalog is read again. If it has our
attempt, we won. If it has another attempt of the same run, or new versions of our files, the run is
planned again. If the end offsets did not change, the same rows are committed again. Otherwise the
segments are moved behind those of the other commit.

The mark of success beside an attempt's manifest is for `seglake repair` alone. A run whose mark
cannot be written is committed all the same.
"""

from __future__ import annotations

import logging
import time

from seglake.catalog.manifest import mark_committed
from seglake.catalog.rows import Row, RunRow, SegmentRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CommitConflict, StoreError
from seglake.layout import new_attempt
from seglake.store import Store
from seglake.write.driver.attempt import Attempt, PlanAgain, end_offsets, now_ms
from seglake.write.driver.rebase import Move
from seglake.write.driver.sources import SplitCounts
from seglake.write.driver.topics import append_time, topic_row

PATIENCE = 100  # the cost of races and failures after which a run gives up
RACE_COST, FAILURE_COST = 1, 20  # of a lost race; of a failure of storage
PAUSE_S = 0.5  # after a failure of storage

logger = logging.getLogger(__name__)


def mark(store: Store, attempt_id: str) -> None:
    """Say beside the manifest of an attempt that the catalog has it."""
    try:
        mark_committed(store, attempt_id)
    except StoreError as error:
        logger.warning(
            "the run is committed, but its mark for `seglake repair` is not written, which the "
            "same run id again does: %s", error,
        )  # fmt: skip


class Commit:
    """The commit of one attempt; `counts` are those of its splits."""

    def __init__(self, attempt: Attempt, counts: SplitCounts) -> None:
        self._attempt, self._base = attempt, attempt.base
        self._append_time_ms = attempt.append_time_ms
        self._topic_rows = topic_row(attempt.base, attempt.pipeline)
        self._sources = attempt.source.rows(counts, attempt.topic, attempt.attempt_id)
        self._patience = PATIENCE

    def run(self, segments: list[SegmentRow]) -> int:
        """Make the segments visible, moved if need be; returns a version that has them.

        Raises PlanAgain, and CommitConflict or StoreError when patience is at its end. After a
        StoreError the segments may be visible; another attempt at the run finds out.
        """
        while True:
            try:
                return self._commit(segments)
            except (CommitConflict, StoreError) as problem:
                newest, has_won = self._newest()
                if has_won:
                    mark(self._attempt.store, self._attempt.attempt_id)
                    return newest.version
                self._bear(problem)
                segments = self._behind(newest, segments)

    def _newest(self) -> tuple[Snapshot, bool]:
        """The newest version of the catalog, and whether it has this attempt."""
        while True:
            try:
                newest = self._attempt.table.refresh(self._base)
                return newest, self._is_in(newest)
            except StoreError as problem:
                self._bear(problem)

    def _commit(self, segments: list[SegmentRow]) -> int:
        attempt, rows = self._attempt, self._rows(segments)
        return attempt.table.commit(
            rows, topic=attempt.topic, base=self._base, attempt_id=attempt.attempt_id
        )

    def _is_in(self, newest: Snapshot) -> bool:
        """Whether the catalog has this attempt; PlanAgain if it has another one of the run."""
        attempt = self._attempt
        name, run_id = attempt.pipeline.name, attempt.run.run_id
        run = attempt.table.run(newest, attempt.topic, name, run_id)
        if run is not None and run.attempt_id != attempt.attempt_id:
            raise PlanAgain("another attempt committed this run")
        return run is not None

    def _bear(self, problem: CommitConflict | StoreError) -> None:
        """Wait after a failure of storage; raise the problem when patience is at its end."""
        raced = isinstance(problem, CommitConflict)
        self._patience -= RACE_COST if raced else FAILURE_COST
        if self._patience <= 0:
            raise problem
        if not raced:
            time.sleep(PAUSE_S)

    def _behind(self, newest: Snapshot, segments: list[SegmentRow]) -> list[SegmentRow]:
        """The segments, moved if need be to follow what was committed meanwhile."""
        attempt = self._attempt
        before, after = (end_offsets(each, attempt.topic) for each in (self._base, newest))
        if attempt.source.is_taken(attempt.table.sources(newest, attempt.topic)):
            raise PlanAgain("another run ingested some of these files")
        self._base, self._topic_rows = newest, topic_row(newest, attempt.pipeline)
        deltas = {partition: end - before.get(partition, 0) for partition, end in after.items()}
        if not segments or not any(deltas.values()):
            return segments
        return self._moved(deltas, segments)

    def _moved(self, deltas: dict[int, int], segments: list[SegmentRow]) -> list[SegmentRow]:
        attempt = self._attempt
        attempt.report.rebased += 1
        self._append_time_ms = append_time(self._base, attempt.topic, self._append_time_ms)
        move = Move(attempt.store, deltas, new_attempt(), self._append_time_ms)
        with attempt.step("move the segments behind those of another run"):
            return move.run(attempt.engine, segments)

    def _rows(self, segments: list[SegmentRow]) -> list[Row]:
        attempt, report = self._attempt, self._attempt.report
        report.describe(segments)
        start_ms, end_ms = attempt.run.interval or (None, None)
        run = RunRow(
            topic=attempt.topic,
            pipeline=attempt.pipeline.name,
            run_id=attempt.run.run_id,
            attempt_id=attempt.attempt_id,
            fingerprint=attempt.pipeline.fingerprint(),
            interval_start_ms=start_ms,
            interval_end_ms=end_ms,
            records=report.records,
            quarantined=report.quarantined,
            input_files=report.input_files,
            input_rows=report.input_rows,
            input_bytes=report.input_bytes,
            output_bytes=report.output_bytes,
            started_at_ms=attempt.started_ms,
            finished_at_ms=now_ms(),
            report=report.as_row(),
        )
        return [*self._topic_rows, run, *segments, *self._sources]
