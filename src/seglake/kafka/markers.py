"""Transactions of producers in record batches: their markers, and batches taken out of them.

A producer has one transaction at a time. Its record batches carry its id and a bit; a *marker*, a
control batch of one record, ends it (`ControlRecordType`). Kafka lists the transactions that were
aborted in a segment's .txnindex (`AbortedTxn`), the segment that has the marker:

    version i16 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64

The first offset is that of the transaction's first record, the last offset that of its marker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format.batch import (
    ATTRIBUTES_AT,
    COUNT_AT,
    HEADER,
    OVERHEAD,
    PRODUCER_AT,
    TRANSACTIONAL,
    BatchTable,
)
from seglake.format.decode import decode_batches
from seglake.format.encode import EncodedBatches, write_crcs
from seglake.format.records import Int64s, read_only

ABORT, COMMIT = 0, 1

ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)

_KEY_BYTES = 4  # of a marker: version i16, type i16


def headers_of(data: Any, table: BatchTable) -> npt.NDArray[np.void]:
    """The headers of batches, whose positions count from the start of `data`."""
    places = table["position"][:, None] + np.arange(OVERHEAD)
    return read_only(data)[places].view(HEADER).reshape(-1)


def markers_in(data: Any, table: BatchTable) -> tuple[Int64s, Int64s]:
    """Row and type of each control record in the control batches of `table`.

    Types are Kafka's: `ABORT`, `COMMIT`, and others that end no transaction. Raises CorruptData
    with the position of the batch.
    """
    decoded = decode_batches(data, table, control=True)
    keys = decoded.records.keys
    short = np.flatnonzero(keys.lengths < _KEY_BYTES)
    if len(short):
        position = int(table["position"][decoded.batch[short[0]]])
        raise CorruptData("the key of a control record is too short", position=position)
    places = keys.starts[:, None] + np.array([2, 3])
    high, low = keys.data[places].astype(np.int64).T
    return decoded.batch.astype(np.int64), (high << 8) | low


def settled(batches: EncodedBatches) -> EncodedBatches:
    """The batches, those of transactions without producer, sequence and the transactional bit.

    So no reader waits for a marker. Their checksums are made anew; all other bytes stay.
    """
    rows = np.flatnonzero(batches.table["attributes"] & TRANSACTIONAL)
    if not len(rows):
        return batches
    data, table = batches.data.copy(), batches.table.copy()
    starts = table["position"][rows]
    data[starts + ATTRIBUTES_AT + 1] &= 0xFF - TRANSACTIONAL
    data[starts[:, None] + np.arange(PRODUCER_AT, COUNT_AT)] = 0xFF
    table["attributes"][rows] &= ~TRANSACTIONAL
    first = int(starts[0])
    write_crcs(data[first:], table[rows])
    return EncodedBatches(data, table)


def read_entries(data: Any) -> npt.NDArray[np.void]:
    """The entries of a .txnindex. Raises CorruptData for bytes that are none."""
    size = memoryview(data).cast("B").nbytes
    if size % ENTRY.itemsize:
        raise CorruptData(f"{size} bytes are no entries of {ENTRY.itemsize} bytes")
    entries = np.frombuffer(data, ENTRY)
    for row in np.flatnonzero(entries["version"] != 0)[:1].tolist():
        what = f"version {entries['version'][row]} of an aborted transaction is not known"
        raise CorruptData(what, position=row * ENTRY.itemsize)
    return entries
