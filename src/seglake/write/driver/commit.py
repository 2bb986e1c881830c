"""The commit that makes an attempt visible, and what follows a lost race.

After a commit that failed, or whose reply was lost, the catalog is read again. If it has this
attempt, the commit succeeded. If it has another attempt at the run, or new versions of its files,
the run is planned again. If the end offsets did not change, the same rows are committed again.
Otherwise the segments are re-based: moved behind those of the other commit.

Only `seglake repair` reads the success mark beside an attempt's manifest. A run is committed even
if its mark cannot be written.
"""

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
from seglake.write.driver.run_input import SplitCounts
from seglake.write.driver.topics import append_time, topic_row

PATIENCE = 100  # a run gives up when its lost races and storage failures cost this much
RACE_COST, FAILURE_COST = 1, 20
PAUSE_S = 0.5  # after a failure of storage

logger = logging.getLogger(__name__)


def mark(store: Store, attempt_id: str) -> None:
    """Write the success mark of an attempt that is committed; log a warning if that fails."""
    try:
        mark_committed(store, attempt_id)
    except StoreError as error:
        logger.warning(
            "the run is committed, but its success mark for `seglake repair` is not written; "
            "run again with the same run id to write it: %s", error,
        )  # fmt: skip


class Commit:
    """The commit of one attempt; `counts` are the counts of its splits."""

    def __init__(self, attempt: Attempt, counts: SplitCounts) -> None:
        self._attempt, self._base = attempt, attempt.base
        self._append_time_ms = attempt.append_time_ms
        self._topic_rows = topic_row(attempt.base, attempt.pipeline)
        self._sources = attempt.input.rows(counts, attempt.topic, attempt.attempt_id)
        self._patience = PATIENCE
        self._moved_to = set[str]()  # the attempt whose files the segments are after a re-base

    def run(self, segments: list[SegmentRow]) -> int:
        """Make the segments visible, re-based if need be; returns a version that has them.

        Raises PlanAgain, AttemptAbandoned, or CommitConflict or StoreError when the patience is
        used up. After a StoreError the segments may be visible; the next attempt finds out.
        """
        while True:
            try:
                return self._commit(segments)
            except (CommitConflict, StoreError) as problem:
                newest, committed = self._newest()
                if committed:
                    mark(self._attempt.store, self._attempt.attempt_id)
                    return newest.version
                self._spend_patience(problem)
                segments = self._behind(newest, segments)

    def _newest(self) -> tuple[Snapshot, bool]:
        """The newest version of the catalog, and whether it has this attempt."""
        while True:
            try:
                newest = self._attempt.table.refresh(self._base)
                return newest, self._is_in(newest)
            except StoreError as problem:
                self._spend_patience(problem)

    def _commit(self, segments: list[SegmentRow]) -> int:
        attempt, rows = self._attempt, self._rows(segments)
        return attempt.table.commit(
            rows,
            topic=attempt.topic,
            base=self._base,
            attempt_id=attempt.attempt_id,
            files_of=self._moved_to,
        )

    def _is_in(self, newest: Snapshot) -> bool:
        """Whether the catalog has this attempt; PlanAgain if it has another attempt at the run."""
        attempt = self._attempt
        name, run_id = attempt.pipeline.name, attempt.run.run_id
        run = attempt.table.run(newest, attempt.topic, name, run_id)
        if run is not None and run.attempt_id != attempt.attempt_id:
            raise PlanAgain("another attempt committed this run")
        return run is not None

    def _spend_patience(self, problem: CommitConflict | StoreError) -> None:
        """Wait after a failure of storage; raise the problem when the patience is used up."""
        raced = isinstance(problem, CommitConflict)
        self._patience -= RACE_COST if raced else FAILURE_COST
        if self._patience <= 0:
            raise problem
        if not raced:
            time.sleep(PAUSE_S)

    def _behind(self, newest: Snapshot, segments: list[SegmentRow]) -> list[SegmentRow]:
        """The segments, re-based if need be to follow the segments committed meanwhile."""
        attempt = self._attempt
        before = end_offsets(self._base, attempt.topic)
        if attempt.input.is_taken(attempt.table.sources(newest, attempt.topic)):
            raise PlanAgain("another run ingested some of these files")
        self._base, self._topic_rows = newest, topic_row(newest, attempt.pipeline)
        after = end_offsets(newest, attempt.topic)
        deltas = {partition: end - before.get(partition, 0) for partition, end in after.items()}
        if not segments or not any(deltas.values()):
            return segments
        return self._moved(deltas, segments)

    def _moved(self, deltas: dict[int, int], segments: list[SegmentRow]) -> list[SegmentRow]:
        attempt = self._attempt
        attempt.report.rebased += 1
        self._append_time_ms = append_time(self._base, attempt.topic, self._append_time_ms)
        move = Move(attempt.store, deltas, new_attempt(), self._append_time_ms)
        self._moved_to = {move.attempt_id}
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
