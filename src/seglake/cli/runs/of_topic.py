"""What became of a run, and whose rejects are open."""

import json
from typing import Any

from seglake.catalog.failed_run import FailedRun, all_failed_runs, failed_runs
from seglake.catalog.quarantine.gone import expired_attempts, rejects_left
from seglake.catalog.quarantine.redrives import chain_of, open_attempts
from seglake.catalog.schema import RunRow, committed_runs
from seglake.catalog.table import CatalogTable
from seglake.cli.runs.rejects import Rejects
from seglake.cli.runs.run_ids import run_column
from seglake.cli.terminal.tables import Listing
from seglake.errors import QuarantineLimit, UsageError
from seglake.shown import Column, number
from seglake.store import open_store
from seglake.times.instants import format_ms

_NOT_COMMITTED = 1


class Runs:
    """The runs of a topic, committed or failed, as the newest version of the lake has them."""

    def __init__(self, root: str, topic: str) -> None:
        self._table = CatalogTable.open(open_store(root))
        self._topic = topic
        snapshot = self._table.snapshot()
        self._history = self._table.run_history(snapshot, topic)
        self._committed = committed_runs(self._history)
        upkeep = self._table.maintenance(snapshot, topic)
        self._expired, self._left = expired_attempts(upkeep), rejects_left(upkeep)

    def status(self, run_id: str, pipeline: str | None) -> dict[str, Any]:
        """What became of a run, with the `exit_code` of its job; None if nothing is known of it.

        A run that is committed has 0, whatever failed before. One that was undone or replaced has
        None. Raises UsageError if pipelines share the run id and none is named.
        """
        runs = self._runs_of(run_id)
        for name, gone in self._taken_out(run_id).items():
            if name not in runs or _ended_ms(runs[name]) < gone.finished_at_ms:
                runs[name] = gone
        named = runs if pipeline is None else {pipeline: runs.get(pipeline)}
        if len(named) > 1:
            raise UsageError(f"pipelines {', '.join(named)} have a run {run_id!r}: give --pipeline")
        for run in named.values():
            if isinstance(run, RunRow):
                return self._committed_status(run) if run.state == "committed" else _taken_out(run)
            if run is not None:
                return _failed(run)
        key = {"topic": self._topic, "pipeline": pipeline, "run_id": run_id}
        return {**key, "status": "not there", "exit_code": None}

    def _committed_status(self, run: RunRow) -> dict[str, Any]:
        """What is known of a committed run, and the rejects that it and its redrives left."""
        chain = chain_of(run, self._committed)
        last = chain.last.attempt_id
        left = 0 if last in self._expired else self._left.get(last, chain.last.quarantined)
        redrives = [redrive.run_id for redrive in chain.redrives]
        status = _committed(run)
        report = status.pop("report")
        return {**status, "redrives": redrives, "open_rejects": left, "report": report}

    def _taken_out(self, run_id: str) -> dict[str, RunRow]:
        """The last row of the run of each pipeline with this run id, if it was taken out."""
        rows = sorted(self._history, key=lambda run: run.sequence)
        last = {run.pipeline: run for run in rows if run.run_id == run_id}
        return {name: run for name, run in last.items() if run.state != "committed"}

    def _runs_of(self, run_id: str) -> dict[str, RunRow | FailedRun]:
        """The run of each pipeline with this run id."""
        failed = failed_runs(self._table.store, self._topic, run_id)
        runs: dict[str, RunRow | FailedRun] = {run.pipeline: run for run in failed}
        return runs | {run.pipeline: run for run in self._committed if run.run_id == run_id}

    def rejects(self, run_id: str | None) -> Rejects:
        """The open rejects of committed runs, or those of the runs with one run id.

        A run that was redriven has the rejects of its last redrive, a failed run a sample. Raises
        UsageError if no run has the run id.
        """
        runs: dict[str, RunRow | FailedRun] = {}
        for run in self._open() if run_id is None else self._runs_of(run_id).values():
            last = chain_of(run, self._committed).last if isinstance(run, RunRow) else run
            runs[last.attempt_id] = last
        if not self._committed and not runs:
            self._require_topic()
        if run_id is not None and not runs:
            raise UsageError(f"topic {self._topic!r} has no run {run_id!r}, committed or failed")
        return Rejects(self._table.store, self._topic, runs, self._expired)

    def _require_topic(self) -> None:
        """Raise UnknownTopic unless the topic exists, or runs of it have failed."""
        if not any(all_failed_runs(self._table.store, self._topic)):
            self._table.snapshot().topic(self._topic)

    def _open(self) -> list[RunRow]:
        """The committed runs that no redrive has taken over."""
        attempts = set(open_attempts(self._committed))
        return [run for run in self._committed if run.attempt_id in attempts]


def _ended_ms(run: RunRow | FailedRun) -> int:
    return run.finished_at_ms if isinstance(run, RunRow) else run.failed_at_ms


def _key(run: RunRow | FailedRun) -> dict[str, Any]:
    return {"pipeline": run.pipeline, "run_id": run.run_id, "attempt_id": run.attempt_id}


def _committed(run: RunRow) -> dict[str, Any]:
    return {
        "topic": run.topic,
        **_key(run),
        "status": "committed",
        "exit_code": 0,
        "ended": format_ms(run.finished_at_ms),
        "files": run.input_files,
        "rows": run.input_rows,
        "records": run.records,
        "quarantined": run.quarantined,
        "report": json.loads(run.report),
    }


def _taken_out(run: RunRow) -> dict[str, Any]:
    """What is known of a run that was undone or replaced."""
    return {
        "topic": run.topic,
        **_key(run),
        "status": run.state,
        "exit_code": None,
        "ended": format_ms(run.finished_at_ms),
        "report": json.loads(run.report),
    }


def _failed(run: FailedRun) -> dict[str, Any]:
    rejected = run.exit_code == QuarantineLimit.exit_code
    return {
        "topic": run.topic,
        **_key(run),
        "status": "rejected too much" if rejected else "failed",
        "exit_code": run.exit_code,
        "ended": format_ms(run.failed_at_ms),
        "error": run.error,
        "files": run.report.get("input_files", 0),
        "rows": run.report.get("input_rows", 0),
        "records": run.report.get("records", 0),
        "quarantined": run.report.get("quarantined", 0),
        "reasons": run.report.get("reasons", {}),
        "report": run.report,
    }


def exit_code_of(status: dict[str, Any]) -> int:
    """The exit code of `seglake run-status`: 0 committed, 3 rejected too much, 1 anything else.

    A run that was undone or replaced is not there any more: 1, and its status tells the cause.

    The others mean that it could not tell: 2 is a mistake in its own arguments.
    """
    code = status["exit_code"]
    return code if code in {0, QuarantineLimit.exit_code} else _NOT_COMMITTED


def failed_rows(root: str, topic: str | None) -> Listing:
    """A row for each attempt that failed, of one topic or of all, the newest first."""
    columns = [
        Column("failed", "failed", lambda text: f"{text[:19]}Z", fit="whole"),
        Column("topic", "topic", rank=1, least=8),
        Column("pipeline", "pipeline", rank=3),
        run_column(least=36),
        number("exit_code", "exit code", rank=2),
        Column("error", "error", fit="below"),
    ]
    store = open_store(root)
    CatalogTable.open(store)  # a root without a lake has no failed runs either, but is an error
    runs = sorted(all_failed_runs(store, topic), key=lambda run: run.failed_at_ms, reverse=True)
    return Listing(columns, map(_failed_row, runs))


def _failed_row(run: FailedRun) -> dict[str, Any]:
    return {
        "failed": format_ms(run.failed_at_ms),
        "topic": run.topic,
        **_key(run),
        "exit_code": run.exit_code,
        "error": run.error,
    }
