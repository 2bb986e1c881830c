"""Writing record batches: records to bodies, bodies to batches, and batches to other offsets.

`encode_bodies` encodes each body once. Bodies are then sorted and merged unchanged, and
`encode_batches` puts in front of each body only the few bytes that depend on its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import crc32c
import numpy as np

from seglake.errors import ConfigError, InputError
from seglake.format import encode_kernels
from seglake.format.batch import (
    BASE_OFFSET_AT,
    CRC_AT,
    CRC_START,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_BATCH_BYTES,
    MAX_TIMESTAMP_AT,
    OVERHEAD,
    TABLE,
    BatchTable,
)
from seglake.format.codecs.compression import Compress
from seglake.format.records import Bytes, Flags, Int64s, Records, fixed


class Bodies(NamedTuple):
    """The bodies of n records: body i is data[starts[i] : starts[i] + sizes[i]]."""

    starts: Int64s
    sizes: Int64s
    data: Bytes

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, order: Int64s | slice) -> Bodies:
        """The bodies at the positions `order`, over the same buffer."""
        return Bodies(self.starts[order], self.sizes[order], self.data)

    def detached(self) -> Bodies:
        """The same bodies, copied without gaps into a new buffer; frees a larger old buffer."""
        ends = np.cumsum(self.sizes)
        data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
        encode_kernels.copy_bodies(*self.fixed(), data)
        return Bodies(ends - self.sizes, self.sizes.copy(), data)

    def fixed(self) -> Bodies:
        """The same bodies over `fixed` arrays."""
        return Bodies(fixed(self.starts), fixed(self.sizes), fixed(self.data))


class Batches(NamedTuple):
    """Encoded batches: their bytes, and their batch table."""

    data: Bytes
    table: BatchTable


@dataclass(frozen=True)
class Encoding:
    """How records become batches: the topic settings that change bytes.

    `batch_bytes` is Kafka's `batch.size`: the most uncompressed bytes of a batch, header included.
    A larger record gets its own batch. If `append_time_ms` is set, batches have LogAppendTime.
    """

    compress: Compress | None
    codec: int
    batch_bytes: int = 16384
    append_time_ms: int | None = None

    @property
    def attributes(self) -> int:
        """The attribute bits of every batch."""
        return self.codec | (0 if self.append_time_ms is None else LOG_APPEND_TIME)


def encode_bodies(records: Records, order: Int64s) -> Bodies:
    """Encode the records at the positions `order`, in that order and without gaps.

    Raises InputError for a null header key.
    """
    keys, values, order = records.keys.fixed(), records.values.fixed(), fixed(order)
    sizes = np.empty(len(order), np.int64)
    if records.headers is None:
        encode_kernels.body_sizes(keys.lengths, values.lengths, order, sizes)
        starts, data = _places(sizes)
        encode_kernels.fill_bodies(*keys, *values, order, starts, data)
        return Bodies(starts, sizes, data)
    firsts = fixed(records.headers.firsts)
    names, contents = records.headers.keys.fixed(), records.headers.values.fixed()
    if names.lengths.min(initial=0) < 0:
        raise InputError("a record header has no key, but Kafka's format requires one")
    encode_kernels.body_sizes_with_headers(
        keys.lengths, values.lengths, firsts, names.lengths, contents.lengths, order, sizes
    )
    starts, data = _places(sizes)
    encode_kernels.fill_bodies_with_headers(
        *keys, *values, firsts, *names, *contents, order, starts, data
    )
    return Bodies(starts, sizes, data)


def _places(sizes: Int64s) -> tuple[Int64s, Bytes]:
    # the starts of consecutive items of these sizes, and an array for the items
    ends = np.cumsum(sizes)
    return ends - sizes, np.empty(ends[-1] if len(ends) else 0, np.uint8)


def encode_batches(
    timestamps: Int64s, bodies: Bodies, encoding: Encoding, *, base_offset: int = 0
) -> Batches:
    """Frame n records as batches with consecutive offsets, the first one `base_offset`.

    `timestamps` are ms since the epoch, -1 or above, in any order. Batch boundaries depend only on
    the records and `encoding.batch_bytes`. Raises InputError for a timestamp below -1, and
    ConfigError for a batch above `MAX_BATCH_BYTES`, because readers refuse it.
    """
    _require_times(timestamps)
    timestamps, bodies = fixed(timestamps), bodies.fixed()
    firsts = np.empty(len(timestamps) + 1, np.int64)  # number of each batch's first record
    sizes = np.empty(len(timestamps), np.int64)  # uncompressed bytes of each batch's records
    n = encode_kernels.cut_batches(
        timestamps, bodies.sizes, encoding.batch_bytes - OVERHEAD, firsts, sizes
    )
    firsts, sizes = firsts[: n + 1], _batch_sizes(sizes[:n])
    starts, data = _places(sizes)
    encode_kernels.fill_records(timestamps, *bodies, firsts, starts + OVERHEAD, data)
    table = _describe(timestamps, firsts, encoding, base_offset)
    return _finished(data, starts, sizes, table, encoding)


def encode_batches_at(
    timestamps: Int64s, bodies: Bodies, encoding: Encoding, offsets: Int64s, stamped: Flags
) -> Batches:
    """Frame n records as batches at offsets of their own, which must rise; gaps stay.

    `stamped` says which timestamps are append times of a broker: a batch has records of one
    timestamp type and, under LogAppendTime, of one time. `encoding.append_time_ms` is not used.
    Otherwise as `encode_batches`.
    """
    _require_times(timestamps)
    timestamps, offsets, stamped = fixed(timestamps), fixed(offsets), fixed(stamped)
    bodies = bodies.fixed()
    firsts = np.empty(len(timestamps) + 1, np.int64)
    sizes = np.empty(len(timestamps), np.int64)
    n = encode_kernels.cut_batches_at(
        timestamps, offsets, stamped, bodies.sizes, encoding.batch_bytes - OVERHEAD, firsts, sizes
    )
    firsts, sizes = firsts[: n + 1], _batch_sizes(sizes[:n])
    starts, data = _places(sizes)
    encode_kernels.fill_records_at(timestamps, offsets, *bodies, firsts, starts + OVERHEAD, data)
    table = _describe_at(timestamps, offsets, firsts)
    table["attributes"] = encoding.codec | LOG_APPEND_TIME * stamped[firsts[:-1]]
    return _finished(data, starts, sizes, table, encoding)


def _require_times(timestamps: Int64s) -> None:
    if timestamps.min(initial=0) < -1:
        raise InputError(f"timestamp {timestamps.min()} is before 1970; Kafka has no such times")


def _batch_sizes(sizes: Int64s) -> Int64s:
    """Uncompressed bytes of batches, given those of their records. Raises ConfigError."""
    sizes += OVERHEAD
    if sizes.max(initial=0) > MAX_BATCH_BYTES:
        raise ConfigError(
            f"a record batch has {sizes.max()} bytes, but readers take at most {MAX_BATCH_BYTES}: "
            "lower batch.size or max.message.bytes"
        )
    return sizes


def _finished(
    data: Bytes, starts: Int64s, sizes: Int64s, table: BatchTable, encoding: Encoding
) -> Batches:
    """Batches of framed records, compressed and with their headers."""
    if encoding.compress is not None:
        data, sizes = _compress(data, starts, encoding.compress)
    table["size"], table["position"] = sizes, np.cumsum(sizes) - sizes
    _write_headers(data, table)
    return Batches(data, table)


def _describe_at(timestamps: Int64s, offsets: Int64s, firsts: Int64s) -> BatchTable:
    n = len(firsts) - 1
    table = np.zeros(n, TABLE)
    table["base_offset"] = offsets[firsts[:-1]]
    table["last_offset"] = offsets[firsts[1:] - 1]
    table["count"] = np.diff(firsts)
    table["base_timestamp"] = timestamps[firsts[:-1]]
    lows, highs, at, late = np.empty((4, n), np.int64)
    encode_kernels.extremes(timestamps, firsts, lows, highs, at, late)
    table["lateness"] = late
    table["min_timestamp"], table["max_timestamp"] = lows, highs
    table["offset_of_max"] = offsets[at]
    return table


def _describe(
    timestamps: Int64s, firsts: Int64s, encoding: Encoding, base_offset: int
) -> BatchTable:
    n = len(firsts) - 1
    table = np.zeros(n, TABLE)
    table["attributes"] = encoding.attributes
    table["base_offset"] = base_offset + firsts[:-1]
    table["last_offset"] = base_offset + firsts[1:] - 1
    table["count"] = np.diff(firsts)
    table["base_timestamp"] = timestamps[firsts[:-1]]
    if encoding.append_time_ms is None:
        lows, highs, at, late = np.empty((4, n), np.int64)
        encode_kernels.extremes(timestamps, firsts, lows, highs, at, late)
        table["lateness"] = late
        table["min_timestamp"], table["max_timestamp"] = lows, highs
        table["offset_of_max"] = base_offset + at
    else:
        table["min_timestamp"] = table["max_timestamp"] = encoding.append_time_ms
        table["offset_of_max"] = table["base_offset"]
    return table


def _compress(data: Bytes, starts: Int64s, compress: Compress) -> tuple[Bytes, Int64s]:
    parts: list[Any] = [bytes(OVERHEAD)] * (2 * len(starts))
    bounds = [*starts.tolist(), len(data)]
    parts[1::2] = [compress(data.data[start + OVERHEAD : end]) for start, end in pairwise(bounds)]
    sizes = np.fromiter(map(len, parts[1::2]), np.int64, len(starts)) + OVERHEAD
    return np.frombuffer(bytearray().join(parts), np.uint8), sizes


def _write_headers(data: Bytes, table: BatchTable) -> None:
    headers = np.zeros(len(table), HEADER)
    headers["base_offset"] = table["base_offset"]
    headers["length"] = table["size"] - LOG_OVERHEAD
    headers["magic"] = 2
    headers["attributes"] = table["attributes"]
    headers["last_offset_delta"] = table["last_offset"] - table["base_offset"]
    headers["base_timestamp"] = table["base_timestamp"]
    headers["max_timestamp"] = table["max_timestamp"]
    headers["producer_id"] = headers["producer_epoch"] = headers["base_sequence"] = -1
    headers["count"] = table["count"]
    places = table["position"][:, None] + np.arange(OVERHEAD)
    data[places] = headers.view(np.uint8).reshape(-1, OVERHEAD)
    write_crcs(data, table)


def write_crcs(data: Bytes, table: BatchTable) -> None:
    """Put the checksum of each batch into its header; `data` begins with the first batch."""
    starts, view = _starts(table), data.data
    pairs = zip(starts.tolist(), table["size"].tolist(), strict=True)
    crcs = [crc32c.crc32c(view[start + CRC_START : start + size]) for start, size in pairs]
    encode_kernels.put_big_endians(data, starts, CRC_AT, np.array(crcs, np.int64), 4)


def _starts(table: BatchTable) -> Int64s:
    # positions in a buffer that begins with the first batch
    starts: Int64s = table["position"] - table["position"][:1]
    return starts


def rebase(data: Any, table: BatchTable, delta: int) -> Batches:
    """Move every offset by `delta`. All other bytes stay, CRCs included."""
    moved = np.frombuffer(data, np.uint8).copy()
    table = table.copy()
    for name in ("base_offset", "last_offset", "offset_of_max"):
        table[name] += delta
    offsets = table["base_offset"].copy()
    encode_kernels.put_big_endians(moved, _starts(table), BASE_OFFSET_AT, offsets, 8)
    return Batches(moved, table)


def restamp(batches: Batches, append_time_ms: int) -> Batches:
    """Give LogAppendTime batches another append time: max timestamp and CRC change."""
    data, table = batches.data.copy(), batches.table.copy()
    for name in ("min_timestamp", "max_timestamp"):
        table[name] = append_time_ms
    stamps = np.full(len(table), append_time_ms, np.int64)
    encode_kernels.put_big_endians(data, _starts(table), MAX_TIMESTAMP_AT, stamps, 8)
    write_crcs(data, table)
    return Batches(data, table)
