"""A part of a broker's log becomes a segment: its record batches are copied, checked, settled.

Markers and aborted transactions leave. A log is read some MiB at a time; of each batch that stays,
memory holds only a table row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData
from seglake.format.batch import TRANSACTIONAL, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import with_record_times
from seglake.format.encode import EncodedBatches
from seglake.format.filter import copied
from seglake.kafka.folder import PartitionFolder
from seglake.kafka.markers import headers_of, settled
from seglake.kafka.survey import SegmentPart
from seglake.kafka.transactions import Transactions, are_aborted
from seglake.log.chunk import Chunk
from seglake.log.fetch import LogFetch
from seglake.log.piece import Piece
from seglake.log.rewrite.segments import AHEAD_BYTES, DECODE_BYTES
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.writer import NewSegment, write_segment
from seglake.store import Store


class PartTask(NamedTuple):
    """A part of a log, and the segment that it becomes."""

    folder: PartitionFolder
    part: SegmentPart
    aborted: Transactions
    new: NewSegment

    @property
    def log_bytes(self) -> int:
        """Bytes of log."""
        return self.part.log_bytes


def write_part(store: Store, task: PartTask) -> SegmentRow:
    """Write the segment that a part of a log becomes; returns its row.

    Raises CorruptData, with file and position, UsageError and StoreError.
    """
    with located(task.folder):
        return write_segment(store, task.new, batches_of(task))


@contextmanager
def located(folder: PartitionFolder) -> Iterator[None]:
    """In the block, damage is named with the path of the folder."""
    try:
        yield
    except CorruptData as damage:
        raise CorruptData(
            damage.what, file=folder.place(damage.file), position=damage.position
        ) from damage


def batches_of(task: PartTask) -> Iterator[EncodedBatches]:
    """The batches that come in, checked. Raises CorruptData and StoreError."""
    folder, (log, begin, stop, base, end) = task.folder, task.part
    if begin == stop:
        return
    segment = LogSegment(folder.topic, folder.partition, log.key, "", base, end, log.size, 0)
    piece = Piece.of(segment, LogRanges.one(begin, stop, base, end))
    for chunk in LogFetch(folder.store).chunks([piece], ahead_bytes=AHEAD_BYTES):
        rows = _staying(chunk, task.aborted)
        yield from chunk.in_parts(rows, DECODE_BYTES, partial(_settled, chunk.data))


def _staying(chunk: Chunk, aborted: Transactions) -> BatchTable:
    """The batches without markers and without aborted transactions."""
    table = chunk.record_batches
    of_transactions = table["attributes"] & TRANSACTIONAL != 0
    if not of_transactions.any():
        return table
    first, last = table["base_offset"][0], table["last_offset"][-1]
    near = aborted[(aborted["last"] >= first) & (aborted["first"] <= last)]
    some = table[of_transactions]
    producers = headers_of(chunk.data, some)["producer_id"].astype("i8")
    goes = of_transactions.copy()
    goes[of_transactions] = are_aborted(producers, some["base_offset"], near)
    staying: BatchTable = table[~goes]
    return staying


def _settled(data: Any, part: BatchTable, payload: Payload) -> EncodedBatches:
    return settled(copied(data, with_record_times(part, payload)))
