"""A reader of lakes that shares no code with Seglake.

It uses the standard library, libraries of the codecs, and pyarrow for the catalog's Parquet; its
author knew Seglake's sources. It relies on docs/format.md and docs/catalog.md. It reads a lake in a
local folder, checks every checksum it meets, and prefers few lines to speed. `python
independent_reader.py LAKE TOPIC START END` prints the records of a window of time, in milliseconds.
"""

import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import cramjam
import lz4.frame
import pyarrow.parquet as pq
import zstandard

Row = dict[str, Any]
_CRC = [0] * 256
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = _crc >> 1 ^ (0x82F63B78 if _crc & 1 else 0)
    _CRC[_byte] = _crc


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def check(holds: bool, what: str) -> None:
    """Raise ValueError unless it holds."""
    if not holds:
        raise ValueError(what)


# ------------------------------------------------------------------ Delta tables: docs/catalog.md


def live_files(table: Path, version: int | None = None) -> dict[str, Row]:
    """The data files of a Delta table in a version: their `add` actions, by path."""
    files: dict[str, Row] = {}
    log = table / "_delta_log"
    last = sys.maxsize if version is None else version
    checkpoints = [int(path.name[:20]) for path in log.glob("*.checkpoint.parquet")]
    start = max((each for each in checkpoints if each <= last), default=-1)
    if start >= 0:
        rows = pq.read_table(log / f"{start:020}.checkpoint.parquet", columns=["add"])
        added = (row["add"] for row in rows.to_pylist() if row["add"])
        files = {row["path"]: {**row, "partitionValues": dict(row["partitionValues"])}
                 for row in added}  # fmt: skip
    for path in sorted(log.glob("*.json")):
        if start < int(path.stem) <= last:
            for action in map(json.loads, path.read_text().splitlines()):
                if "add" in action:
                    files[action["add"]["path"]] = action["add"]
                files.pop(action.get("remove", {}).get("path"), None)
    return files


def table_rows(table: Path, version: int | None = None) -> Iterator[Row]:
    """All rows of a Delta table; the partition columns come from the commits."""
    for path, action in live_files(table, version).items():
        file = table / unquote(path)
        named = re.search(r"-([0-9a-f]{8})\.parquet$", path)
        if named:  # by Seglake: the name ends with the CRC-32C of the bytes
            check(crc32c(file.read_bytes()) == int(named[1], 16), f"{file} is damaged")
        for row in pq.ParquetFile(file).read().to_pylist():
            yield {**action["partitionValues"], **row}


# ------------------------------------------------------------------ batches: docs/format.md


class Record(NamedTuple):
    """A record; headers are pairs of key and value."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Batch(NamedTuple):
    """The header of a batch; `position` is its first byte."""

    position: int
    base_offset: int
    size: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    records: int


def read_batch(log: bytes, position: int) -> Batch:
    """The header of the batch at a position; its checksum is verified."""
    base, length, _epoch, magic, crc, bits, delta, first, most, _id, _producer, _sequence, count = (
        struct.unpack_from(">qiibIhiqqqhii", log, position)
    )
    end = position + 12 + length
    check(magic == 2 and end <= len(log), f"no batch at {position}")
    check(crc32c(log[position + 21 : end]) == crc, f"the batch at {position} is damaged")
    return Batch(position, base, 12 + length, bits, base + delta, first, most, count)


def records_of(log: bytes, batch: Batch) -> Iterator[Record]:
    """The records of a batch; none of a control batch."""
    stored = log[batch.position + 61 : batch.position + batch.size]
    if batch.attributes & 0x20 or not batch.records:
        return
    data = Bytes(decompressed(stored, batch.attributes & 7))
    stamped = batch.attributes >> 3 & 1
    for _ in range(batch.records):
        length = data.varint()
        end = data.at + length
        data.take(1)
        time, offset = batch.base_timestamp + data.varint(), batch.base_offset + data.varint()
        key, value = data.item(), data.item()
        headers = [((data.item() or b"").decode(), data.item()) for _ in range(data.varint())]
        check(data.at == end, f"a record of the batch at {batch.position} is too long")
        time = batch.max_timestamp if stamped else time
        yield Record(offset, time, stamped, key, value, headers)


@dataclass
class Bytes:
    """Bytes that are read from the front."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        check(0 <= size <= len(self.data) - self.at, "the bytes end early")
        self.at += size
        return self.data[self.at - size : self.at]

    def unsigned(self) -> int:
        """Groups of seven bits, least significant first."""
        value, shift = 0, 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def varint(self) -> int:
        """A zigzag integer."""
        value = self.unsigned()
        return value >> 1 ^ -(value & 1)

    def item(self) -> bytes | None:
        """A length and as many bytes; length -1 is null."""
        length = self.varint()
        return None if length == -1 else self.take(length)


# ------------------------------------------------------------------ codecs


def decompressed(data: bytes, codec: int) -> bytes:
    """The records behind a batch's header."""
    return (bytes, gunzip, unsnappy, lz4.frame.decompress, unzstd)[codec](data)


def gunzip(data: bytes) -> bytes:
    """Gzip members."""
    out = b""
    while data:
        member = zlib.decompressobj(31)
        out += member.decompress(data)
        data = member.unused_data
    return out


def unzstd(data: bytes) -> bytes:
    """Zstd frames."""
    return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data)


def unsnappy(data: bytes) -> bytes:
    """A raw block, or blocks behind their lengths after Xerial's header of 16 bytes."""
    if not data.startswith(b"\x82SNAPPY\x00"):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return out


# ------------------------------------------------------------------ segments


class Block(NamedTuple):
    """A block of the zone map: [position, end) of the log, and the times of its records."""

    position: int
    end: int
    low: int
    high: int


class Segment:
    """A live segment, by its row."""

    def __init__(self, lake: Path, row: Row) -> None:
        self.row = row
        attempts = {"log": row["attempt_id"]}
        folder = lake / "topics" / f"{row['topic']}-{row['partition']}"
        self.files = {}
        for name in ("log", "index", "timeindex", "zonemap"):
            attempt = attempts.get(name) or row["index_attempt_id"] or row["attempt_id"]
            data = (folder / attempt / f"{row['base_offset']:020}.{name}").read_bytes()
            whole = len(data) == row[f"{name}_bytes"] and crc32c(data) == row[f"{name}_crc32c"]
            check(whole, f"{folder / attempt}: a {name} is damaged")
            self.files[name] = data

    def records(self, position: int = 0, end: int | None = None) -> Iterator[Record]:
        """The records of the batches in [position, end) of the log."""
        log = self.files["log"]
        while position < (len(log) if end is None else end):
            batch = read_batch(log, position)
            yield from records_of(log, batch)
            position += batch.size

    def from_offset(self, offset: int) -> Iterator[Record]:
        """The records at `offset` and later; the offset index says where to begin."""
        entries = struct.iter_unpack(">ii", self.files["index"])
        relative = offset - self.row["base_offset"]
        position = max((position for last, position in entries if last <= relative), default=0)
        return (record for record in self.records(position) if record.offset >= offset)

    def from_time(self, time: int, offset: int) -> Iterator[Record]:
        """Records at `offset` and later, without some that are older than `time`."""
        base = self.row["base_offset"]
        older = (last for most, last in struct.iter_unpack(">qi", self.files["timeindex"])
                 if most < time)  # fmt: skip
        return self.from_offset(max(offset, max((base + last + 1 for last in older), default=0)))

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """The blocks that may have records of a window; other fences' entries are not read."""
        data = self.files["zonemap"]
        magic, version, span, blocks, fences, size, crc, zero = struct.unpack_from(
            "<4sHHIIQII", data
        )
        check(
            (magic, version, zero, size) == (b"SLZM", 1, 0, len(self.files["log"])), "no zone map"
        )
        first = 32 + 40 * fences
        check(crc32c(data[:24] + data[32:first]) == crc, "the fences are damaged")
        bounds = list(struct.iter_unpack("<qqqqII", data[32:first]))
        ends = [bound[3] for bound in bounds[1:]] + [size]
        for number, (low, high, _offset, _position, crc, _zero) in enumerate(bounds):
            at, count = first + 24 * span * number, min(span, blocks - span * number)
            if low < end and high >= start:
                yield from matching(data[at : at + 24 * count], crc, ends[number], (start, end))

    def window(self, start: int, end: int) -> Iterator[Record]:
        """The records with start <= timestamp < end."""
        for block in self.blocks(start, end):
            for record in self.records(block.position, block.end):
                if start <= record.timestamp < end:
                    yield record


def matching(entries: bytes, crc: int, end: int, window: tuple[int, int]) -> Iterator[Block]:
    """The blocks of one fence, whose last block ends at `end`, that meet a window."""
    check(crc32c(entries) == crc, "the entries of a fence are damaged")
    rows = list(struct.iter_unpack("<iiqq", entries))
    ends = [row[1] for row in rows[1:]] + [end]
    for (_offset, position, low, high), block_end in zip(rows, ends, strict=True):
        if low < window[1] and high >= window[0]:
            yield Block(position, block_end, low, high)


# ------------------------------------------------------------------ the lake


class Lake:
    """A lake in a version; None is the newest."""

    def __init__(self, root: Path, version: int | None = None) -> None:
        self.root = root
        self.rows = list(table_rows(root / "catalog/log", version))

    def of(self, kind: str, topic: str | None = None, partition: int | None = None) -> list[Row]:
        """The rows of a kind, of a topic and a log partition."""
        wanted = {"kind": kind, "topic": topic, "partition": partition}
        given = {name: each for name, each in wanted.items() if each is not None}
        return [row for row in self.rows if given.items() <= row.items()]

    def partitions(self, topic: str) -> range:
        """The log partitions of a topic; of several rows the highest sequence holds."""
        return range(max(self.of("topic", topic), key=lambda row: row["sequence"])["partitions"])

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that can be read, and the next one to be written."""
        told = max(self.of("partition", topic, partition), default=None,
                   key=lambda row: row["sequence"])  # fmt: skip
        start, end = (told["log_start_offset"], told["next_offset"]) if told else (0, 0)
        ends = (row["end_offset"] for row in self.of("segment", topic, partition))
        return start, max(end, *ends, start)

    def segments(self, topic: str, partition: int) -> Iterator[Segment]:
        """The segments of a log partition, in the order of offsets and without a hole."""
        rows = sorted(self.of("segment", topic, partition), key=lambda row: row["base_offset"])
        for row, following in pairwise(rows):
            check(row["end_offset"] == following["base_offset"], f"{topic}-{partition} has a hole")
        return (Segment(self.root, row) for row in rows)

    def read(self, topic: str, partition: int, offset: int) -> Iterator[Record]:
        """The records from an offset on; those before the log start are deleted."""
        start, _ = self.bounds(topic, partition)
        for segment in self.segments(topic, partition):
            if segment.row["end_offset"] > max(offset, start):
                yield from segment.from_offset(max(offset, start))

    def offset_for_time(self, topic: str, partition: int, time: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at that time or later."""
        start, _ = self.bounds(topic, partition)
        for segment in self.segments(topic, partition):
            if segment.row["max_timestamp"] >= time and segment.row["end_offset"] > start:
                for record in segment.from_time(time, start):
                    if record.timestamp >= time:
                        return record.offset, record.timestamp
        return None

    def newest(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the largest timestamp."""
        found = [(record.timestamp, -record.offset) for record in self.read(topic, partition, 0)]
        time, offset = max(found, default=(-1, 0))
        return None if time < 0 else (-offset, time)

    def window(self, topic: str, start: int, end: int) -> Iterator[tuple[int, Record]]:
        """The records with start <= timestamp < end and their partitions, by offset in each."""
        for partition in self.partitions(topic):
            begin, _ = self.bounds(topic, partition)
            for segment in self.segments(topic, partition):
                row = segment.row
                if row["min_timestamp"] < end and row["max_timestamp"] >= start:
                    found = segment.window(start, end)
                    yield from ((partition, each) for each in found if each.offset >= begin)

    def quarantined(self) -> list[Row]:
        """The rejects that count: those of attempts that run rows name."""
        counting = {row["attempt_id"] for row in self.of("run")}
        table = self.root / "catalog/quarantine"
        return [row for row in table_rows(table) if row["attempt_id"] in counting]

    def rows_of_manifests(self) -> list[Row]:
        """The rows of marked manifests, less the segments that one of them replaces."""
        folders = [mark.parent for mark in self.root.glob("attempts/*/success")]
        told = [json.loads((folder / "manifest.json").read_text()) for folder in folders]
        check(all(each["format"] == 3 for each in told), "a manifest of another format")
        gone = [segment for each in told for segment in each["replaced"]]
        rows = [row for each in told for row in each["rows"]]
        return [row for row in rows if not any(one.items() <= row.items() for one in gone)]


def main(root: str, topic: str, start: str, end: str) -> None:
    """Print the records of a window."""
    for partition, record in Lake(Path(root)).window(topic, int(start), int(end)):
        print(partition, *record)


if __name__ == "__main__":
    main(*sys.argv[1:])
