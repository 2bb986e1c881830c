"""Join tiny record batches into batches of up to `batch.size`, with the same records and offsets.

A batch of a few records has a header of 61 bytes, compresses badly, and costs every reader as much
as a large one. These batches are kept: batches of a producer with an id, because their sequence
numbers belong to whole batches; control batches; and batches of transactions or with a delete
horizon.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seglake.format import encode_kernels
from seglake.format.batch import CODEC_MASK, HEADER, LOG_APPEND_TIME, OVERHEAD, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import decode, with_extremes, with_record_times
from seglake.format.encode import EncodedBatches
from seglake.format.filter import copied, joined, reencoded, renumbered
from seglake.format.records import Flags, Int64s, fixed, read_only


def rebatch(data: Any, table: BatchTable, payload: Payload, batch_bytes: int) -> EncodedBatches:
    """Join adjacent batches of `table` while their records take at most `batch_bytes`.

    Positions in `table` count from the start of `data`. `payload` has all their records.
    `batch_bytes` includes the header. A batch without a small neighbour is copied byte for byte.
    Raises CorruptData with the position of the batch.
    """
    firsts = np.empty(len(table) + 1, np.int64)
    sizes = payload.ends - payload.starts
    count = encode_kernels.group_batches(
        fixed(table), fixed(_fit(data, table)), fixed(sizes), batch_bytes - OVERHEAD, firsts
    )
    if count == len(table):
        return copied(data, with_record_times(table, payload))
    return _regrouped(data, table, payload, firsts[: count + 1])


def _fit(data: Any, table: BatchTable) -> Flags:
    """Return which batches may be joined with others."""
    places = table["position"][:, None] + np.arange(OVERHEAD)
    producers = read_only(data)[places].view(HEADER).reshape(-1)["producer_id"]
    plain = table["attributes"] & ~(CODEC_MASK | LOG_APPEND_TIME) == 0
    fit: Flags = plain & (producers < 0) & (table["count"] > 0)
    return fit


def _regrouped(data: Any, table: BatchTable, payload: Payload, firsts: Int64s) -> EncodedBatches:
    decoded = decode(table, payload)
    result = table[firsts[:-1]]
    result["last_offset"] = table["last_offset"][firsts[1:] - 1]
    result["count"] = np.add.reduceat(table["count"], firsts[:-1])
    changed = np.diff(firsts) > 1
    all_of = np.arange(len(decoded.offsets))
    before = table[firsts[:-1]]
    parts = reencoded(data, before, result, changed, decoded, all_of)
    whole = joined(data, before, changed, parts)
    result["position"] = np.cumsum(result["size"], dtype=np.int64) - result["size"]
    numbers = np.repeat(np.arange(len(result)), np.diff(firsts))
    return EncodedBatches(whole, with_extremes(result, renumbered(decoded, all_of, numbers)))
