"""The commit that makes an attempt visible, and what follows a lost race.

After a lost race the attempt continues the newest version. If that version has another attempt at
the run, files of its input or other partitions, or if rejects that a redrive takes over are gone,
the run is planned again. Otherwise the same rows are committed again, behind those of the others:
see `placement`.

Only maintenance reads the success mark beside an attempt's manifest. A run is committed even if its
mark cannot be written.
"""

import json
from collections.abc import Iterable, Sequence

from seglake.advice.finding import Finding
from seglake.catalog.quarantine.open_rejects import redrive_of
from seglake.catalog.schema import Row, RunRow, SegmentRow
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.errors import UsageError
from seglake.terminal.wording import counted, history_command, nearest
from seglake.write.driver.attempt import Attempt, PlanAgain
from seglake.write.driver.placement import Placement
from seglake.write.driver.report import Report
from seglake.write.driver.run_input import SplitCounts
from seglake.write.driver.topics import growth, topic_in_force, topic_rows

_COMPARED = 1000  # of the newest run ids with a mistyped one


class Commit:
    """The commit of one attempt; `counts` are the counts of its splits."""

    def __init__(self, attempt: Attempt, counts: SplitCounts, segments: list[SegmentRow]) -> None:
        self._attempt, self._base = attempt, attempt.base
        self._placement = Placement(attempt, segments)
        self._topic_rows = topic_rows(attempt.base, attempt.pipeline, attempt.seed)
        self._sources = attempt.input.rows(counts, attempt.topic, attempt.attempt_id)

    def run(self) -> int:
        """Make the segments visible, re-based if need be; returns a version that has them.

        Raises PlanAgain, AttemptAbandoned, and, after too many lost races or failures of storage,
        CommitConflict or StoreError. After a StoreError the segments may be visible; the next
        attempt finds out.
        """
        attempt = self._attempt
        version = transact(
            attempt.table, attempt.topic, attempt.attempt_id, self._change, attempt.base
        )
        return -1 if version is None else version  # there is always a run to commit

    def _change(self, base: Snapshot) -> Change:
        """What the attempt adds to the version `base`."""
        if base is not self._base:
            self._follow(base)
        removal = self._removal(base)
        rows, files_of = removal.rows, removal.files_of
        return removal._replace(
            rows=[*rows, *self._rows(rows)], files_of={*files_of, *self._placement.copied_to}
        )

    def _removal(self, base: Snapshot) -> Change:
        """What takes the replaced runs out of the version; the report says what leaves."""
        replacement, report = self._attempt.replacement, self._attempt.report
        if replacement is None:
            return Change()
        if not (report.records or replacement.with_nothing):
            runs = replacement.runs(base)
            if not runs and self._attempt.run.interval is None:
                self._require_input(base)
            _require_nothing(runs, report)
        removal = replacement.change(base)
        replaced = [row for row in removal.rows if isinstance(row, RunRow)]
        report.replaced_runs = [row.run_id for row in replaced]
        report.replaced_records = replacement.records
        report.replaced_files = sum(row.input_files for row in replaced if not redrive_of(row))
        return removal

    def _require_input(self, base: Snapshot) -> None:
        """Raise UsageError if other runs have the whole input: the run id may be mistyped.

        A schedule declares intervals, and may find that others ingested its files.
        """
        report = self._attempt.report
        if report.input_files or not (report.skipped_files or report.changed_files):
            return
        owners = self._owners(base)
        owner = self._nearest(owners)
        said = (
            f"pipeline {report.pipeline!r} has no run {report.run_id!r} to replace in topic "
            f"{report.topic!r}, and other runs have all its files"
            f"{owner and f', such as {owner!r}'}, so nothing was committed"
        )
        other = [] if owner else self._other_pipeline(owners)
        lists = history_command(self._attempt.pipeline.root, report.topic)
        raise UsageError("; ".join([said, *map(str, other), lists]))

    def _owners(self, base: Snapshot) -> list[RunRow]:
        """The runs that ingested the files before, of any pipeline."""
        attempt = self._attempt
        runs = attempt.table.runs(base, attempt.topic)
        return [run for run in runs if run.attempt_id in attempt.input.owners]

    def _nearest(self, owners: Iterable[RunRow]) -> str:
        """The run of this pipeline among them: of several the nearest id, or the newest run."""
        report = self._attempt.report
        names = [run.run_id for run in owners if run.pipeline == report.pipeline]
        near = nearest(report.run_id, names[-_COMPARED:]) or names[-1:]
        return near[0] if near else ""

    def _other_pipeline(self, owners: Sequence[RunRow]) -> list[Finding]:
        """Return a finding if only runs of another pipeline ingested the files before."""
        own = self._attempt.pipeline.name
        return [Finding("other-pipeline", run.pipeline, {"own": own}) for run in owners[-1:]]

    def _follow(self, newest: Snapshot) -> None:
        """Continue a newer version; re-base the segments if another commit took their offsets."""
        attempt = self._attempt
        name, run_id = attempt.pipeline.name, attempt.run.run_id
        committed = attempt.table.run(newest, attempt.topic, name, run_id)
        if committed != attempt.table.run(self._base, attempt.topic, name, run_id):
            raise PlanAgain("another attempt committed this run")
        if attempt.input.is_taken(newest, attempt.sources):
            raise PlanAgain("another commit took or removed some of the input")
        partitions = topic_in_force(newest, attempt.pipeline).partitions
        if partitions != attempt.settings.topic.partitions:
            raise PlanAgain("the topic has other partitions now")
        self._base, self._topic_rows = newest, topic_rows(newest, attempt.pipeline, attempt.seed)
        self._placement.follow(newest)

    def _rows(self, others: Iterable[Row]) -> list[Row]:
        """The rows of the attempt; `others` go into the same commit."""
        attempt, report = self._attempt, self._attempt.report
        segments = self._placement.rows
        report.describe(segments)
        if attempt.input.owners and attempt.input.is_empty():
            owners = self._owners(self._base)
            report.owner = self._nearest(owners)
            of_another = [] if report.owner else self._other_pipeline(owners)
            report.findings = [*growth(self._base, attempt.settings.topic), *of_another]
        start_ms, end_ms = attempt.run.interval or (None, None)
        run = RunRow(
            topic=attempt.topic,
            pipeline=attempt.pipeline.name,
            run_id=attempt.run.run_id,
            attempt_id=attempt.attempt_id,
            fingerprint=attempt.pipeline.fingerprint(),
            interval_start_ms=start_ms,
            interval_end_ms=end_ms,
            interval_records=report.interval_records,
            records=report.records,
            quarantined=report.quarantined,
            input_files=report.input_files,
            input_rows=report.input_rows,
            input_bytes=report.input_bytes,
            output_bytes=report.output_bytes,
            started_at_ms=attempt.started_ms,
            finished_at_ms=now_ms(),
            report=report.as_row(),
            sequence=self._sequence(others),
            offset_ranges=offset_ranges(segments),
        )
        log_starts = attempt.log_starts()
        return [*self._topic_rows, *log_starts, run, *segments, *self._sources]

    def _sequence(self, others: Iterable[Row]) -> int:
        """The sequence of the run's row: above those of its key in the catalog and in `others`."""
        attempt = self._attempt
        key = (attempt.topic, attempt.pipeline.name, attempt.run.run_id)
        return max(
            attempt.table.next_sequence(self._base, *key),
            *(
                row.sequence + 1
                for row in others
                if isinstance(row, RunRow) and (row.topic, row.pipeline, row.run_id) == key
            ),
            0,
        )


def _require_nothing(replaced: Iterable[RunRow], report: Report) -> None:
    """Raise UsageError if something would leave, and nothing take its place."""
    lost = [run for run in replaced if run.records or run.quarantined or run.input_files]
    if not lost:
        return
    records, names = sum(run.records for run in lost), sorted(repr(run.run_id) for run in lost)
    raise UsageError(
        f"{report.summary}: nothing would take the place of run {', '.join(names)} "
        f"({counted(records, 'record')}), so nothing was replaced: correct the input; "
        "`seglake undo` takes a run out, and --replace-with-nothing replaces it all the same"
    )


def offset_ranges(segments: Iterable[SegmentRow]) -> str:
    """Return the offsets of a run as JSON: for each log partition one [start, end)."""
    ranges: dict[int, list[int]] = {}
    for row in segments:
        ranges.setdefault(row.partition, [row.base_offset, 0])[1] = row.end_offset
    return json.dumps({partition: [ends] for partition, ends in ranges.items()})
