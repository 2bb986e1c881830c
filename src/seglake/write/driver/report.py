"""Report the result of a run, with counts of rows and records and the duration of each step.

The report of a failed attempt is stored with its exit code and error, so that `seglake run-status`
and `seglake quarantine` can show it. This is necessary because cluster modes lose exit codes and
standard output. A process that is killed stores no report.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from shlex import join
from typing import Any, Literal

from seglake.advice.conclude import is_blocking
from seglake.advice.finding import Finding
from seglake.catalog.attempts import is_abandoned
from seglake.catalog.failed_run import FailedRun, rewrite_failed_run, write_failed_run
from seglake.catalog.schema import RunRow, SegmentRow, report_as_json
from seglake.clock import now_ms
from seglake.config import Pipeline
from seglake.errors import (
    CorruptData,
    InputError,
    OutsideInterval,
    QuarantineLimit,
    SeglakeError,
    StoreError,
)
from seglake.layout import new_attempt
from seglake.store import Store
from seglake.terminal.progress import interval_s
from seglake.terminal.tables import ShowsTable, Table, report_table
from seglake.terminal.wording import counted, short_bytes
from seglake.write.driver.run_input import Differences, InputSelection

_UNUSUAL = (
    "replaced_runs", "replaced_records", "replaced_files", "skipped_records", "comment_lines",
    "missing_paths", "left_out", "findings",
)  # fmt: skip

logger = logging.getLogger(__name__)
_long_steps = logging.getLogger(f"{__name__}.long_steps")

_LONG_STEP_S = 2.0  # a longer step gets a log line

Progress = Callable[[str], None]
RejectSample = list[dict[str, Any]]  # a few rejects; see `Quarantine.sample`
Status = Literal["committed", "already done", "failed", "dry run"]


def silent(_step: str) -> None:
    """Show no progress. The log contains the steps."""


@dataclass(repr=False)
class Report(ShowsTable):
    """The result of one run.

    `input_rows` is always `records` + `quarantined`. It excludes `skipped_records` (the number of
    rows whose offset was already in the log) and `comment_lines` (the number of lines that begin
    with `input.comment`). `reasons` counts the quarantined rows by reason. `interval_records`
    counts the records in the declared interval; see `RunRow`.

    `skipped_files` were ingested by earlier runs. If no file is new, `owner` is the id of one of
    these runs (the most similar id). `missing_paths` are input paths that do not exist, if
    `input.on_empty` allows that. `left_out` counts, by reason, the files that are excluded from the
    input. If the run was committed before, `new_files`, `changed_files` and `gone_files` are the
    changes of its input since then.

    `replaced_runs` are the ids of runs that were removed from the topic. `replaced_records` and
    `replaced_files` are the numbers of their records and input files.

    The status is "already done" if the run was committed before. It is also "already done", with an
    empty `attempt_id`, if the run has neither an id nor an interval and no file is new.

    `findings` are observations about the input; `str(finding)` is a sentence. `end_offsets` has the
    end offset (exclusive) of each log partition that grew. `max_lateness_ms` is the largest
    lateness of an event, or None if records have no order of arrival. `version` is -1 until this
    call commits the run. `rebased` counts the lost races after which the segments were rebased.
    `seconds` has the duration of each step, and includes attempts that were planned again.
    """

    topic: str
    pipeline: str
    run_id: str
    attempt_id: str = ""
    status: Status = "committed"
    version: int = -1
    input_files: int = 0
    skipped_files: Sequence[str] = field(default_factory=list)
    changed_files: list[str] = field(default_factory=list)
    owner: str = ""
    new_files: list[str] = field(default_factory=list)
    gone_files: list[str] = field(default_factory=list)
    missing_paths: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    input_bytes: int = 0
    input_rows: int = 0
    records: int = 0
    interval_records: int | None = None
    quarantined: int = 0
    skipped_records: int = 0
    comment_lines: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    segments: int = 0
    output_bytes: int = 0
    index_bytes: int = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    max_lateness_ms: int | None = None
    end_offsets: dict[int, int] = field(default_factory=dict)
    rebased: int = 0
    replaced_runs: list[str] = field(default_factory=list)
    replaced_records: int = 0
    replaced_files: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    exit_code = 0

    def _table(self) -> Table:
        return report_table(self.summary, asdict(self))

    def log(self, text: str) -> None:
        """Log `text` with the names of the topic and pipeline, and the run id."""
        logger.info(
            "topic %s, pipeline %s, run %s: %s", self.topic, self.pipeline, self.run_id, text
        )

    def describe_input(self, selection: InputSelection) -> None:
        """Fill in the files that are read, skipped and changed, and the paths that do not exist."""
        self.input_files = len(selection.files)
        self.input_bytes = sum(file.size for file in selection.files)
        self.skipped_files = selection.skipped.paths
        self.changed_files = [file.path for file in selection.changed]
        self.missing_paths = [*selection.missing]
        self.left_out = {**selection.left_out}

    def describe_done(self, done: RunRow, since: Differences) -> None:
        """Fill in the counts of the committed run `done`, and the changes of its input since."""
        self.status, self.attempt_id = "already done", done.attempt_id
        self.records, self.quarantined = done.records, done.quarantined
        self.input_rows = done.input_rows
        self.new_files, self.changed_files, self.gone_files = since

    def check_rejects(self, pipeline: Pipeline, root: str | None) -> None:
        """Raise QuarantineLimit if more rows are rejected than the pipeline allows.

        `root` is the lake that stores a sample of the rejects, or None if no sample is stored. With
        a `root`, the message contains the command that shows the sample.
        """
        rejected, rows = self.quarantined, self.input_rows
        if pipeline.allows_rejects(rejected, rows):
            return
        why = (
            "and a run without a record is not committed"
            if rejected == rows
            else f"more than pipeline.max_quarantine_ratio = {pipeline.max_quarantine_ratio} allows"
        )
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.reasons.items())
        words = "seglake", "quarantine", root or "", self.topic, "--run-id", self.run_id
        raise QuarantineLimit(
            f"{rejected:,} of {counted(rows, 'row')} {'was' if rejected == 1 else 'were'} rejected "
            f"({reasons}), {why}. Nothing was committed. "
            + "".join(f"{sentence} " for sentence in map(str, self.findings))
            + (f"To see some of them: {join(words)}" if root else "")
        )

    def check_times(self, pipeline: Pipeline) -> None:
        """Raise InputError if all times of a file are in January 1970.

        Raises OutsideInterval if no record is in the declared interval and the pipeline forbids it.
        """
        for finding in self.findings:
            if is_blocking(finding):
                raise InputError(f"{finding} Nothing was committed")
            if finding.code == "outside-interval" and pipeline.on_outside_interval == "fail":
                raise OutsideInterval(
                    f"{finding} Nothing was committed, because pipeline.on_outside_interval = "
                    "'fail'"
                )

    @property
    def summary(self) -> str:
        """Return the result of the run as one sentence."""
        if self.status == "already done" and self.attempt_id:
            return self._done_before()
        return self._ingested() + self._replaced()

    def _done_before(self) -> str:
        """Return how the input changed since the run was committed, and what the user can do."""
        lists = {"new": self.new_files, "changed": self.changed_files, "gone": self.gone_files}
        some = {what: paths for what, paths in lists.items() if paths}
        changes = [f"{counted(len(p), 'file')} {what} ({p[0]})" for what, p in some.items()]
        if not changes:
            return "already committed, so nothing was ingested"
        remedy = ""
        if self.new_files or self.changed_files:
            remedy = (
                ". To replace the old input with the new, use --replace. To ingest new and "
                "changed files (see on_changed_source), use another run id"
            )
        return f"already committed. Since then: {', '.join(changes)}{remedy}"

    def _replaced(self) -> str:
        if not self.replaced_runs:
            return ""
        runs = f"{'runs' if self.replaced_runs[1:] else 'run'} {', '.join(self.replaced_runs)}"
        records = counted(self.replaced_records, "record")
        left = f"{records} of {counted(self.replaced_files, 'file')}"
        return f". Replaced {runs}: removed {left}"

    def _ingested(self) -> str:
        if self.input_files or self.input_rows or self.skipped_records:
            skipped = f", {self.skipped_records:,} skipped" if self.skipped_records else ""
            if self.comment_lines:
                skipped += f", {counted(self.comment_lines, 'comment line')} left out"
            return f"{counted(self.records, 'record')}, {self.quarantined:,} rejected{skipped}"
        present = len(self.skipped_files) + len(self.changed_files)
        if not present:
            others = len(self.missing_paths) - 1
            more = f" and {others:,} more are" if others > 0 else " is"
            missing = f". {self.missing_paths[0]}{more} missing" if self.missing_paths else ""
            return f"nothing new: the input is empty{missing}"
        other = f", {len(self.changed_files):,} of them changed" if self.changed_files else ""
        owner = f", such as {self.owner!r}" if self.owner else ""
        files = counted(present, "file")
        return (
            f"nothing new: the topic already has {files}{other}. To ingest them again with other "
            f"settings, use --replace with the --run-id of the run that ingested them{owner}"
        )

    def describe(self, segments: Sequence[SegmentRow]) -> None:
        """Fill in the number, sizes, timestamps and end offsets of the run's segments."""
        self.segments = len(segments)
        self.index_bytes = sum(row.index_files_bytes for row in segments)
        self.output_bytes = sum(row.log_bytes for row in segments) + self.index_bytes
        filled = [row for row in segments if row.record_count]  # empty segments have no time
        self.min_timestamp = min((row.min_timestamp for row in filled), default=None)
        self.max_timestamp = max((row.max_timestamp for row in filled), default=None)
        self.end_offsets = {row.partition: row.end_offset for row in segments}

    def as_dict(self) -> dict[str, Any]:
        """Return the report and its summary as a dictionary of JSON values."""
        values = {**asdict(self), "summary": self.summary}
        return values | {"skipped_files": [*self.skipped_files]}

    def as_json(self) -> str:
        """Return the report as the text of a JSON object; see `as_dict`."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_row(self) -> str:
        """Return the report as JSON for the run's catalog row, which must stay small.

        It has only the number of skipped files, because a run may skip nearly all files of a
        folder, and only some of the changed files and missing paths. These fields are left out:
        `owner`, which the source rows have, empty fields of `_UNUSUAL`, and "already done" fields.
        """
        row = {**asdict(self), "skipped_files": len(self.skipped_files)}
        unusual = [name for name in _UNUSUAL if not row[name]]
        for name in ("new_files", "gone_files", "owner", *unusual):
            del row[name]
        lists = [name for name in ("changed_files", "missing_paths") if name in row]
        return report_as_json(row, lists)

    @property
    def input_size(self) -> str:
        """Return the amount of input as text, such as "12 files, 3 MiB"; "rows" without files."""
        if not self.input_files:
            return "rows"  # the input is a DataFrame
        return f"{counted(self.input_files, 'file')}, {short_bytes(self.input_bytes)}"

    @contextmanager
    def step(self, name: str, progress: Progress, work: str = "") -> Iterator[None]:
        """Pass the name of a step to `progress` and the log. When the block ends, add its duration.

        If the block takes long, a log line has the topic and the text `work`, such as "reading 12
        files".
        """
        self.log(name)
        progress(name)
        line = f"topic {self.topic}: {work}"
        timer = threading.Timer(min(interval_s(), _LONG_STEP_S), _long_steps.info, [line])
        timer.daemon = True
        if work:
            timer.start()
        begun = time.monotonic()
        try:
            yield
        finally:
            timer.cancel()
            spent = self.seconds.get(name, 0.0) + time.monotonic() - begun
            self.seconds[name] = round(spent, 3)


# ---------------- failures


_ERROR_LENGTH = 16_384  # a stored message is cut at this number of characters


@contextmanager
def store_failure(store: Store, report: Report) -> Iterator[RejectSample]:
    """Store the report and the error if the block fails, for `seglake run-status`.

    The block gets a list, to which it may add a sample of its rejects; see `FailedRun`. If the
    report cannot be stored, a warning is logged. The error of the block is raised in any case.
    """
    rejects = RejectSample()
    try:
        yield rejects
    except Exception as error:
        report.status, report.attempt_id = "failed", report.attempt_id or new_attempt()
        failed = FailedRun(
            topic=report.topic,
            pipeline=report.pipeline,
            run_id=report.run_id,
            attempt_id=report.attempt_id,
            error=error_text(error),
            exit_code=getattr(error, "exit_code", 1),
            failed_at_ms=now_ms(),
            report=json.loads(report.as_row()),
        )
        try:
            _store_with_sample(store, failed, rejects)
        except (StoreError, CorruptData) as problem:
            logger.warning(
                "cannot save the report of this failure, so `seglake run-status` will "
                "not show it: %s",
                problem,
            )
        raise


def _store_with_sample(store: Store, failed: FailedRun, rejects: RejectSample) -> None:
    """Store a failed run. Add its sample of rejects unless the attempt was abandoned.

    An erasure abandons attempts, then removes rows from their samples. A sample that is written
    later would restore an erased key. So this function checks again after writing the sample, and
    removes the sample if the attempt was abandoned in the meantime.
    """
    write_failed_run(store, failed)
    if rejects and not is_abandoned(store, failed.attempt_id):
        rewrite_failed_run(store, failed.model_copy(update={"rejects": rejects}))
        if is_abandoned(store, failed.attempt_id):
            rewrite_failed_run(store, failed)


def error_text(error: Exception) -> str:
    """Return the message of a SeglakeError. For other errors, return only the type.

    The messages of other errors may contain secrets.
    """
    name = type(error).__name__
    if not isinstance(error, SeglakeError):
        return f"{name}: the log of the driver has the details"
    return str(error).encode(errors="backslashreplace").decode()[:_ERROR_LENGTH]
