"""One ingest run, from raw files to one catalog commit: the story, told by the driver.

    already committed? → freeze the input → leave out what the topic has → map → count → cut and place
    → write segments → write quarantine → commit; after a lost race: reload, then re-base or plan again

Nothing is visible before the commit, and a run that dies anywhere is simply run again.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine_table import QuarantineTable
from seglake.catalog.rows import Row, RunRow, SegmentRow, SourceRow
from seglake.catalog.snapshot import Snapshot
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.errors import CommitConflict, ConfigError, QuarantineLimit, StoreError
from seglake.ingest import plan, stages
from seglake.ingest.blob import BATCHES, RECORDS, REJECTS, SUMMARY
from seglake.ingest.engine import Engine, KeptBlobs, SparkEngine
from seglake.ingest.frames import NAME, ReadFrame
from seglake.ingest.inputs import Inputs, choose, freeze, known_sources
from seglake.ingest.listing import SourceFile, Split, list_inputs, plan_splits
from seglake.ingest.quarantine import Origin, Quarantine, origins
from seglake.ingest.rebase import Move
from seglake.ingest.report import Progress, Report
from seglake.ingest.topics import append_time, topic_row
from seglake.ingest.units import SplitCount, dump_unit, group_splits, split_counts
from seglake.ingest.write import Piece
from seglake.layout import manifest_key, new_attempt, success_key
from seglake.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

MAX_COMMITS = 100  # attempts at the catalog before a run gives up under contention
TASKS_PER_CORE = 3  # enough to balance, few enough to pay for


class RunKey(NamedTuple):
    """What makes a run the same run again: its id within a pipeline, and the interval it covers."""

    run_id: str
    interval: tuple[int, int] | None = None  # [start_ms, end_ms)


def ingest_files(
    engine: Engine, pipeline: Pipeline, key: RunKey, progress: Progress = logger.info
) -> Report:
    """Ingest the files that the pipeline names, once.

    The same run key again does nothing and says so; with other settings it is a ConfigError. Raises
    InputError, QuarantineLimit, StoreError or CommitConflict; none of them leaves anything visible.
    """
    report = Report(pipeline.topic.name, pipeline.name, key.run_id)

    def sources() -> Callable[[], _Source]:
        with report.step("list input", progress):
            store = open_store(pipeline.root, pipeline.storage)
            frozen = freeze(store, pipeline, key.run_id, lambda: list_inputs(pipeline))
        return lambda: _Files(engine, pipeline, frozen)

    return _ingest(engine, pipeline, key, progress, report, sources)


def ingest_frame(
    frame: DataFrame,
    order_column: str,
    pipeline: Pipeline,
    key: RunKey,
    progress: Progress = logger.info,
) -> Report:
    """Ingest the rows of a DataFrame, once; as `ingest_files`, without files to remember."""
    engine = SparkEngine(frame.sparkSession)
    report = Report(pipeline.topic.name, pipeline.name, key.run_id)
    source = _Frame(engine, pipeline, frame, order_column)
    return _ingest(engine, pipeline, key, progress, report, lambda: lambda: source)


def _ingest(
    engine: Engine,
    pipeline: Pipeline,
    key: RunKey,
    progress: Progress,
    report: Report,
    sources: Callable[[], Callable[[], _Source]],
) -> Report:
    table = CatalogTable.create(pipeline.root, pipeline.storage)
    done = table.run(table.snapshot(), pipeline.topic.name, pipeline.name, key.run_id)
    if done is not None:
        return _already_done(report, done, pipeline, key)
    fresh = sources()
    while True:
        attempt = _Attempt(engine, pipeline, key, table, fresh(), report, progress)
        try:
            return attempt.run()
        except _InputTaken:
            progress("another run ingested some of these files: planning again without them")


def _already_done(report: Report, done: RunRow, pipeline: Pipeline, key: RunKey) -> Report:
    if done.fingerprint != pipeline.fingerprint():
        raise ConfigError(
            f"run {key.run_id!r} of pipeline {pipeline.name!r} is committed with other settings: "
            "give this run another --run-id, or restore the settings"
        )
    report.status, report.attempt_id = "already done", done.attempt_id
    report.records, report.quarantined = done.records, done.quarantined
    return report


class _InputTaken(Exception):  # not an error: a reason to plan again
    """Another run committed some of this attempt's files first."""


class _Source(Protocol):
    """What an attempt reads."""

    inputs: Inputs

    def choose(self, sources: pa.Table) -> None:
        """Decide which files to read, given the source rows of the topic."""

    def blobs(self, append_time_ms: int) -> AbstractContextManager[KeptBlobs]:
        """The map side."""

    def origins(self, counts: dict[int, SplitCount]) -> dict[int, Origin]:
        """Where the lines of each split stand."""

    def rows(self, counts: dict[int, SplitCount]) -> Mapping[str, int]:
        """The rows of each file."""


class _Files:
    """The files of the frozen input list that the topic does not have yet."""

    def __init__(self, engine: Engine, pipeline: Pipeline, frozen: list[SourceFile]) -> None:
        self._engine, self._pipeline, self._frozen = engine, pipeline, frozen
        self.inputs = Inputs([], [], [])
        self._splits: list[Split] = []

    def choose(self, sources: pa.Table) -> None:
        known = known_sources(sources, self._frozen)
        self.inputs = choose(self._frozen, known, self._pipeline.on_changed_source)
        self._splits = plan_splits(self.inputs.files, self._pipeline)

    def blobs(self, append_time_ms: int) -> AbstractContextManager[KeptBlobs]:
        units = group_splits(self._splits, self._pipeline.task.split_bytes)
        bins = plan.pack([unit.size_bytes for unit in units], TASKS_PER_CORE * self._engine.cores)
        columns = {
            "task": pa.array(bins, pa.int32()),
            "unit": pa.array([dump_unit(unit) for unit in units], pa.string()),
        }
        return self._engine.map(stages.Read(self._pipeline, append_time_ms), pa.table(columns))

    def origins(self, counts: dict[int, SplitCount]) -> dict[int, Origin]:
        return origins(self._splits, counts)

    def rows(self, counts: dict[int, SplitCount]) -> Mapping[str, int]:
        rows: Counter[str] = Counter()
        for split in self._splits:
            rows[split.file.path] += counts[split.number].rows
        return rows


class _Frame:
    """A DataFrame, which is read anew by every run."""

    def __init__(
        self, engine: SparkEngine, pipeline: Pipeline, frame: DataFrame, order_column: str
    ) -> None:
        self._engine, self._pipeline = engine, pipeline
        self._frame, self._order_column = frame, order_column
        self.inputs = Inputs([], [], [])

    def choose(self, sources: pa.Table) -> None:
        """A DataFrame is no file: nothing is left out."""

    def blobs(self, append_time_ms: int) -> AbstractContextManager[KeptBlobs]:
        task = ReadFrame(self._pipeline, self._order_column, append_time_ms)
        return self._engine.map_frame(task, self._frame)

    def origins(self, counts: dict[int, SplitCount]) -> dict[int, Origin]:
        del counts
        return {0: Origin(NAME, -1)}  # rejected rows keep the number of the order column

    def rows(self, counts: dict[int, SplitCount]) -> Mapping[str, int]:
        del counts
        return {}


class _Attempt:
    """One try at a run: everything it writes carries its id, and nothing of it is visible yet."""

    def __init__(
        self,
        engine: Engine,
        pipeline: Pipeline,
        key: RunKey,
        table: CatalogTable,
        source: _Source,
        report: Report,
        progress: Progress,
    ) -> None:
        self.engine, self.pipeline, self.key, self.table = engine, pipeline, key, table
        self.source, self.report, self.progress = source, report, progress
        self.topic = pipeline.topic.name
        self.started_ms = _now_ms()
        self.store = open_store(pipeline.root, pipeline.storage)
        self.snapshot = table.snapshot()
        self.topic_rows = topic_row(self.snapshot, pipeline)
        self.append_time_ms = append_time(self.snapshot, self.topic, self.started_ms)
        source.choose(table.sources(self.snapshot, self.topic))
        report.attempt_id = self.attempt_id = new_attempt()
        self.counts: dict[int, SplitCount] = {}

    def run(self) -> Report:
        """Write everything and commit it."""
        self._report_inputs(self.source.inputs)
        segments: list[SegmentRow] = []
        if self.source.inputs.files or isinstance(self.source, _Frame):
            with self.source.blobs(self.append_time_ms) as blobs:
                with self.report.step("read and sort", self.progress):
                    meta = blobs.meta()
                self._count(meta)
                segments = self._write_segments(blobs, meta)
                self._write_quarantine(blobs)
        self._manifest(segments)
        with self.report.step("commit", self.progress):
            self._commit(segments)
        self.store.put(success_key(self.attempt_id), b"")
        return self.report

    def _report_inputs(self, inputs: Inputs) -> None:
        self.report.input_files = len(inputs.files)
        self.report.input_bytes = sum(file.size for file in inputs.files)
        self.report.skipped_files = [file.path for file in inputs.skipped]
        self.report.changed_files = [file.path for file in inputs.changed]

    def _count(self, meta: pa.Table) -> None:
        report, kinds, counts = self.report, meta["kind"].to_numpy(), meta["records"].to_numpy()
        summaries = meta.filter(pc.equal(meta["kind"], SUMMARY))["counts"]
        self.counts = split_counts(summaries.to_pylist())
        report.input_rows = sum(split.rows for split in self.counts.values())
        report.records = int(counts[(kinds == RECORDS) | (kinds == BATCHES)].sum())
        report.quarantined = int(counts[kinds == REJECTS].sum())
        if report.input_rows != report.records + report.quarantined:
            raise AssertionError(f"rows do not add up: {report}")
        self._check_quarantine()

    def _check_quarantine(self) -> None:
        limit, rows = self.pipeline.max_quarantine_ratio, self.report.input_rows
        if self.report.quarantined > limit * rows:
            raise QuarantineLimit(
                f"{self.report.quarantined} of {rows} rows were rejected, more than "
                f"max_quarantine_ratio = {limit} allows; nothing was committed"
            )

    def _write_segments(self, blobs: KeptBlobs, meta: pa.Table) -> list[SegmentRow]:
        kinds = meta["kind"].to_numpy()
        known = plan.Blobs.of(meta.filter(pa.array((kinds == RECORDS) | (kinds == BATCHES))))
        if not len(known):
            return []
        with self.report.step("plan", self.progress):
            cuts = plan.cut_partitions(known, self.pipeline.task.piece_bytes)
            routes = plan.assign(known, cuts)
            counts = plan.count_pieces(known, routes, _straddling(blobs, known, routes, cuts))
            bases = plan.base_offsets(cuts, counts, self._ends())
        pieces = {
            number: (cut, Piece(self.topic, cut.partition, self.attempt_id, base, self.started_ms))
            for number, (cut, base) in enumerate(zip(cuts, bases, strict=True))
        }
        with self.report.step("write segments", self.progress):
            task = stages.Write(self.pipeline, pieces, self.append_time_ms)
            route = plan.route(known, routes, len(cuts), TASKS_PER_CORE * self.engine.cores)
            return task.rows(blobs.run_routed(task, stages.WRITE_SCHEMA, route))

    def _ends(self) -> dict[int, int]:
        return {view.partition: view.end_offset for view in self._views()}

    def _views(self) -> list:
        known = {row.topic for row in self.snapshot.topics()}
        return self.snapshot.partitions(self.topic) if self.topic in known else []

    def _write_quarantine(self, blobs: KeptBlobs) -> None:
        if not self.report.quarantined:
            return
        root, storage = self.pipeline.root, self.pipeline.storage
        places = self.source.origins(self.counts)
        target = Quarantine(root, storage, self.topic, self.attempt_id, self.started_ms, places)
        with self.report.step("write quarantine", self.progress):
            QuarantineTable(root, storage).add_parts(target.write(blobs), self.attempt_id)

    def _manifest(self, segments: list[SegmentRow]) -> None:
        """What the attempt wrote, for a repair that has lost the catalog."""
        rows = [dataclasses.asdict(row) for row in self._rows(segments)]
        self.store.put(manifest_key(self.attempt_id), json.dumps({"format": 1, "rows": rows}).encode())

    def _commit(self, segments: list[SegmentRow]) -> None:
        """Commit, and settle every race: won unnoticed, unchanged, re-based or to be planned again."""
        for remaining in reversed(range(MAX_COMMITS)):
            rows = self._rows(segments)
            try:
                self.report.version = self.table.commit(
                    rows, topic=self.topic, base=self.snapshot, attempt_id=self.attempt_id
                )
            except (CommitConflict, StoreError):
                newest = self.table.snapshot()
                if self.table.has_attempt(newest, self.topic, self.attempt_id):
                    self.report.version = newest.version
                    return
                if not remaining:
                    raise
                segments = self._after_conflict(newest, segments)
            else:
                return

    def _after_conflict(self, newest: Snapshot, segments: list[SegmentRow]) -> list[SegmentRow]:
        """The segments as they must be to follow what was committed meanwhile."""
        before, self.snapshot = self._ends(), newest
        files = self.source.inputs.files
        known = known_sources(self.table.sources(newest, self.topic), files)
        if len(choose(files, known, "skip").files) < len(files):
            raise _InputTaken
        self.topic_rows = topic_row(newest, self.pipeline)
        deltas = {p: end - before.get(p, 0) for p, end in self._ends().items()}
        if not any(deltas.values()) or not segments:
            return segments
        self.progress("another run committed first: moving the segments behind it")
        self.report.rebased += 1
        self.append_time_ms = append_time(newest, self.topic, self.append_time_ms)
        root, storage = self.pipeline.root, self.pipeline.storage
        move = Move(root, storage, deltas, new_attempt(), self.append_time_ms)
        moved = move.run(self.engine, segments)
        self._manifest(moved)
        return moved

    def _rows(self, segments: list[SegmentRow]) -> list[Row]:
        self._report_segments(segments)
        interval = self.key.interval or (None, None)
        run = RunRow(
            topic=self.topic,
            pipeline=self.pipeline.name,
            run_id=self.key.run_id,
            attempt_id=self.attempt_id,
            fingerprint=self.pipeline.fingerprint(),
            interval_start_ms=interval[0],
            interval_end_ms=interval[1],
            records=self.report.records,
            quarantined=self.report.quarantined,
            input_files=self.report.input_files,
            input_rows=self.report.input_rows,
            input_bytes=self.report.input_bytes,
            output_bytes=self.report.output_bytes,
            started_at_ms=self.started_ms,
            finished_at_ms=_now_ms(),
            report=self.report.as_json(),
        )
        return [*self.topic_rows, run, *segments, *self._sources()]

    def _sources(self) -> list[SourceRow]:
        rows = self.source.rows(self.counts)
        return [
            SourceRow(
                topic=self.topic,
                path=file.path,
                size_bytes=file.size,
                modified_ms=file.modified_ms,
                etag=file.etag,
                rows=rows[file.path],
                attempt_id=self.attempt_id,
            )
            for file in self.source.inputs.files
        ]

    def _report_segments(self, segments: list[SegmentRow]) -> None:
        report = self.report
        report.segments = len(segments)
        report.index_bytes = sum(r.index_bytes + r.timeindex_bytes + r.zonemap_bytes for r in segments)
        report.output_bytes = sum(row.log_bytes for row in segments) + report.index_bytes
        report.min_timestamp = min((row.min_timestamp for row in segments), default=None)
        report.max_timestamp = max((row.max_timestamp for row in segments), default=None)
        report.max_lateness_ms = max((row.max_lateness_ms for row in segments), default=0)
        report.end_offsets = {row.partition: row.end_offset for row in segments}


def _straddling(
    blobs: KeptBlobs, known: plan.Blobs, routes: list[tuple[int, int]], cuts: list[plan.Cut]
) -> dict[tuple[int, int], int]:
    """Records of each blob that overlaps a cut in each of its pieces, as {(blob, piece): records}."""
    numbers = plan.straddlers(routes)
    if not numbers:
        return {}
    task = stages.Count.of(known, numbers, cuts)
    units = sorted({known.begin[number].unit for number in numbers})
    found = blobs.run(task, stages.COUNT_SCHEMA, ("unit", units)).to_pydict()
    keys = zip(found["blob"], found["piece"], strict=True)
    return dict(zip(keys, found["records"], strict=True))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
