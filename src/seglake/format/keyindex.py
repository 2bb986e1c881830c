"""The key index: which blocks of a segment may hold a record key.

    header, 32 bytes     magic "SLKI" | version u16 | things u16 | blocks u32 | pages u32
                         | log bytes u64 | CRC-32C of the header so far, things and pages u32
                         | zero u32
    things, 16 bytes     kind u16 (1: record keys) | zero u16 | pages u32 | zero u64
    pages, 32 bytes      position u64 | pairs u32 | first block u32 | blocks u32 | bytes u32
                         | CRC-32C of its bytes u32 | zero u32
    a page's bytes       buckets, n ones and n zeros | n blocks u8 | n rests of 4 bits | zeros

Little-endian. The blocks are those of the zone map, at most 256 to a page. A page has n different
pairs of a hash and a block. With h the upper 32 bits of a hash, h * 16n / 2^32 is 16 times the
pair's bucket plus its rest. Pairs are in the order of hash, then block. For each bucket, `buckets`
has a one for each of its pairs, then a zero; the first bit is the lowest of the first byte. Buckets
and page end at a multiple of 8 bytes. A null key is in no pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import key_kernels
from seglake.format.batch import BatchTable
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.index import IndexPolicy
from seglake.format.key_hashes import Hashes, KeyHashes, hashes_of
from seglake.format.key_kernels import REST_BITS
from seglake.format.records import Flags, Int64s, copy_rows, fixed, read_only
from seglake.format.segment import Roller, SegmentLimits
from seglake.limits import INT64_MAX

MAGIC = b"SLKI"
VERSION = 1
KEYS = 1  # the kind of thing that record keys are
PAGE_BLOCKS = 256  # a block's number in its page is a byte
PAGE_PAIRS = 2**19  # a page with so many pairs ends
HEADER = np.dtype(
    [("magic", "S4"), ("version", "<u2"), ("things", "<u2"), ("blocks", "<u4"), ("pages", "<u4"),
     ("log_bytes", "<u8"), ("crc", "<u4"), ("zero", "<u4")]
)  # fmt: skip
THING = np.dtype([("kind", "<u2"), ("zero", "<u2"), ("pages", "<u4"), ("more_zero", "<u8")])
PAGE = np.dtype(
    [("position", "<u8"), ("pairs", "<u4"), ("first_block", "<u4"), ("blocks", "<u4"),
     ("bytes", "<u4"), ("crc", "<u4"), ("zero", "<u4")]
)  # fmt: skip
_CRC_AT = HEADER.fields["crc"][1] if HEADER.fields else 0
_DECODE_BYTES = 2**20  # of decompressed records at once
_NO_LIMITS = SegmentLimits(INT64_MAX, INT64_MAX, INT64_MAX)


class KeyIndexBuilder:
    """The key index of a segment whose batches are added one after another.

    Memory holds the finished pages, and the hashes of one page.
    """

    def __init__(self, base_offset: int, policy: IndexPolicy) -> None:
        self._roller = Roller(base_offset, _NO_LIMITS, policy)
        self._block, self._first_block = -1, 0
        self._hashes: list[Hashes] = []  # of the page
        self._blocks: list[npt.NDArray[np.uint64]] = []  # their blocks, counted in the page
        self._pairs_at_most = 0
        self._rows: list[tuple[int, ...]] = []
        self._pages: list[bytes] = []

    def add(self, table: BatchTable, data: Any, keys: KeyHashes | None = None) -> None:
        """Add batches that follow one another in `data` without a gap, whatever their positions.

        With `keys`, the hashes of all their records, nothing is decompressed.
        """
        if keys is not None:
            before = np.append(0, np.cumsum(keys.has_key))
            ends = before[np.cumsum(table["count"], dtype=np.int64)]
            self._add(keys.hashes[keys.has_key], self._blocks_of(table), ends)
            return
        table = copy_rows(table)
        table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
        done = 0
        while done < len(table):
            payload = payload_of(read_only(data), table[done:], enough_bytes=_DECODE_BYTES)
            self.add_payload(table[done : done + len(payload.ends)], payload)
            done += len(payload.ends)

    def add_payload(self, table: BatchTable, payload: Payload) -> None:
        """Add batches with their decompressed records. Raises CorruptData."""
        blocks = self._blocks_of(table)
        hashes, batches = hashes_of(table, payload)
        self._add(hashes, blocks, batches.searchsorted(np.arange(len(table)), "right"))

    def _blocks_of(self, table: BatchTable) -> Int64s:
        """The block of each of the next batches."""
        self._roller.append(table)
        begins = self._roller.newly_indexed.copy()
        begins[:1] |= self._block < 0
        return self._block + np.cumsum(begins)

    def _add(self, hashes: Hashes, blocks: Int64s, ends: Int64s) -> None:
        """Take the hashes of batches; the hashes of batch b end before ends[b]."""
        start = 0
        for row in np.flatnonzero(np.diff(blocks, prepend=self._block)).tolist():
            end = int(ends[row - 1]) if row else 0
            self._take(hashes[start:end])
            start, self._block = end, self._block + 1
            in_page = self._block - self._first_block
            if in_page == PAGE_BLOCKS or self._pairs_at_most >= PAGE_PAIRS:
                self._end_page()
        self._take(hashes[start:])

    def _take(self, hashes: Hashes) -> None:
        """Add hashes of the block that is open."""
        if len(hashes):
            number = np.uint64(self._block - self._first_block)
            self._hashes.append(hashes)
            self._blocks.append(np.full(len(hashes), number))
            self._pairs_at_most += len(hashes)

    def _end_page(self) -> None:
        """End the page before the block that is open."""
        data, pairs = _page(self._hashes, self._blocks)
        blocks = self._block - self._first_block
        self._rows.append((0, pairs, self._first_block, blocks, len(data), crc32c.crc32c(data), 0))
        self._pages.append(data)
        self._first_block, self._hashes, self._blocks = self._block, [], []
        self._pairs_at_most = 0

    def finish(self, log_bytes: int) -> bytes:
        """The bytes of the .keyindex file of a log of this size."""
        self._block += 1
        if self._block > self._first_block:
            self._end_page()
        return _file(self._rows, self._pages, self._block, log_bytes)


def _page(hashes: list[Hashes], blocks: list[npt.NDArray[np.uint64]]) -> tuple[bytes, int]:
    """The bytes of a page, and its number of pairs."""
    if not hashes:
        return b"", 0
    pairs = np.concatenate(hashes) & ~np.uint64(PAGE_BLOCKS - 1) | np.concatenate(blocks)
    pairs.sort()
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
    count = len(pairs)
    places = (pairs >> np.uint64(32)) * np.uint64(count << REST_BITS) >> np.uint64(32)
    buckets = np.zeros(-(-2 * count // 64) * 64, np.bool_)
    buckets[(places >> np.uint64(REST_BITS)).astype(np.int64) + np.arange(count)] = True
    rests = np.zeros(count + count % 2, np.uint8)
    rests[:count] = places & np.uint64(2**REST_BITS - 1)
    data = np.packbits(buckets, bitorder="little").tobytes()
    data += pairs.astype(np.uint8).tobytes() + (rests[::2] | rests[1::2] << 4).tobytes()
    return data + bytes(-len(data) % 8), count


def _file(rows: Iterable[tuple[int, ...]], data: list[bytes], blocks: int, log_bytes: int) -> bytes:
    pages, thing, header = np.array([*rows], PAGE), np.zeros(1, THING), np.zeros(1, HEADER)
    ends = np.cumsum(pages["bytes"], dtype=np.uint64)
    start = HEADER.itemsize + THING.itemsize + PAGE.itemsize * len(pages)
    pages["position"] = start + ends - pages["bytes"]
    thing["kind"], thing["pages"] = KEYS, len(pages)
    header["magic"], header["version"], header["things"] = MAGIC, VERSION, 1
    header["blocks"], header["pages"], header["log_bytes"] = blocks, len(pages), log_bytes
    tables = thing.tobytes() + pages.tobytes()
    header["crc"] = crc32c.crc32c(tables, crc32c.crc32c(header.tobytes()[:_CRC_AT]))
    return b"".join([header.tobytes(), tables, *data])


@dataclass(frozen=True)
class KeyPages:
    """The tables at the beginning of a key index, from which a reader chooses pages to read."""

    blocks: int
    log_bytes: int
    rows: npt.NDArray[np.void]  # of PAGE: those of record keys

    def numbers(self, first: int, stop: int) -> tuple[int, int]:
        """The pages [first, stop) that have the blocks [first, stop)."""
        starts = self.rows["first_block"]
        return int(starts.searchsorted(first, "right")) - 1, int(starts.searchsorted(stop))


def head_bytes(head: Any) -> int:
    """Where the tables end, from the first bytes of a file; not checked yet."""
    if len(head) < HEADER.itemsize:
        return HEADER.itemsize
    header = np.frombuffer(head, HEADER, 1)[0]
    things, pages = int(header["things"]), int(header["pages"])
    return HEADER.itemsize + THING.itemsize * things + PAGE.itemsize * pages


def decode_head(head: Any, size: int) -> KeyPages:
    """The tables, from the first bytes of a file of `size` bytes, or more. Raises CorruptData."""
    view, end = memoryview(head).cast("B"), head_bytes(head)
    if len(view) < end:
        raise CorruptData(f"a key index of {size} bytes is shorter than its tables")
    header = np.frombuffer(view, HEADER, 1)[0]
    if header["magic"] != MAGIC or header["version"] != VERSION:
        raise CorruptData(f"this is not a key index of version {VERSION}")
    crc = crc32c.crc32c(view[HEADER.itemsize : end], crc32c.crc32c(view[:_CRC_AT]))
    if crc != header["crc"] or header["zero"]:
        raise CorruptData("CRC-32C of the key index's tables is wrong")
    things = np.frombuffer(view, THING, int(header["things"]), HEADER.itemsize)
    rows = np.frombuffer(view[:end], PAGE, offset=HEADER.itemsize + THING.itemsize * len(things))
    before = 0
    for thing in things:
        if thing["kind"] == KEYS:
            own = rows[before : before + int(thing["pages"])]
            return _checked_pages(header, own, size)
        before += int(thing["pages"])
    raise CorruptData("the key index has no record keys")


def _checked_pages(header: Any, rows: npt.NDArray[np.void], size: int) -> KeyPages:
    blocks = int(header["blocks"])
    ends = rows["first_block"].astype(np.int64) + rows["blocks"]
    covered = np.array_equal(np.append(0, ends), np.append(rows["first_block"], blocks))
    stops = rows["position"].astype(np.int64) + rows["bytes"]
    if not covered or (len(rows) and (stops.max() > size or rows["position"].min() % 8)):
        raise CorruptData("pages of the key index do not cover its blocks")
    return KeyPages(blocks, int(header["log_bytes"]), rows)


def check_page(row: Any, data: Any) -> None:
    """Raise CorruptData unless these are the bytes of a page."""
    if crc32c.crc32c(data) != row["crc"]:
        position = int(row["position"])
        raise CorruptData("CRC-32C of a page of the key index is wrong", position=position)


def may_hold(data: npt.NDArray[np.uint8], rows: Any, hashes: Hashes, marks: Flags) -> None:
    """Mark the blocks of pages that may hold one of the ascending hashes.

    `data` is the file, at least where the pages are. Its size is a multiple of 8 bytes.
    """
    pages = np.empty((len(rows), 3), np.int64)
    for column, name in enumerate(("pairs", "position", "first_block")):
        pages[:, column] = rows[name]
    words = fixed(data).view("<u8")
    key_kernels.mark_blocks(fixed(data), words, pages, hashes, marks)
