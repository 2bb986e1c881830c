"""Encode and decode key indexes, which list the blocks that may have a key, field or header value.

    header, 32 bytes     magic "SLKI" | version u16 | things u16 | blocks u32 | pages u32
                         | log bytes u64 | CRC-32C of the header so far and the tables u32
                         | names, their bytes u32
    things, 16 bytes     kind u16 (1: record keys, 2: a field of JSON values, 3: a header,
                         4: a field of values of the format that the thing of kind 5 names)
                         | name, its bytes u16 | pages u32 | zero u64
    pages, 32 bytes      position u64 | pairs u32 | first block u32 | blocks u32 | bytes u32
                         | CRC-32C of its bytes u32 | zero u32
    names                of the fields and headers, UTF-8, one after another | zeros
    a page's bytes       buckets, n ones and n zeros | n blocks u8 | n rests of 4 bits | zeros

Little-endian. The tables are things, pages and names. Version 1 has record keys only, version 2 is
any other file. The blocks are the zone map's, at most 256 in a page. A page has n different
pairs of a hash and a block. With h the upper 32 bits of a hash, h * 16n / 2^32 is 16 times the
pair's bucket plus its rest. Pairs are in the order of hash, then block. For each bucket, `buckets`
has a one for each of its pairs, then a zero; the first bit is the lowest of the first byte. Names,
buckets and page end at a multiple of 8 bytes. A null is in no pair. A thing of kind 5 has no page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import key_kernels
from seglake.format.index import (
    FIELDS,
    HEADERS,
    KEYS,
    RECORD_KEYS,
    Subject,
    Subjects,
    format_of_fields,
)
from seglake.format.key_hashes import Hashes
from seglake.format.key_kernels import REST_BITS
from seglake.format.records import Flags, Int64s, fixed

MAGIC = b"SLKI"
VERSION, WITH_NAMES = 1, 2
OTHER_FIELDS, VALUE_FORMAT = 4, 5  # kinds of things that are not kinds of subjects
PAGE_BLOCKS = 256  # a block's number in its page is a byte
PAGE_PAIRS = 2**19  # a page ends when it has this many pairs
HEADER = np.dtype(
    [("magic", "S4"), ("version", "<u2"), ("things", "<u2"), ("blocks", "<u4"), ("pages", "<u4"),
     ("log_bytes", "<u8"), ("crc", "<u4"), ("names", "<u4")]
)  # fmt: skip
THING = np.dtype([("kind", "<u2"), ("name", "<u2"), ("pages", "<u4"), ("zero", "<u8")])
PAGE = np.dtype(
    [("position", "<u8"), ("pairs", "<u4"), ("first_block", "<u4"), ("blocks", "<u4"),
     ("bytes", "<u4"), ("crc", "<u4"), ("zero", "<u4")]
)  # fmt: skip
_CRC_AT = HEADER.fields["crc"][1] if HEADER.fields else 0


class Pages:
    """The pages of one subject, built while its hashes are added.

    Memory contains the finished pages, and the pairs of one page.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []  # of PAGE
        self.data: list[bytes] = []
        self._block, self._first_block = -1, 0
        self._pairs: list[Hashes] = []  # of the page; a block's number in the page is the last byte
        self._pairs_at_most = 0

    def add(self, hashes: Hashes, blocks: Int64s, last: int) -> None:
        """Add hashes and the block of each hash. `last` is the last block that has begun.

        Blocks must ascend. A page ends at 256 blocks, or when it has enough pairs.
        """
        while (end := self._next_page(blocks)) <= last:
            before = int(blocks.searchsorted(end))
            self._put(hashes[:before], blocks[:before])
            hashes, blocks = hashes[before:], blocks[before:]
            self._end_page(end)
        self._put(hashes, blocks)
        self._block = last

    def finish(self) -> None:
        """Finish the last block and the last page. No hash can be added afterwards."""
        if self._block >= self._first_block:
            self._end_page(self._block + 1)

    def _next_page(self, blocks: Int64s) -> int:
        """Return the first block of the next page, from the current page and these blocks."""
        missing, full = PAGE_PAIRS - self._pairs_at_most, self._first_block + PAGE_BLOCKS
        if missing > len(blocks):
            return full
        enough = self._block if missing <= 0 else max(self._block, int(blocks[missing - 1]))
        return min(full, enough + 1)

    def _put(self, hashes: Hashes, blocks: Int64s) -> None:
        numbers = (blocks - self._first_block).astype(np.uint64)
        self._pairs.append(hashes & ~np.uint64(PAGE_BLOCKS - 1) | numbers)
        self._pairs_at_most += len(hashes)

    def _end_page(self, end: int) -> None:
        """End the page before the block `end`, which begins the next page."""
        data, pairs = _page(np.concatenate(self._pairs))
        blocks = end - self._first_block
        self.rows.append((0, pairs, self._first_block, blocks, len(data), crc32c.crc32c(data), 0))
        self.data.append(data)
        self._block, self._first_block = end, end
        self._pairs, self._pairs_at_most = [], 0


def _page(pairs: Hashes) -> tuple[bytes, int]:
    """Return the bytes of a page, and its number of distinct pairs. Blocks of `pairs` ascend."""
    count = key_kernels.sort_pairs(pairs, np.empty_like(pairs))
    pairs = pairs[:count]
    places = (pairs >> np.uint64(32)) * np.uint64(count << REST_BITS) >> np.uint64(32)
    buckets = np.zeros(-(-2 * count // 64) * 64, np.bool_)
    buckets[(places >> np.uint64(REST_BITS)).astype(np.int64) + np.arange(count)] = True
    rests = np.zeros(count + count % 2, np.uint8)
    rests[:count] = places & np.uint64(2**REST_BITS - 1)
    data = np.packbits(buckets, bitorder="little").tobytes()
    data += pairs.astype(np.uint8).tobytes() + (rests[::2] | rests[1::2] << 4).tobytes()
    return data + bytes(-len(data) % 8), count


def encode(pages: Mapping[Subject, Pages], blocks: int, log_bytes: int) -> bytes:
    """Return the bytes of the key index of a log that has `log_bytes` bytes in `blocks` blocks.

    `pages` must be finished. All their fields have the same value format.
    """
    named = _things(pages)
    subjects = [subject for *_, subject in named if subject is not None]
    rows = np.array([row for subject in subjects for row in pages[subject].rows], PAGE)
    things, header = np.zeros(len(named), THING), np.zeros(1, HEADER)
    things["kind"] = [kind for kind, *_ in named]
    things["name"] = [len(name) for _, name, _ in named]
    things["pages"] = [len(pages[subject].rows) if subject else 0 for *_, subject in named]
    text = b"".join(name for _, name, _ in named)
    text += bytes(-len(text) % 8)
    ends = np.cumsum(rows["bytes"], dtype=np.uint64)
    start = HEADER.itemsize + things.nbytes + rows.nbytes + len(text)
    rows["position"] = start + ends - rows["bytes"]
    header["magic"], header["things"], header["names"] = MAGIC, len(named), len(text)
    header["version"] = VERSION if subjects == [RECORD_KEYS] else WITH_NAMES
    header["blocks"], header["pages"], header["log_bytes"] = blocks, len(rows), log_bytes
    tables = things.tobytes() + rows.tobytes() + text
    header["crc"] = _crc(header.tobytes(), tables)
    return b"".join([header.tobytes(), tables, *(d for s in subjects for d in pages[s].data)])


def _things(subjects: Iterable[Subject]) -> list[tuple[int, bytes, Subject | None]]:
    """Return (kind, name, subject) of each thing of a file. A value format has no subject."""
    things: list[tuple[int, bytes, Subject | None]] = [
        (OTHER_FIELDS if each.value_format else each.kind, each.name.encode(), each)
        for each in subjects
    ]
    value_format = format_of_fields(subjects)
    if value_format:
        things.append((VALUE_FORMAT, value_format.encode(), None))
    return sorted(things, key=lambda thing: thing[:2])


def _crc(header: Any, tables: Any) -> int:
    """Return the checksum of the tables, and of the header in front of them."""
    return crc32c.crc32c(tables, crc32c.crc32c(header[:_CRC_AT]))


@dataclass(frozen=True)
class KeyTables:
    """The tables at the beginning of a key index, from which a reader chooses pages to read."""

    blocks: int
    log_bytes: int
    rows: npt.NDArray[np.void]  # of PAGE: the pages of all subjects
    places: Mapping[Subject, tuple[int, int]]  # the pages [start, end) of each subject

    @property
    def subjects(self) -> Subjects:
        """Return the subjects that the key index covers."""
        return tuple(sorted(self.places))

    def of(self, subject: Subject) -> npt.NDArray[np.void]:
        """Return the page rows of a subject."""
        return self.rows[slice(*self.places[subject])]

    def numbers(self, subject: Subject, first: int, stop: int) -> tuple[int, int]:
        """Return the range [start, end) of a subject's pages that cover blocks [first, stop)."""
        begin = self.places[subject][0]
        starts = self.of(subject)["first_block"]
        return begin + int(starts.searchsorted(first, "right")) - 1, begin + int(
            starts.searchsorted(stop)
        )


def head_bytes(head: Any) -> int:
    """Return the size of header and tables in bytes, from the unchecked header in `head`."""
    if len(head) < HEADER.itemsize:
        return HEADER.itemsize
    header = np.frombuffer(head, HEADER, 1)[0]
    things, pages = int(header["things"]), int(header["pages"])
    return HEADER.itemsize + THING.itemsize * things + PAGE.itemsize * pages + int(header["names"])


def decode_head(head: Any, size: int) -> KeyTables:
    """Decode the tables of a key index from `head`, a prefix of the file that has all of them.

    `size` is the size of the file in bytes. Raises CorruptData.
    """
    view, end = memoryview(head).cast("B"), head_bytes(head)
    if len(view) < end:
        raise CorruptData(f"a key index of {size} bytes is shorter than its tables")
    header = np.frombuffer(view, HEADER, 1)[0]
    if header["magic"] != MAGIC or header["version"] not in (VERSION, WITH_NAMES):
        raise CorruptData(f"this is not a key index of version {VERSION} or {WITH_NAMES}")
    if _crc(view, view[HEADER.itemsize : end]) != header["crc"]:
        raise CorruptData("CRC-32C of the key index's tables is wrong")
    things = np.frombuffer(view, THING, int(header["things"]), HEADER.itemsize)
    pages_at = HEADER.itemsize + things.nbytes
    rows = np.frombuffer(view, PAGE, int(header["pages"]), pages_at)
    stops = rows["position"].astype(np.int64) + rows["bytes"]
    if len(rows) and (stops.max() > size or rows["position"].min() < end):
        raise CorruptData("pages of the key index are not in its file")
    places = dict(_places(things, bytes(view[pages_at + rows.nbytes : end])))
    tables = KeyTables(int(header["blocks"]), int(header["log_bytes"]), rows, places)
    for subject in places:
        _check_cover(tables.of(subject), tables.blocks)
    return tables


def _places(
    things: npt.NDArray[np.void], names: bytes
) -> Iterator[tuple[Subject, tuple[int, int]]]:
    """Yield each subject of a known kind, and the range [start, end) of its pages."""
    ends = things["name"].astype(np.int64).cumsum().tolist()
    texts = [
        names[end - size : end].decode(errors="replace")
        for size, end in zip(things["name"].tolist(), ends, strict=True)
    ]
    kinds, page = things["kind"].tolist(), 0
    formats = dict(zip(kinds, texts, strict=True))
    for kind, text, pages in zip(kinds, texts, things["pages"].tolist(), strict=True):
        if KEYS <= kind <= HEADERS:
            yield Subject(kind, text), (page, page + pages)
        elif kind == OTHER_FIELDS and VALUE_FORMAT in formats:
            yield Subject(FIELDS, text, formats[VALUE_FORMAT]), (page, page + pages)
        page += pages


def _check_cover(rows: npt.NDArray[np.void], blocks: int) -> None:
    ends = rows["first_block"].astype(np.int64) + rows["blocks"]
    covered = np.array_equal(np.append(0, ends), np.append(rows["first_block"], blocks))
    if not covered or (len(rows) and (rows["position"] % 8).any()):
        raise CorruptData("pages of the key index do not cover its blocks")


def check_page(row: Any, data: Any) -> None:
    """Raise CorruptData unless `data` has the checksum of the page that `row` describes."""
    if crc32c.crc32c(data) != row["crc"]:
        position = int(row["position"])
        raise CorruptData("CRC-32C of a page of the key index is wrong", position=position)


def may_hold(data: npt.NDArray[np.uint8], rows: Any, hashes: Hashes, marks: Flags) -> None:
    """Set marks[b] for each block b of some pages that may have a key with one of the hashes.

    `rows` describe the pages, and `hashes` ascend. `data` has the bytes of the pages at their
    positions in the file, and its size is a multiple of 8.
    """
    pages = np.empty((len(rows), 3), np.int64)
    for column, name in enumerate(("pairs", "position", "first_block")):
        pages[:, column] = rows[name]
    words = fixed(data).view("<u8")
    key_kernels.mark_blocks(fixed(data), words, pages, hashes, marks)
