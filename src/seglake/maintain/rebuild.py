"""A segment's index files made anew from its log, which is checked on the way.

The log is read once, a few MiB at a time; of each batch only its row in the table is kept.
"""

from __future__ import annotations

import numpy as np

from seglake.catalog.rows import SegmentRow
from seglake.catalog.segment_checks import LogCheck, check_size
from seglake.errors import CorruptData
from seglake.format.batch import TABLE, BatchTable
from seglake.format.decode import with_extremes
from seglake.format.index import IndexPolicy
from seglake.format.segment import Sealed, rebuild
from seglake.read.fetch.log_fetch import LogFetch
from seglake.read.fetch.log_segment import LogSegment
from seglake.store import Store

DECODE_BYTES = 16 * 2**20  # of decompressed records at once
_FACTS = (
    "record_count",
    "min_timestamp",
    "max_timestamp",
    "offset_of_max_timestamp",
    "max_lateness_ms",
)


def policy_of(row: SegmentRow) -> IndexPolicy:
    """The policy by which the segment is indexed."""
    return IndexPolicy(row.index_interval_kind, row.index_interval)


def rebuild_segment(store: Store, row: SegmentRow, policy: IndexPolicy) -> Sealed:
    """The index files by `policy`, from a log that is whole and is the one that `row` describes.

    Raises CorruptData, with file and position, where it is not, and StoreError.
    """
    table = describe_log(store, row)
    sealed = rebuild(row.base_offset, table, policy)
    for name in _FACTS:
        found, told = getattr(sealed, name), getattr(row, name)
        if found != told:
            raise CorruptData(f"{name} is {found}, the catalog says {told}", file=row.key("log"))
    return sealed


def describe_log(store: Store, row: SegmentRow) -> BatchTable:
    """The table of the log's batches, every record looked at. Raises as `rebuild_segment`."""
    key = row.key("log")
    check_size(row, "log", store.size(key))
    log = LogSegment(
        row.topic, row.partition, key, row.key("zonemap"),
        row.base_offset, row.end_offset, row.log_bytes, row.zonemap_bytes,
    )  # fmt: skip
    tables, check = [np.empty(0, TABLE)], LogCheck(row)
    for chunk in LogFetch(store).chunks_of(log, log.log):
        whole = int(chunk.table["size"].sum(dtype=np.int64))
        check.add(memoryview(chunk.data)[:whole], chunk.table)
        for rows, decoded in chunk.decode_in_parts(chunk.table, DECODE_BYTES):
            tables.append(with_extremes(rows, decoded))
    check.check()
    table = np.concatenate(tables)
    table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
    return table
