"""What became of a run, and the rows that it rejected."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from seglake.catalog.failed_run import FailedRun, failed_runs
from seglake.catalog.quarantine.expiry import expired_attempts
from seglake.catalog.quarantine.redrives import chain_of, open_attempts
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.rows import RunRow
from seglake.catalog.table import CatalogTable
from seglake.cli.terminal.tables import Column, Rows, number
from seglake.errors import QuarantineLimit, UsageError
from seglake.store import open_store
from seglake.text.json import text_or_base64
from seglake.times.instants import format_ms

NOT_THERE = 1
_SHOWN = 200  # characters of a rejected row in a table
_COLUMNS = {"source_file": "file", "line": "line", "reason": "reason", "raw": "row"}


class Runs:
    """The runs of a topic, committed or failed, as the newest version of the lake has them."""

    def __init__(self, root: str, topic: str) -> None:
        self._table = CatalogTable.open(open_store(root))
        self._topic = topic
        snapshot = self._table.snapshot()
        self._committed = self._table.runs(snapshot, topic)
        self._expired = expired_attempts(self._table.maintenance(snapshot, topic))

    def status(self, run_id: str, pipeline: str | None) -> dict[str, Any]:
        """What became of a run, with the `exit_code` that tells it.

        0: it is committed, whatever failed before; 3: the last attempt rejected too many rows; 1:
        it failed otherwise, or nothing is known of it. Raises UsageError if pipelines share the run
        id and none is named.
        """
        known = self._known(run_id)
        named = known if pipeline is None else {pipeline: known.get(pipeline)}
        if len(named) > 1:
            raise UsageError(f"pipelines {', '.join(named)} have a run {run_id!r}: give --pipeline")
        for run in named.values():
            if isinstance(run, RunRow):
                return _committed(run)
            if run is not None:
                return _failed(run)
        key = {"topic": self._topic, "pipeline": pipeline, "run_id": run_id}
        return {**key, "status": "not there", "exit_code": NOT_THERE}

    def _known(self, run_id: str) -> dict[str, RunRow | FailedRun]:
        """The run of each pipeline with this run id."""
        failed = failed_runs(self._table.store, self._topic, run_id)
        known: dict[str, RunRow | FailedRun] = {run.pipeline: run for run in failed}
        return known | {run.pipeline: run for run in self._committed if run.run_id == run_id}

    def rejects(self, run_id: str | None, limit: int) -> Rows:
        """A row for each open reject of committed runs, or of those with one run id.

        A run that was redriven has the rejects of its last redrive, a failed run a sample. Raises
        UsageError if no run has the run id.
        """
        runs: dict[str, RunRow | FailedRun] = {}
        for run in self._open() if run_id is None else self._known(run_id).values():
            last = chain_of(run, self._committed).last if isinstance(run, RunRow) else run
            runs[last.attempt_id] = last
        if run_id is not None and not runs:
            raise UsageError(f"topic {self._topic!r} has no run {run_id!r}, committed or failed")
        look = {"line": number("line", "line"), "raw": Column("raw", "row", _cut)}
        columns = [look.get(name, Column(name, head)) for name, head in _COLUMNS.items()]
        return Rows([Column("run_id", "run"), *columns], islice(self._rejects(runs), limit))

    def _open(self) -> list[RunRow]:
        """The committed runs that no redrive has taken over."""
        attempts = set(open_attempts(self._committed))
        return [run for run in self._committed if run.attempt_id in attempts]

    def _rejects(self, runs: dict[str, RunRow | FailedRun]) -> Iterator[dict[str, Any]]:
        for run in runs.values():
            if isinstance(run, FailedRun):
                yield from ({**_key(run), "committed": False, **row} for row in run.rejects)
        committed = {name for name, run in runs.items() if isinstance(run, RunRow)} - self._expired
        for table in QuarantineTable(self._table.store).read(self._topic, committed):
            for batch in table.to_batches(max_chunksize=1000):
                for row in batch.to_pylist():
                    shown = {name: row[name] for name in _COLUMNS}
                    raw = {"raw": text_or_base64(row["raw"] or b"")}
                    key = _key(runs[row["attempt_id"]])
                    yield {**key, "committed": True, **shown, **raw}


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


def _failed(run: FailedRun) -> dict[str, Any]:
    rejected = run.exit_code == QuarantineLimit.exit_code
    return {
        "topic": run.topic,
        **_key(run),
        "status": "rejected too much" if rejected else "failed",
        "exit_code": QuarantineLimit.exit_code if rejected else NOT_THERE,
        "ended": format_ms(run.failed_at_ms),
        "error": run.error,
        "files": run.report.get("input_files", 0),
        "rows": run.report.get("input_rows", 0),
        "records": run.report.get("records", 0),
        "quarantined": run.report.get("quarantined", 0),
        "reasons": run.report.get("reasons", {}),
        "report": run.report,
    }


def _cut(raw: Any) -> str:
    text = str(raw)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def status_rows(status: dict[str, Any]) -> Rows:
    """The status of a run as a table of two columns, without empty values."""
    rows = [
        {"name": name.replace("_", " "), "value": _value(value)}
        for name, value in status.items()
        if value not in ("", None, {}) and name != "report"
    ]
    return Rows([Column("name", ""), Column("value", "")], rows)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {each:,}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
