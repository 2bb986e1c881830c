"""Record batches without some of their records, as Kafka's `MemoryRecords.filterTo` makes them.

A batch that loses nothing is copied byte for byte. A batch that loses some records is encoded
again: offsets, codec (at its default level), producer and leader epoch stay, and its last offset
too, so offset deltas have gaps and the record count is below `last offset delta + 1`. The base
timestamp is that of the first record that stays, or the delete horizon. A batch without records is
left out; where the end of a log would be lost without it, it stays as a header of 61 bytes
(`emptied`, KAFKA-17076). Kafka leaves in it the largest timestamp of its records, for which its own
DumpLogSegments then misses a record; here it has none.
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
from seglake.format.records import Flags, Int64s, Records, fixed, read_only
from seglake.limits import INT32_MAX, INT64_MAX

NO_HORIZON = -1


class _Changed(NamedTuple):
    """The records that stay in the batches that change, and where each batch's records begin."""

    order: Int64s  # positions in the decoded records
    firsts: Int64s  # one more than there are batches


def copied(data: Any, table: BatchTable) -> EncodedBatches:
    """The batches of `table` byte for byte; positions in it count from the start of `data`."""
    moved = table.copy()
    moved["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
    return EncodedBatches(joined(data, table, np.zeros(len(table), bool), []), moved)


def filter_batches(
    data: Any,
    table: BatchTable,
    decoded: Decoded,
    stays: Flags,
    horizons: Int64s | None = None,
    *,
    end_offset: int = INT64_MAX,
) -> EncodedBatches:
    """The batches of `table` with only the records that stay; batches without one are left out.

    Positions in `table` count from the start of `data`. `decoded` has every record of these
    batches, control records too, and `stays` says for each whether it stays. `horizons` has for
    each batch the delete horizon in ms that it is to get, or `NO_HORIZON`; a batch that has one
    keeps its own. Last offsets of batches become smaller than `end_offset`, which is above every
    record that stays. The result's table is complete.
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
    result["position"] = np.cumsum(result["size"], dtype=np.int64) - result["size"]
    numbers = np.cumsum(counts > 0) - 1
    return EncodedBatches(whole, with_extremes(result, renumbered(decoded, survivors, numbers)))


def emptied(header: Any) -> EncodedBatches:
    """The batch of which `header` is the first 61 bytes, without records."""
    batch = np.frombuffer(header, HEADER, 1).copy()
    batch["attributes"] &= ~(CODEC_MASK | DELETE_HORIZON)
    batch["base_timestamp"] = batch["max_timestamp"] = -1
    return _bare(batch)


def blank(base_offset: int, last_offset: int, *, max_timestamp: int = -1) -> EncodedBatches:
    """An empty batch of no producer, for offsets that have no record (`last_offset` inclusive).

    `max_timestamp`, in ms, is what its header says. Raises UsageError for more than 2^31 offsets.
    """
    if not 0 <= last_offset - base_offset <= INT32_MAX:
        what = f"offsets {base_offset} to {last_offset}"
        raise UsageError(f"{what} are not those of one record batch, which has 1 to 2^31")
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
    """The bytes of each changed batch; completes the changed rows of `after`."""
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
    table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
    headers = _headers(data, before[changed], table)
    framed[table["position"][:, None] + np.arange(OVERHEAD)] = headers.view(np.uint8).reshape(
        -1, OVERHEAD
    )
    write_crcs(framed, table)
    bounds = zip(table["position"].tolist(), table["size"].tolist(), strict=True)
    return [framed.data[start : start + size] for start, size in bounds]


def _set_times(table: BatchTable, timestamps: Int64s, firsts: Int64s) -> None:
    """Base and max timestamp of batches with these records."""
    plain = table["attributes"] & DELETE_HORIZON == 0
    table["base_timestamp"][plain] = timestamps[firsts[:-1]][plain]
    own = table["attributes"] & LOG_APPEND_TIME == 0
    table["max_timestamp"][own] = np.maximum.reduceat(timestamps, firsts[:-1])[own]


def _framed(table: BatchTable, decoded: Decoded, some: _Changed) -> Framed:
    """The batches that change, without their headers, compressed by the codec of each."""
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
    """The headers of batches that change, without their checksums."""
    places = before["position"][:, None] + np.arange(OVERHEAD)
    headers = read_only(data)[places].view(HEADER).reshape(-1)
    headers["length"] = after["size"] - LOG_OVERHEAD
    headers["last_offset_delta"] = after["last_offset"] - after["base_offset"]
    for name in ("attributes", "base_timestamp", "max_timestamp", "count"):
        headers[name] = after[name]
    return headers


def joined(data: Any, table: BatchTable, changed: Flags, parts: list[Any]) -> Any:
    """The bytes of all batches of `table` in order; `parts` has those of each changed one."""
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
    """Offsets and times of the records that stay; `numbers` has the new row of each batch."""
    records = Records(
        decoded.records.timestamps[survivors], decoded.records.keys, decoded.records.values
    )
    batches = numbers[decoded.batch[survivors]].astype(np.int32)
    return Decoded(records, decoded.offsets[survivors], decoded.timestamp_types[:0], batches)
