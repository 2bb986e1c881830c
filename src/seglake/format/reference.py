"""Decode one record batch in plain Python. Read this module first to learn the format.

    batch   base offset i64, batch length i32, leader epoch i32, magic i8 = 2, CRC-32C u32,
            attributes i16, last offset delta i32, base timestamp i64, max timestamp i64,
            producer id i64, producer epoch i16, base sequence i32, record count i32,
            records, uncompressed or compressed together
    record  length varint, attributes i8, timestamp delta varint, offset delta varint,
            key, value, header count varint, headers
    header  key, value
    key and value: length varint (-1: null), bytes

Integers of the batch are big-endian, varints are zigzag (KIP-98, `DefaultRecordBatch`,
`DefaultRecord`). Tests compare the compiled code, which decodes many batches in one call, with this
module.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import crc32c

from seglake.errors import CorruptData
from seglake.format.batch import CODEC_MASK, CRC_START, LOG_APPEND_TIME, LOG_OVERHEAD, OVERHEAD
from seglake.format.codecs.compression import decompress

_HEADER = struct.Struct(">qiibIhiqqqhii")


class Record(NamedTuple):
    """A record with its offset, and its timestamp in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def read_batch(data: bytes, max_bytes: int) -> list[Record]:
    """Decode `data`, which must be exactly one record batch, and return its records.

    Raises CorruptData for a batch that a Kafka consumer would refuse, and for one that decompresses
    to more than `max_bytes`.
    """
    if len(data) < OVERHEAD:
        raise CorruptData("the record batch is cut short")
    (base_offset, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
     _, _, _, count) = _HEADER.unpack_from(data)  # fmt: skip
    if magic != 2 or length + LOG_OVERHEAD != len(data):
        raise CorruptData("the bytes are not one record batch of magic 2")
    if crc32c.crc32c(data[CRC_START:]) != crc:
        raise CorruptData("the CRC-32C is wrong")
    payload, codec = data[OVERHEAD:], attributes & CODEC_MASK
    reader, records, previous = _Reader(payload), list[Record](), -1
    if codec:
        reader = _Reader(decompress(codec, payload, max_bytes))
    for _ in range(count):
        timestamp_delta, offset_delta, key, value, headers = _read_record(reader)
        if not previous < offset_delta <= last_delta:
            raise CorruptData("an offset is outside its batch or out of order")
        previous, timestamp = offset_delta, base_timestamp + timestamp_delta
        if attributes & LOG_APPEND_TIME:
            timestamp = max_timestamp
        records.append(Record(base_offset + offset_delta, timestamp, key, value, headers))
    reader.require_end()
    return records


def _read_record(
    batch: "_Reader",
) -> tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]:
    """Read the next record. Return its timestamp delta, offset delta, key, value and headers."""
    record = _Reader(batch.take(batch.varint(5)))
    record.take(1)  # attributes, which Kafka does not use
    deltas = record.varint(10), record.varint(5)
    key, value = record.field(), record.field()
    headers = list(_read_headers(record))
    record.require_end()
    return *deltas, key, value, headers


def _read_headers(record: "_Reader") -> Iterator[tuple[bytes, bytes | None]]:
    count = record.varint(5)
    if count < 0:
        raise CorruptData("a header count is negative")
    for _ in range(count):
        key = record.field()
        if key is None:
            raise CorruptData("a header key is null")
        yield key, record.field()


class _Reader:
    """Reads items from bytes, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise CorruptData(
                f"{count} bytes are needed, but only {len(self._data) - self._at} are left"
            )
        self._at += count
        return self._data[self._at - count : self._at]

    def varint(self, most_bytes: int) -> int:
        """Read a varint. `most_bytes` is 5 for 32 bits and 10 for 64. Higher bits are dropped."""
        bits = 0
        for number in range(most_bytes):
            (byte,) = self.take(1)
            bits |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                bits &= 2**32 - 1 if most_bytes == 5 else 2**64 - 1
                return (bits >> 1) ^ -(bits & 1)
        raise CorruptData(f"a varint has more than {most_bytes} bytes")

    def field(self) -> bytes | None:
        length = self.varint(5)
        return None if length == -1 else self.take(length)

    def require_end(self) -> None:
        if self._at != len(self._data):
            raise CorruptData(f"{len(self._data) - self._at} bytes are left")
