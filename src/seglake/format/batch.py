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

A record is `length varint, attributes i8, timestamp delta varlong, offset delta varint, body`, and
its body `key, value, headers`, each length-prefixed. Bodies do not depend on the batch, so they are
encoded once (`encode_bodies`), sorted and merged as they are, and only framed here.

A batch table describes batches in file order, one row each, without their bytes: it is all that
indexes, zone maps and rolling need. `min_timestamp`, `offset_of_max` (the first record with the
largest timestamp) and `lateness` (ms by which a record follows a newer one inside the batch) come
from the records; a table made from headers alone does not know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import ConfigError, InputError
from seglake.format import encode_kernels
from seglake.format.compression import Compress
from seglake.format.records import Bytes, Int64s, Records, fixed

OVERHEAD = 61
LOG_OVERHEAD = 12
LEADER_EPOCH_AT, CRC_AT, CRC_START = 12, 17, 21

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
CONTROL = 0x20
DELETE_HORIZON = 0x40

UNKNOWN = -2  # in a table made from headers alone: the records were not looked at

MAX_BATCH_BYTES = 512 * 1024 * 1024  # of decompressed records; what a reader is willing to hold

TABLE = np.dtype(
    [
        ("position", np.int64),
        ("size", np.int32),
        ("attributes", np.int16),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("count", np.int32),
        ("min_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("offset_of_max", np.int64),
        ("lateness", np.int64),
    ]
)
BatchTable = npt.NDArray[np.void]

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
    """The part of n records that no batch changes.

    Body i is data[starts[i] : starts[i] + sizes[i]].
    """

    starts: Int64s
    sizes: Int64s
    data: Bytes

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, order: Int64s | slice) -> Bodies:
        """The bodies at the positions `order`, over the same buffer."""
        return Bodies(self.starts[order], self.sizes[order], self.data)

    def detached(self) -> Bodies:
        """The same bodies over a buffer of their own without gaps, so that a larger one can go."""
        ends = np.cumsum(self.sizes)
        data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
        encode_kernels.copy_bodies(*self.fixed(), data)
        return Bodies(ends - self.sizes, self.sizes.copy(), data)

    def fixed(self) -> Bodies:
        """The same bodies in arrays that are `fixed`."""
        return Bodies(fixed(self.starts), fixed(self.sizes), fixed(self.data))


class Batches(NamedTuple):
    """Encoded batches: their bytes, and the table that describes them."""

    data: Bytes
    table: BatchTable


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
    """The bodies of the records at the positions `order`, in that order and without gaps.

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
        raise InputError("a header without a key has no place in Kafka's format")
    encode_kernels.body_sizes_with_headers(
        keys.lengths, values.lengths, firsts, names.lengths, contents.lengths, order, sizes
    )
    starts, data = _places(sizes)
    encode_kernels.fill_bodies_with_headers(
        *keys, *values, firsts, *names, *contents, order, starts, data
    )
    return Bodies(starts, sizes, data)


def _places(sizes: Int64s) -> tuple[Int64s, Bytes]:
    # where items of these sizes begin, one after another, and an array that holds them
    ends = np.cumsum(sizes)
    return ends - sizes, np.empty(ends[-1] if len(ends) else 0, np.uint8)


def encode_batches(
    timestamps: Int64s, bodies: Bodies, encoding: Encoding, *, base_offset: int = 0
) -> Batches:
    """Frame n records as batches with consecutive offsets, the first one `base_offset`.

    `timestamps` are ms since the epoch, -1 or above; deltas may be negative (events out of order).
    Batch boundaries depend on the records and `encoding.batch_bytes` alone. Raises InputError for
    other timestamps, ConfigError for a batch beyond `MAX_BATCH_BYTES`, which no reader would take.
    """
    timestamps, bodies = fixed(timestamps), bodies.fixed()
    if timestamps.min(initial=0) < -1:
        raise InputError(f"timestamp {timestamps.min()} lies before 1970, where Kafka has none")
    firsts = np.empty(len(timestamps) + 1, np.int64)  # record number with which each batch begins
    sizes = np.empty(len(timestamps), np.int64)  # of each batch's records, uncompressed
    n = encode_kernels.cut_batches(
        timestamps, bodies.sizes, encoding.batch_bytes - OVERHEAD, firsts, sizes
    )
    firsts, sizes = firsts[: n + 1], sizes[:n] + OVERHEAD
    if sizes.max(initial=0) > MAX_BATCH_BYTES:
        raise ConfigError(
            f"a record batch of {sizes.max()} bytes is more than the {MAX_BATCH_BYTES} that a "
            "reader takes: lower batch.size or max.message.bytes"
        )
    starts, data = _places(sizes)
    encode_kernels.fill_records(timestamps, *bodies, firsts, starts + OVERHEAD, data)
    if encoding.compress is not None:
        data, sizes = _compress(data, starts, encoding.compress)
    table = _describe(timestamps, firsts, encoding, base_offset)
    table["size"], table["position"] = sizes, np.cumsum(sizes) - sizes
    _write_headers(data, table)
    return Batches(data, table)


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
    _write_crcs(data, table)


def _write_crcs(data: Bytes, table: BatchTable) -> None:
    starts, view = _starts(table), data.data
    pairs = zip(starts.tolist(), table["size"].tolist(), strict=True)
    crcs = [crc32c.crc32c(view[start + CRC_START : start + size]) for start, size in pairs]
    encode_kernels.put_big_endians(data, starts, CRC_AT, np.array(crcs, np.int64), 4)


def _starts(table: BatchTable) -> Int64s:
    # of the batches in a buffer that begins with the first one
    starts: Int64s = table["position"] - table["position"][:1]
    return starts


def rebase(data: Any, table: BatchTable, delta: int) -> Batches:
    """The same batches with every offset moved by `delta`; nothing else changes, CRCs included."""
    moved = np.frombuffer(data, np.uint8).copy()
    table = table.copy()
    for name in ("base_offset", "last_offset", "offset_of_max"):
        table[name] += delta
    offsets = table["base_offset"].copy()
    encode_kernels.put_big_endians(moved, _starts(table), 0, offsets, 8)
    return Batches(moved, table)


def restamp(batches: Batches, append_time_ms: int) -> Batches:
    """LogAppendTime batches with another append time: max timestamp and CRC, no decompression."""
    data, table = batches.data.copy(), batches.table.copy()
    for name in ("min_timestamp", "max_timestamp"):
        table[name] = append_time_ms
    stamps = np.full(len(table), append_time_ms, np.int64)
    encode_kernels.put_big_endians(data, _starts(table), 35, stamps, 8)
    _write_crcs(data, table)
    return Batches(data, table)
