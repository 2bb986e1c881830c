"""Encode and decode zone maps: the smallest and largest timestamp of each block of a segment.

Kafka's time index has a running maximum, so under disorder it bounds a window on one side only. The
zone map bounds the window on both sides: a reader skips a block whose [min, max] misses the window.

    header, 32 bytes     magic "SLZM" | version u16 | fence span u16 | blocks u32 | fences u32
                         | log bytes u64 | CRC-32C of the header so far and of the fences u32
                         | zero u32
    fences, 40 bytes     min timestamp i64 | max timestamp i64 | relative offset i64 | position i64
                         | CRC-32C of its entries u32 | zero u32
    entries, 24 bytes    relative offset i32 | position i32 | min timestamp i64 | max timestamp i64

Little-endian. An index block ends where the next one begins. Block 0 begins the segment, each other
block begins with a batch that has an index entry. The relative offset of a block belongs to its
first batch. A fence sums up `fence span` entries (see `span_of`). So a lookup in a segment that is
not cached takes two reads, each checked by its own CRC: header and fences, then the entries of one
fence. All offsets and positions are relative, so a zone map survives a re-base. A record without
timestamp counts as -1.
"""

from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format.batch import UNKNOWN, BatchTable
from seglake.format.records import Int64s, fixed
from seglake.limits import INT32_MAX, INT64_MAX

MAGIC = b"SLZM"
VERSION = 1
FENCE_SPAN = 512
SMALL_BYTES = 64 * 1024  # the largest file that readers read whole

HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u2"),
        ("fence_span", "<u2"),
        ("blocks", "<u4"),
        ("fences", "<u4"),
        ("log_bytes", "<u8"),
        ("crc", "<u4"),
        ("zero", "<u4"),
    ]
)
FENCE = np.dtype(
    [
        ("min_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("relative_offset", "<i8"),
        ("position", "<i8"),
        ("crc", "<u4"),
        ("zero", "<u4"),
    ]
)
ENTRY = np.dtype(
    [
        ("relative_offset", "<i4"),
        ("position", "<i4"),
        ("min_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
    ]
)
_CRC_AT = HEADER.fields["crc"][1] if HEADER.fields else 0


def head_bytes_at_most(size_bytes: int) -> int:
    """Return an upper bound of the bytes of header and fences in a zone map of `size_bytes`."""
    most = (size_bytes - HEADER.itemsize) // ENTRY.itemsize
    least = most * ENTRY.itemsize // (ENTRY.itemsize + 1)  # fences need less than 1 byte a block
    span = min(span_of(least), span_of(most))
    return HEADER.itemsize + FENCE.itemsize * -(-most // span)


def span_of(block_count: int) -> int:
    """Return the fence span that `encode` uses for `block_count` blocks.

    A reader without cached data reads all fences, and the entries of one fence. It reads the fewest
    bytes if a fence has somewhat more blocks than the square root of `block_count`. A small file
    is read completely.
    """
    small = ENTRY.itemsize * block_count <= SMALL_BYTES
    if small or block_count > 2**16:
        return FENCE_SPAN
    return 128 if block_count <= 2**14 else 256


def head_bytes(head: Any) -> int:
    """Return the size of header and fences in bytes, from the unchecked header in `head`."""
    count = np.frombuffer(head, HEADER, 1)["fences"][0] if len(head) >= HEADER.itemsize else 0
    return HEADER.itemsize + FENCE.itemsize * int(count)


@dataclass(frozen=True)
class Fences:
    """Header and fences of a zone map, from which a reader chooses the entries to read."""

    log_bytes: int
    block_count: int
    fence_span: int
    rows: npt.NDArray[np.void]

    def entries_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the byte range [start, end) of the entries of fences [first, last] (inclusive)."""
        start = HEADER.itemsize + FENCE.itemsize * len(self.rows)
        blocks = min((last + 1) * self.fence_span, self.block_count)
        return start + ENTRY.itemsize * first * self.fence_span, start + ENTRY.itemsize * blocks

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole zone map file in bytes."""
        return self.entries_range(0, len(self.rows) - 1)[1]

    def position_after(self, fence: int) -> int:
        """Return the position in the log at which the last block of a fence ends, exclusive."""
        last = fence + 1 == len(self.rows)
        return self.log_bytes if last else int(self.rows[fence + 1]["position"])


@dataclass(frozen=True)
class ZoneMap:
    """Consecutive blocks of one segment, as columns. `ends` are end positions, exclusive."""

    relative_offsets: Int64s
    positions: Int64s
    ends: Int64s
    min_timestamps: Int64s
    max_timestamps: Int64s

    def __len__(self) -> int:
        return len(self.positions)


def build(base_offset: int, table: BatchTable, indexed: npt.NDArray[np.bool_]) -> ZoneMap:
    """Return the zone map of the segment that `table` describes.

    `indexed` marks the batches that have an index entry. Raises ValueError if `table` was made only
    from headers, and CorruptData for a segment above 2^31 - 1 bytes.
    """
    if np.any(table["offset_of_max"] == UNKNOWN):
        raise ValueError("a zone map needs the timestamps of the records. Decode the batches first")
    starts = np.union1d(np.flatnonzero(indexed), [0]) if len(table) else np.empty(0, np.int64)
    lows = np.where(table["count"] > 0, table["min_timestamp"], INT64_MAX)
    low = np.minimum.reduceat(lows, starts) if len(starts) else lows
    high = np.maximum.reduceat(table["max_timestamp"], starts) if len(starts) else lows
    positions = table["position"][starts] - (table["position"][0] if len(table) else 0)
    total = np.int64(table["size"].sum(dtype=np.int64))
    if total > INT32_MAX:
        raise CorruptData(f"a segment of {total} bytes is larger than the limit of {INT32_MAX}")
    return ZoneMap(
        table["base_offset"][starts] - base_offset,
        positions,
        np.append(positions[1:], total)[: len(positions)],
        np.minimum(low, high),  # without records, a block's `low` is INT64_MAX
        high,
    )


def encode(zones: ZoneMap) -> bytes:
    """Return the bytes of the .zonemap file of a whole segment."""
    entries = np.zeros(len(zones), ENTRY)
    entries["relative_offset"], entries["position"] = zones.relative_offsets, zones.positions
    entries["min_timestamp"], entries["max_timestamp"] = zones.min_timestamps, zones.max_timestamps
    span = span_of(len(entries))
    fences = _fences(entries, span)
    header = np.zeros(1, HEADER)
    header["magic"], header["version"], header["fence_span"] = MAGIC, VERSION, span
    header["blocks"], header["fences"] = len(entries), len(fences)
    header["log_bytes"] = zones.ends[-1] if len(zones) else 0
    header["crc"] = _header_crc(header.tobytes(), fences.tobytes())
    return header.tobytes() + fences.tobytes() + entries.tobytes()


def _fences(entries: npt.NDArray[np.void], span: int) -> npt.NDArray[np.void]:
    starts = np.arange(0, len(entries), span)
    fences = np.zeros(len(starts), FENCE)
    if len(starts):
        fences["min_timestamp"] = np.minimum.reduceat(entries["min_timestamp"], starts)
        fences["max_timestamp"] = np.maximum.reduceat(entries["max_timestamp"], starts)
    fences["relative_offset"] = entries["relative_offset"][starts]
    fences["position"] = entries["position"][starts]
    fences["crc"] = [crc32c.crc32c(entries[at : at + span].tobytes()) for at in starts]
    return fences


def _header_crc(header: Any, fences: Any) -> int:
    return crc32c.crc32c(fences, crc32c.crc32c(header[:_CRC_AT]))


def decode_fences(data: Any) -> Fences:
    """Decode header and fences from a prefix of the file that has them. Raises CorruptData."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER.itemsize:
        raise CorruptData(f"a zone map of {len(view)} bytes is shorter than its header")
    header = np.frombuffer(view, HEADER, 1)[0]
    if header["magic"] != MAGIC or header["version"] != VERSION:
        raise CorruptData(f"this is not a zone map of version {VERSION}")
    count, span = int(header["fences"]), int(header["fence_span"])
    end = HEADER.itemsize + FENCE.itemsize * count
    if end > len(view):
        raise CorruptData(f"the zone map's {count} fences end at byte {end} of {len(view)}")
    if _header_crc(view[: HEADER.itemsize].tobytes(), view[HEADER.itemsize : end]) != header["crc"]:
        raise CorruptData("CRC-32C of the zone map's header and fences is wrong")
    blocks, log_bytes = int(header["blocks"]), int(header["log_bytes"])
    if not span or count != -(-blocks // span):
        raise CorruptData(f"{count} fences of {span} blocks do not cover {blocks} blocks")
    if log_bytes > INT32_MAX or header["zero"]:
        raise CorruptData(f"a zone map cannot describe a segment of {log_bytes} bytes")
    rows = np.frombuffer(view[HEADER.itemsize : end], FENCE)
    _require_order(rows, log_bytes, HEADER.itemsize)
    return Fences(log_bytes, blocks, span, rows)


def _require_order(rows: npt.NDArray[np.void], end: int, file_position: int) -> None:
    """Raise CorruptData unless blocks ascend and the last block begins before `end` of the log."""
    for column, limit in ((rows["position"], end), (rows["relative_offset"], INT32_MAX + 1)):
        ends_are_wrong = len(rows) and (column[0] < 0 or column[-1] >= limit)
        if ends_are_wrong or (column[1:] <= column[:-1]).any():
            raise CorruptData("blocks of the zone map are out of order", position=file_position)


def checked_entries(data: Any, fences: Fences, first: int, last: int) -> npt.NDArray[np.void]:
    """Check the entries of fences `first` to `last` (inclusive), and return them as `ENTRY` rows.

    `data` has the bytes of `entries_range`, and the rows are a view of it. Raises CorruptData.
    """
    start, end = fences.entries_range(first, last)
    view = memoryview(data).cast("B")
    if len(view) != end - start:
        raise CorruptData(
            f"there are {len(view)} bytes of zone entries, not {end - start}", position=start
        )
    step = fences.fence_span * ENTRY.itemsize
    for fence in range(first, last + 1):
        at = (fence - first) * step
        if crc32c.crc32c(view[at : at + step]) != fences.rows["crc"][fence]:
            raise CorruptData("CRC-32C of zone map entries is wrong", position=start + at)
    entries = fixed(np.frombuffer(view, ENTRY))
    _require_order(entries, fences.position_after(last), start)
    return entries


def decode_entries(data: Any, fences: Fences, first: int, last: int) -> ZoneMap:
    """Return the blocks of `checked_entries` as columns. Raises CorruptData."""
    entries = checked_entries(data, fences, first, last)
    positions = entries["position"].astype(np.int64)
    return ZoneMap(
        entries["relative_offset"].astype(np.int64),
        positions,
        np.append(positions[1:], fences.position_after(last))[: len(positions)].astype(np.int64),
        entries["min_timestamp"].astype(np.int64),
        entries["max_timestamp"].astype(np.int64),
    )


def decode(data: Any) -> ZoneMap:
    """Decode a whole file, and return all its blocks. Raises CorruptData."""
    fences = decode_fences(data)
    start, end = fences.entries_range(0, len(fences.rows) - 1)
    view = memoryview(data).cast("B")
    if len(view) != end:
        raise CorruptData(f"a zone map of {len(view)} bytes should have {end}")
    return decode_entries(view[start:end], fences, 0, len(fences.rows) - 1)
