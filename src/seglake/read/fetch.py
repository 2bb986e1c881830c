"""From byte ranges of a log to checked, decoded records, a few MiB at a time.

Every batch that is fetched has its CRC checked, also one whose header says that nothing in it is
wanted. Every `CorruptData` names the log and the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from seglake.read.segments import LogSegment
from seglake.store import Store

FETCH_BYTES = 4 * 2**20
_BATCH_BYTES = 64 * 1024  # of records in a batch, as long as none was seen


class Chunk(NamedTuple):
    """Whole record batches out of one or several ranges of a log.

    `table` has their positions in `data`. Range i begins there at `starts[i]`, and in the file at
    `starts[i] + shifts[i]`.
    """

    segment: LogSegment
    data: Any
    table: Table
    starts: Int64s
    shifts: Int64s

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
        return position + int(self.shifts[np.searchsorted(self.starts, position, "right") - 1])

    def _in_file(self, damage: CorruptData) -> CorruptData:
        position = self.file_position(damage.position)
        return CorruptData(damage.what, file=self.segment.log_key, position=position)

    def checked(self, *, whole: bool) -> Chunk:
        """With its table, after every check; without `whole` the last batch may be cut short."""
        try:
            table = scan_batches(self.data, partial=not whole)
            _check_offsets(table, self.segment)
            check_crcs(self.data, table)
        except CorruptData as damage:
            raise self._in_file(damage) from damage
        return self._replace(table=table)


def read_chunk(
    store: Store,
    segment: LogSegment,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    whole: bool = True,
) -> Chunk:
    """The batches in the ascending byte ranges [start, end) of a segment's log.

    Ranges must begin at a batch, and end with one unless `whole` is false. Raises CorruptData.
    """
    if len(starts) == 1:
        data = store.read(segment.log_key, starts[0], ends[0])
    else:
        data = b"".join(store.read_ranges(segment.log_key, starts, ends))
    sizes = np.subtract(ends, starts, dtype=np.int64)
    at = np.cumsum(sizes) - sizes
    return Chunk(segment, data, _NO_TABLE, at, np.asarray(starts, np.int64) - at).checked(
        whole=whole
    )


def read_chunks(
    store: Store,
    segment: LogSegment,
    starts: Int64s,
    ends: Int64s,
    *,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Chunk]:
    """The batches in ascending ranges of whole batches, about `fetch_bytes` at a time.

    Small ranges share a chunk; a range larger than `fetch_bytes` is read in several.
    """
    first = 0
    totals = np.cumsum(ends - starts)
    while first < len(starts):
        before = totals[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(totals, before + fetch_bytes, "right")))
        if stop == first + 1:
            yield from _stream(store, segment, int(starts[first]), int(ends[first]), fetch_bytes)
        else:
            yield read_chunk(store, segment, starts[first:stop].tolist(), ends[first:stop].tolist())
        first = stop


def _stream(
    store: Store, segment: LogSegment, start: int, end: int, fetch_bytes: int
) -> Iterator[Chunk]:
    size = fetch_bytes
    while start < end:
        stop = min(start + size, end)
        chunk = read_chunk(store, segment, [start], [stop], whole=stop == end)
        if len(chunk.table):
            last = chunk.table[-1]
            start, size = start + int(last["position"] + last["size"]), fetch_bytes
            yield chunk
        elif size > MAX_BATCH_BYTES:
            raise CorruptData("a record batch has no end", file=segment.log_key, position=start)
        else:
            size *= 4


def _check_offsets(table: Table, segment: LogSegment) -> None:
    # base offsets are outside the CRC
    bases, lasts = table["base_offset"], table["last_offset"]
    bad = np.flatnonzero((bases < segment.base_offset) | (lasts >= segment.end_offset))
    if not len(bad):
        bad = np.flatnonzero(bases[1:] <= lasts[:-1]) + 1
    if len(bad):
        row = table[bad[0]]
        raise CorruptData(
            f"offsets {row['base_offset']} to {row['last_offset']} cannot stand here in a segment "
            f"of offsets {segment.base_offset} to {segment.end_offset - 1}",
            position=int(row["position"]),
        )


_NO_TABLE: Table = scan_batches(b"")
