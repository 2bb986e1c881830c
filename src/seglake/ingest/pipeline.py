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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

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
from seglake.ingest.frames import NAME, FrameReader
from seglake.ingest.inputs import Inputs, Version, choose, freeze, known_sources
from seglake.ingest.listing import SourceFile, Split, list_inputs, plan_splits
from seglake.ingest.quarantine import Origin, Quarantine, origins
from seglake.ingest.rebase import Move
from seglake.ingest.report import Progress, Report
from seglake.ingest.topics import append_time, topic_row
from seglake.ingest.units import SplitCount, group_splits, split_counts
from seglake.ingest.write import Piece
from seglake.layout import manifest_key, new_attempt, success_key
from seglake.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

MAX_COMMITS = 100  # attempts at the catalog before a run gives up under contention
TASKS_PER_CORE = 3  # enough to balance, few enough to pay for


class RunKey(NamedTuple):
    """What makes a run the same run again: its id within a pipeline, and the interval it covers."""

    run_id: str
    interval: tuple[int, int] | None = None  # [start_ms, end_ms)


def ingest_files(
    spark: SparkSession, pipeline: Pipeline, key: RunKey, progress: Progress = logger.info
) -> Report:
    """Ingest the files that the pipeline names, once.

    The same run key again does nothing and says so; with other settings it is a ConfigError. Raises
    InputError, QuarantineLimit, StoreError or CommitConflict; none of them leaves anything visible.
    """

    def list_once(report: Report) -> list[SourceFile]:
        with report.step("list input", progress):
            store = open_store(pipeline.root, pipeline.storage)
            return freeze(store, pipeline, key.run_id, lambda: list_inputs(pipeline))

    return _ingest(spark, pipeline, key, progress, list_once)


def ingest_frame(
    frame: DataFrame,
    order_column: str,
    pipeline: Pipeline,
    key: RunKey,
    progress: Progress = logger.info,
) -> Report:
    """Ingest the rows of a DataFrame, once; as `ingest_files`, without files to remember."""
    return _ingest(frame.sparkSession, pipeline, key, progress, lambda _: [], (frame, order_column))


def _ingest(
    spark: SparkSession,
    pipeline: Pipeline,
    key: RunKey,
    progress: Progress,
    list_once: Callable[[Report], list[SourceFile]],
    frame: tuple[DataFrame, str] | None = None,
) -> Report:
    table = CatalogTable.create(pipeline.root, pipeline.storage)
    report = Report(pipeline.topic.name, pipeline.name, key.run_id)
    done = table.run(table.snapshot(), pipeline.topic.name, pipeline.name, key.run_id)
    if done is not None:
        return _already_done(report, done, pipeline, key)
    frozen = list_once(report)
    while True:
        attempt = _Attempt(spark, pipeline, key, table, frozen, frame, report, progress)
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


class _InputTaken(Exception):  # noqa: N818  # not an error: a reason to plan again
    """Another run committed some of this attempt's files first."""


class _Attempt:
    """One try at a run: everything it writes carries its id, and nothing of it is visible yet."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        key: RunKey,
        table: CatalogTable,
        frozen: list[SourceFile],
        frame: tuple[DataFrame, str] | None,
        report: Report,
        progress: Progress,
    ) -> None:
        self.spark, self.pipeline, self.key, self.table = spark, pipeline, key, table
        self.frame, self.report, self.progress = frame, report, progress
        self.topic = pipeline.topic.name
        self.started_ms = _now_ms()
        self.store = open_store(pipeline.root, pipeline.storage)
        self.snapshot = table.snapshot()
        self.topic_rows = topic_row(self.snapshot, pipeline)
        self.append_time_ms = append_time(self.snapshot, self.topic, self.started_ms)
        self.inputs = choose(frozen, self._known(frozen), pipeline.on_changed_source)
        report.attempt_id = self.attempt_id = new_attempt()
        self.splits: dict[int, SplitCount] = {}

    def run(self) -> Report:
        """Write everything and commit it."""
        self._report_inputs(self.inputs)
        splits = plan_splits(self.inputs.files, self.pipeline)
        segments: list[SegmentRow] = []
        if splits or self.frame:
            with self._blobs(splits) as (blobs, meta):
                self._check_quarantine()
                segments = self._write_segments(blobs, meta)
                self._write_quarantine(blobs, splits)
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

    @contextmanager
    def _blobs(self, splits: list[Split]) -> Iterator[tuple[DataFrame, pa.Table]]:
        """The map stage's output, kept on disk while it is needed, and what the driver knows of it."""
        from pyspark import StorageLevel

        blobs = self._map(splits).persist(StorageLevel.DISK_ONLY)
        try:
            with self.report.step("read and sort", self.progress):
                meta = stages.collect_meta(blobs)
            summaries = meta.filter(pc.equal(meta["kind"], SUMMARY))["counts"]
            self._count(meta, split_counts(summaries.to_pylist()))
            yield blobs, meta
        finally:
            blobs.unpersist()

    def _map(self, splits: list[Split]) -> DataFrame:
        if self.frame is not None:
            frame, order_column = self.frame
            return FrameReader(self.pipeline, order_column, self.append_time_ms).blobs(frame)
        units = group_splits(splits, self.pipeline.task.split_bytes)
        cores = self.spark.sparkContext.defaultParallelism
        bins = plan.pack([unit.size_bytes for unit in units], TASKS_PER_CORE * cores)
        return stages.map_units(self.spark, units, bins, self.pipeline, self.append_time_ms)

    def _count(self, meta: pa.Table, splits: dict[int, SplitCount]) -> None:
        kinds = meta["kind"].to_numpy()
        counts = meta["records"].to_numpy()
        self.splits = splits
        self.report.input_rows = sum(split.rows for split in splits.values())
        self.report.records = int(counts[(kinds == RECORDS) | (kinds == BATCHES)].sum())
        self.report.quarantined = int(counts[kinds == REJECTS].sum())
        if self.report.input_rows != self.report.records + self.report.quarantined:
            raise AssertionError(f"rows do not add up: {self.report}")

    def _check_quarantine(self) -> None:
        limit, rows = self.pipeline.max_quarantine_ratio, self.report.input_rows
        if self.report.quarantined > limit * rows:
            raise QuarantineLimit(
                f"{self.report.quarantined} of {rows} rows were rejected, more than "
                f"max_quarantine_ratio = {limit} allows; nothing was committed"
            )

    def _write_segments(self, blobs: DataFrame, meta: pa.Table) -> list[SegmentRow]:
        kinds = meta["kind"].to_numpy()
        chosen = (kinds == RECORDS) | (kinds == BATCHES)
        known = plan.Blobs.of(meta.filter(pa.array(chosen)))
        if not len(known):
            return []
        with self.report.step("plan", self.progress):
            cuts = plan.cut_partitions(known, self.pipeline.task.piece_bytes)
            routes = plan.assign(known, cuts)
            counted = stages.count_straddlers(blobs, known, plan.straddlers(routes), cuts)
            counts = plan.count_pieces(known, routes, counted)
            bases = plan.base_offsets(cuts, counts, self._ends())
        pieces = {
            number: (cut, Piece(self.topic, cut.partition, self.attempt_id, base, self.started_ms))
            for number, (cut, base) in enumerate(zip(cuts, bases, strict=True))
        }
        with self.report.step("write segments", self.progress):
            route = self._route(known, routes, len(cuts))
            kept = blobs.where(blobs["kind"].isin(RECORDS, BATCHES))
            return stages.write_pieces(
                self.spark, kept, route, pieces, self.pipeline, self.append_time_ms
            )

    def _ends(self) -> dict[int, int]:
        return {view.partition: view.end_offset for view in self._views()}

    def _views(self) -> list:
        known = {row.topic for row in self.snapshot.topics()}
        return self.snapshot.partitions(self.topic) if self.topic in known else []

    def _route(self, known: plan.Blobs, routes: list[tuple[int, int]], pieces: int) -> pa.Table:
        sizes = [0] * pieces
        for blob, piece in routes:
            sizes[piece] += int(known.size_bytes[blob])
        cores = self.spark.sparkContext.defaultParallelism
        bins = plan.pack(sizes, TASKS_PER_CORE * cores)
        columns = {
            "partition": pa.array([int(known.partition[blob]) for blob, _ in routes], pa.int32()),
            "unit": pa.array([known.begin[blob].unit for blob, _ in routes], pa.int64()),
            "sequence": pa.array([known.begin[blob].sequence for blob, _ in routes], pa.int32()),
            "piece": pa.array([piece for _, piece in routes], pa.int32()),
            "task": pa.array([bins[piece] for _, piece in routes], pa.int32()),
        }
        return pa.table(columns)

    def _write_quarantine(self, blobs: DataFrame, splits: list[Split]) -> None:
        if not self.report.quarantined:
            return
        root, storage = self.pipeline.root, self.pipeline.storage
        places = {0: Origin(NAME, -1)} if self.frame else origins(splits, self.splits)
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
        known = self._known(self.inputs.files)
        if len(choose(self.inputs.files, known, "skip").files) < len(self.inputs.files):
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
        moved = move.run(self.spark, segments)
        self._manifest(moved)
        return moved

    def _known(self, files: list[SourceFile]) -> dict[str, list[Version]]:
        return known_sources(self.table.sources(self.snapshot, self.topic), files)

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
        rows: Counter[str] = Counter()
        for split in plan_splits(self.inputs.files, self.pipeline):
            rows[split.file.path] += self.splits[split.number].rows
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
            for file in self.inputs.files
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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
