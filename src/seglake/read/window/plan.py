"""Plan which bytes of which segments a read needs. A caller can inspect a plan before executing it.

Planning reads only zone maps, and reads nothing for a segment whose records are all in the window.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from seglake.format.records import Int64s
from seglake.limits import REQUESTS
from seglake.log.chunk import Fetch
from seglake.log.execute import MEMORY_BYTES, ReadStats, execute
from seglake.log.piece import Piece, Window
from seglake.log.segment import LogSegment
from seglake.log.segment_lookup import PartitionReader
from seglake.log.threads import ahead
from seglake.log.zones.bounds import Bounds
from seglake.read.window.reader import WindowReader
from seglake.terminal.tables import Column, ShowsTable, Table, number, size
from seglake.terminal.wording import counted, short_bytes

_SHOWN = 20  # segments in a table


_COLUMNS = [
    Column("segment", "segment"),
    number("ranges", "ranges"),
    size("bytes", "bytes"),
    size("of_bytes", "of"),
    number("records_at_most", "records at most"),
]


def pieces_of(
    reads: Sequence[tuple[PartitionReader, Window]], windows: Int64s | None = None
) -> Iterator[Piece]:
    """Return the pieces of a read of some log partitions, one after another, in offset order.

    `windows` (in the form of `Bounds`) leaves out blocks that meet none of them. Zone maps on an
    object store are read concurrently.
    """
    calls = _calls(reads, windows)
    if any(partition.store.remote for partition, _ in reads):
        pieces = ahead(((1, call) for call in calls), REQUESTS)
    else:
        pieces = (call() for call in calls)
    return (piece for piece in pieces if len(piece.ranges.starts))


def _calls(
    reads: Iterable[tuple[PartitionReader, Window]], windows: Int64s | None
) -> Iterator[Callable[[], Piece]]:
    """Yield a call for each piece. The piece that a call returns may be empty."""
    bounds = Bounds.of(Window(), windows)
    for partition, asked in reads:
        view = partition.view
        window = asked.above(view.log_start_offset)
        if window != bounds.window:  # nearly always, partitions have the same window
            bounds = Bounds.of(window, windows)
        bases, ends, lows, highs = view.extents
        numbers, whole = bounds.meet(lows, highs, bases, ends)
        counts = view.record_counts[numbers]
        for index, all_wanted, records in zip(
            numbers.tolist(), whole.tolist(), counts.tolist(), strict=True
        ):
            segment = partition.segment(index)
            if all_wanted and records:
                yield partial(Piece, segment, window, segment.log, records)
            elif records:  # a segment without records only covers a gap
                yield partial(_blocks_within, partition, segment, bounds, records)


def _blocks_within(
    partition: PartitionReader, segment: LogSegment, bounds: Bounds, records: int
) -> Piece:
    ranges, offsets = partition.zones(segment).within(bounds)
    return Piece(segment, bounds.window, ranges, min(offsets, records))


@dataclass(frozen=True, repr=False)
class Plan(ShowsTable):
    """A read of one topic in one version of the lake that is not executed yet. Can be pickled."""

    version: int
    pieces: tuple[Piece, ...]
    schema: pa.Schema = field(repr=False)
    fetch: Fetch = field(repr=False)

    def _table(self) -> Table:
        spans = [(piece, *piece.spans(self.fetch.gap_bytes)) for piece in self.pieces[:_SHOWN]]
        rows = [
            (piece.segment.log_key, len(starts), int((ends - starts).sum()),
             piece.segment.log_bytes, piece.records_at_most)
            for piece, starts, ends in spans
        ]  # fmt: skip
        topics = sorted({piece.segment.topic for piece in self.pieces})
        title = (
            f"A read of {', '.join(topics) or 'nothing'} in version {self.version}: "
            f"{short_bytes(self.size_bytes)} in {counted(self.ranges, 'range')} of "
            f"{counted(len(self.pieces), 'segment')}, at most "
            f"{counted(self.records_at_most, 'record')}"
        )
        return Table(title, _COLUMNS, rows, len(self.pieces))

    @property
    def spans(self) -> list[tuple[Int64s, Int64s]]:
        """Return, for each piece, the starts and ends of the byte ranges to request."""
        return [piece.spans(self.fetch.gap_bytes) for piece in self.pieces]

    @property
    def size_bytes(self) -> int:
        """Return the most bytes that `execute` fetches. Cached batches are not fetched."""
        return sum(int((ends - starts).sum()) for starts, ends in self.spans)

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the number of records."""
        return sum(piece.records_at_most for piece in self.pieces)

    @property
    def ranges(self) -> int:
        """Return how many byte ranges `execute` fetches, if no range is larger than a fetch."""
        return sum(len(starts) for starts, _ in self.spans)

    def execute(
        self, *, memory_bytes: int = MEMORY_BYTES, stats: ReadStats | None = None
    ) -> WindowReader:
        """Return the records, one partition after another, in offset order.

        Args:
            memory_bytes: About how much memory the read uses.
            stats: Counts requests, bytes and records of all reads together.
        """
        batches = partial(
            execute, self.fetch, self.pieces, self.schema, memory_bytes=memory_bytes, stats=stats
        )
        return WindowReader(self.schema, batches, self._table)
