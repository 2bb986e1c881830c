"""Remove records from record batches, like Kafka's `MemoryRecords.filterTo`.

A batch that loses nothing is copied byte for byte. A batch that loses some records is encoded
again. It keeps its offsets, codec (at its default level), producer, leader epoch and last offset,
so offset deltas have gaps and the record count is below `last offset delta + 1`. Its base timestamp
is the timestamp of the first kept record, or the delete horizon. A batch without records is left
out. If the end of a log would be lost without it, it is kept as a header of 61 bytes (`emptied`,
KAFKA-17076). Kafka keeps the largest timestamp of the removed records in such a header, and its own
DumpLogSegments then reports a missing record. Here, the header has no timestamp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import UsageError
from seglake.format.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    OVERHEAD,
    BatchTable,
)
from seglake.format.codecs.compression import NAMES, compressor
from seglake.format.codecs.framing import Framed, Framing
from seglake.format.decode import Decoded, scan_batches, with_extremes
from seglake.format.encode import EncodedBatches, encode_bodies, write_crcs
from seglake.format.records import Flags, Int64s, Records, end_to_end, fixed, read_only
from seglake.limits import INT32_MAX, INT64_MAX

NO_HORIZON = -1


class _Changed(NamedTuple):
    """The kept records of the batches that change, and the first kept record of each batch."""

    order: Int64s  # positions in the decoded records
    firsts: Int64s  # positions in `order`, then its length


def copied(data: Any, table: BatchTable) -> EncodedBatches:
    """Copy the batches of `table` byte for byte. Positions count from the start of `data`."""
    return EncodedBatches(
        joined(data, table, np.zeros(len(table), bool), []), end_to_end(table.copy())
    )


def filter_batches(
    data: Any,
    table: BatchTable,
    decoded: Decoded,
    stays: Flags,
    horizons: Int64s | None = None,
    *,
    end_offset: int = INT64_MAX,
) -> EncodedBatches:
    """Return the batches of `table` with only the kept records, without empty batches.

    Args:
        data: The bytes of the batches. Positions in `table` count from its first byte.
        table: The batches.
        decoded: Every record of these batches, including control records.
        stays: Whether each record is kept.
        horizons: The new delete horizon of each batch in ms, or `NO_HORIZON`. A batch that already
            has a delete horizon keeps it.
        end_offset: An exclusive limit to which last offsets of batches are lowered. It must be
            above the offset of every kept record.

    Returns:
        The batches, with a complete table.
    """
    survivors = np.flatnonzero(stays)
    counts = np.bincount(decoded.batch[survivors], minlength=len(table))
    rows = np.flatnonzero(counts)
    result, due = table[rows], np.zeros(len(rows), bool)
    if horizons is not None:
        due = (horizons[rows] >= 0) & (result["attributes"] & DELETE_HORIZON == 0)
        result["base_timestamp"][due] = horizons[rows][due]
        result["attributes"][due] |= DELETE_HORIZON
    result["last_offset"] = np.minimum(result["last_offset"], end_offset - 1)
    changed = due | (counts[rows] < result["count"])
    changed |= result["last_offset"] < table["last_offset"][rows]
    result["count"] = counts[rows]
    parts = reencoded(data, table[rows], result, changed, decoded, survivors)
    whole = joined(data, table[rows], changed, parts)
    end_to_end(result)
    numbers = np.cumsum(counts > 0) - 1
    return EncodedBatches(whole, with_extremes(result, renumbered(decoded, survivors, numbers)))


def emptied(header: Any) -> EncodedBatches:
    """Return a batch without records that has the offsets and producer of `header` (61 bytes)."""
    batch = np.frombuffer(header, HEADER, 1).copy()
    batch["attributes"] &= ~(CODEC_MASK | DELETE_HORIZON)
    batch["base_timestamp"] = batch["max_timestamp"] = -1
    return _bare(batch)


def blank(base_offset: int, last_offset: int, *, max_timestamp: int = -1) -> EncodedBatches:
    """Return a batch without records that covers `base_offset` to `last_offset`, inclusive.

    It has no producer. Its header has `max_timestamp` (ms). Raises UsageError for more than 2^31
    offsets.
    """
    if not 0 <= last_offset - base_offset <= INT32_MAX:
        what = f"offsets {base_offset} to {last_offset}"
        raise UsageError(f"{what} do not fit one record batch, which covers 1 to 2^31 offsets")
    header = np.zeros(1, HEADER)
    header["base_offset"], header["magic"] = base_offset, 2
    header["last_offset_delta"] = last_offset - base_offset
    header["base_timestamp"], header["max_timestamp"] = -1, max_timestamp
    header["producer_id"] = header["producer_epoch"] = header["base_sequence"] = -1
    return _bare(header)


def _bare(header: npt.NDArray[np.void]) -> EncodedBatches:
    header["length"], header["count"] = OVERHEAD - LOG_OVERHEAD, 0
    header["crc"] = crc32c.crc32c(header.tobytes()[CRC_START:])
    data = np.frombuffer(header.tobytes(), np.uint8)
    table = scan_batches(data)
    table["min_timestamp"], table["offset_of_max"], table["lateness"] = -1, table["base_offset"], 0
    return EncodedBatches(data, table)


def reencoded(
    data: Any,
    before: BatchTable,
    after: BatchTable,
    changed: Flags,
    decoded: Decoded,
    survivors: Int64s,
) -> list[Any]:
    """Encode changed batches with only their surviving records. Return the bytes of each batch.

    `before` and `after` have one row for each batch. The changed rows of `after` are completed.
    """
    if not changed.any():
        return []
    counts = after["count"].astype(np.int64)
    some = _Changed(
        survivors[np.repeat(changed, counts)],
        np.append(0, np.cumsum(counts[changed])).astype(np.int64),
    )
    table = after[changed]
    _set_times(table, decoded.records.timestamps[some.order], some.firsts)
    framed, table["size"] = _framed(table, decoded, some)
    after[changed] = table
    end_to_end(table)
    headers = _headers(data, before[changed], table)
    framed[table["position"][:, None] + np.arange(OVERHEAD)] = headers.view(np.uint8).reshape(
        -1, OVERHEAD
    )
    write_crcs(framed, table)
    bounds = zip(table["position"].tolist(), table["size"].tolist(), strict=True)
    return [framed.data[start : start + size] for start, size in bounds]


def _set_times(table: BatchTable, timestamps: Int64s, firsts: Int64s) -> None:
    """Set the base and max timestamps in `table`. Batch b has the records from firsts[b] on."""
    plain = table["attributes"] & DELETE_HORIZON == 0
    table["base_timestamp"][plain] = timestamps[firsts[:-1]][plain]
    own = table["attributes"] & LOG_APPEND_TIME == 0
    table["max_timestamp"][own] = np.maximum.reduceat(timestamps, firsts[:-1])[own]


def _framed(table: BatchTable, decoded: Decoded, some: _Changed) -> Framed:
    """Return the batches that change, compressed with their codecs, without batch headers."""
    order, firsts = some
    bodies = encode_bodies(decoded.records, order).fixed()
    framing = Framing(
        fixed(decoded.records.timestamps[order]), fixed(decoded.offsets[order]), *bodies[:3],
        fixed(firsts), fixed(table["base_timestamp"]), fixed(table["base_offset"]),
    )  # fmt: skip
    codecs = np.unique(table["attributes"] & CODEC_MASK).tolist()
    compressors = {codec: compressor(NAMES[codec]) for codec in codecs}
    return framing.framed(table["attributes"], framing.record_bytes(), compressors)


def _headers(data: Any, before: BatchTable, after: BatchTable) -> npt.NDArray[np.void]:
    """Return the headers of the batches that change. Checksums are not set yet."""
    places = before["position"][:, None] + np.arange(OVERHEAD)
    headers = read_only(data)[places].view(HEADER).reshape(-1)
    headers["length"] = after["size"] - LOG_OVERHEAD
    headers["last_offset_delta"] = np.subtract(after["last_offset"], after["base_offset"])
    for name in ("attributes", "base_timestamp", "max_timestamp", "count"):
        headers[name] = after[name]
    return headers


def joined(data: Any, table: BatchTable, changed: Flags, parts: list[Any]) -> Any:
    """Join the bytes of all batches of `table`. `parts` has the bytes of each changed batch."""
    view, pieces, used = memoryview(data), list[Any](), 0
    starts, ends = table["position"], table["position"] + table["size"]
    begins = np.append(True, changed[1:] | changed[:-1] | (starts[1:] != ends[:-1]))[: len(table)]
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:] - 1, len(table) - 1)[: len(firsts)]
    for start, end, new in zip(
        starts[firsts].tolist(), ends[lasts].tolist(), changed[firsts].tolist(), strict=True
    ):
        pieces.append(parts[used] if new else view[start:end])
        used += new
    return np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), np.uint8)


def renumbered(decoded: Decoded, survivors: Int64s, numbers: Int64s) -> Decoded:
    """Return only offsets, times and new batch rows of the kept records.

    numbers[b] is the new row of batch b.
    """
    records = Records(
        decoded.records.timestamps[survivors], decoded.records.keys, decoded.records.values
    )
    batches = numbers[decoded.batch[survivors]].astype(np.int32)
    return Decoded(records, decoded.offsets[survivors], decoded.timestamp_types[:0], batches)
