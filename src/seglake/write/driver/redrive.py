"""Redrive rejects: ingest the rejects of a committed run with corrected settings, exactly once.

A redrive is itself a run. Its commit takes over every open reject of the other run: a reject either
becomes a visible record, or becomes a reject of the redrive. So a second redrive begins where the
first ended. A redrive commits only if the rejects that it read are still open in the version that
it continues. It is planned again if another redrive took over the rejects in the meantime, or if
they were undone, replaced, erased or expired.

A file is read again if it is still the version that the run ingested. If all its rows are open
rejects, the whole file is read, so any setting may have changed. Otherwise only the rows of rejects
are read from it. If the file is gone, rows of line formats are read from the raw bytes in the
quarantine. A reject that can be read in neither way is refused: it stays open, as a reject of the
redrive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.cached import cached_property
from seglake.catalog.failed_run import failed_runs
from seglake.catalog.quarantine.files import FILE_SCHEMA as QUARANTINE_SCHEMA
from seglake.catalog.quarantine.files import FILES, read_rejects
from seglake.catalog.quarantine.open_rejects import (
    RedriveChain,
    erasures_for_attempt,
    expired_attempts,
    has_any_reject,
    join_lists,
    redrive_chain,
    redrive_from_run,
    rejects_left,
    unfinished_lists,
)
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import RunRow, SourceRow, committed_runs, rows_of
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import announce, write_marker
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Amounts, Engine
from seglake.errors import CommitConflict, ConfigError, QuarantineLimit, UsageError
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.layout import new_attempt
from seglake.limits import REQUESTS
from seglake.store import Store, open_store
from seglake.terminal.wording import counted, history_command, suggest
from seglake.text.spans import constant, fnv_hashes, from_arrow, join_rows, with_line_feed
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times
from seglake.write.driver.attempt import Attempt, DeclaredRun, ReplanRequired
from seglake.write.driver.report import Progress, RejectSample, Report, silent, store_failure
from seglake.write.driver.run import count_splits, execute_attempt
from seglake.write.driver.run_input import FileInput, InputSelection, Sources, plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import UTF_8, decode_rows, encode_rows
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.listing import FileList
from seglake.write.map.unit import (
    MapSettings,
    Unit,
    make_blobs,
    read_every_row,
    require_unchanged,
    shared_units,
)
from seglake.write.quarantine import KeepRefused, places_by_file
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.rows.lines import REJECTED_BYTES, LineChunk, LineFormat
from seglake.write.rows.records import Chunks, extract, read_rows
from seglake.write.rows.rows import Reason, Rows
from seglake.write.spool.spool import REFUSED, Blob, filter_kinds, read_blobs, unpack_rows


@dataclass(repr=False)
class RedriveReport(Report):
    """The result of one redrive. `records` is the number of rejects that became records.

    `redrives` has the id of the first run, and the attempt whose rejects were taken over. `refused`
    counts the rejects that could not be read again, by cause. `reasons` counts the rejects that
    were rejected again, by reason. `quarantined` is the sum of both: these rejects are still open.
    """

    redrives: dict[str, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def _done_before(self) -> str:
        """Return a sentence with the reason why nothing was redriven."""
        untried = " that were not tried with these settings" if self.quarantined else ""
        run_id = self.redrives.get("run_id", self.run_id)
        return f"nothing to redrive: run {run_id!r} has no open rejects{untried}"

    def _ingested(self) -> str:
        """Return a text with the number of new records and the number of open rejects."""
        rejects = counted(self.records + self.quarantined, "reject")
        return f"{self.records:,} of {rejects} became records, {self.quarantined:,} remain open"


def redrive(
    engine: Engine,
    pipeline: Pipeline,
    run_id: str,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
) -> RedriveReport:
    """Ingest the open rejects of a run. `run_id` is the id of the run, or of a redrive of it.

    If no reject is open, or if an earlier redrive tried these settings on all open rejects, the
    report's status is "already done". With `dry_run` nothing is written. After an error, no change
    is visible.

    Raises:
        UsageError: The run is unknown, was undone, ingested a DataFrame, or its rejects expired.
        QuarantineLimit: No reject becomes a record, or too many are rejected again.
        CommitConflict: An erasure of some of the rejects is not finished.
        SeglakeError: Any error that `ingest_files` raises.
    """
    if not pipeline.input.kind.in_files:
        raise ConfigError(
            f"input.format = {pipeline.input.format!r} cannot be redriven. Set the format in "
            "which to read the files of the run"
        )
    if pipeline.topic.offset_field is not None:
        raise ConfigError(
            "runs of a topic with topic.offset_field cannot be redriven, because the rejected rows "
            "have offsets below the end of the log. Ingest the corrected rows into another topic"
        )
    work = _RedriveCall(engine, pipeline, run_id, dry_run, progress)
    while (report := work.run()) is None:
        pass
    return report


class _Open(NamedTuple):
    """The rejects that a redrive takes over, in one version of the catalog.

    `chain` has the first run and its redrives. `expired` is true if the rejects have expired.
    `erasures` are the ids of erasures that removed some of the rejects. `left` is the number of
    rejects after these erasures, or None if there was no erasure.
    """

    chain: RedriveChain
    expired: bool
    left: int | None
    erasures: list[str]


class _RedriveCall:
    """The state of one call of `redrive`."""

    def __init__(
        self, engine: Engine, pipeline: Pipeline, run_id: str, dry_run: bool, progress: Progress
    ) -> None:
        self._engine, self._pipeline, self._run_id = engine, pipeline, run_id
        self._dry_run, self._progress = dry_run, progress
        self._store = open_store(pipeline.root, pipeline.storage)
        self._table = CatalogTable.open(self._store)

    def run(self) -> RedriveReport | None:
        """Redrive the open rejects. Return None after a lost race, so that the caller retries."""
        base = self._table.snapshot(topics=[self._pipeline.topic.name])
        opened = self._open(base)
        chain = opened.chain
        if chain.redrives and not self._dry_run:
            # The last redrive may have died before it wrote its marker.
            write_marker(self._store, chain.last.attempt_id)
        fingerprint = self._pipeline.fingerprint()
        tried = [run for run in chain.redrives if run.fingerprint == fingerprint]
        none_left = not chain.last.quarantined or opened.left == 0
        if none_left or (tried and not _refused(tried[-1])):
            return _already_done([chain.first, *chain.redrives, *tried][-1])
        if opened.expired:
            raise UsageError(
                f"the rejects of run {chain.last.run_id!r} have expired "
                f"(quarantine.retention.ms). Ingest their files in another run"
            )
        first = chain.first
        taken = {"run_id": first.run_id, "attempt_id": chain.last.attempt_id}
        report = RedriveReport(first.topic, first.pipeline, chain.next_run_id, redrives=taken)
        attempt_id, moved, count = new_attempt(), set[str](), self._pipeline.topic.partitions
        # The limits of event time count from the same time in a run and in its redrives.
        clock_ms = first.started_at_ms if first.interval_end_ms is None else first.interval_end_ms
        with ExitStack() as stack:
            sample = RejectSample()
            if not self._dry_run:
                context = announce(self._table, attempt_id, first.topic, moved, partitions=count)
                stack.enter_context(context)
                sample = stack.enter_context(store_failure(self._store, report))
            rejects = self._rejects(base, opened, report)
            attempt = Attempt(
                engine=self._engine,
                pipeline=self._pipeline.model_copy(update={"name": first.pipeline}),
                run=DeclaredRun(report.run_id, clock_ms=clock_ms),
                store=self._store,
                table=self._table,
                base=base,
                input=rejects,
                report=report,
                progress=self._progress,
                attempt_id=attempt_id,
                moved=moved,
            )
            try:
                return self._read_again(attempt, rejects, report, sample)
            except ReplanRequired as reason:
                report.log(f"{reason}: planning again")
            except QuarantineLimit as limit:
                if report.records:
                    raise
                if not tried:
                    raise _nothing_gained(chain, rejects, report) from limit
                return _already_done(tried[-1])
        return None

    def _open(self, version: Snapshot) -> _Open:
        """Return the open rejects of the run in a catalog version. Raises UsageError."""
        topic = self._pipeline.topic.name
        history = self._table.rows.run_history(version, topic)
        run = _committed_run(history, self._pipeline, self._run_id, self._store)
        chain = redrive_chain(run, committed_runs(history))
        upkeep, attempt_id = self._table.rows.maintenance(version, topic), chain.last.attempt_id
        expired = attempt_id in expired_attempts(upkeep)
        erasures = sorted(erasures_for_attempt(attempt_id, upkeep))
        return _Open(chain, expired, rejects_left(upkeep).get(attempt_id), erasures)

    def _have_left(self, before: _Open, newest: Snapshot) -> bool:
        """Return whether the version `newest` has other open rejects of the run than `before`.

        Also return True if `_open` raises UsageError, because the next plan raises it again.
        """
        try:
            return self._open(newest) != before
        except UsageError:
            return True

    def _rejects(self, base: Snapshot, open_rejects: _Open, report: RedriveReport) -> RedriveInput:
        chain = open_rejects.chain
        sources = self._table.rows.all(base, "source", chain.first.topic)
        self._engine.start(lambda name: report.step(name, self._progress))
        with report.step("list rejects", self._progress):
            leaving = join_lists(unfinished_lists(self._store, open_rejects.erasures).values())
            engine, store = self._engine, self._store
            have_left, dry_run = partial(self._have_left, open_rejects), self._dry_run
            rejects = RedriveInput(
                engine, self._pipeline, store, chain, sources, have_left, dry_run=dry_run
            )
        count = sum(map(len, rejects.lines.values()))
        too_many = open_rejects.left is not None and count > open_rejects.left
        if too_many or has_any_reject(leaving, chain.last.attempt_id, rejects.lines):
            raise CommitConflict(
                f"an erasure of some of the rejects of run {chain.last.run_id!r} is not finished. "
                f"Redrive when it has ended. If the erasure died, run `seglake erase` again first"
            )
        return rejects

    def _read_again(
        self, attempt: Attempt, rejects: RedriveInput, report: RedriveReport, sample: RejectSample
    ) -> RedriveReport:
        def before_commit() -> None:
            _count_refused(report, rejects)
            rejects.keep_refused(attempt.attempt_id, attempt.started_ms)

        if rejects.is_empty():
            raise QuarantineLimit("no reject can be read again")
        if not self._dry_run:
            execute_attempt(attempt, sample, before_commit)
            return report
        report.describe_input(rejects.selection)
        with attempt.step("read and sort", f"reading {report.input_size}"):
            spooled = rejects.spool(attempt.map_settings)
        count_splits(attempt, spooled)
        report.check_rejects(self._pipeline, None)
        report.check_times(self._pipeline)
        _count_refused(report, rejects)
        report.status = "dry run"
        return report


def _count_refused(report: RedriveReport, rejects: RedriveInput) -> None:
    """Add the refused rejects to the report. Raise QuarantineLimit if no reject became a record."""
    if not report.records:
        raise QuarantineLimit("no reject becomes a record")
    report.refused = dict(sorted(rejects.refused.items()))
    report.quarantined += rejects.refused.total()
    report.input_rows += rejects.refused.total()


def _committed_run(
    history: Sequence[RunRow], pipeline: Pipeline, run_id: str, store: Store
) -> RunRow:
    """Return the committed run with the id `run_id`, of `pipeline` or else of another pipeline.

    `history` has every run row of the topic in the lake `store`. Raises UsageError if there is no
    such run, or if its rows cannot be read again.
    """
    rows = [run for run in history if run.run_id == run_id]
    runs = committed_runs(rows)
    runs = [run for run in runs if run.pipeline == pipeline.name] or runs
    topic = pipeline.topic.name
    if not runs:
        last = max(rows, key=lambda run: run.sequence, default=None)
        if last is None and failed_runs(store, topic, run_id):
            raise UsageError(
                f"run {run_id!r} of topic {topic!r} failed, so it has no rejects to redrive. See "
                f"why with `seglake run-status`, and ingest again with this run id"
            )
        ids = {run.run_id for run in committed_runs(history)}
        known = suggest(run_id, ids, history_command(pipeline.root, topic))
        raise UsageError(
            f"topic {topic!r} has no committed run {run_id!r}. {known}"
            if last is None
            else f"run {run_id!r} of topic {topic!r} is {last.state}, and so are its rejects. "
            f"Ingest its files again"
        )
    if len(runs) > 1:
        names = ", ".join(sorted(repr(run.pipeline) for run in runs))
        raise UsageError(
            f"several pipelines have a run {run_id!r} in topic {topic!r} ({names}). Set "
            f"pipeline.name to one of them"
        )
    (run,) = runs
    if run.quarantined and not run.input_files and not redrive_from_run(run):
        raise UsageError(
            f"run {run_id!r} ingested a DataFrame, whose rows cannot be read again. Ingest its "
            f"rejected rows in another run"
        )
    return run


def _refused(run: RunRow) -> dict[str, int]:
    """Return cause → number of rejects that a committed redrive could not read again."""
    refused: dict[str, int] = json.loads(run.report).get("refused", {})
    return refused


def _already_done(run: RunRow) -> RedriveReport:
    """Return the report of a call that does nothing. `run` is the last run or redrive.

    For a redrive, the report has the counts of that redrive.
    """
    report = RedriveReport(run.topic, run.pipeline, run.run_id)
    report.status, report.attempt_id = "already done", run.attempt_id
    if redrive := redrive_from_run(run):
        report.redrives, report.refused = redrive._asdict(), _refused(run)
        report.records, report.quarantined = run.records, run.quarantined
        report.input_rows = run.input_rows
    report.log("has no open rejects that were not tried with these settings")
    return report


def _nothing_gained(chain: RedriveChain, rejects: RedriveInput, report: Report) -> QuarantineLimit:
    why = {**report.reasons, **rejects.refused}
    counted = "; ".join(f"{reason}: {number}" for reason, number in sorted(why.items()))
    return QuarantineLimit(
        f"none of the {chain.last.quarantined} open rejects of run {chain.first.run_id!r} becomes "
        f"a record with these settings ({counted}). Nothing was committed. Correct the settings"
    )


# ---------------- input of a redrive

_GONE = "the file is gone or changed, and "
NOT_LINES = _GONE + "a {} row cannot be made from its raw bytes only"
CUT = _GONE + "the raw bytes are cut"
SEVERAL_LINES = _GONE + "the raw bytes have several lines"
OTHER_ROW = "these settings find another row at the line"


class ChosenRejects(NamedTuple):
    """Rejects of one source file, sorted by line, which a map task reads again.

    `keys` are the object keys of the quarantine files that contain the raw bytes of the rejects. If
    `keys` is empty, the task reads the source file instead.
    """

    rejects: Rejected
    keys: Sequence[str] = ()


ChosenUnit = tuple[Unit, Mapping[int, ChosenRejects]]  # a unit, and its rejects by split number


class RedriveInput(FileInput):
    """The open rejects of a run, as input of a redrive. `sources` are the topic's source rows.

    `have_left` returns whether a newer version has other open rejects. `lines` maps the path of
    each file to the lines of its rejects. `refused` counts, by cause, the rejects that cannot be
    read again. It is complete after `spool`, which writes nothing in a `dry_run`. A redrive commits
    no source rows, because the first run has recorded the files. Raises InputError if an existing
    file cannot be read, or if one run cannot read all files.
    """

    def __init__(
        self,
        engine: Engine,
        pipeline: Pipeline,
        store: Store,
        chain: RedriveChain,
        sources: pa.Table,
        have_left: Callable[[Snapshot], bool],
        *,
        dry_run: bool,
    ) -> None:
        self._engine, self._pipeline, self._store = engine, pipeline, store
        self._chain, self._have_left, self._dry_run = chain, have_left, dry_run
        self.refused: Counter[str] = Counter()
        self._refused_lines: dict[str, list[Int64s]] = {}
        topic, attempt_id = chain.first.topic, chain.last.attempt_id
        self._keys = QuarantineTable(store).keys(topic, [attempt_id])
        listed = _by_path(engine.map(ListRejects(store, attempt_id), self._keys), self._keys)
        self.lines: dict[str, Int64s] = {p: each.rejects["line"] for p, each in listed.items()}
        of_run = pc.equal(sources["attempt_id"], pa.scalar(chain.first.attempt_id))
        sources_of_run = rows_of(SourceRow, topic, sources.filter(of_run))
        files = InputStore(pipeline.storage, pipeline.input.compression, pipeline.input.encoding)
        self._files = files
        present = _present([row for row in sources_of_run if row.path in listed], files)
        self.selection = InputSelection(sorted(present), FileList.from_files([]), [])
        FORMATS[pipeline.input.format].check(self.selection.files, files, pipeline)
        rows = {row.path: row.rows for row in sources_of_run}
        # After a redrive, other rows of the file are records already.
        may_be_whole = [] if chain.redrives else self.selection.files
        anew = [f for f in may_be_whole if len(listed[f.path].rejects) == rows[f.path]]
        self._plan(listed, plan_splits(anew, files, pipeline))

    def _plan(self, listed: Mapping[str, ChosenRejects], anew: Sequence[Split]) -> None:
        """Set the splits, ordered by path, from the listed rejects and splits of whole files."""
        whole: dict[str, list[Split]] = {}
        for split in anew:
            whole.setdefault(split.file.path, []).append(split)
        present = {file.path: file for file in self.selection.files}
        self.splits: list[Split] = []
        self._chosen: dict[int, ChosenRejects] = {}
        for path, open_rejects in sorted(listed.items()):
            number = len(self.splits)
            if path in whole:
                splits = whole[path]
                self.splits += [s._replace(number=n) for n, s in enumerate(splits, number)]
                continue
            if path in present:
                file, chosen = present[path], ChosenRejects(open_rejects.rejects)
            else:
                chosen = ChosenRejects(self._usable(path, open_rejects.rejects), open_rejects.keys)
                size = int(chosen.rejects["length"].sum(dtype=np.int64))
                file = SourceFile(path, size, 0, None)
            if len(chosen.rejects):
                self.splits.append(Split(number, file, 0, file.size))
                self._chosen[number] = chosen

    def _usable(self, path: str, rejects: Rejected) -> Rejected:
        """Return the rejects of a missing file whose raw bytes can be read. Refuse the others."""
        form = self._pipeline.input.format
        if not isinstance(FORMATS[form], LineFormat):
            self._refuse(path, rejects["line"], NOT_LINES.format(form))
            return rejects[:0]
        cut, several = rejects["cut"], rejects["line_feed"]
        self._refuse(path, rejects["line"][cut], CUT)
        self._refuse(path, rejects["line"][several & ~cut], SEVERAL_LINES)
        usable: Rejected = rejects[~(cut | several)]
        return usable

    def _refuse(self, path: str, lines: Int64s, why: str) -> None:
        if len(lines):
            self.refused[why] += len(lines)
            self._refused_lines.setdefault(path, []).append(lines)

    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map tasks over all rejects, and return the SPOOLED rows."""
        shares = shared_units(self.splits, self._pipeline.task.split_bytes, self._engine)
        tasks = [[self._with_chosen(unit) for unit in units] for units in shares]
        map_rejects = MapRejects(settings, self._chain.last.attempt_id, self._dry_run)
        spooled = unpack_rows(self._engine.map(map_rejects, tasks))
        self._take_refused(filter_kinds(spooled, REFUSED))
        return spooled

    def _with_chosen(self, unit: Unit) -> tuple[Unit, dict[int, ChosenRejects]]:
        numbers = (split.number for split in unit.splits)
        return unit, {number: self._chosen[number] for number in numbers if number in self._chosen}

    def _take_refused(self, refused: pa.Table) -> None:
        if self._dry_run:
            count = int(refused["records"].to_numpy().sum())
            self.refused += Counter({OTHER_ROW: count} if count else {})
            return
        for blob in read_blobs(self._store, refused):
            path = self.splits[int(blob.row["text"])].file.path
            self._refuse(path, np.frombuffer(memoryview(blob.data), np.int64), OTHER_ROW)

    def keep_refused(self, attempt_id: str, now_ms: int) -> None:
        """Copy the refused rejects to the quarantine, as rejects of `attempt_id`.

        Raises StoreError.
        """
        lines = {path: np.concatenate(some) for path, some in self._refused_lines.items()}
        if not lines:
            return
        topic, rejects_of = self._chain.first.topic, self._chain.last.attempt_id
        keep = KeepRefused(self._store, topic, rejects_of, attempt_id, now_ms, lines)
        written = self._engine.map(keep, self._keys)
        if sum(count for _, count in written) != self.refused.total():
            raise AssertionError(f"{written} are not the rows of {self.refused}")
        QuarantineTable(self._store).add_files([file for file, _ in written if file], attempt_id)

    def is_taken(self, newest: Snapshot, _sources: Sources) -> bool:
        """Return whether a reject is no longer open, or belongs to another run now."""
        return self._have_left(newest)


def _by_path(lists: Sequence[Mapping[str, Rejected]], keys: list[str]) -> dict[str, ChosenRejects]:
    """Return, by path of the source file, its rejects and the quarantine files that contain them.

    `lists` has the rejects of each quarantine file in `keys`.
    """
    parts: dict[str, list[tuple[str, Rejected]]] = {}
    for key, by_path in zip(keys, lists, strict=True):
        for path, rejects in by_path.items():
            parts.setdefault(path, []).append((key, rejects))
    open_rejects = dict[str, ChosenRejects]()
    for path, some in parts.items():
        joined_rejects = np.concatenate([rejects for _, rejects in some])
        in_order = joined_rejects[np.argsort(joined_rejects["line"])]
        open_rejects[path] = ChosenRejects(in_order, [key for key, _ in some])
    return open_rejects


def _present(rows: Sequence[SourceRow], files: InputStore) -> list[SourceFile]:
    """Return the files that exist in the version that was ingested. Raises InputError."""
    listed = [SourceFile(row.path, row.size_bytes, row.modified_ms, row.etag) for row in rows]
    with ThreadPoolExecutor(REQUESTS) as pool:
        same = list(pool.map(partial(_is_same, files=files), listed))
    return [file for file, is_same in zip(listed, same, strict=True) if is_same]


def _is_same(file: SourceFile, files: InputStore) -> bool:
    version = files.find(file.path)
    return version is not None and file.version.is_same(version)


# ---------------- rejects
# Run the map side of a redrive. If all rows of a file are rejects, the file is divided into splits
# by the current settings. Every other file is one split, and only its rejects are read.

_ROWS = 4096  # number of quarantined rows whose raw bytes are read together


class MapRejects(NamedTuple):
    """The map task that reads rejects again, and returns packed SPOOLED rows of their blobs.

    An item has units, each with the chosen rejects of its splits by split number. All rows of a
    split without chosen rejects are read. Rejects that are not found unchanged are refused: their
    line numbers become a blob of the kind REFUSED, whose text is the number of the split. With
    `dry_run`, the blobs have no data.
    """

    settings: MapSettings
    rejects_of: str  # the attempt whose rejects are read
    dry_run: bool

    def __call__(self, units: Sequence[ChosenUnit]) -> bytes:
        """Write the blobs of the units to the spool, and return their packed SPOOLED rows."""
        files, raw_rows = self.settings.files, RawRows(self.settings.store, self.rejects_of)
        blobs = (
            blob._replace(data=b"") if self.dry_run else blob
            for unit, chosen in units
            for blob in self._blobs(unit, files, _RejectReader(chosen, raw_rows))
        )
        return self.settings.write_blobs(blobs)

    def amounts(self, items: Sequence[Sequence[ChosenUnit]]) -> Amounts:
        """Return the bytes of each item's splits. A missing file has the size of its raw bytes."""
        return Amounts("bytes", [sum(unit.size_bytes for unit, _ in units) for units in items])

    def _blobs(self, unit: Unit, files: InputStore, reader: _RejectReader) -> Iterator[Blob]:
        yield from make_blobs(unit, files, self.settings, reader)
        for split, lines in reader.refused().items():
            data = lines.tobytes()
            yield Blob(REFUSED, unit.number, data, records=len(lines), text=str(split))


class _RejectReader:
    """The function that reads the splits of a unit. It records which chosen rejects it found."""

    def __init__(self, chosen: Mapping[int, ChosenRejects], raw_rows: RawRows) -> None:
        self._chosen, self._raw_rows = chosen, raw_rows
        self._hits = {n: np.zeros(len(rows.rejects), np.bool_) for n, rows in chosen.items()}

    def __call__(self, split: Split, files: InputStore, settings: MapSettings) -> Chunks:
        """Yield the records and rejects of a split in chunks. Raises InputError."""
        if split.number not in self._chosen:
            return read_every_row(split, files, settings)
        if self._chosen[split.number].keys:
            return self._from_raw(split, settings)
        return require_unchanged(split, files, self._from_file(split, files, settings))

    def _from_file(self, split: Split, files: InputStore, settings: MapSettings) -> Chunks:
        """Yield the records and rejects of the chosen rows of a file.

        Line numbers of rejects count from 0 in the file. Raises InputError, like `read_split`.
        """
        pipeline = settings.pipeline
        for path, rows, first_line, path_line in read_rows(split, files, pipeline):
            chosen = self._choose(rows, rows.numbers + first_line, split, pipeline)
            if len(chosen.numbers):
                yield extract(chosen, pipeline, settings.limits, path, 0, path_line)

    def _from_raw(self, split: Split, settings: MapSettings) -> Chunks:
        """Yield the records and rejects of rows whose raw bytes are read from the quarantine."""
        pipeline, path = settings.pipeline, split.file.path
        rejects, keys = self._chosen[split.number]
        form, encoding = FORMATS[pipeline.input.format], pipeline.input.encoding
        assert isinstance(form, LineFormat)  # noqa: S101  # see `RedriveInput._usable`
        for key in keys:
            size = pipeline.task.chunk_bytes
            for lines, raw in self._raw_rows.read(key, path, rejects["line"], size):
                utf_8 = raw if encoding == UTF_8 else decode_rows(raw, encoding)
                text = join_rows([utf_8, constant(b"\n", len(utf_8))])
                end = int(np.sum(text.lengths, dtype=np.int64))
                rows = form.rows(LineChunk(text.data, 0, end, False), pipeline)
                chosen = self._choose(rows, lines[rows.numbers] - 1, split, pipeline)
                yield extract(chosen, pipeline, settings.limits, path, 0)

    def _choose(self, rows: Rows, lines: Int64s, split: Split, pipeline: Pipeline) -> ChosenRows:
        """Return the rows that are chosen rejects, and record these rejects as found.

        `lines` has the line in the file (from 0) at which each row begins.
        """
        rejects, encoding = self._chosen[split.number].rejects, pipeline.input.encoding
        at = np.searchsorted(rejects["line"], lines + 1)
        at[at == len(rejects)] = 0
        begun = np.flatnonzero(rejects["line"][at] == lines + 1)
        if len(begun):
            raw, ours = rows.take_raw(begun), rejects[at[begun]]
            same = _same(raw, ours)
            if encoding != UTF_8:
                # Bytes that were invalid in an earlier encoding are quarantined unchanged.
                same |= _same(encode_rows(raw, encoding), ours)
            begun = begun[same]
        self._hits[split.number][at[begun]] = True
        return ChosenRows(rows, begun, lines[begun])

    def refused(self) -> dict[int, Int64s]:
        """Return the lines (from 1) of the rejects that were not found, by split number."""
        lines = {s: self._chosen[s].rejects["line"][~hits] for s, hits in self._hits.items()}
        return {split: missing for split, missing in lines.items() if len(missing)}


class RawRows:
    """A reader of the raw bytes of an attempt's rejects.

    It keeps the rows of the quarantine file that was read last.
    """

    def __init__(self, store: Store, attempt_id: str) -> None:
        self._store, self._attempt_id = store, attempt_id
        self._key, self._rows = "", QUARANTINE_SCHEMA.empty_table()
        self._places: dict[str, Int64s] = {}

    def read(self, key: str, path: str, lines: Int64s, size: int) -> Iterator[tuple[Int64s, Spans]]:
        """Yield the line numbers and raw bytes of rejects, sorted by line, in parts.

        Args:
            key: The object key of the quarantine file.
            path: The source file of the rejects.
            lines: The lines (from 1) of the rejects to read.
            size: The approximate size of a part in bytes.
        """
        if key != self._key:
            self._rows = read_rejects(self._store, key, [self._attempt_id])
            self._key, self._places = key, places_by_file(self._rows)
        at = self._places[path]
        line_numbers: Int64s = self._rows["line"].take(at).to_numpy()
        order = np.argsort(line_numbers)
        order = order[np.isin(line_numbers[order], lines)]
        raw = self._rows["raw"]
        ends = np.cumsum(pc.binary_length(raw).take(at[order]).to_numpy(), dtype=np.int64)
        cuts = (np.diff(ends // size) > 0) | (np.arange(1, len(ends)) % _ROWS == 0)
        parts = np.split(order, np.flatnonzero(cuts) + 1)
        for part in parts if len(order) else []:
            yield line_numbers[part], from_arrow(raw.take(at[part]).combine_chunks())


class ListRejects(NamedTuple):
    """The task that lists an attempt's rejects in a quarantine file, by path of the source file."""

    store: Store
    attempt_id: str

    def __call__(self, key: str) -> dict[str, Rejected]:
        """Return path of a source file → its rejects, in the order of the quarantine file `key`."""
        rows = read_rejects(self.store, key, [self.attempt_id])
        parts = [np.zeros(0, REJECT)]
        for batch in rows.to_batches(max_chunksize=_ROWS):
            lines: Int64s = batch["line"].to_numpy()
            reasons: npt.NDArray[Any] = batch["reason"].to_numpy(zero_copy_only=False)
            parts.append(reject_table(lines, reasons, from_arrow(batch["raw"])))
        listed = np.concatenate(parts)
        return {path: listed[at] for path, at in places_by_file(rows).items()}

    def amounts(self, keys: Sequence[str]) -> Amounts:
        """Count each quarantine file as one unit of work."""
        return Amounts.alike(FILES, keys)


# ---------------- chosen
# Find the rejects of an earlier run by the line at which they begin. A reject counts as found only
# if the row that begins there now is equal to the raw bytes in the quarantine. Other settings may
# divide a file into other rows, and such a row could contain lines that are records already.

# One reject without its raw bytes: the line where it begins, from 1; the length and hash of the raw
# bytes; whether the quarantine may have cut them; and whether they contain a line feed.
REJECT = np.dtype(
    [("line", "i8"), ("hash", "i8"), ("length", "i4"), ("cut", "?"), ("line_feed", "?")]
)
# Reasons of rows that the quarantine may cut before 64 KiB, or that may contain other rows.
_CUT = [Reason.TOO_LARGE.text, Reason.EVENT_TOO_LONG.text, Reason.NOT_IN_ARRAY.text]

Rejected = npt.NDArray[np.void]  # items of the type REJECT, in the order of lines


def reject_table(lines: Int64s, reasons: npt.NDArray[Any], raw: Spans) -> Rejected:
    """Return an array of the type REJECT for quarantined rows, in the given order."""
    rows = np.zeros(len(lines), REJECT)
    rows["line"], rows["length"] = lines, np.maximum(raw.lengths, 0)
    rows["hash"], rows["line_feed"] = fnv_hashes(*raw.fixed()), with_line_feed(raw)
    rows["cut"] = (raw.lengths >= REJECTED_BYTES) | np.isin(reasons, _CUT)
    return rows


def _same(raw: Spans, rejects: Rejected) -> Flags:
    """Return, for each row that was read again, whether it equals the reject at its position.

    Rows are compared by length and hash. The quarantine cuts long rows: a row of one line then only
    has to begin with the stored bytes. A row of several lines must match completely, because its
    end depends on the settings.
    """
    sizes = np.minimum(raw.lengths, rejects["length"])
    alike = fnv_hashes(*Spans(raw.data, raw.starts, sizes).fixed()) == rejects["hash"]
    line = rejects["cut"] & (raw.lengths >= rejects["length"])
    if line.any():
        line &= ~with_line_feed(raw)
    whole = (raw.lengths == rejects["length"]) & (sizes < REJECTED_BYTES)
    same: Flags = alike & (line | whole)
    return same


class ChosenRows(Rows):
    """The rows of a chunk at the positions `at`. They begin at the lines `numbers`."""

    line_count = 0

    def __init__(self, rows: Rows, at: Int64s, numbers: Int64s) -> None:
        self._rows, self._at = rows, at
        self.numbers, self.reasons = numbers, rows.reasons[at]

    @cached_property
    def raw(self) -> Spans:
        """Return the bytes of the rows, unchanged from the file."""
        return self._rows.raw.take(self._at)

    def take_raw(self, rows: Int64s) -> Spans:
        """Return the raw bytes of the rows at these positions."""
        return self._rows.take_raw(self._at[rows])

    def field(self, name: str) -> Spans:
        """Return the values of a field as bytes, or null in rows without a value."""
        return self._rows.field(name).take(self._at)

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times, read in the format `form`."""
        ms, codes, local = self._rows.times(name, form)
        return Times(ms[self._at], codes[self._at], local[self._at])

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """Return (values of a field as record headers, which rows have unreadable headers)."""
        headers, unreadable = self._rows.headers(name)
        return headers.take(self._at), unreadable[self._at]

    def objects(self, names: Sequence[str]) -> Spans:
        """Return one JSON object per row with these fields. An empty `names` selects all fields."""
        return self._rows.objects(names).take(self._at)
