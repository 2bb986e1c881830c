"""Decode batch headers into batch tables, and record batches into columns.

`scan_batches` reads only headers. `decode` decodes the records of decompressed batches, and
`decode_batches` also decompresses them. Any input gives records or CorruptData, because every
length is checked against the available bytes. Memory is allocated only for bytes that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import decode_kernels, encode_kernels
from seglake.format.batch import (
    CONTROL,
    CRC_AT,
    CRC_START,
    LEAST_RECORD_BYTES,
    MAGIC_AT,
    MAX_BATCH_BYTES,
    TABLE,
    UNKNOWN,
    BatchTable,
)
from seglake.format.codecs import codec_kernels, native
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.records import (
    Bytes,
    Headers,
    Int32s,
    Int64s,
    Records,
    Spans,
    copy_rows,
    fixed,
    read_only,
    take_rows,
)  # fmt: skip

_CRC_BYTES = CRC_AT + np.arange(4)


class Decoded(NamedTuple):
    """n records read from batches, with the offset and the batch of each record."""

    records: Records
    offsets: Int64s
    timestamp_types: npt.NDArray[np.int8]  # 0 CreateTime, 1 LogAppendTime
    batch: Int32s  # row of each record's batch in the batch table

    def take(self, rows: Int64s) -> Decoded:
        """Return the records at the positions `rows`, over the same buffer."""
        keys, values = self.records.keys.take(rows), self.records.values.take(rows)
        headers = self.records.headers
        some = None if headers is None else headers.take(rows)
        records = Records(self.records.timestamps[rows], keys, values, some)
        return Decoded(records, self.offsets[rows], self.timestamp_types[rows], self.batch[rows])


def scan_batches(data: Any) -> BatchTable:
    """Return the batch table of `data`, which is read only from batch headers.

    `data` begins with a batch. `min_timestamp`, `offset_of_max` and `lateness` are `UNKNOWN`.
    Raises CorruptData at the first impossible header, for a last batch that is cut short, and for
    magic 0 and 1, which Kafka itself no longer writes.
    """
    table, damage = scan(data)
    if damage is not None:
        raise damage.error
    return table


class Damage(NamedTuple):
    """The error that ended a scan early. If `cut_short`, more bytes may complete the last batch."""

    error: CorruptData
    cut_short: bool


def scan(data: Any, *, base_position: int = 0) -> tuple[BatchTable, Damage | None]:
    """Return the batch table of `data` up to the first impossible header, and the damage or None.

    Positions in the table count from `base_position`.
    """
    buffer = read_only(data)
    n, end, problem = decode_kernels.find_batches(buffer)
    table = np.empty(n, TABLE)
    decode_kernels.read_headers(buffer, base_position, UNKNOWN, table)
    if not problem:
        return table, None
    facts = {"left": len(buffer) - end, "magic": buffer[end : end + MAGIC_AT + 1][-1]}
    what = decode_kernels.HEADER_PROBLEMS[problem].format(**facts)
    error = CorruptData(what, position=base_position + end)
    return table, Damage(error, problem == decode_kernels.CUT_SHORT)


def check_crcs(data: Any, table: BatchTable, *, base_position: int = 0) -> None:
    """Raise CorruptData for the first batch whose CRC-32C is wrong."""
    log, starts, sizes = read_only(data), table["position"] - base_position, table["size"]
    stored = log[starts[:, None] + _CRC_BYTES].view(">u4")[:, 0].astype(np.uint32)
    addresses, row = native.addresses(), codec_kernels.NOT_COMPUTED
    if addresses[codec_kernels.CRC32C]:
        begins, ends = starts + CRC_START, starts + sizes
        row = int(codec_kernels.wrong_checksum(log, begins, ends, stored, addresses))
    if row == codec_kernels.NOT_COMPUTED:
        sums = map(partial(_checksum, log), starts.tolist(), sizes.tolist())
        wrong = np.flatnonzero(np.fromiter(sums, np.uint32) != stored)
        row = int(wrong[0]) if len(wrong) else -1
    if row >= 0:
        checksum = _checksum(log, starts[row], sizes[row])
        what = (
            f"CRC-32C of the record batch is {checksum:08x}, but its header has {stored[row]:08x}"
        )
        raise CorruptData(what, position=int(table["position"][row]))


def _checksum(log: Bytes, start: int, size: int) -> int:
    """Return the CRC-32C of the batch at log[start : start + size]."""
    checksum: int = crc32c.crc32c(log[start + CRC_START : start + size].data)
    return checksum


def decode_batches(
    data: Any,
    table: BatchTable,
    *,
    check_crc: bool = True,
    control: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> Decoded:
    """Return the records of the batches in `table`.

    Positions in `table` count from the start of `data`. Control batches (transaction markers) are
    left out unless `control`. Keys, values and headers are spans into one buffer of decompressed
    records, or into `data` if nothing is compressed.

    Raises:
        CorruptData: A batch is outside `data`, a CRC is wrong, a payload cannot be decompressed or
            exceeds `max_batch_bytes`, or records do not fill their batch exactly. The error has the
            position of the batch.
    """
    log, table = read_only(data), fixed(table)
    outside, bits = decode_kernels.check_positions(table, len(log))
    if outside >= 0:
        position = int(table["position"][outside])
        raise CorruptData(f"the batch is not within the {len(log)} bytes read", position=position)
    if check_crc:
        check_crcs(data, table)
    rows = None
    if bits & CONTROL and not control:
        rows = np.flatnonzero((table["attributes"] & CONTROL) == 0).astype(np.int32)
        table = fixed(take_rows(table, rows))
    decoded = decode(table, payload_of(log, table, max_bytes=max_batch_bytes))
    return decoded if rows is None else decoded._replace(batch=rows[decoded.batch])


def decode(table: BatchTable, payload: Payload) -> Decoded:
    """Return the records in `payload`, which has the batches of the first rows of `table`.

    Raises CorruptData with the position of the batch.
    """
    data, starts, ends = payload
    table = fixed(table[: len(ends)])
    columns = decode_kernels.record_columns(_require_room(table, payload))
    row, problem = decode_kernels.parse_records(table, data, starts, ends, columns)
    if problem:
        raise damage_of(table[row], problem)
    headers = headers_of(
        data, columns.header_counts, columns.header_starts, columns.record_ends,
        lambda record: table[columns.batch[record]],
    )  # fmt: skip
    keys = Spans(data, columns.key_starts, columns.key_lengths)
    values = Spans(data, columns.value_starts, columns.value_lengths)
    records = Records(columns.timestamps, keys, values, headers)
    return Decoded(records, columns.offsets, columns.timestamp_types, columns.batch)


def damage_of(batch: Any, problem: int, size_bytes: int = 0) -> CorruptData:
    """Return the error for a problem that a kernel found in `batch`, a row of a batch table.

    `size_bytes` is the size of the decompressed records.
    """
    what = decode_kernels.PROBLEMS[problem].format(size=size_bytes, count=batch["count"])
    return CorruptData(what, position=int(batch["position"]))


def with_record_times(table: BatchTable, payload: Payload) -> BatchTable:
    """Replace each `UNKNOWN` in a batch table by a value computed from the records.

    `payload` has the batches of all rows. The result equals `decode` followed by `with_extremes`,
    but keys, values and headers are not parsed. Raises CorruptData with the position of the batch.
    """
    complete, (data, starts, ends) = copy_rows(table), payload
    table = fixed(table)
    _require_room(table, payload)
    lows, offsets_of_max, lateness = np.empty((3, len(table)), np.int64)
    row, problem = decode_kernels.parse_extremes(
        table, data, starts, ends, lows, offsets_of_max, lateness
    )
    if problem:
        raise damage_of(table[row], problem)
    complete["min_timestamp"], complete["lateness"] = lows, lateness
    complete["offset_of_max"] = offsets_of_max
    return complete


def _require_room(table: BatchTable, payload: Payload) -> int:
    """Return the number of records. Raise CorruptData if a batch is too short for its records."""
    counts, sizes = table["count"].astype(np.int64), payload.ends - payload.starts
    wrong = np.flatnonzero((counts < 0) | (counts * LEAST_RECORD_BYTES > sizes))
    if len(wrong):
        row = int(wrong[0])
        raise damage_of(table[row], decode_kernels.TOO_FEW_BYTES, int(sizes[row]))
    return int(counts.sum())


def headers_of(
    data: Bytes, counts: Int32s, starts: Int64s, ends: Int64s, batch_of: Callable[[int], Any]
) -> Headers | None:
    """Return the headers of records. Record i has counts[i] headers in data[starts[i] : ends[i]].

    Returns None if no record has a header. `batch_of` returns the row of a record's batch. Raises
    CorruptData with the position of the batch.
    """
    if not counts.any():
        return None
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    total = int(firsts[-1])
    key_starts, value_starts = np.empty((2, total), np.int64)
    key_lengths, value_lengths = np.empty((2, total), np.int32)
    bad = decode_kernels.parse_headers(
        data, starts, ends, firsts, key_starts, key_lengths, value_starts, value_lengths
    )
    if bad >= 0:
        raise damage_of(batch_of(bad), decode_kernels.BAD_HEADER)
    keys = Spans(data, key_starts, key_lengths)
    return Headers(firsts, keys, Spans(data, value_starts, value_lengths))


def with_extremes(table: BatchTable, decoded: Decoded) -> BatchTable:
    """Replace each `UNKNOWN` in a batch table by a value computed from the decoded records.

    `decoded` has every record of the table's batches, including control records. For a batch that
    compaction has emptied, the timestamp is -1 and the offset is its base offset.
    """
    complete = copy_rows(table)
    firsts = np.searchsorted(decoded.batch, np.arange(len(table) + 1)).astype(np.int64)
    lows, highs, at, late = np.empty((4, len(table)), np.int64)
    encode_kernels.extremes(fixed(decoded.records.timestamps), fixed(firsts), lows, highs, at, late)
    complete["min_timestamp"], complete["lateness"] = lows, late
    filled = firsts[:-1] < firsts[1:]
    complete["offset_of_max"] = table["base_offset"]
    complete["offset_of_max"][filled] = decoded.offsets[at[filled]]
    return complete
