"""A log partition as clients see it: where it begins and ends, its records, its times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from seglake.layout import SUFFIXES
from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.log.segment_lookup import PartitionReader
from seglake.serve.records.taking import Run

_RUN_BYTES = 800  # of a run and its segment, with the names of its files
_PARTITION_BYTES = 4096


class ServedPartition(Protocol):
    """What handlers ask. `start` is the log start offset.

    `remote`: some of the log is read from an object store, or from where it is attached, so that
    lookups wait. `held_bytes` is about what it keeps in memory. `limit` is the largest offset that
    a client may have: the end, or the end that a replay will have.
    """

    start: int
    remote: bool
    held_bytes: int

    @property
    def limit(self) -> int:
        """See above."""

    def end(self) -> int:
        """The high watermark: the end offset of what clients may read now."""

    def grows_in(self) -> float | None:
        """Seconds until the end may grow by itself; None if only a new version brings more."""

    def runs(self, offset: int) -> Iterator[Run]:
        """The runs of bytes that hold the records from an offset on."""

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record at a time (ms) or later."""

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """The first record with the largest timestamp."""

    def log_bytes(self) -> int:
        """The bytes of its logs that are stored."""


def is_remote(reader: PartitionReader) -> bool:
    """Whether reading any of a log may wait; the log decides, a local lake may attach others."""
    return reader.store.remote or bool(reader.view.segments.details["external"].any())


def held_bytes(reader: PartitionReader, runs: int) -> int:
    """About what a partition keeps in memory: its columns of segments, and the runs it has made."""
    segments = reader.view.segments
    columns = sum(column.nbytes for column in segments.columns)
    return _PARTITION_BYTES + columns + _RUN_BYTES * runs


class WholePartition:
    """A partition of a topic of the lake in one version, all of it."""

    def __init__(self, reader: PartitionReader) -> None:
        self._reader, self._view = reader, reader.view
        self.start, self._end = reader.view.log_start_offset, reader.view.end_offset
        self.remote, self.held_bytes = is_remote(reader), held_bytes(reader, len(self._view))

    @property
    def limit(self) -> int:
        """See `ServedPartition`."""
        return self._end

    def end(self) -> int:
        """See `ServedPartition`."""
        return self._end

    def grows_in(self) -> float | None:
        """See `ServedPartition`."""
        return None

    def runs(self, offset: int) -> Iterator[Run]:
        """See `ServedPartition`."""
        for index in range(max(0, self._view.index_of(offset)), len(self._view)):
            segment = self._reader.segment(index)
            if segment.log_bytes:
                base, end = segment.base_offset, segment.end_offset
                yield Run(segment, 0, segment.log_bytes, base, end)

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._reader.offset_for_time(timestamp)

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._reader.max_timestamp()

    def log_bytes(self) -> int:
        """See `ServedPartition`."""
        sizes = self._view.segments.details["sizes"][:, SUFFIXES.index("log")]
        return int(sizes.sum(dtype="int64"))
