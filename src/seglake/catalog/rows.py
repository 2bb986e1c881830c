"""The rows of a version of the catalog: segments, runs, maintenance and sources.

A snapshot has the segments of a version in memory. Other rows are read from data files when they
are needed: only from those whose statistics or filters say that they may have such rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.attempts import find_manifest
from seglake.catalog.delta.data_files import DataFile, read_files
from seglake.catalog.schema import (
    FILE_SCHEMAS,
    Kind,
    MaintenanceRow,
    Row,
    RunRow,
    SegmentRow,
    SourceRow,
    committed_runs,
    rows_of,
)
from seglake.catalog.topic_change import divided, removed_segments
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.catalog.versions import CatalogVersions
from seglake.errors import CorruptData, MissingObject
from seglake.store import Store

COMMITS: tuple[Kind, ...] = ("run", "maintenance")  # each commit adds a row of one of these
_RECENT_RUNS = 4  # runs whose rows are kept
_LISTED_ROWS = 10_000  # segment rows, as Python objects, in one list of `segment_lists`


class CatalogRows(CatalogVersions):
    """The catalog's versions and their rows."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._recent_runs: dict[tuple[int, str, str, str], list[RunRow]] = {}

    def rows(self, snapshot: Snapshot, kind: Kind, topic: str) -> pa.Table:
        """All rows of one kind and topic in this version, without the columns kind and topic."""
        files = [file for file in snapshot.files if file.topic == topic]
        tables = snapshot_files.tables(self.store, kind, files)
        return pa.concat_tables(tables[topic]) if tables else FILE_SCHEMAS[kind].empty_table()

    def latest_rows(self, files: Collection[DataFile], kind: Kind, topic: str, n: int) -> pa.Table:
        """As `rows`, at least the `n` rows of a run or of maintenance that finished last.

        Of a version's files, those that have none of them are not read.
        """
        some = [file for file in files if file.topic == topic and file.kind == kind]
        tables = snapshot_files.tables(self.store, kind, snapshot_files.finished_last(some, n))
        return pa.concat_tables(tables[topic]) if tables else FILE_SCHEMAS[kind].empty_table()

    def segments(self, snapshot: Snapshot, topic: str) -> list[SegmentRow]:
        """Every segment row of a topic in the order of the log, with all its columns."""
        rows = rows_of(SegmentRow, topic, self.rows(snapshot, "segment", topic))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segments_at(
        self, snapshot: Snapshot, topic: str, places: Sequence[tuple[int, int]]
    ) -> list[SegmentRow]:
        """The rows of the segments at (partition, base offset), in the order of the log.

        Only data files that can have them are read. Raises UsageError if one does not exist.
        """
        if not places:
            return []
        mine = [file for file in snapshot.files if file.topic == topic]
        removal = removed_segments(snapshot, topic, places)
        parts = divided(self.store, layout.LOG_TABLE, mine, removal)
        rows = rows_of(SegmentRow, topic, pa.concat_tables([part.goes for part in parts]))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segment_lists(
        self, snapshot: Snapshot, topics: Collection[str]
    ) -> Iterator[list[SegmentRow]]:
        """The segment rows of some topics, in no order, in lists that fit into memory."""
        files = (f for f in sorted(snapshot.files) if f.kind == "segment" and f.topic in topics)
        rows = itertools.chain.from_iterable(map(self._segment_rows, files))
        while some := list(itertools.islice(rows, _LISTED_ROWS)):
            yield some

    def _segment_rows(self, file: DataFile) -> Iterator[SegmentRow]:
        (table,) = read_files(self.store, layout.LOG_TABLE, [file])
        for some in table.to_batches(max_chunksize=_LISTED_ROWS):
            yield from rows_of(SegmentRow, file.topic, pa.Table.from_batches([some]))

    def runs(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """The committed runs of a topic."""
        return committed_runs(self.run_history(snapshot, topic))

    def run_history(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Every run row of a topic, also of runs that were undone or replaced."""
        return rows_of(RunRow, topic, self.rows(snapshot, "run", topic))

    def run(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> RunRow | None:
        """The committed run with this key, if there is one."""
        return next(iter(committed_runs(self._run_rows(snapshot, topic, pipeline, run_id))), None)

    def next_sequence(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> int:
        """The sequence of the next row of the run with this key: 0 for a new run."""
        rows = self._run_rows(snapshot, topic, pipeline, run_id)
        return max((row.sequence + 1 for row in rows), default=0)

    def _run_rows(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> list[RunRow]:
        """Return every row of the run with this key. Reads only data files that can have one.

        The last result is cached, because a commit asks for the rows of its base again.
        """
        key = snapshot.version, topic, pipeline, run_id
        if key not in self._recent_runs:
            runs = self._named(snapshot, "run", topic, "run_id", [run_id])
            same = pc.equal(runs["pipeline"], pa.scalar(pipeline))
            others = list(self._recent_runs.items())[1 - _RECENT_RUNS :]
            self._recent_runs = dict([*others, (key, rows_of(RunRow, topic, runs.filter(same)))])
        return self._recent_runs[key]

    def _named(
        self, snapshot: Snapshot, kind: Kind, topic: str, column: str, values: Collection[str]
    ) -> pa.Table:
        mine = [file for file in snapshot.files if file.topic == topic]
        return snapshot_files.rows_with(self.store, kind, mine, column, values)

    def has(
        self,
        snapshot: Snapshot,
        topic: str,
        attempt_id: str,
        finished_ms: Collection[int] | None = None,
    ) -> bool:
        """Whether this version has the commit of an attempt.

        `finished_ms` has the times in its row, one of which that is: only data files that can have
        it are read. Without it all are.
        """
        times = None if finished_ms is None else np.array(sorted(finished_ms), np.int64)
        stated = {} if times is None else {"finished_at_ms": times}
        files = (file for file in snapshot.files if file.topic == topic and file.kind in COMMITS)
        value = pa.scalar(attempt_id)
        return any(
            pc.any(pc.equal(rows["attempt_id"], value)).as_py()
            for file in files
            if file.may_hold(stated)
            for rows in read_files(self.store, layout.LOG_TABLE, [file])
        )

    def maintenance(self, snapshot: Snapshot, topic: str) -> list[MaintenanceRow]:
        """Every commit of maintenance to a topic."""
        return rows_of(MaintenanceRow, topic, self.rows(snapshot, "maintenance", topic))

    def sources(self, snapshot: Snapshot, topic: str) -> pa.Table:
        """The input files of a topic, with the columns of `SourceRow` except the topic."""
        return self.rows(snapshot, "source", topic)

    def sources_at(self, snapshot: Snapshot, topic: str, paths: Collection[str]) -> pa.Table:
        """As `sources`, the rows of some paths. Only data files that can have one are read."""
        return self._named(snapshot, "source", topic, "path", paths)

    def source_paths(self, snapshot: Snapshot, run: RunRow) -> set[str]:
        """The input files that a run ingested.

        Its manifest names them; if that is gone or damaged, all source rows are read.
        """
        attempt_id = run.attempt_id
        try:
            rows: Sequence[Row] = find_manifest(self.store, attempt_id, run.finished_at_ms).rows
        except (MissingObject, CorruptData):
            rows = rows_of(SourceRow, run.topic, self.sources(snapshot, run.topic))
        own = (row for row in rows if isinstance(row, SourceRow) and row.attempt_id == attempt_id)
        return {row.path for row in own}
