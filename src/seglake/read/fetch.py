"""From byte ranges of a log to checked, decoded records, a few MiB at a time.

Every batch that is fetched has its CRC checked, also one whose header says that nothing in it is
wanted. Every `CorruptData` names the log and the byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seglake.errors import CorruptData
from seglake.format.batch import (
    MAX_BATCH_BYTES,
    Decoded,
    Table,
    check_crcs,
    decode_batches,
    scan_batches,
)
from seglake.format.records import Int64s
from seglake.read.segments import LogSegment, Ranges
from seglake.store import Store

FETCH_BYTES = 4 * 2**20
_BATCH_BYTES = 64 * 1024  # of records in a batch, as long as none was seen


class Chunk(NamedTuple):
    """Whole record batches out of one or several ranges of a log.

    `table` has their positions in `data`. Range i begins there at `starts[i]`.
    """

    segment: LogSegment
    data: Any
    table: Table
    starts: Int64s
    ranges: Ranges

    def decode(self, rows: Table, *, control: bool = False) -> Decoded:
        """The records of some of its batches. Raises CorruptData."""
        try:
            return decode_batches(self.data, rows, check_crc=False, control=control)
        except CorruptData as damage:
            raise self._in_file(damage) from damage

    def decode_in_parts(
        self, rows: Table, limit_bytes: int, *, control: bool = False
    ) -> Iterator[tuple[Table, Decoded]]:
        """The records of `rows`, in parts that take about `limit_bytes` decompressed."""
        per_batch, first = _BATCH_BYTES, 0  # headers do not tell what a batch decompresses to
        ends = np.cumsum(rows["size"], dtype=np.int64)
        while first < len(rows):
            fitting = int(np.searchsorted(ends, ends[first] + limit_bytes))
            stop = max(first + 1, min(fitting, first + limit_bytes // per_batch))
            decoded = self.decode(rows[first:stop], control=control)
            yield rows[first:stop], decoded
            per_batch = max(1, len(decoded.records.values.data) // (stop - first))
            first = stop

    def file_position(self, position: int) -> int:
        """The byte of the file that stands at `position` of the data."""
        number = int(np.searchsorted(self.starts, position, "right")) - 1
        return position + int(self.ranges.starts[number] - self.starts[number])

    def _in_file(self, damage: CorruptData) -> CorruptData:
        position = self.file_position(damage.position)
        return CorruptData(damage.what, file=self.segment.log_key, position=position)

    def checked(self, *, whole: bool) -> Chunk:
        """With its table, after every check; without `whole` the last batch may be cut short."""
        try:
            table = _scan(self.data, partial=not whole)
            check_crcs(self.data, table)
            _check_offsets(table, self.starts, self.ranges)
        except CorruptData as damage:
            raise self._in_file(damage) from damage
        return self._replace(table=table)


def read_chunk(store: Store, segment: LogSegment, ranges: Ranges, *, whole: bool = True) -> Chunk:
    """The batches in some ranges of a segment's log.

    Unless `whole`, the last one may be cut short. Raises CorruptData.
    """
    starts, ends = ranges.starts.tolist(), ranges.ends.tolist()
    if len(starts) == 1:
        data = store.read(segment.log_key, starts[0], ends[0])
    else:
        data = b"".join(store.read_ranges(segment.log_key, starts, ends))
    sizes = ranges.ends - ranges.starts
    return Chunk(segment, data, _NO_TABLE, np.cumsum(sizes) - sizes, ranges).checked(whole=whole)


def read_chunks(
    store: Store, segment: LogSegment, ranges: Ranges, *, fetch_bytes: int = FETCH_BYTES
) -> Iterator[Chunk]:
    """The batches in some ranges of a segment's log, about `fetch_bytes` at a time.

    Small ranges share a chunk; a range larger than `fetch_bytes` is read in several.
    """
    first = 0
    totals = np.cumsum(ranges.ends - ranges.starts)
    while first < len(totals):
        before = totals[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(totals, before + fetch_bytes, "right")))
        some = ranges.take(slice(first, stop))
        if stop == first + 1:
            yield from _stream(store, segment, some, fetch_bytes)
        else:
            yield read_chunk(store, segment, some)
        first = stop


def _stream(store: Store, segment: LogSegment, one: Ranges, fetch_bytes: int) -> Iterator[Chunk]:
    start, end, first_offset, end_offset = (int(column[0]) for column in one)
    size = fetch_bytes
    while start < end:
        stop = min(start + size, end)
        part = Ranges.of(start, stop, first_offset, end_offset)
        chunk = read_chunk(store, segment, part, whole=stop == end)
        if len(chunk.table):
            last = chunk.table[-1]
            start, size = start + int(last["position"] + last["size"]), fetch_bytes
            first_offset = int(last["last_offset"]) + 1
            yield chunk
        elif size > MAX_BATCH_BYTES:
            raise CorruptData("a record batch has no end", file=segment.log_key, position=start)
        else:
            size *= 4


def _scan(data: Any, *, partial: bool) -> Table:
    try:
        return scan_batches(data, partial=partial)
    except CorruptData as damage:  # a wrong length of the batch before shows here, or in its CRC
        before = data[: damage.position]
        check_crcs(before, scan_batches(before))
        raise


def _check_offsets(table: Table, starts: Int64s, ranges: Ranges) -> None:
    # base offsets are outside the CRC
    bases, lasts = table["base_offset"], table["last_offset"]
    which = starts.searchsorted(table["position"], "right") - 1 if len(starts) > 1 else 0
    lows, highs = ranges.first_offsets[which], ranges.end_offsets[which]
    bad = np.flatnonzero((bases < lows) | (lasts >= highs))
    if not len(bad):
        bad = np.flatnonzero(bases[1:] <= lasts[:-1]) + 1
    if len(bad):
        row, which = table[bad[0]], starts.searchsorted(table["position"][bad[0]], "right") - 1
        raise CorruptData(
            f"offsets {row['base_offset']} to {row['last_offset']} cannot stand here, among those "
            f"from {ranges.first_offsets[which]} to {ranges.end_offsets[which] - 1}",
            position=int(row["position"]),
        )


_NO_TABLE: Table = scan_batches(b"")
