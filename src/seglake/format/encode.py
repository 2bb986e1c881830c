"""Encode records as bodies and bodies as batches, and move encoded batches to other offsets.

`encode_bodies` encodes each body once. Bodies are then sorted and merged unchanged, and
`encode_batches` puts in front of each body only the few bytes that depend on its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import ConfigError, InputError
from seglake.format import encode_kernels
from seglake.format.batch import (
    BASE_OFFSET_AT,
    CRC_AT,
    CRC_START,
    LOG_APPEND_TIME,
    MAX_BATCH_BYTES,
    MAX_TIMESTAMP_AT,
    OVERHEAD,
    TABLE,
    BatchTable,
)
from seglake.format.codecs import batch_kernels, codec_kernels, native
from seglake.format.codecs.compression import Compress
from seglake.format.codecs.framing import Framing
from seglake.format.key_hashes import KeyHashes
from seglake.format.records import Bytes, Flags, Headers, Int64s, Records, Spans, end_to_end, fixed

_NO_HEADERS = Headers(np.empty(0, np.int64), Spans.nulls(0), Spans.nulls(0))


class Bodies(NamedTuple):
    """The bodies of n records. Body i is data[starts[i] : starts[i] + sizes[i]].

    Some bodies may be in other buffers, at lower or higher addresses than `data`. Their starts are
    relative to `data`, too, and `others` keeps these buffers alive.
    """

    starts: Int64s
    sizes: Int64s
    data: Bytes
    others: tuple[Bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, order: Int64s | slice) -> Bodies:
        """Return the bodies at the positions `order`, over the same buffers."""
        return Bodies(self.starts[order], self.sizes[order], self.data, self.others)

    def detached(self) -> Bodies:
        """Copy the bodies without gaps into a new buffer, so that a larger old buffer is freed."""
        ends = np.cumsum(self.sizes)
        data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
        encode_kernels.copy_bodies(*self.fixed()[:3], data)
        return Bodies(ends - self.sizes, self.sizes.copy(), data)

    def fixed(self) -> Bodies:
        """Return these bodies with `fixed` arrays, for kernels."""
        return Bodies(fixed(self.starts), fixed(self.sizes), fixed(self.data), self.others)

    @staticmethod
    def joined(parts: Sequence[Bodies]) -> Bodies:
        """Return the bodies of all parts, one part after another, without copying them."""
        places = [part.data.__array_interface__["data"][0] for part in parts]
        starts = [
            part.starts + place - places[0] for part, place in zip(parts, places, strict=True)
        ]
        sizes = np.concatenate([part.sizes for part in parts])
        others = (other for part in parts for other in (part.data, *part.others))
        return Bodies(np.concatenate(starts), sizes, parts[0].data, tuple(others))


class EncodedBatches(NamedTuple):
    """The bytes of encoded batches, their batch table, and optionally the hashes of their keys."""

    data: Bytes
    table: BatchTable
    keys: KeyHashes | None = None


@dataclass(frozen=True)
class Encoding:
    """The topic settings that decide how records are encoded as batches.

    `batch_bytes` is Kafka's `batch.size`: the limit of the uncompressed bytes of a batch and its
    header. A larger record gets its own batch. If `append_time_ms` is set, batches have
    LogAppendTime. With `hash_keys`, batches include the hashes of their keys.
    """

    compress: Compress | None
    codec: int
    batch_bytes: int = 16384
    append_time_ms: int | None = None
    hash_keys: bool = False

    @property
    def attributes(self) -> int:
        """Return the attribute bits of every batch."""
        return self.codec | (0 if self.append_time_ms is None else LOG_APPEND_TIME)


def encode_bodies(records: Records, order: Int64s) -> Bodies:
    """Return the bodies of the records at the positions `order`, in this order, in a new buffer.

    Raises InputError for a null header key.
    """
    keys, values, order = records.keys.fixed(), records.values.fixed(), fixed(order)
    firsts, names, contents = records.headers or _NO_HEADERS
    headers = Headers(fixed(firsts), names.fixed(), contents.fixed())
    if names.lengths.min(initial=0) < 0:
        raise InputError("a record header has no key, but Kafka's format requires one")
    sizes = np.empty(len(order), np.int64)
    encode_kernels.body_sizes(
        keys.lengths, values.lengths, headers.firsts, headers.keys.lengths,
        headers.values.lengths, order, sizes,
    )  # fmt: skip
    ends = np.cumsum(sizes)
    starts, data = ends - sizes, np.empty(ends[-1] if len(ends) else 0, np.uint8)
    encode_kernels.fill_bodies(keys, values, headers, order, starts, data)
    return Bodies(starts, sizes, data)


def encode_batches(
    timestamps: Int64s,
    bodies: Bodies,
    encoding: Encoding,
    *,
    base_offset: int = 0,
    offsets: Int64s | None = None,
    stamped: Flags | None = None,
) -> EncodedBatches:
    """Encode n records as batches, at consecutive offsets from `base_offset` on, or at `offsets`.

    Batch boundaries depend only on the records and `encoding.batch_bytes`.

    Args:
        timestamps: Milliseconds since the epoch, in any order.
        bodies: The bodies of the records.
        encoding: The topic settings that decide how batches are encoded.
        base_offset: The offset of the first record, unless `offsets` is given.
        offsets: Ascending offsets. Gaps are kept.
        stamped: A mask of the timestamps that are append times of a broker. A batch then has
            records of one timestamp type and, with LogAppendTime, of one timestamp. With None,
            `encoding.append_time_ms` decides.

    Raises:
        ConfigError: A batch exceeds `MAX_BATCH_BYTES`. Readers would refuse it.
    """
    count = len(timestamps)
    if offsets is None:
        offsets = np.arange(base_offset, base_offset + count)
    if stamped is None:
        stamped = np.zeros(count, np.bool_)
    timestamps, offsets, stamped = fixed(timestamps), fixed(offsets), fixed(stamped)
    bodies = bodies.fixed()
    firsts, sizes = _cut(timestamps, offsets, stamped, bodies, encoding)
    table = _describe(timestamps, offsets, firsts)
    table["attributes"] = encoding.attributes | LOG_APPEND_TIME * stamped[firsts[:-1]]
    bases = fixed(table["base_timestamp"]), fixed(table["base_offset"])
    framing = Framing(timestamps, offsets, *bodies[:3], firsts, *bases)
    data, table["size"] = framing.framed(
        table["attributes"], sizes, {encoding.codec: encoding.compress}
    )
    end_to_end(table)
    if encoding.append_time_ms is not None:
        # The append time replaces the timestamps of the records.
        table["min_timestamp"] = table["max_timestamp"] = encoding.append_time_ms
        table["offset_of_max"], table["lateness"] = table["base_offset"], 0
    batch_kernels.put_headers(fixed(table), _starts(table), data)
    write_crcs(data, table)
    keys = KeyHashes.from_bodies(*bodies[:3]) if encoding.hash_keys else None
    return EncodedBatches(data, table, keys)


def _cut(
    timestamps: Int64s, offsets: Int64s, stamped: Flags, bodies: Bodies, encoding: Encoding
) -> tuple[Int64s, Int64s]:
    """Return `firsts` and `batch_sizes` of `cut_batches`. Raise ConfigError for a huge batch."""
    firsts = np.empty(len(timestamps) + 1, np.int64)
    sizes = np.empty(len(timestamps), np.int64)
    n = encode_kernels.cut_batches(
        timestamps, offsets, stamped, bodies.sizes, encoding.batch_bytes - OVERHEAD, firsts, sizes
    )
    largest = sizes[:n].max(initial=0) + OVERHEAD
    if largest > MAX_BATCH_BYTES:
        raise ConfigError(
            f"a record batch has {largest} bytes, but readers take at most {MAX_BATCH_BYTES}. "
            "Lower batch.size or max.message.bytes"
        )
    return fixed(firsts[: n + 1]), sizes[:n]


def _describe(timestamps: Int64s, offsets: Int64s, firsts: Int64s) -> BatchTable:
    """Return the batch table of CreateTime batches with these records. Sizes are 0."""
    n = len(firsts) - 1
    table = np.zeros(n, TABLE)
    table["base_offset"] = offsets[firsts[:-1]]
    table["last_offset"] = offsets[firsts[1:] - 1]
    table["count"] = np.diff(firsts)
    table["base_timestamp"] = timestamps[firsts[:-1]]
    lows, highs, at, late = np.empty((4, n), np.int64)
    encode_kernels.extremes(fixed(timestamps), fixed(firsts), lows, highs, at, late)
    table["lateness"] = late
    table["min_timestamp"], table["max_timestamp"] = lows, highs
    table["offset_of_max"] = offsets[at]
    return table


def write_crcs(data: Bytes, table: BatchTable) -> None:
    """Put the checksum of each batch into its header. `data` begins with the first batch."""
    starts, sizes = _starts(table), table["size"].astype(np.int64)
    if native.addresses()[codec_kernels.CRC32C]:
        batch_kernels.put_checksums(data, starts, sizes, native.addresses())
        return
    view, pairs = data.data, zip(starts.tolist(), sizes.tolist(), strict=True)
    crcs = [crc32c.crc32c(view[start + CRC_START : start + size]) for start, size in pairs]
    _put_field(data, starts + CRC_AT, np.array(crcs, ">u4"))


def _put_field(data: Bytes, starts: Int64s, values: npt.NDArray[Any]) -> None:
    """Write the bytes of values[i] at starts[i] of `data`."""
    size = values.itemsize
    data[starts[:, None] + np.arange(size)] = values.view(np.uint8).reshape(-1, size)


def _starts(table: BatchTable) -> Int64s:
    # Return positions in a buffer that begins with the first batch.
    starts: Int64s = table["position"] - table["position"][:1]
    return starts


def rebase(data: Any, table: BatchTable, delta: int) -> EncodedBatches:
    """Return batches whose offsets are moved by `delta`. Other bytes do not change, even CRCs."""
    moved = np.frombuffer(data, np.uint8).copy()
    table = table.copy()
    for name in ("base_offset", "last_offset", "offset_of_max"):
        table[name] += delta
    _put_field(moved, _starts(table) + BASE_OFFSET_AT, table["base_offset"].astype(">i8"))
    return EncodedBatches(moved, table)


def restamp(batches: EncodedBatches, append_time_ms: int) -> EncodedBatches:
    """Return LogAppendTime batches with another append time. Max timestamp and CRC change."""
    data, table = batches.data.copy(), batches.table.copy()
    table["min_timestamp"] = table["max_timestamp"] = append_time_ms
    _put_field(data, _starts(table) + MAX_TIMESTAMP_AT, table["max_timestamp"].astype(">i8"))
    write_crcs(data, table)
    return EncodedBatches(data, table)
