"""Read the rows of a version of the catalog.

A snapshot has the segments of a version in memory. Other rows are read from data files when they
are needed, and only from files whose statistics or filters do not rule such rows out.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.attempts import find_manifest
from seglake.catalog.delta.data_files import DataFile, hashes, may_have, read_at_once, read_files
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
from seglake.catalog.topic_change import divide_files, segment_removal
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, MissingObject
from seglake.store import Store

_COMMITS: tuple[Kind, ...] = ("run", "maintenance")  # each commit adds a row of one of these kinds
_RECENT_RUNS = 4  # runs whose rows are cached
_LISTED_ROWS = 10_000  # segment rows, as Python objects, in one list of `segment_lists`


class CatalogRows:
    """The rows of the catalog in a store, in any version. Not thread-safe.

    Each method raises MissingObject if a vacuum deleted a data file of the version, CorruptData and
    StoreError.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent_runs: dict[tuple[int, str, str, str], list[RunRow]] = {}

    def all(self, snapshot: Snapshot, kind: Kind, topic: str) -> pa.Table:
        """Return all rows of one kind and topic in a version, without the partition columns."""
        mine = [file for file in snapshot.files if file.topic == topic]
        tables = snapshot_files.tables(self._store, kind, mine)
        return pa.concat_tables(tables[topic]) if tables else FILE_SCHEMAS[kind].empty_table()

    def segments(self, snapshot: Snapshot, topic: str) -> list[SegmentRow]:
        """Return the segment rows of a topic, sorted by partition and base offset."""
        rows = rows_of(SegmentRow, topic, self.all(snapshot, "segment", topic))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segments_at(
        self, snapshot: Snapshot, topic: str, places: Sequence[tuple[int, int]]
    ) -> list[SegmentRow]:
        """Return the rows of the segments at `places`, sorted by partition and base offset.

        `places` are pairs of partition and base offset. Only data files that may have one of the
        rows are read. Raises UsageError if a segment does not exist.
        """
        if not places:
            return []
        mine = [file for file in snapshot.files if file.topic == topic]
        removal = segment_removal(snapshot, topic, places)
        parts = divide_files(self._store, layout.LOG_TABLE, mine, removal)
        rows = rows_of(SegmentRow, topic, pa.concat_tables([part.goes for part in parts]))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segment_lists(
        self, snapshot: Snapshot, topics: Collection[str]
    ) -> Iterator[list[SegmentRow]]:
        """Yield the segment rows of `topics`, unsorted, in lists of at most 10,000 rows."""
        files = (f for f in sorted(snapshot.files) if f.kind == "segment" and f.topic in topics)
        rows = itertools.chain.from_iterable(map(self._segment_rows, files))
        while some := list(itertools.islice(rows, _LISTED_ROWS)):
            yield some

    def _segment_rows(self, file: DataFile) -> Iterator[SegmentRow]:
        (table,) = read_files(self._store, layout.LOG_TABLE, [file])
        for some in table.to_batches(max_chunksize=_LISTED_ROWS):
            yield from rows_of(SegmentRow, file.topic, pa.Table.from_batches([some]))

    def runs(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Return the committed runs of a topic."""
        return committed_runs(self.run_history(snapshot, topic))

    def run_history(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Return every run row of a topic, including rows of runs that were undone or replaced."""
        return rows_of(RunRow, topic, self.all(snapshot, "run", topic))

    def run(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> RunRow | None:
        """Return the committed run with this pipeline and run id, or None."""
        return next(iter(committed_runs(self.run_rows(snapshot, topic, pipeline, run_id))), None)

    def run_rows(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> list[RunRow]:
        """Return every row of a run. Only data files that may have such a row are read."""
        # A commit needs the rows of its base again, so cache the last results.
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
        """Return the rows of a kind and topic whose text `column` has one of `values`.

        Files whose statistics or name filters rule the values out are not read.
        """
        asked = sorted(values)
        wanted, hashed = pa.array(asked, pa.string()), hashes(asked)
        mine = (file for file in snapshot.files if (file.kind, file.topic) == (kind, topic))
        likely = sorted(file for file in mine if file.may_name(column, asked))

        def chosen(file: DataFile) -> list[pa.Table]:
            if not may_have(self._store, layout.LOG_TABLE, file, column, hashed):
                return []
            (rows,) = read_files(self._store, layout.LOG_TABLE, [file])
            return [rows.filter(pc.is_in(rows[column], wanted))]

        parts = itertools.chain.from_iterable(read_at_once(self._store, chosen, likely))
        return pa.concat_tables([FILE_SCHEMAS[kind].empty_table(), *parts])

    def has_commit(
        self, snapshot: Snapshot, topic: str, attempt_id: str, finished_ms: Collection[int] = ()
    ) -> bool:
        """Return whether a version has the commit of an attempt.

        `finished_ms` are the possible values of `finished_at_ms` in the attempt's row. If there are
        any, only data files that may have such a row are read.
        """
        times = np.array(sorted(finished_ms), np.int64)
        stated = {"finished_at_ms": times} if finished_ms else {}
        files = (file for file in snapshot.files if file.topic == topic and file.kind in _COMMITS)
        return any(
            pc.any(pc.equal(rows["attempt_id"], pa.scalar(attempt_id))).as_py()
            for file in files
            if file.may_hold(stated)
            for rows in read_files(self._store, layout.LOG_TABLE, [file])
        )

    def maintenance(self, snapshot: Snapshot, topic: str) -> list[MaintenanceRow]:
        """Return the row of every commit of maintenance to a topic."""
        return rows_of(MaintenanceRow, topic, self.all(snapshot, "maintenance", topic))

    def sources_at(self, snapshot: Snapshot, topic: str, paths: Collection[str]) -> pa.Table:
        """Return the source rows of `paths`. Only data files that may have such a row are read."""
        return self._named(snapshot, "source", topic, "path", paths)

    def source_paths(self, snapshot: Snapshot, run: RunRow) -> set[str]:
        """Return the paths of the input files that a run ingested.

        The paths are read from the run's manifest. If it is unusable, all source rows are read.
        """
        attempt_id = run.attempt_id
        try:
            rows: Sequence[Row] = find_manifest(self._store, attempt_id, run.finished_at_ms).rows
        except (MissingObject, CorruptData):
            rows = rows_of(SourceRow, run.topic, self.all(snapshot, "source", run.topic))
        own = (row for row in rows if isinstance(row, SourceRow) and row.attempt_id == attempt_id)
        return {row.path for row in own}
