"""A redrive: rejects of a committed run are ingested with corrected settings, exactly once.

A redrive is itself a run. Its commit takes over every open reject of the other run: those that
became records are visible, and the rest are rejects of the redrive. So a second redrive begins
where the first ended. Redrives of one run that race have the same run key: the loser plans again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from seglake.catalog.quarantine.expiry import expired_attempts
from seglake.catalog.quarantine.redrives import Chain, chain_of, redrive_of
from seglake.catalog.rows import RunRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import mark
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import ConfigError, QuarantineLimit, UsageError
from seglake.store import open_store
from seglake.write.driver.attempt import Attempt, DeclaredRun, PlanAgain
from seglake.write.driver.failure import Failure
from seglake.write.driver.redrive.redrive_input import RedriveInput
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.run import carry_out, check_rejects, count


@dataclass(repr=False)
class RedriveReport(Report):
    """The result of one redrive: `records` were redriven.

    `redrives` has the id of the first run, and the attempt whose rejects were taken over. `refused`
    counts the rejects that could not be read again, by cause; `reasons` counts those that are
    rejected again. Both together are `quarantined`, and still open.
    """

    redrives: dict[str, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


def redrive(
    engine: Engine,
    pipeline: Pipeline,
    run_id: str,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
) -> RedriveReport:
    """Ingest the open rejects of a run, which is named by its id or by that of a redrive of it.

    If no reject is open, or these settings were tried on all that are, the report's status is
    "already done". With `dry_run` nothing is written. Raises UsageError if there is no such run, if
    it ingested a DataFrame or if its rejects have expired; QuarantineLimit if no reject becomes a
    record, or too many are rejected again; and what `ingest_files` raises. After an error nothing
    is visible.
    """
    if not pipeline.input.kind.in_files:
        raise ConfigError(
            f"input.format = {pipeline.input.format!r} cannot be redriven: say how the files of "
            "the run are to be read"
        )
    if pipeline.topic.offset_field is not None:
        raise ConfigError(
            "topic.offset_field contradicts a redrive: the offsets of rejected rows lie below the "
            "end of the log; ingest the corrected rows into another topic"
        )
    work = _Redrive(engine, pipeline, run_id, dry_run, progress)
    while (report := work.run()) is None:
        pass
    return report


class _Redrive:
    """One call of `redrive`."""

    def __init__(
        self, engine: Engine, pipeline: Pipeline, run_id: str, dry_run: bool, progress: Progress
    ) -> None:
        self._engine, self._pipeline, self._run_id = engine, pipeline, run_id
        self._dry_run, self._progress = dry_run, progress
        self._store = open_store(pipeline.root, pipeline.storage)
        self._table = CatalogTable.open(self._store)

    def run(self) -> RedriveReport | None:
        """Redrive what is open now; None after a lost race."""
        base, topic = self._table.snapshot(), self._pipeline.topic.name
        runs = self._table.runs(base, topic)
        chain = chain_of(_wanted(runs, self._pipeline, self._run_id), runs)
        if chain.redrives and not self._dry_run:
            mark(self._store, chain.last.attempt_id)  # it may have died before it wrote the mark
        fingerprint = self._pipeline.fingerprint()
        tried = [run for run in chain.redrives if run.fingerprint == fingerprint]
        if not chain.last.quarantined or (tried and not _refused(tried[-1])):
            return _already_done([chain.first, *chain.redrives, *tried][-1])
        if chain.last.attempt_id in expired_attempts(self._table.maintenance(base, topic)):
            raise UsageError(
                f"the rejects of run {chain.last.run_id!r} have expired (quarantine.retention.ms): "
                "ingest their files in another run"
            )
        report = self._begin(chain)
        failure = Failure(self._store, report)
        with nullcontext() if self._dry_run else failure:
            rejects = self._rejects(base, chain, report)
            try:
                clock_ms = _clock_of(chain.first)
                return self._read_again(base, rejects, report, failure, clock_ms)
            except PlanAgain as reason:
                report.log(f"{reason}: planning again")
            except QuarantineLimit as limit:
                if report.records:
                    raise
                if not tried:
                    raise _nothing_gained(chain, rejects, report) from limit
                return _already_done(tried[-1])
        return None

    def _begin(self, chain: Chain) -> RedriveReport:
        taken = {"run_id": chain.first.run_id, "attempt_id": chain.last.attempt_id}
        names = (chain.first.topic, chain.first.pipeline, chain.next_run_id)
        return RedriveReport(*names, redrives=taken)

    def _rejects(self, base: Snapshot, chain: Chain, report: RedriveReport) -> RedriveInput:
        given = (self._engine, self._pipeline, self._store, chain)
        sources = self._table.sources(base, chain.first.topic)
        with report.step("list rejects", self._progress):
            return RedriveInput(*given, sources, dry_run=self._dry_run)

    def _read_again(
        self,
        base: Snapshot,
        rejects: RedriveInput,
        report: RedriveReport,
        failure: Failure,
        clock_ms: int,
    ) -> RedriveReport:
        def before_commit(attempt: Attempt) -> None:
            _settle(report, rejects)
            rejects.keep_refused(attempt.attempt_id, attempt.started_ms)

        if rejects.is_empty():
            raise QuarantineLimit("no reject can be read again")
        pipeline = self._pipeline.model_copy(update={"name": report.pipeline})
        run = DeclaredRun(report.run_id, clock_ms=clock_ms)
        of_run = (self._engine, pipeline, run, self._store, self._table, base)
        attempt = Attempt(*of_run, rejects, report, self._progress)
        if not self._dry_run:
            carry_out(attempt, failure, before_commit)
            return report
        report.describe_input(rejects.selection)
        with attempt.step("read and sort"):
            names = (attempt.attempt_id, attempt.append_time_ms)
            spooled = rejects.spool(self._store, attempt.settings, *names)
        count(attempt, spooled)
        check_rejects(attempt)
        _settle(report, rejects)
        report.status = "dry run"
        return report


def _settle(report: RedriveReport, rejects: RedriveInput) -> None:
    """Count refused rejects as rejects. Raises QuarantineLimit if no reject became a record."""
    if not report.records:
        raise QuarantineLimit("no reject becomes a record")
    report.refused = dict(sorted(rejects.refused.items()))
    report.quarantined += rejects.refused.total()
    report.input_rows += rejects.refused.total()


def _wanted(runs: Sequence[RunRow], pipeline: Pipeline, run_id: str) -> RunRow:
    """The run with this id, of the same pipeline if there are several. Raises UsageError."""
    found = [run for run in runs if run.run_id == run_id]
    found = [run for run in found if run.pipeline == pipeline.name] or found
    topic = pipeline.topic.name
    if not found:
        raise UsageError(
            f"topic {topic!r} has no committed run {run_id!r}; `seglake history` lists the runs"
        )
    if len(found) > 1:
        names = ", ".join(sorted(repr(run.pipeline) for run in found))
        raise UsageError(
            f"topic {topic!r} has a run {run_id!r} of each of the pipelines {names}: set "
            "pipeline.name to the one that is meant"
        )
    (run,) = found
    if run.quarantined and not run.input_files and not redrive_of(run):
        raise UsageError(
            f"run {run_id!r} ingested a DataFrame, whose rows cannot be read again: ingest those "
            "that it rejected in another run"
        )
    return run


def _clock_of(first: RunRow) -> int:
    """The time in ms that the limits of event time count from, in a run and in its redrives."""
    end_ms = first.interval_end_ms
    return first.started_at_ms if end_ms is None else end_ms


def _refused(run: RunRow) -> dict[str, int]:
    """The count of rejects that a redrive could not read again, by cause."""
    refused: dict[str, int] = json.loads(run.report).get("refused", {})
    return refused


def _already_done(run: RunRow) -> RedriveReport:
    """The report of a call that finds nothing to do after this run, a redrive or not."""
    report = RedriveReport(run.topic, run.pipeline, run.run_id)
    report.status, report.attempt_id = "already done", run.attempt_id
    if redrive := redrive_of(run):
        report.redrives, report.refused = redrive._asdict(), _refused(run)
        report.records, report.quarantined = run.records, run.quarantined
        report.input_rows = run.input_rows
    report.log("has no rejects left to redrive with these settings")
    return report


def _nothing_gained(chain: Chain, rejects: RedriveInput, report: Report) -> QuarantineLimit:
    why = {**report.reasons, **rejects.refused}
    counted = "; ".join(f"{reason}: {number}" for reason, number in sorted(why.items()))
    return QuarantineLimit(
        f"none of the {chain.last.quarantined} open rejects of run {chain.first.run_id!r} becomes "
        f"a record with these settings ({counted}); nothing was committed: correct the settings"
    )
