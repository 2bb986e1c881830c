"""Record batches, magic 2: Kafka's unit of storage, compression and checksum.

    offset  size  field                 (`DefaultRecordBatch`, all integers big-endian)
    0       8     base offset           outside the checksum, so a batch can be moved (`rebase`)
    8       4     batch length          bytes after this field
    12      4     partition leader epoch
    16      1     magic                 2
    17      4     CRC-32C               of everything from byte 21 to the end
    21      2     attributes            0-2 codec, 3 timestamp type, 4 transactional, 5 control
    23      4     last offset delta
    27      8     base timestamp        of the first record, not the smallest
    35      8     max timestamp
    43      8     producer id
    51      2     producer epoch
    53      4     base sequence
    57      4     record count
    61      …     records, or one compressed blob of them

A record is `length varint, attributes i8, timestamp delta varlong, offset delta varint, body`, and its
body `key, value, headers`, each length-prefixed. Bodies do not depend on the batch, so they are encoded
once (`encode_bodies`), sorted, shuffled and merged as they are, and only framed here.

A batch table describes batches in file order, one row each, without their bytes: it is all that
indexes, zone maps and rolling need. `min_timestamp`, `offset_of_max` (the first record with the largest
timestamp) and `lateness` (ms by which a record follows a newer one inside the batch) come from the
records; a table made from headers alone does not know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import kernels
from seglake.format.compression import NAMES, Compress, decompress
from seglake.format.records import Bytes, Headers, Int32s, Int64s, Records, Spans

OVERHEAD = 61
LOG_OVERHEAD = 12
CRC_START = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
UNKNOWN = -2  # in a table made from headers alone: the records were not looked at

MAX_BATCH_BYTES = 512 * 1024 * 1024  # of decompressed records; what a reader is willing to hold

TABLE = np.dtype(
    [
        ("position", np.int64),
        ("size", np.int32),
        ("attributes", np.int16),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("count", np.int32),
        ("min_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("offset_of_max", np.int64),
        ("lateness", np.int64),
    ]
)
Table = npt.NDArray[np.void]

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)


class Bodies(NamedTuple):
    """The part of n records that no batch changes: body i is data[starts[i] : starts[i] + sizes[i]]."""

    starts: Int64s
    sizes: Int64s
    data: Bytes

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, order: Int64s | slice) -> Bodies:
        """The bodies at the positions `order`, over the same buffer."""
        return Bodies(self.starts[order], self.sizes[order], self.data)


class Batches(NamedTuple):
    """Encoded batches: their bytes, and the table that describes them."""

    data: Bytes
    table: Table


@dataclass(frozen=True)
class Encoding:
    """How records become batches: topic settings that change bytes.

    `batch_bytes` is Kafka's `batch.size`: the uncompressed bytes, header included, that a batch may
    reach; a larger record gets a batch of its own. `append_time_ms` set means LogAppendTime.
    """

    compress: Compress | None
    codec: int
    batch_bytes: int = 16384
    append_time_ms: int | None = None

    @property
    def attributes(self) -> int:
        """The attribute bits of every batch written so."""
        return self.codec | (0 if self.append_time_ms is None else LOG_APPEND_TIME)


def encode_bodies(records: Records, order: Int64s) -> Bodies:
    """The bodies of the records at the positions `order`, in that order and without gaps."""
    keys, values, headers = records.keys, records.values, records.headers
    sizes = np.empty(len(order), np.int64)
    if headers is None:
        kernels.body_sizes(keys.lengths, values.lengths, order, sizes)
    else:
        kernels.body_sizes_with_headers(
            keys.lengths, values.lengths, headers.firsts, headers.keys.lengths,
            headers.values.lengths, order, sizes,
        )  # fmt: skip
    ends = np.cumsum(sizes)
    starts = ends - sizes
    data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    if headers is None:
        kernels.fill_bodies(*keys, *values, order, starts, data)
    else:
        kernels.fill_bodies_with_headers(
            *keys, *values, headers.firsts, *headers.keys, *headers.values, order, starts, data
        )
    return Bodies(starts, sizes, data)


def encode_batches(
    timestamps: Int64s, bodies: Bodies, encoding: Encoding, *, base_offset: int = 0
) -> Batches:
    """Frame n records as batches with offsets base_offset, base_offset + 1, …

    `timestamps` are ms since the epoch, -1 or above; deltas may be negative (events out of order).
    Batch boundaries depend on the records and `encoding.batch_bytes` alone.
    """
    count = len(timestamps)
    firsts = np.empty(count + 1, np.int64)  # record number with which each batch begins
    ends = np.empty(count, np.int64)  # uncompressed bytes up to the end of each batch's records
    n = kernels.cut_batches(
        timestamps, bodies.sizes, encoding.batch_bytes - OVERHEAD, firsts, ends
    )
    firsts, ends = firsts[: n + 1], ends[:n]
    raw = np.empty(ends[-1] if n else 0, np.uint8)
    kernels.fill_records(timestamps, *bodies, firsts, raw)
    table = _describe(timestamps, firsts, encoding, base_offset)
    payloads = _compress(raw, ends, encoding.compress)
    table["size"] = OVERHEAD + np.fromiter(map(len, payloads), np.int64, n)
    table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
    base_timestamps = timestamps[firsts[:-1]]
    return Batches(_assemble(_headers(table, base_timestamps), payloads), table)


def _describe(timestamps: Int64s, firsts: Int64s, encoding: Encoding, base_offset: int) -> Table:
    n = len(firsts) - 1
    table = np.zeros(n, TABLE)
    table["attributes"] = encoding.attributes
    table["base_offset"] = base_offset + firsts[:-1]
    table["last_offset"] = base_offset + firsts[1:] - 1
    table["count"] = np.diff(firsts)
    if encoding.append_time_ms is None:
        lows, highs, at, late = np.empty((4, n), np.int64)
        kernels.extremes(timestamps, firsts, lows, highs, at, late)
        table["lateness"] = late
        table["min_timestamp"], table["max_timestamp"] = lows, highs
        table["offset_of_max"] = base_offset + at
    else:
        table["min_timestamp"] = table["max_timestamp"] = encoding.append_time_ms
        table["offset_of_max"] = table["base_offset"]
    return table


def _compress(raw: Bytes, ends: Int64s, compress: Compress | None) -> list[Any]:
    view = memoryview(raw)
    bounds = [0, *ends.tolist()]
    slices = [view[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    return slices if compress is None else [compress(each) for each in slices]


def _headers(table: Table, base_timestamps: Int64s) -> npt.NDArray[np.void]:
    headers = np.zeros(len(table), HEADER)
    headers["base_offset"] = table["base_offset"]
    headers["length"] = table["size"] - LOG_OVERHEAD
    headers["magic"] = 2
    headers["attributes"] = table["attributes"]
    headers["last_offset_delta"] = table["last_offset"] - table["base_offset"]
    headers["base_timestamp"] = base_timestamps
    headers["max_timestamp"] = table["max_timestamp"]
    headers["producer_id"] = headers["producer_epoch"] = headers["base_sequence"] = -1
    headers["count"] = table["count"]
    return headers


def _assemble(headers: npt.NDArray[np.void], payloads: list[Any]) -> Bytes:
    raw = headers.view(np.uint8).reshape(-1, OVERHEAD)
    headers["crc"] = [
        crc32c.crc32c(payload, crc32c.crc32c(header))
        for header, payload in zip(raw[:, CRC_START:].copy(), payloads, strict=True)
    ]
    parts: list[Any] = [None] * (2 * len(payloads))
    parts[::2], parts[1::2] = list(raw), payloads
    return np.frombuffer(b"".join(parts), np.uint8)


def scan_batches(data: Any, *, base_position: int = 0, partial: bool = False) -> Table:
    """The table of the batches in `data`, from their headers alone.

    `data` begins with a batch; positions in the table count from `base_position`. With `partial`,
    a last batch that is cut short is left out, as Kafka's readers do; otherwise it is damage.
    `min_timestamp` and `offset_of_max` are `UNKNOWN`. Raises CorruptData at the first header that
    cannot be right, and for magic 0 and 1, which Kafka itself no longer writes.
    """
    buffer = np.frombuffer(data, np.uint8)
    starts = np.empty(len(buffer) // OVERHEAD, np.int64)
    n, end, problem = kernels.find_batches(buffer, starts)
    if problem and not (partial and problem == kernels.CUT_SHORT):
        raise CorruptData(_header_problem(buffer, end, problem), position=base_position + end)
    headers = _gather_headers(buffer, starts[:n])
    table = np.zeros(n, TABLE)
    table["position"] = starts[:n] + base_position
    table["size"] = headers["length"] + LOG_OVERHEAD
    for name in ("attributes", "base_offset", "count", "max_timestamp"):
        table[name] = headers[name]
    table["last_offset"] = table["base_offset"] + headers["last_offset_delta"]
    table["min_timestamp"] = table["offset_of_max"] = UNKNOWN
    return table


def _gather_headers(buffer: Bytes, starts: Int64s) -> npt.NDArray[np.void]:
    rows = buffer[starts[:, None] + np.arange(OVERHEAD)]
    return rows.view(HEADER).reshape(-1)


def _header_problem(buffer: Bytes, at: int, problem: int) -> str:
    if problem == kernels.CUT_SHORT:
        return f"the last record batch is cut short: {len(buffer) - at} bytes are left"
    if problem == kernels.OLD_MAGIC:
        return (
            f"message format {buffer[at + 16]} (before Kafka 0.11) is not supported: "
            "let a Kafka broker rewrite the topic with record batches of magic 2"
        )
    if problem == kernels.BAD_COUNT:
        return "a record batch has impossible offsets or record count"
    return "no record batch of magic 2 begins here"


class Decoded(NamedTuple):
    """n records read from batches, and where each stood."""

    records: Records
    offsets: Int64s
    timestamp_types: npt.NDArray[np.int8]  # 0 CreateTime, 1 LogAppendTime
    batch: Int32s  # row of each record's batch in the table


def check_crcs(data: Any, table: Table, *, base_position: int = 0) -> None:
    """Raise CorruptData for the first batch whose CRC-32C is wrong."""
    view = memoryview(data)
    for position, size in zip(table["position"].tolist(), table["size"].tolist(), strict=True):
        at = position - base_position
        stored = int.from_bytes(view[at + 17 : at + 21], "big")
        found = crc32c.crc32c(view[at + CRC_START : at + size])
        if stored != found:
            raise CorruptData(
                f"CRC-32C of the record batch is {found:08x}, its header says {stored:08x}",
                position=position,
            )


def decode_batches(
    data: Any,
    table: Table,
    *,
    base_position: int = 0,
    check_crc: bool = True,
    control: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> Decoded:
    """The records of the batches that `table` names; `data` begins at file position `base_position`.

    Control batches (transaction markers) are left out unless `control`. Keys, values and headers are
    spans into one buffer of decompressed records (into `data` itself where nothing is compressed).
    Raises CorruptData, with the position of the batch, for a wrong CRC, a payload that cannot be
    decompressed or exceeds `max_batch_bytes`, and records that do not fill their batch exactly.
    """
    if check_crc:
        check_crcs(data, table, base_position=base_position)
    if not control:
        table = table[(table["attributes"] & CONTROL) == 0]
    buffer, starts, ends = _payloads(data, table, base_position, max_batch_bytes)
    _check_counts(table, starts, ends)
    headers = _gather_headers(np.frombuffer(data, np.uint8), table["position"] - base_position)
    return _parse(buffer, starts, ends, table, headers)


def _payloads(
    data: Any, table: Table, base_position: int, max_batch_bytes: int
) -> tuple[Bytes, Int64s, Int64s]:
    """A buffer of decompressed records, and where each batch's records begin and end in it."""
    starts = table["position"] - base_position + OVERHEAD
    ends = starts - OVERHEAD + table["size"]
    codecs = table["attributes"] & CODEC_MASK
    if not codecs.any():
        return np.frombuffer(data, np.uint8), starts, ends
    view, parts = memoryview(data), []
    for row, (codec, start, end) in enumerate(
        zip(codecs.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ):
        try:
            payload = view[start:end]
            parts.append(decompress(codec, payload, max_batch_bytes) if codec else payload)
        except CorruptData as err:
            raise err.within("", int(table["position"][row])) from err
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    joined = parts[0] if len(parts) == 1 else b"".join(parts)
    return np.frombuffer(joined, np.uint8), ends - sizes, ends


def _check_counts(table: Table, starts: Int64s, ends: Int64s) -> None:
    # the smallest record takes 7 bytes, so a lying count cannot make a reader allocate
    bad = np.flatnonzero(table["count"].astype(np.int64) * 7 > ends - starts)
    if len(bad):
        raise CorruptData(
            f"a batch of {ends[bad[0]] - starts[bad[0]]} bytes cannot hold "
            f"{table['count'][bad[0]]} records",
            position=int(table["position"][bad[0]]),
        )


def _parse(
    buffer: Bytes, starts: Int64s, ends: Int64s, table: Table, headers: npt.NDArray[np.void]
) -> Decoded:
    n = int(table["count"].sum())
    fields = kernels.RecordArrays(*(np.empty(n, dtype) for dtype in kernels.RECORD_ARRAY_TYPES))
    log_append = (table["attributes"] & LOG_APPEND_TIME) != 0
    row, code = kernels.parse_records(
        buffer, starts, ends, table["base_offset"].copy(), table["count"].copy(),
        headers["base_timestamp"].astype(np.int64), table["max_timestamp"].copy(), log_append, fields,
    )  # fmt: skip
    if code:
        raise CorruptData(kernels.PROBLEMS[code], position=int(table["position"][row]))
    records = Records(
        fields.timestamps,
        Spans(buffer, fields.key_starts, fields.key_lengths),
        Spans(buffer, fields.value_starts, fields.value_lengths),
        _parse_headers(buffer, fields, table),
    )
    return Decoded(records, fields.offsets, log_append[fields.batch].astype(np.int8), fields.batch)


def _parse_headers(buffer: Bytes, fields: kernels.RecordArrays, table: Table) -> Headers | None:
    firsts = np.zeros(len(fields.offsets) + 1, np.int64)
    np.cumsum(fields.header_counts, out=firsts[1:])
    total = int(firsts[-1])
    if not total:
        return None
    key_starts, value_starts = np.empty(total, np.int64), np.empty(total, np.int64)
    key_lengths, value_lengths = np.empty(total, np.int32), np.empty(total, np.int32)
    bad = kernels.parse_headers(
        buffer, fields.header_starts, fields.record_ends, firsts,
        key_starts, key_lengths, value_starts, value_lengths,
    )  # fmt: skip
    if bad >= 0:
        raise CorruptData(
            kernels.PROBLEMS[kernels.BAD_HEADER], position=int(table["position"][fields.batch[bad]])
        )
    keys = Spans(buffer, key_starts, key_lengths)
    return Headers(firsts, keys, Spans(buffer, value_starts, value_lengths))


def with_extremes(table: Table, decoded: Decoded) -> Table:
    """The table of headers completed with what only the records tell.

    `decoded` holds every record of the table's batches, control records included. Batches without
    records (left by compaction) get `NO_TIMESTAMP` and their base offset.
    """
    complete = table.copy()
    firsts = np.searchsorted(decoded.batch, np.arange(len(table) + 1)).astype(np.int64)
    lows, highs, at, late = np.empty((4, len(table)), np.int64)
    kernels.extremes(decoded.records.timestamps, firsts, lows, highs, at, late)
    complete["min_timestamp"], complete["lateness"] = lows, late
    filled = firsts[:-1] < firsts[1:]
    complete["offset_of_max"] = table["base_offset"]
    complete["offset_of_max"][filled] = decoded.offsets[at[filled]]
    return complete


def rebase(data: Any, table: Table, delta: int) -> Batches:
    """The same batches with every offset moved by `delta`; nothing else changes, CRCs included."""
    moved = np.frombuffer(data, np.uint8).copy()
    table = table.copy()
    for name in ("base_offset", "last_offset", "offset_of_max"):
        table[name] += delta
    kernels.put_base_offsets(moved, table["position"] - table["position"][:1], table["base_offset"])
    return Batches(moved, table)


def restamp(batches: Batches, append_time_ms: int) -> Batches:
    """LogAppendTime batches with another append time: max timestamp and CRC, no decompression."""
    data, table = batches.data.copy(), batches.table.copy()
    for name in ("min_timestamp", "max_timestamp"):
        table[name] = append_time_ms
    stamp = np.frombuffer(append_time_ms.to_bytes(8, "big", signed=True), np.uint8)
    for start, size in _extents(table):
        data[start + 35 : start + 43] = stamp
        crc = crc32c.crc32c(data[start + CRC_START : start + size])
        data[start + 17 : start + 21] = np.frombuffer(crc.to_bytes(4, "big"), np.uint8)
    return Batches(data, table)


def _extents(table: Table) -> Iterator[tuple[int, int]]:
    starts = table["position"] - table["position"][:1]
    return zip(starts.tolist(), table["size"].tolist(), strict=True)


def codec_name(attributes: int) -> str:
    """The codec's name in a batch's attributes; "unknown" for the unused numbers 5 to 7."""
    codec = attributes & CODEC_MASK
    return NAMES[codec] if codec < len(NAMES) else "unknown"
