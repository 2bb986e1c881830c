"""Reading record batches: headers to batch tables, batches to records as columns.

`scan_batches` reads only headers. `decode` turns the decompressed batches of a table into records;
`decode_batches` decompresses them too. For any bytes, the result is records or CorruptData: every
length is checked against its space, and memory is allocated only for bytes that exist.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import decode_kernels, encode_kernels, sought_kernels
from seglake.format.batch import (
    CONTROL,
    CRC_START,
    MAGIC_AT,
    MAX_BATCH_BYTES,
    TABLE,
    UNKNOWN,
    BatchTable,
)
from seglake.format.codecs import codec_kernels, native
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.decode_kernels import RecordColumns
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
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.limits import ALL_TIMES, INT64_MAX

_ALL_RECORDS = fixed(np.array([[*ALL_TIMES, 0, INT64_MAX]], np.int64))


class Decoded(NamedTuple):
    """n records read from batches, with their offsets and batches."""

    records: Records
    offsets: Int64s
    timestamp_types: npt.NDArray[np.int8]  # 0 CreateTime, 1 LogAppendTime
    batch: Int32s  # row of each record's batch in the batch table

    def take(self, rows: Int64s) -> Decoded:
        """The records at the positions `rows`, over the same buffer."""
        keys, values = self.records.keys.take(rows), self.records.values.take(rows)
        headers = self.records.headers
        some = None if headers is None else _headers_at(headers, rows)
        records = Records(self.records.timestamps[rows], keys, values, some)
        return Decoded(records, self.offsets[rows], self.timestamp_types[rows], self.batch[rows])


class Within(NamedTuple):
    """The records that a caller wants from each batch: windows[window_of[b]] for batch b.

    A window is smallest and largest timestamp, smallest and largest offset, all inclusive. If there
    are `keys`, only records with one of them are wanted.
    """

    windows: npt.NDArray[np.int64]  # of shape (m, 4)
    window_of: Int32s
    keys: SoughtKeys = EVERY_KEY


def scan_batches(data: Any) -> BatchTable:
    """The batch table of `data`, from headers alone.

    `data` begins with a batch. `min_timestamp`, `offset_of_max` and `lateness` are `UNKNOWN`.
    Raises CorruptData at the first impossible header, for a last batch that is cut short, and for
    magic 0 and 1, which Kafka itself no longer writes.
    """
    table, damage = scan(data)
    if damage is not None:
        raise damage.error
    return table


class Damage(NamedTuple):
    """Why a scan ended before its bytes. If `cut_short`, more bytes may complete the batch."""

    error: CorruptData
    cut_short: bool


def scan(data: Any, *, base_position: int = 0) -> tuple[BatchTable, Damage | None]:
    """The batch table of `data` up to the first impossible header, and what is wrong with it.

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
    starts = table["position"] - base_position
    stored, log = np.empty(len(table), np.uint32), read_only(data)
    decode_kernels.read_crcs(log, starts, stored)
    row = _wrong_checksum(log, starts + CRC_START, starts + table["size"], stored)
    if row < 0:
        return
    checksum = crc32c.crc32c(log[starts[row] + CRC_START : starts[row] + table["size"][row]].data)
    raise CorruptData(
        f"CRC-32C of the record batch is {checksum:08x}, its header says {stored[row]:08x}",
        position=int(table["position"][row]),
    )


def _wrong_checksum(log: Bytes, starts: Int64s, ends: Int64s, stored: Any) -> int:
    """The first batch whose log[starts[b] : ends[b]] has not the CRC-32C stored[b], or -1."""
    addresses, row = native.addresses(), codec_kernels.NOT_COMPUTED
    if addresses[codec_kernels.CRC32C]:
        row = int(codec_kernels.wrong_checksum(log, starts, ends, stored, addresses))
    if row != codec_kernels.NOT_COMPUTED:
        return row
    extents = zip(starts.tolist(), ends.tolist(), strict=True)
    checksums = np.array([crc32c.crc32c(log[start:end].data) for start, end in extents], np.uint32)
    return int(np.append(np.flatnonzero(checksums != stored), -1)[0])


def decode_batches(
    data: Any,
    table: BatchTable,
    *,
    check_crc: bool = True,
    control: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> Decoded:
    """The records of the batches in `table`, whose positions count from the start of `data`.

    Control batches (transaction markers) are left out unless `control`. Keys, values and headers
    are spans into one buffer of decompressed records, or into `data` if nothing is compressed.
    Raises CorruptData, with the position of the batch, for a batch outside `data`, a wrong CRC, a
    payload that cannot be decompressed or exceeds `max_batch_bytes`, and records that do not fill
    their batch exactly.
    """
    log, table = read_only(data), fixed(table)
    outside, bits = decode_kernels.survey(table, len(log))
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


def decode(table: BatchTable, payload: Payload, within: Within | None = None) -> Decoded:
    """The records of the payload that are wanted, or all records.

    The batches of the payload are the first rows of `table`. Raises CorruptData with the position
    of the batch.
    """
    data, starts, ends = payload
    table = fixed(table[: len(ends)])
    n = _require_room(table, starts, ends)
    if within is None:
        within = Within(_ALL_RECORDS, np.zeros(len(table), np.int32))
    columns = decode_kernels.record_columns(n)
    windows, window_of = fixed(within.windows), fixed(within.window_of)
    found, row, problem = decode_kernels.parse_records(
        table, data, starts, ends, windows, window_of, columns
    )
    if problem:
        raise CorruptData(decode_kernels.PROBLEMS[problem], position=int(table["position"][row]))
    if found < n:
        columns = _taken(columns, slice(found))
    if len(within.keys.starts):
        columns = _taken(columns, _rows_with(within.keys, data, columns))
    return _decoded(table, data, columns)


def _taken(columns: RecordColumns, rows: Any) -> RecordColumns:
    """The records at `rows`."""
    some: list[Any] = [column[rows] for column in columns]
    return RecordColumns(*some)


def _rows_with(keys: SoughtKeys, data: Bytes, columns: RecordColumns) -> Int64s:
    """The rows of the records with one of the keys."""
    rows = np.empty(len(columns.offsets), np.int64)
    starts, lengths = fixed(columns.key_starts), fixed(columns.key_lengths)
    return rows[: sought_kernels.find_sought(keys, data, starts, lengths, rows)]


def with_record_times(table: BatchTable, payload: Payload) -> BatchTable:
    """Complete a batch table made from headers, from the records of the payload.

    The result is that of `decode` and `with_extremes`; keys, values and headers are not looked at.
    The batches of the payload are the rows of `table`. Raises CorruptData with the position of the
    batch.
    """
    complete, (data, starts, ends) = copy_rows(table), payload
    table = fixed(table)
    _require_room(table, starts, ends)
    lows, offsets_of_max, lateness = np.empty((3, len(table)), np.int64)
    row, problem = decode_kernels.parse_extremes(
        table, data, starts, ends, lows, offsets_of_max, lateness
    )
    if problem:
        raise CorruptData(decode_kernels.PROBLEMS[problem], position=int(table["position"][row]))
    complete["min_timestamp"], complete["lateness"] = lows, lateness
    complete["offset_of_max"] = offsets_of_max
    return complete


def _require_room(table: BatchTable, starts: Int64s, ends: Int64s) -> int:
    """The number of records; CorruptData if a batch's bytes cannot hold as many as it says."""
    n, row = decode_kernels.count_records(table, starts, ends)
    if row >= 0:
        raise CorruptData(
            f"{ends[row] - starts[row]} bytes cannot hold {table['count'][row]} records",
            position=int(table["position"][row]),
        )
    return int(n)


def _decoded(table: BatchTable, data: Bytes, columns: RecordColumns) -> Decoded:
    records = Records(
        columns.timestamps,
        Spans(data, columns.key_starts, columns.key_lengths),
        Spans(data, columns.value_starts, columns.value_lengths),
        _parse_headers(data, columns, table),
    )
    return Decoded(records, columns.offsets, columns.timestamp_types, columns.batch)


def _parse_headers(data: Bytes, columns: RecordColumns, table: BatchTable) -> Headers | None:
    if not columns.header_counts.any():
        return None
    firsts = np.zeros(len(columns.offsets) + 1, np.int64)
    np.cumsum(columns.header_counts, out=firsts[1:])
    total = int(firsts[-1])
    key_starts, value_starts = np.empty((2, total), np.int64)
    key_lengths, value_lengths = np.empty((2, total), np.int32)
    bad = decode_kernels.parse_headers(
        data, columns.header_starts, columns.record_ends, firsts,
        key_starts, key_lengths, value_starts, value_lengths,
    )  # fmt: skip
    if bad >= 0:
        position = int(table["position"][columns.batch[bad]])
        raise CorruptData(decode_kernels.PROBLEMS[decode_kernels.BAD_HEADER], position=position)
    keys = Spans(data, key_starts, key_lengths)
    return Headers(firsts, keys, Spans(data, value_starts, value_lengths))


def _headers_at(headers: Headers, rows: Int64s) -> Headers:
    counts = headers.firsts[rows + 1] - headers.firsts[rows]
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    items = np.arange(firsts[-1]) + np.repeat(headers.firsts[rows] - firsts[:-1], counts)
    return Headers(firsts, headers.keys.take(items), headers.values.take(items))


def with_extremes(table: BatchTable, decoded: Decoded) -> BatchTable:
    """Complete a batch table made from headers: replace each `UNKNOWN`.

    `decoded` holds every record of the table's batches, control records included. Batches without
    records (left by compaction) get timestamp -1 and their base offset.
    """
    complete = copy_rows(table)
    firsts = np.searchsorted(decoded.batch, np.arange(len(table) + 1)).astype(np.int64)
    lows, highs, at, late = np.empty((4, len(table)), np.int64)
    encode_kernels.extremes(fixed(decoded.records.timestamps), firsts, lows, highs, at, late)
    complete["min_timestamp"], complete["lateness"] = lows, late
    filled = firsts[:-1] < firsts[1:]
    complete["offset_of_max"] = table["base_offset"]
    complete["offset_of_max"][filled] = decoded.offsets[at[filled]]
    return complete
