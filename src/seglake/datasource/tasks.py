"""Plan and run Spark's tasks, which each read about equally many bytes of segments.

A Python task costs Spark tens of milliseconds, so small segments share a task, and several tasks
read a large one, which is cut at offsets estimated from its size and its offset range.
Each task then looks up the blocks of its offsets in the zone map. So planning makes no request per
segment. A block at a cut is read by both tasks, and each yields its own records.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seglake.catalog.version.snapshot import PartitionView
from seglake.datasource.options import Options
from seglake.errors import MissingObject, UnknownTopic, VersionExpired
from seglake.format.records import Int64s
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.format.value_format import ValueFormat
from seglake.limits import INT64_MAX
from seglake.log.execute import execute, schema_of
from seglake.log.reads import PartitionReader, SharedReads
from seglake.log.segment import Piece, Window
from seglake.log.zone_maps import ZoneMapCache
from seglake.read.lake import Lake
from seglake.read.origin import MissingLogs
from seglake.read.window.plan import pieces_of
from seglake.store import Store

MOST_BYTES, LEAST_BYTES = 64 * 2**20, 8 * 2**20  # bytes of logs in a task by default
_TASKS = 8  # for a read of less than this many times MOST_BYTES
_CACHE_BYTES = 32 * 2**20  # half of it for zone maps
_MOST_EMPTY = 16  # at most this many times the parts that the records need

_log = logging.getLogger(__name__)


class ReadPart(NamedTuple):
    """A piece that a task reads: completely, or if `cut`, only the offsets in its window."""

    piece: Piece
    size_bytes: int
    cut: bool


class ReadTask(NamedTuple):
    """Parts that one task reads, in order. Their topics all have one value format."""

    parts: tuple[ReadPart, ...]
    value_format: ValueFormat


def divide_pieces(
    pieces: Iterable[Piece], options: Options, value_format: Callable[[str], ValueFormat]
) -> list[ReadTask]:
    """Return tasks that read the pieces, in order. `value_format` maps a topic to its format."""
    filled = [piece for piece in pieces if piece.size_bytes]
    total = sum(piece.size_bytes for piece in filled)
    limit = options.bytes_per_partition
    if limit is None:
        # Add an eighth, or segments of about the same size would be cut for a few bytes.
        limit = min(MOST_BYTES, max(LEAST_BYTES, 9 * total // (8 * _TASKS)))
    if options.min_partitions is not None:
        limit = max(1, min(limit, total // options.min_partitions))
    most = options.max_records_per_partition or INT64_MAX
    parts = (part for piece in filled for part in _cut(piece, limit, most))
    alike = groupby(parts, key=lambda part: value_format(part.piece.segment.topic))
    return [ReadTask(some, name) for name, own in alike for some in _packed(own, limit, most)]


def _packed(
    parts: Iterable[ReadPart], limit_bytes: int, most_records: int
) -> Iterator[tuple[ReadPart, ...]]:
    together: list[ReadPart] = []
    size = records = 0
    for part in parts:
        size, records = size + part.size_bytes, records + part.piece.records_at_most
        if together and (size > limit_bytes or records > most_records):
            yield tuple(together)
            together, size, records = [], part.size_bytes, part.piece.records_at_most
        together.append(part)
    if together:
        yield tuple(together)


def _cut(piece: Piece, limit_bytes: int, most_records: int) -> Iterator[ReadPart]:
    count = -(-piece.size_bytes // limit_bytes)
    if count == 1 and piece.records_at_most <= most_records:
        yield ReadPart(piece, piece.size_bytes, cut=False)
        return
    window, segment = piece.window, piece.segment
    low = max(window.start_offset, segment.base_offset)
    high = min(window.end_offset, segment.end_offset)
    edges = np.clip(_offsets_near(piece, count), low, high)
    if piece.records_at_most > most_records:
        # If few offsets have a record, parts of `most_records` offsets would be far too many.
        sparse = (high - low) // (_MOST_EMPTY * piece.records_at_most)
        edges = np.append(edges, np.arange(low, high, most_records * max(1, sparse)))
    edges = np.unique(np.append(edges, [low, high]))
    for start, end in pairwise(edges.tolist()):
        part = piece._replace(
            window=window._replace(start_offset=start, end_offset=end),
            records_at_most=min(piece.records_at_most, end - start),
        )
        yield ReadPart(part, piece.size_bytes // (len(edges) - 1), cut=True)


def _offsets_near(piece: Piece, count: int) -> Int64s:
    """Return the offsets that divide the piece into `count` parts, if all records had one size."""
    sizes = piece.ends - piece.starts
    before = np.cumsum(sizes) - sizes
    cuts = np.arange(1, count) * piece.size_bytes // count
    row = np.searchsorted(before, cuts, "right") - 1
    positions = piece.starts[row] + cuts - before[row]
    segment = piece.segment
    share = positions / segment.log_bytes
    offsets: Int64s = (share * (segment.end_offset - segment.base_offset)).astype(np.int64)
    return offsets + segment.base_offset


def read_records(
    task: ReadTask,
    store: Store,
    schema: pa.Schema,
    *,
    fail_on_data_loss: bool,
    keys: SoughtKeys = EVERY_KEY,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task with the columns of `schema`, a few MiB at a time.

    With `keys`, yield only records that have one of the keys.

    If a vacuum removed a log, its records are read from the newest version. Raises CorruptData,
    StoreError, VersionExpired if the newest version lacks some of the records, and MissingObject
    for a lost log. Without `fail_on_data_loss`, lost records are skipped with a warning.
    """
    names = schema.names if "offset" in schema.names else [*schema.names, "offset"]
    reader = _TaskReader(store, schema_of(names), fail_on_data_loss, keys)
    columns = list(range(len(schema)))
    try:
        for part in task.parts:
            for batch in reader.records(part):
                yield batch if batch.num_columns == len(columns) else batch.select(columns)
    finally:
        reader.close()


class _TaskReader:
    """Reads the parts of a task, from the newest version if a log was deleted."""

    def __init__(
        self, store: Store, schema: pa.Schema, fail_on_data_loss: bool, keys: SoughtKeys = EVERY_KEY
    ) -> None:
        self._store, self._schema = store, schema
        self._fail, self._keys = fail_on_data_loss, keys
        self._reads = SharedReads(store, _CACHE_BYTES, MissingLogs(store))
        self._newest: Lake | None = None  # opened when it is first needed

    def close(self) -> None:
        """Close all files, because a waiting worker does not check for deleted logs."""
        self._reads.forget()

    def records(self, part: ReadPart) -> Iterator[pa.RecordBatch]:
        """Yield each record of a part once."""
        next_offset = 0
        try:
            piece = _narrowed(part.piece, self._reads.zone_maps) if part.cut else part.piece
            fetch, schema = self._reads.fetch, self._schema
            for batch in execute(fetch, [piece], schema, threads=1, keys=self._keys):
                next_offset = batch["offset"][-1].as_py() + 1
                yield batch
                self._reads.deletions.check_if_due()
        except MissingObject as error:
            if self._fail:
                raise
            _log.warning("skipping, because failOnDataLoss is false: %s", error)
        except VersionExpired as gone:
            for piece in self._newer_pieces(part.piece, next_offset, gone):
                yield from self.records(ReadPart(piece, piece.size_bytes, cut=False))

    # A merge or a compaction writes segments again. When the planned version is no longer retained,
    # a vacuum deletes the old ones. Offsets are kept, so the newest version has the records at the
    # same offsets. Records that it does not have were superseded, erased, undone or expired, which
    # is a loss of data.

    def _newer_pieces(
        self, piece: Piece, next_offset: int, gone: VersionExpired
    ) -> Iterator[Piece]:
        """Return the pieces of the newest version with the rest of a piece, from `next_offset` on.

        Raises VersionExpired if records of the segment are lost and a loss is an error.
        """
        segment, window = piece.segment, piece.window
        rest = window._replace(
            start_offset=max(next_offset, window.start_offset, segment.base_offset),
            end_offset=min(window.end_offset, segment.end_offset),
        )
        reader = self._newest_reader(piece)
        left = 0 if reader is None else self._left(reader.view, piece, rest.start_offset)
        if self._fail and left != segment.record_count:
            raise VersionExpired(
                f"{segment.log_key} was deleted, and the newest version has {left} of its "
                f"{segment.record_count} records. Run the query again, or set failOnDataLoss to "
                f"false to skip the missing records"
            )
        _log.warning("%s. Reading its remaining records from the newest version", gone)
        return pieces_of([] if reader is None else [(reader, rest)])

    def _newest_reader(self, piece: Piece) -> PartitionReader | None:
        """Return the partition in the newest version, or None if it was deleted."""
        self._newest = Lake(self._store) if self._newest is None else self._newest.refresh()
        try:
            return self._newest.topic(piece.segment.topic).reader(piece.segment.partition)
        except UnknownTopic:
            return None

    def _left(self, view: PartitionView, piece: Piece, from_offset: int) -> int:
        """Count the records of a segment that still exist. Return 0 if a loss is not an error.

        Records that were deleted before the plan count too, if they are still in a log.
        """
        if not self._fail or self._newest is None:
            return 0
        segment, start = piece.segment, view.log_start_offset
        first = start if start > from_offset else segment.base_offset
        window = Window(start_offset=first, end_offset=segment.end_offset)
        whole = PartitionReader(replace(view, log_start_offset=0), self._newest.reads)
        left = pieces_of([(whole, window)])
        return sum(map(len, execute(whole.fetch, left, schema_of(["offset"]), threads=1)))


def _narrowed(piece: Piece, zone_maps: ZoneMapCache) -> Piece:
    """Narrow a piece to the index blocks that can hold the offsets of its window."""
    window, segment = piece.window, piece.segment
    first = zone_maps.open(segment).block_at(window.start_offset)
    last = zone_maps.open(segment).block_at(window.end_offset - 1)
    if first is None or last is None:
        return piece
    narrowed = piece._replace(
        starts=np.maximum(piece.starts, first.position), ends=np.minimum(piece.ends, last.end),
        first_offsets=np.maximum(piece.first_offsets, first.first_offset),
        end_offsets=np.minimum(piece.end_offsets, last.end_offset),
    )  # fmt: skip
    return narrowed.take(narrowed.starts < narrowed.ends)
