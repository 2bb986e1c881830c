"""Sorted blobs are merged into one sorted stream, in memory bounded by how far the blobs overlap.

Blobs come in the order of their first records. So a record is final if it stands before the first
record of the next blob. Records are collected until there are enough, then the final records are
sorted and yielded together.
"""

from collections.abc import Iterator

from seglake.write.spool.merge_order import PlacedRecords, join_sorted, require_unique
from seglake.write.spool.sorted_records import SortedRecords


def merge(
    blobs: Iterator[PlacedRecords], buffer_bytes: int, order_column: str | None = None
) -> Iterator[SortedRecords]:
    """The records of all blobs in total order, about `buffer_bytes` at a time.

    `blobs` must come in the order of their places. Memory: `buffer_bytes`, and twice the
    blobs that overlap one place. With `order_column` two records with the same sort key and
    tie-breaker are an InputError that names the column; such records are always yielded together.
    """
    for records in _merge(blobs, buffer_bytes):
        if order_column is not None:
            require_unique(records, order_column)
        yield records


def _merge(blobs: Iterator[PlacedRecords], buffer_bytes: int) -> Iterator[SortedRecords]:
    pending: list[PlacedRecords] = []
    pending_bytes, enough = 0, buffer_bytes
    for blob in blobs:
        if pending_bytes >= enough:
            cuts = [part.count_before(blob.place) for part in pending]
            if any(cuts):
                final = zip(pending, cuts, strict=True)
                yield join_sorted([part.part(0, cut) for part, cut in final])
            pending = _rest(pending, cuts)
            pending_bytes = sum(part.records.size_bytes for part in pending)
            enough = pending_bytes + buffer_bytes  # so overlapping blobs are not cut each time
        pending.append(blob)
        pending_bytes += blob.records.size_bytes
    if pending:
        yield join_sorted(pending)


def _rest(blobs: list[PlacedRecords], cuts: list[int]) -> list[PlacedRecords]:
    """The records at and behind the cuts."""
    pairs = zip(blobs, cuts, strict=True)
    return [blob.part(cut, len(blob.records)) for blob, cut in pairs if cut < len(blob.records)]
