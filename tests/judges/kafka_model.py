"""Kafka's log format once more: byte by byte, slow, and sharing no code with the package.

Written from the descriptions of DefaultRecordBatch, DefaultRecord, ByteUtils, LogSegment and of the
codecs' formats, so that an error in the package cannot hide in the tests too. `Invalid` is raised
where Kafka raises InvalidRecordException or CorruptRecordException.
"""

import gzip
import io
from typing import NamedTuple

import zstandard

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Invalid(Exception):
    pass


class Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Found(NamedTuple):
    offset: int
    timestamp_type: int
    record: Record


def crc_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


CRC_OF_BYTES = [crc_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_OF_BYTES[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    zigzag = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag % 128 + 128)
        zigzag //= 128
    out.append(zigzag)
    return bytes(out)


def sized(item: bytes | None) -> bytes:
    return varint(-1) if item is None else varint(len(item)) + item


def record_bytes(record: Record, base_timestamp: int, offset_delta: int) -> bytes:
    rest = b"\0" + varint(record.timestamp - base_timestamp) + varint(offset_delta)
    rest += sized(record.key) + sized(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        rest += sized(key) + sized(value)
    return varint(len(rest)) + rest


def batch_bytes(
    base_offset: int,
    payload: bytes,
    *,
    last_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    attributes: int = 0,
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    covered = attributes.to_bytes(2, "big") + last_delta.to_bytes(4, "big")
    covered += base_timestamp.to_bytes(8, "big", signed=True)
    covered += max_timestamp.to_bytes(8, "big", signed=True)
    for number, width in zip(producer, (8, 2, 4), strict=True):
        covered += number.to_bytes(width, "big", signed=True)
    covered += count.to_bytes(4, "big", signed=True) + payload
    head = epoch.to_bytes(4, "big", signed=True) + b"\2" + crc32c(covered).to_bytes(4, "big")
    length = len(head) + len(covered)
    return base_offset.to_bytes(8, "big") + length.to_bytes(4, "big") + head + covered


def fix_crc(batch: bytes) -> bytes:
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def cut(records: list[Record], limit: int) -> list[list[Record]]:
    """Batches of at most `limit` bytes, overhead included, or of one record."""
    batches: list[list[Record]] = []
    for record in records:
        if batches:
            grown = [*batches[-1], record]
            if 61 + sum(map(len, framed(grown))) <= limit:
                batches[-1] = grown
                continue
        batches.append([record])
    return batches


def framed(records: list[Record]) -> list[bytes]:
    return [record_bytes(r, records[0].timestamp, i) for i, r in enumerate(records)]


def log_bytes(
    records: list[Record], base_offset: int, limit: int, append_time: int | None = None
) -> bytes:
    log = b""
    for batch in cut(records, limit):
        log += batch_bytes(
            base_offset,
            b"".join(framed(batch)),
            last_delta=len(batch) - 1,
            base_timestamp=batch[0].timestamp,
            max_timestamp=(max(r.timestamp for r in batch) if append_time is None else append_time),
            count=len(batch),
            attributes=0 if append_time is None else 8,
        )
        base_offset += len(batch)
    return log


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise Invalid("length")
        self.at += count
        return self.data[self.at - count : self.at]

    def integer(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big", signed=True)

    def varint(self, most: int) -> int:
        zigzag = 0
        for i in range(most):
            byte = self.take(1)[0]
            zigzag += (byte % 128) << (7 * i)
            if byte < 128:
                zigzag %= 1 << (32 if most == 5 else 64)
                return -(zigzag + 1) // 2 if zigzag % 2 else zigzag // 2
        raise Invalid("varint")

    def sized(self, *, nullable: bool = True) -> bytes | None:
        length = self.varint(5)
        if length == -1 and nullable:
            return None
        return self.take(length)


def read_record(data: bytes, base_timestamp: int) -> tuple[int, Record]:
    reader = Reader(data)
    reader.take(1)
    timestamp = base_timestamp + reader.varint(10)
    delta = reader.varint(5)
    key, value = reader.sized(), reader.sized()
    count = reader.varint(5)
    if not 0 <= count <= len(data) - reader.at:
        raise Invalid("header count")
    headers = tuple((reader.sized(nullable=False) or b"", reader.sized()) for _ in range(count))
    if reader.at != len(data):
        raise Invalid("bytes left")
    return delta, Record(timestamp, key, value, headers)


def read_log(data: bytes) -> list[Found]:
    log, found = Reader(data), []
    while log.at < len(data):
        base_offset, batch = log.integer(8), Reader(log.take(log.integer(4)))
        batch.take(4)
        if batch.take(1) != b"\2":
            raise Invalid("magic")
        if batch.integer(4) % 2**32 != crc32c(batch.data[batch.at :]):
            raise Invalid("crc")
        attributes, _, base_timestamp, max_timestamp = (batch.integer(w) for w in (2, 4, 8, 8))
        batch.take(14)
        count = batch.integer(4)
        records = Reader(decompress(attributes & 7, batch.data[batch.at :]))
        append_time = bool(attributes & 8)
        for _ in range(count):
            delta, record = read_record(records.take(records.varint(5)), base_timestamp)
            if append_time:
                record = record._replace(timestamp=max_timestamp)
            found.append(Found(base_offset + delta, int(append_time), record))
        if records.at != len(records.data):
            raise Invalid("bytes left")
    return found


def decompress(codec: int, data: bytes) -> bytes:
    if codec == 0:
        return data
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return unsnappy(data)
    if codec == 3:
        return unlz4(data)
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()


def unsnappy(data: bytes) -> bytes:
    stream, out = Reader(data), b""
    if stream.take(16) != b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1":
        raise Invalid("xerial header")
    while stream.at < len(data):
        block = unsnappy_block(stream.take(stream.integer(4)))
        assert len(block) <= 32768
        out += block
    return out


def unsnappy_block(data: bytes) -> bytes:
    reader, size, shift = Reader(data), 0, 0
    while True:
        byte = reader.take(1)[0]
        size += (byte % 128) << shift
        shift += 7
        if byte < 128:
            break
    out = bytearray()
    while reader.at < len(data):
        tag = reader.take(1)[0]
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                length = int.from_bytes(reader.take(length - 60), "little") + 1
            out += reader.take(length)
            continue
        if tag & 3 == 1:
            length, back = ((tag >> 2) & 7) + 4, (tag >> 5) * 256 + reader.take(1)[0]
        else:
            length = (tag >> 2) + 1
            back = int.from_bytes(reader.take(2 if tag & 3 == 2 else 4), "little")
        copy_back(out, back, length)
    if len(out) != size:
        raise Invalid("snappy size")
    return bytes(out)


def copy_back(out: bytearray, back: int, length: int) -> None:
    if not 0 < back <= len(out):
        raise Invalid("copy")
    for _ in range(length):
        out.append(out[-back])


def unlz4(data: bytes) -> bytes:
    """One frame as KafkaLZ4BlockOutputStream writes it; the header checksum is not looked at."""
    reader, out = Reader(data), b""
    if reader.take(4) != b"\x04\x22\x4d\x18" or reader.take(2) != b"\x60\x40":
        raise Invalid("lz4 frame")
    reader.take(1)
    while length := int.from_bytes(reader.take(4), "little"):
        block = reader.take(length & 0x7FFFFFFF)
        out += block if length >> 31 else unlz4_block(block)
    if reader.at != len(data):
        raise Invalid("bytes left")
    return out


def unlz4_block(data: bytes) -> bytes:
    reader, out = Reader(data), bytearray()

    def more(length: int) -> int:
        if length == 15:
            while True:
                byte = reader.take(1)[0]
                length += byte
                if byte < 255:
                    break
        return length

    while reader.at < len(data):
        token = reader.take(1)[0]
        out += reader.take(more(token >> 4))
        if reader.at == len(data):
            break
        back = int.from_bytes(reader.take(2), "little")
        copy_back(out, back, more(token & 15) + 4)
    return bytes(out)


class Row(NamedTuple):
    """What indexing and rolling look at in a batch."""

    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class Indexes(NamedTuple):
    offsets: list[tuple[int, int]]
    times: list[tuple[int, int]]


def index(rows: list[Row], interval: int) -> Indexes:
    """LogSegment.append, batch by batch, then onBecomeInactiveSegment."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    newest, newest_offset = -1, -1
    since = position = 0
    for row in rows:
        if row.max_timestamp > newest:
            newest, newest_offset = row.max_timestamp, row.last_offset
        if since > interval:
            offsets.append((row.last_offset, position))
            if newest > (times[-1][0] if times else -1):
                times.append((newest, newest_offset))
            since = 0
        since += row.size
        position += row.size
    if newest > (times[-1][0] if times else -1):
        times.append((newest, newest_offset))
    return Indexes(offsets, times)


def roll(
    rows: list[Row], base_offset: int, interval: int, *, bytes_: int, ms: int, index_bytes: int
) -> list[list[Row]]:
    """UnifiedLog.maybeRoll and LogSegment.shouldRoll before each append."""
    segments: list[list[Row]] = [[]]
    for row in rows:
        segment = segments[-1]
        if segment:
            size = sum(r.size for r in segment)
            first = segment[0].max_timestamp
            open_index = index_while_open(segment, interval)
            if (
                size > bytes_ - row.size
                or (first >= 0 and row.max_timestamp - first > ms)
                or len(open_index.offsets) >= index_bytes // 8
                or len(open_index.times) >= index_bytes // 12 - 1
                or row.last_offset - base_offset > 2**31 - 1
            ):
                segments.append([])
                base_offset = row.base_offset
        segments[-1].append(row)
    return segments


def index_while_open(rows: list[Row], interval: int) -> Indexes:
    """Without the closing time entry: a batch that opens the next block shows what is there."""
    offsets, times = index(rows, interval)
    last_indexed = offsets[-1][0] if offsets else None
    cut_at = max((i for i, r in enumerate(rows) if r.last_offset == last_indexed), default=-1)
    newest = max((r.max_timestamp for r in rows[: cut_at + 1]), default=-1)
    return Indexes(offsets, [entry for entry in times if entry[0] <= newest])
