"""Return the status of runs, and the rows that they rejected."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.catalog.failed_run import FailedRun, all_failed_runs, failed_runs
from seglake.catalog.quarantine.files import describe_place
from seglake.catalog.quarantine.open_rejects import (
    expired_attempts,
    open_attempts,
    redrive_chain,
    rejects_left,
)
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import RunRow, committed_runs
from seglake.catalog.table import CatalogTable
from seglake.errors import QuarantineLimit, UsageError
from seglake.store import Store, open_store
from seglake.terminal.tables import Column, Listing, number, prose, show, stream_json
from seglake.terminal.wording import path_ends, terminal_width
from seglake.text.json import text_or_base64
from seglake.times.instants import format_ms

_LIMIT = 20  # default limit of the rows of a table
_SHOWN = 200  # limit of the characters of a rejected row in a table
_STORED = "source_file", "line", "reason", "raw", "member", "member_line"


class Rejects(NamedTuple):
    """The rejects of some runs of a topic, by attempt id. A failed run has only a sample."""

    store: Store
    topic: str
    runs: Mapping[str, RunRow | FailedRun]
    expired: Collection[str]

    def counts(self) -> Counter[str]:
        """Return the count of rejects of each reason that `_rows` yields."""
        counts = Counter(row["reason"] for run in self._failed() for row in run.rejects)
        for table in self._tables():
            counts.update(table["reason"].to_pylist())
        return counts

    def unkept(self) -> int:
        """Return how many rejects of failed runs are missing in the samples of these runs."""
        counted = ((run.report.get("quarantined", 0), len(run.rejects)) for run in self._failed())
        return sum(max(rejected - sampled, 0) for rejected, sampled in counted)

    def show(self, limit: int | None, *, as_json: bool) -> None:
        """Print a sample of the rejects. As JSON without a limit, print all rejects."""
        if not self.runs:
            hint = "To see a sample of the rejects of a failed run, give --run-id"
            print(f"{self.topic}: committed runs have no open rejects. {hint}", file=sys.stderr)
        if as_json and limit is None:
            stream_json(self._rows(None))
            said = describe_hidden_rows(Counter(), 0, self.unkept())
        else:
            counts = self.counts()
            sample = divide_limit(counts, _LIMIT if limit is None else limit)
            shown = sample.total()
            said = describe_hidden_rows(counts, shown, self.unkept())
            rows = self._rows(sample) if as_json else _for_people([*self._rows(sample)])
            if as_json or shown or not counts:
                title = f"rejected rows of {self.topic}"
                show(title, Listing(_COLUMNS, rows), as_json=as_json)
        for sentence in said:
            print(sentence, file=sys.stderr if as_json else sys.stdout)

    def _rows(self, sample: Counter[str] | None) -> Iterator[dict[str, Any]]:
        """Yield a row for each reject, or for the first `sample[reason]` rejects of each reason.

        The rows use up `sample`.
        """
        for run in self._failed():
            for row in run.rejects:
                if _takes(sample, row["reason"]):
                    yield {**_key(run), "committed": False, **row}
        for table in self._tables():
            for batch in table.to_batches(max_chunksize=1000):
                if sample is not None and not +sample:
                    return
                reasons: list[Any] = batch["reason"].to_pylist()
                taken = [at for at, reason in enumerate(reasons) if _takes(sample, reason)]
                yield from map(self._shown, batch.take(pa.array(taken, pa.int64())).to_pylist())

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        stored = {name: row[name] for name in _STORED}
        raw = {"raw": text_or_base64(row["raw"] or b"")}
        return {**_key(self.runs[row["attempt_id"]]), "committed": True, **stored, **raw}

    def _failed(self) -> list[FailedRun]:
        return [run for run in self.runs.values() if isinstance(run, FailedRun)]

    def _tables(self) -> Iterator[pa.Table]:
        committed = {name for name, run in self.runs.items() if isinstance(run, RunRow)}
        return QuarantineTable(self.store).read(self.topic, committed - {*self.expired})


def divide_limit(counts: Counter[str], limit: int) -> Counter[str]:
    """Divide a limit evenly among the reasons, up to the count of each."""
    sample = Counter[str]()
    while left := min(limit, counts.total()) - sample.total():
        sample.update([reason for reason in counts if sample[reason] < counts[reason]][:left])
    return sample


def describe_hidden_rows(counts: Counter[str], shown: int, unkept: int) -> list[str]:
    """Return sentences about the rejects that a table does not have."""
    total, said = counts.total(), []
    if shown < total:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.most_common())
        said.append(
            f"Shown: {shown:,} of {total:,} rejected rows ({reasons}). To see all: "
            f"--limit {total}, or --json without --limit"
        )
    if unkept:
        said.append(f"{unkept:,} more rows were rejected by failed runs, which keep only a sample")
    return said


def _takes(sample: Counter[str] | None, reason: str) -> bool:
    """Return whether the sample still needs a row with a reason, and count the row as taken."""
    if sample is None:
        return True
    sample[reason] -= 1
    return sample[reason] >= 0


def _for_people(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with their file and line. For an archive, these are the member and its line.

    On a terminal, only the differing ends of paths are shown.
    """
    places = [describe_place(row) for row in rows]
    end = str if terminal_width() is None else path_ends(file for file, _ in places)
    ends = ({"source_file": end(file), "line": line} for file, line in places)
    return [{**row, **place} for row, place in zip(rows, ends, strict=True)]


def _cut(raw: str | dict[str, str]) -> str:
    r"""Shorten a rejected row. A byte that is not UTF-8 is shown as in `caf\xe9`."""
    if not isinstance(raw, str):
        raw = b64decode(raw["base64"]).decode(errors="backslashreplace")
    if not raw.strip():
        return repr(raw[:_SHOWN])  # quotes make blanks visible
    return raw if len(raw) <= _SHOWN else f"{raw[:_SHOWN]}…"


_COLUMNS = [
    Column("run_id", "run"),
    Column("source_file", "file"),
    number("line", "line"),
    Column("reason", "reason"),
    Column("raw", "row", _cut),
]


class Runs:
    """The committed and failed runs of a topic, in the newest version of the lake."""

    def __init__(self, root: str, topic: str) -> None:
        self._table = CatalogTable.open(open_store(root))
        self._topic = topic
        snapshot = self._table.snapshot()
        self._history = self._table.rows.run_history(snapshot, topic)
        self._committed = committed_runs(self._history)
        upkeep = self._table.rows.maintenance(snapshot, topic)
        self._expired, self._left = expired_attempts(upkeep), rejects_left(upkeep)

    def status(self, run_id: str, pipeline: str | None) -> dict[str, Any]:
        """Return the status of a run as plain values, with the `exit_code` of its job.

        A committed run has exit code 0, even if an earlier attempt failed. The exit code is None if
        the run was undone or replaced, or is unknown. Raises UsageError if several pipelines have
        the run id and `pipeline` is not set.
        """
        runs = self._runs_of(run_id)
        history = sorted(self._history, key=lambda run: run.sequence)
        last = {run.pipeline: run for run in history if run.run_id == run_id}
        for name, run in last.items():
            if run.state != "committed" and (
                name not in runs or _ended_ms(runs[name]) < run.finished_at_ms
            ):
                runs[name] = run
        named = runs if pipeline is None else {pipeline: runs.get(pipeline)}
        if len(named) > 1:
            raise UsageError(
                f"several pipelines have a run {run_id!r} ({', '.join(named)}). "
                f"Choose one with --pipeline"
            )
        found = next(iter(named.values()), None)
        if found is None:
            key = {"topic": self._topic, "pipeline": pipeline, "run_id": run_id}
            return {**key, "status": "not there", "exit_code": None}
        if not isinstance(found, RunRow):
            return _failed(found)
        if found.state != "committed":
            return {**_head(found, found.state, None), "report": json.loads(found.report)}
        return self._committed_status(found)

    def _committed_status(self, run: RunRow) -> dict[str, Any]:
        """Return the status of a committed run, with the open rejects after its redrives."""
        chain = redrive_chain(run, self._committed)
        last = chain.last.attempt_id
        left = 0 if last in self._expired else self._left.get(last, chain.last.quarantined)
        return {
            **_head(run, "committed", 0),
            "files": run.input_files,
            "rows": run.input_rows,
            "records": run.records,
            "quarantined": run.quarantined,
            "redrives": [redrive.run_id for redrive in chain.redrives],
            "open_rejects": left,
            "report": json.loads(run.report),
        }

    def _runs_of(self, run_id: str) -> dict[str, RunRow | FailedRun]:
        """Return pipeline → its run with this run id."""
        failed = failed_runs(self._table.store, self._topic, run_id)
        runs: dict[str, RunRow | FailedRun] = {run.pipeline: run for run in failed}
        return runs | {run.pipeline: run for run in self._committed if run.run_id == run_id}

    def rejects(self, run_id: str | None) -> Rejects:
        """Return the open rejects of all committed runs, or only the rejects of runs with `run_id`.

        A redriven run has the rejects of its last redrive, and a failed run has a sample. Raises
        UsageError if no run has the run id, and UnknownTopic.
        """
        attempts, runs = {*open_attempts(self._committed)}, dict[str, RunRow | FailedRun]()
        still_open = [run for run in self._committed if run.attempt_id in attempts]
        for run in still_open if run_id is None else self._runs_of(run_id).values():
            last = redrive_chain(run, self._committed).last if isinstance(run, RunRow) else run
            runs[last.attempt_id] = last
        if not (self._committed or runs or any(all_failed_runs(self._table.store, self._topic))):
            self._table.snapshot().topic(self._topic)  # raises UnknownTopic
        if run_id is not None and not runs:
            raise UsageError(f"topic {self._topic!r} has no run {run_id!r}, committed or failed")
        return Rejects(self._table.store, self._topic, runs, self._expired)


def _ended_ms(run: RunRow | FailedRun) -> int:
    return run.finished_at_ms if isinstance(run, RunRow) else run.failed_at_ms


def _key(run: RunRow | FailedRun) -> dict[str, Any]:
    return {"pipeline": run.pipeline, "run_id": run.run_id, "attempt_id": run.attempt_id}


def _head(run: RunRow | FailedRun, status: str, exit_code: int | None) -> dict[str, Any]:
    state = {"status": status, "exit_code": exit_code, "ended": format_ms(_ended_ms(run))}
    return {"topic": run.topic, **_key(run), **state}


def _failed(run: FailedRun) -> dict[str, Any]:
    rejected = run.exit_code == QuarantineLimit.exit_code
    return {
        **_head(run, "rejected too much" if rejected else "failed", run.exit_code),
        "error": run.error,
        "files": run.report.get("input_files", 0),
        "rows": run.report.get("input_rows", 0),
        "records": run.report.get("records", 0),
        "quarantined": run.report.get("quarantined", 0),
        "reasons": run.report.get("reasons", {}),
        "report": run.report,
    }


def failed_rows(root: str, topic: str | None) -> Listing:
    """Return a row for each failed attempt, newest first. None selects attempts of all topics."""
    columns = [
        Column("failed", "failed", lambda text: f"{text[:19]}Z"),
        Column("topic", "topic"),
        Column("pipeline", "pipeline"),
        Column("run_id", "run"),
        number("exit_code", "exit code"),
        prose("error", "error"),
    ]
    store = open_store(root)
    CatalogTable.open(store)  # raises for a root without a lake
    runs = sorted(all_failed_runs(store, topic), key=lambda run: run.failed_at_ms, reverse=True)
    rows = (
        {"failed": format_ms(run.failed_at_ms), "topic": run.topic, **_key(run),
         "exit_code": run.exit_code, "error": run.error}
        for run in runs
    )  # fmt: skip
    return Listing(columns, rows)
