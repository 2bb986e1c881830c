"""A redrive: rejects of a committed run are ingested with corrected settings, exactly once.

A redrive is itself a run. Its commit takes over every open reject of the other run: those that
became records are visible, and the rest are rejects of the redrive. So a second redrive begins
where the first ended. It commits only if the rejects that it read are still open in the version
that it continues; if another redrive took them, or they were undone, replaced, erased or expired
meanwhile, it is planned again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from seglake.catalog.failed_run import failed_runs
from seglake.catalog.quarantine.open_rejects import (
    Chain,
    chain_of,
    erasures_of,
    expired_attempts,
    joined,
    redrive_of,
    rejects_left,
    unfinished,
)
from seglake.catalog.schema import RunRow, committed_runs
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import announced, mark
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import CommitConflict, ConfigError, QuarantineLimit, UsageError
from seglake.layout import new_attempt
from seglake.store import open_store
from seglake.terminal.wording import advice, counted, history_command
from seglake.write.driver.attempt import Attempt, DeclaredRun, PlanAgain
from seglake.write.driver.redrive.redrive_input import RedriveInput
from seglake.write.driver.report import Failure, Progress, Report, silent
from seglake.write.driver.run import carry_out, check_input, count


@dataclass(repr=False)
class RedriveReport(Report):
    """The result of one redrive: `records` were redriven.

    `redrives` has the id of the first run, and the attempt whose rejects were taken over. `refused`
    counts the rejects that could not be read again, by cause; `reasons` counts those that are
    rejected again. Both together are `quarantined`, and still open.
    """

    redrives: dict[str, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def _done_before(self) -> str:
        """Why nothing was redriven."""
        untried = " that these settings were not tried on" if self.quarantined else ""
        run_id = self.redrives.get("run_id", self.run_id)
        return f"nothing to redrive: run {run_id!r} has no open rejects{untried}"

    def _ingested(self) -> str:
        """How many of the open rejects become records."""
        rejects = counted(self.records + self.quarantined, "reject")
        return f"{self.records:,} of {rejects} become records, {self.quarantined:,} stay open"


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
    it was undone, if it ingested a DataFrame or if its rejects have expired; QuarantineLimit if no
    reject becomes a record, or too many are rejected again; CommitConflict if an erasure of some of
    the rejects is not finished; and what `ingest_files` raises. After an error nothing is visible.
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
    work = _RedriveCall(engine, pipeline, run_id, dry_run, progress)
    while (report := work.run()) is None:
        pass
    return report


class _Open(NamedTuple):
    """The rejects that a redrive takes over, as a version of the catalog has them.

    `left` is their number after the `erasures` that took some; None without one.
    """

    chain: Chain
    expired: bool
    left: int | None
    erasures: list[str]


class _RedriveCall:
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
        base = self._table.snapshot(topics=[self._pipeline.topic.name])
        opened = self._open(base)
        chain = opened.chain
        if chain.redrives and not self._dry_run:
            mark(self._store, chain.last.attempt_id)  # it may have died before it wrote the mark
        fingerprint = self._pipeline.fingerprint()
        tried = [run for run in chain.redrives if run.fingerprint == fingerprint]
        none_left = not chain.last.quarantined or opened.left == 0
        if none_left or (tried and not _refused(tried[-1])):
            return _already_done([chain.first, *chain.redrives, *tried][-1])
        _require_usable(opened)
        report, attempt_id, moved = self._begin(chain), new_attempt(), set[str]()
        failure = Failure(self._store, report)
        with self._begun(attempt_id, moved), nullcontext() if self._dry_run else failure:
            rejects = self._rejects(base, opened, report)
            try:
                clock_ms = _clock_of(chain.first)
                return self._read_again(base, rejects, report, failure, clock_ms, attempt_id, moved)
            except PlanAgain as reason:
                report.log(f"{reason}: planning again")
            except QuarantineLimit as limit:
                if report.records:
                    raise
                if not tried:
                    raise _nothing_gained(chain, rejects, report) from limit
                return _already_done(tried[-1])
        return None

    def _begun(self, attempt_id: str, moved: set[str]) -> AbstractContextManager[None]:
        """The announcement of the attempt; a dry run is none."""
        if self._dry_run:
            return nullcontext()
        topic = self._pipeline.topic
        return announced(self._table, attempt_id, topic.name, moved, partitions=topic.partitions)

    def _begin(self, chain: Chain) -> RedriveReport:
        taken = {"run_id": chain.first.run_id, "attempt_id": chain.last.attempt_id}
        first = chain.first
        return RedriveReport(first.topic, first.pipeline, chain.next_run_id, redrives=taken)

    def _open(self, version: Snapshot) -> _Open:
        """What a version says of the wanted rejects. Raises UsageError."""
        topic = self._pipeline.topic.name
        history = self._table.run_history(version, topic)
        failed = partial(failed_runs, self._store, topic, self._run_id)
        run = _committed_run(history, self._pipeline, self._run_id, failed)
        chain = chain_of(run, committed_runs(history))
        upkeep, attempt_id = self._table.maintenance(version, topic), chain.last.attempt_id
        expired = attempt_id in expired_attempts(upkeep)
        erasures = sorted(erasures_of(attempt_id, upkeep))
        return _Open(chain, expired, rejects_left(upkeep).get(attempt_id), erasures)

    def _have_left(self, before: _Open, newest: Snapshot) -> bool:
        """Whether a newer version has the rejects otherwise. To plan again tells the cause."""
        try:
            return self._open(newest) != before
        except UsageError:
            return True

    def _rejects(self, base: Snapshot, open_rejects: _Open, report: RedriveReport) -> RedriveInput:
        chain = open_rejects.chain
        sources = self._table.sources(base, chain.first.topic)
        self._engine.start(lambda name: report.step(name, self._progress))
        with report.step("list rejects", self._progress):
            leaving = joined(unfinished(self._store, open_rejects.erasures).values())
            rejects = RedriveInput(
                self._engine,
                self._pipeline,
                self._store,
                chain,
                sources,
                partial(self._have_left, open_rejects),
                dry_run=self._dry_run,
            )
        too_many = open_rejects.left is not None and rejects.count > open_rejects.left
        if too_many or rejects.has_one_of(leaving):
            raise CommitConflict(
                f"an erasure of some of the rejects of run {chain.last.run_id!r} is not finished: "
                "redrive when it has ended; if it died, run `seglake erase` again first"
            )
        return rejects

    def _read_again(
        self,
        base: Snapshot,
        rejects: RedriveInput,
        report: RedriveReport,
        failure: Failure,
        clock_ms: int,
        attempt_id: str,
        moved: set[str],
    ) -> RedriveReport:
        def before_commit(attempt: Attempt) -> None:
            _settle(report, rejects)
            rejects.keep_refused(attempt.attempt_id, attempt.started_ms)

        if rejects.is_empty():
            raise QuarantineLimit("no reject can be read again")
        pipeline = self._pipeline.model_copy(update={"name": report.pipeline})
        run = DeclaredRun(report.run_id, clock_ms=clock_ms)
        attempt = Attempt(
            engine=self._engine,
            pipeline=pipeline,
            run=run,
            store=self._store,
            table=self._table,
            base=base,
            input=rejects,
            report=report,
            progress=self._progress,
            attempt_id=attempt_id,
            moved=moved,
        )
        if not self._dry_run:
            carry_out(attempt, failure, before_commit)
            return report
        report.describe_input(rejects.selection)
        with attempt.step("read and sort", f"reading {report.input_size}"):
            spooled = rejects.spool(attempt.map_settings)
        count(attempt, spooled)
        check_input(attempt)
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


def _require_usable(rejects: _Open) -> None:
    """Raise UsageError if the rejects have expired."""
    if rejects.expired:
        raise UsageError(
            f"the rejects of run {rejects.chain.last.run_id!r} have expired "
            "(quarantine.retention.ms): ingest their files in another run"
        )


def _committed_run(
    history: Sequence[RunRow], pipeline: Pipeline, run_id: str, failed: Callable[[], Sized]
) -> RunRow:
    """The committed run with this id, of the same pipeline if several have one.

    `history` has every run row of the topic, `failed` finds failed runs of this id. Raises
    UsageError.
    """
    rows = [run for run in history if run.run_id == run_id]
    runs = committed_runs(rows)
    runs = [run for run in runs if run.pipeline == pipeline.name] or runs
    topic = pipeline.topic.name
    if not runs:
        last = max(rows, key=lambda run: run.sequence, default=None)
        if last is None and failed():
            raise UsageError(
                f"run {run_id!r} of topic {topic!r} failed, so nothing of it is there to be "
                "redriven: ingest again with this run id; `seglake run-status` says why it failed"
            )
        ids = {run.run_id for run in committed_runs(history)}
        known = advice(run_id, ids, history_command(pipeline.root, topic))
        raise UsageError(
            f"topic {topic!r} has no committed run {run_id!r}; {known}"
            if last is None
            else f"run {run_id!r} of topic {topic!r} is {last.state}, and its rejects with it: "
            "ingest its files again"
        )
    if len(runs) > 1:
        names = ", ".join(sorted(repr(run.pipeline) for run in runs))
        raise UsageError(
            f"topic {topic!r} has a run {run_id!r} of each of the pipelines {names}: set "
            "pipeline.name to the one that is meant"
        )
    (run,) = runs
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
