"""Read, cache and search the key indexes of many segments, and build the key index of a segment.

A search first reads the tables at the beginning of a key index (`KeyTables`), then the pages that
they name for the blocks in question. If a key index is missing
or damaged, a warning is logged, and the segment is scanned.

`KeyIndexBuilder` builds a key index while batches are written or read. A field's values are found
like a search finds them (`value_fields.field_finder`), so an index excludes a block only if a
search would not match there. Each text is hashed without its type. A JSON number that is written in
an unusual way, such as 2e2 or 200.0, has a second hash: the hash of its value. A value that is not
a record of the topic's CSV, or not a match of its pattern, has one hash in each field, `UNREAD`.
Every search also looks for this hash, because the block may contain anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.format import keyindex
from seglake.format.batch import BatchTable
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.decode import Decoded, decode
from seglake.format.index import (
    FIELDS,
    HEADERS,
    RECORD_KEYS,
    IndexPolicy,
    Subject,
    format_of_fields,
)
from seglake.format.key_hashes import (
    Hashes,
    KeyHashes,
    hashes_of,
    hashes_of_numbers,
    hashes_of_spans,
)
from seglake.format.records import (
    Flags,
    Headers,
    Int32s,
    Int64s,
    Spans,
    copy_rows,
    end_to_end,
    read_only,
)
from seglake.format.segment import Roller, SegmentLimits
from seglake.limits import INT64_MAX
from seglake.log.caches import ByteCache
from seglake.log.segment import LogSegment
from seglake.store import Store
from seglake.text.json_fields import Scalars
from seglake.text.spans import join_rows, to_arrow, where_null
from seglake.text.value_fields import field_finder

_HEAD_BYTES = 16 * 1024  # first read of a file that is not read whole: most tables are shorter
_SMALL_BYTES = 64 * 1024  # the largest file that is read whole
_OWN_BYTES = 1000  # memory of an index's objects

SubjectHashes = Mapping[Subject, Hashes]  # subject → sorted hashes, of which one must occur

_log = logging.getLogger(__name__)


class KeyIndexes:
    """The key indexes of a lake's segments."""

    def __init__(self, store: Store, cache: ByteCache) -> None:
        self._store, self._cache = store, cache

    def open(self, segment: LogSegment) -> KeyIndex:
        """Return the key index of a segment that has one. Reads nothing."""
        index: KeyIndex | None = self._cache.get(segment.keyindex_key)
        return index or KeyIndex(segment, self._store, self._cache)


class KeyIndex:
    """The key index of one segment. Its tables and pages are read when they are first needed."""

    def __init__(self, segment: LogSegment, store: Store, cache: ByteCache) -> None:
        self._segment, self._store, self._cache = segment, store, cache
        self._tables: keyindex.KeyTables | None = None
        self._data, self._has = np.empty(0, np.uint8), np.empty(0, np.bool_)
        self._size_bytes = 0  # in memory, with the pages that were read

    def load(self) -> None:
        """Read the tables, unless they are in memory. Ignores damage, which `blocks` logs."""
        with suppress(CorruptData, MissingObject):
            self._loaded()

    def blocks(self, sought: SubjectHashes, count: int, first: int, stop: int) -> Flags | None:
        """Return, for each of the blocks [first, stop), whether it may have all sought hashes.

        `count` is the number of blocks of the segment. Returns None if the segment has no valid key
        index for any sought subject. Raises StoreError.
        """
        try:
            return self._marks(sought, count, first, stop)
        except (CorruptData, MissingObject) as damage:
            key = self._segment.keyindex_key
            _log.warning("%s cannot be used, so the log is searched without it: %s", key, damage)
            return None

    def _marks(self, sought: SubjectHashes, count: int, first: int, stop: int) -> Flags | None:
        tables, all_marks = self._loaded(), None
        if count != tables.blocks:
            raise CorruptData(f"the key index describes {tables.blocks} blocks, not {count}")
        for subject, hashes in sought.items():
            if subject in tables.places:
                marks = np.zeros(count, np.bool_)
                start, end = tables.numbers(subject, first, stop)
                self._load(tables, start, end)
                keyindex.may_hold(self._data, tables.rows[start:end], hashes, marks)
                all_marks = marks if all_marks is None else all_marks & marks
        return all_marks

    def _loaded(self) -> keyindex.KeyTables:
        """Return the tables, which are read if they are not in memory."""
        if self._tables is None:
            size = self._segment.keyindex_bytes
            (head,) = self._read([(0, size if size <= _SMALL_BYTES else _HEAD_BYTES)])
            if (end := min(keyindex.head_bytes(head), size)) > len(head):
                (head,) = self._read([(0, end)])
            tables = keyindex.decode_head(head, size)
            if tables.log_bytes != self._segment.log_bytes:
                raise CorruptData(f"the key index describes a log of {tables.log_bytes} bytes")
            self._data = np.zeros(-(-size // 8) * 8, np.uint8)  # takes memory for loaded pages only
            self._has = tables.rows["pairs"] == 0  # which pages are in memory and checked
            self._size_bytes = _OWN_BYTES + 2 * len(head)
            if len(head) == size:
                self._take(tables, np.arange(len(self._has)), [(0, size)], [head])
            self._tables = tables
            self._cache.put(self._segment.keyindex_key, self, self._size_bytes)
        return self._tables

    def _load(self, tables: keyindex.KeyTables, start: int, end: int) -> None:
        """Read the pages [start, end) that are not in memory, adjacent pages in one range."""
        missing = start + np.flatnonzero(~self._has[start:end])
        if not len(missing):
            return
        cuts = [0, *(np.flatnonzero(np.diff(missing) > 1) + 1).tolist(), len(missing)]
        positions = tables.rows["position"].astype(np.int64)
        ends = positions + tables.rows["bytes"]
        ranges = [
            (int(positions[missing[low]]), int(ends[missing[high - 1]]))
            for low, high in pairwise(cuts)
        ]
        self._take(tables, missing, ranges, self._read(ranges))
        self._cache.put(self._segment.keyindex_key, self, self._size_bytes)

    def _take(
        self, tables: keyindex.KeyTables, pages: Any, ranges: Sequence[tuple[int, int]],
        parts: Sequence[Any],
    ) -> None:  # fmt: skip
        """Store pages that were read, and check them. Raises CorruptData."""
        for (start, end), part in zip(ranges, parts, strict=True):
            self._data[start:end] = np.frombuffer(part, np.uint8)
            self._size_bytes += end - start
        for page in pages.tolist():
            row = tables.rows[page]
            start = int(row["position"])
            keyindex.check_page(row, self._data[start : start + int(row["bytes"])].data)
            self._has[page] = True

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Read ranges of the file. Raise CorruptData if its size differs from the catalog."""
        key, starts, ends = self._segment.keyindex_key, *map(list, zip(*ranges, strict=True))
        try:
            return self._store.read_ranges(key, starts, ends)
        except MissingObject:
            raise
        except StoreError:
            size = self._store.size(key)
            if size == self._segment.keyindex_bytes:
                raise
            what = f"{size} bytes instead of {self._segment.keyindex_bytes} bytes"
            raise CorruptData(what, file=key) from None


_DECODE_BYTES = 2**20  # decompressed records at a time
_NO_LIMITS = SegmentLimits(INT64_MAX, INT64_MAX, INT64_MAX)
SHORT = 18  # characters of a number: a longer number has a second hash, too
UNREAD = b"\xff"  # hashed for a value without fields; it occurs in no text
_USUAL = r"^(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9])$"  # one such text per number

pc: Any = pyarrow.compute  # its stubs require the type of each item


class Hashed(NamedTuple):
    """Hashes of a subject's values in record batches, and the batch of each hash (ascending)."""

    hashes: Hashes
    batches: npt.NDArray[Any]


_NONE = Hashed(np.empty(0, np.uint64), np.empty(0, np.int64))


class KeyIndexBuilder:
    """The key index of a segment whose batches are added one after another.

    It covers the subjects of `policy`. Without subjects, there is no key index. Memory contains the
    finished pages, and the hashes of one page.
    """

    def __init__(self, base_offset: int, policy: IndexPolicy) -> None:
        self._roller = Roller(base_offset, _NO_LIMITS, policy)
        self._pages = {subject: keyindex.Pages() for subject in policy.subjects}
        self._fields = [each for each in policy.subjects if each.kind == FIELDS]
        self._headers = [each for each in policy.subjects if each.kind == HEADERS]
        self._value_format = format_of_fields(self._fields)
        self._find = field_finder(self._value_format, [each.name for each in self._fields])
        self._block = -1

    def add(self, table: BatchTable, data: Any, keys: KeyHashes | None = None) -> None:
        """Add batches that follow one another in `data` without a gap, whatever their positions.

        `keys` are the hashes of all their records. If they are passed and the index covers only
        record keys, nothing is decompressed.
        """
        if not self._pages:
            return
        if keys is not None and [*self._pages] == [RECORD_KEYS]:
            batches = np.repeat(np.arange(len(table)), table["count"])
            hashed = Hashed(keys.hashes[keys.has_key], batches[keys.has_key])
            self._add(table, {RECORD_KEYS: hashed})
            return
        table = end_to_end(copy_rows(table))
        done = 0
        while done < len(table):
            payload = payload_of(read_only(data), table[done:], enough_bytes=_DECODE_BYTES)
            self.add_payload(table[done : done + len(payload.ends)], payload)
            done += len(payload.ends)

    def add_payload(self, table: BatchTable, payload: Payload) -> None:
        """Add batches with their decompressed records. Raises CorruptData."""
        hashed: dict[Subject, Hashed] = {}
        if RECORD_KEYS in self._pages:
            hashed[RECORD_KEYS] = Hashed(*hashes_of(table, payload))
        if self._fields or self._headers:
            decoded = decode(table, payload)
            hashed |= self._of_fields(decoded) | self._of_headers(decoded)
        self._add(table, hashed)

    def finish(self, log_bytes: int) -> dict[str, bytes]:
        """Return the key index of a log of this size by its suffix, or {} without subjects."""
        if not self._pages:
            return {}
        for pages in self._pages.values():
            pages.finish()
        return {"keyindex": keyindex.encode(self._pages, self._block + 1, log_bytes)}

    def _of_fields(self, decoded: Decoded) -> dict[Subject, Hashed]:
        """Return the hashes of the values of the policy's fields."""
        if not self._fields:
            return {}
        values = decoded.records.values
        found = self._find(where_null(join_rows([values]), values.lengths < 0))
        unread = np.flatnonzero(~found.fine & (values.lengths >= 0) & bool(self._value_format))
        return {
            each: _of_scalars(found.scalars(each.name), unread, decoded.batch)
            for each in self._fields
        }

    def _of_headers(self, decoded: Decoded) -> dict[Subject, Hashed]:
        """Return the hashes of the values of the policy's headers."""
        headers = decoded.records.headers
        if headers is None:
            return {}
        items = np.repeat(decoded.batch, np.diff(headers.firsts))
        keys = to_arrow(headers.keys).cast(pa.large_binary())
        return {each: _of_header(keys, headers, items, each) for each in self._headers}

    def _add(self, table: BatchTable, hashed: Mapping[Subject, Hashed]) -> None:
        """Add batches with the hashes of their subjects."""
        if not len(table):
            return
        begins = np.zeros(len(table), np.bool_)
        taken = self._roller.append(table)  # all, unless the log is damaged, which is raised later
        begins[:taken] = self._roller.newly_indexed
        begins[0] |= self._block < 0
        blocks = self._block + np.cumsum(begins)  # of each batch
        self._block = int(blocks[-1])
        for subject, pages in self._pages.items():
            own: Hashed = hashed.get(subject, _NONE)
            pages.add(own.hashes, blocks[own.batches], self._block)


def _of_scalars(scalars: Scalars, unread: Int64s, batch_of: Int32s) -> Hashed:
    """Return the hashes of scalar values and `unread` records.

    `batch_of` has the batch of each record.
    """
    texts, rows = scalars.texts, scalars.rows
    numbers = _with_two_hashes(scalars)
    unread = unread[np.append(True, np.diff(batch_of[unread]) > 0)[: len(unread)]]
    none = hashes_of_spans(Spans.from_list([UNREAD] * len(unread)))
    hashes = np.concatenate([hashes_of_spans(texts), hashes_of_numbers(texts.take(numbers)), none])
    return _in_order(hashes, batch_of[np.concatenate([rows, rows[numbers], unread])])


def _with_two_hashes(scalars: Scalars) -> Int64s:
    """Return the positions of scalars with two hashes: numbers in a long or unusual notation."""
    raw = np.flatnonzero(scalars.raw)
    texts = to_arrow(scalars.texts.take(raw))
    short = pc.less_equal(pc.binary_length(texts), SHORT)
    usual = pc.and_(short, pc.match_substring_regex(texts, _USUAL))
    number = pc.match_substring_regex(texts, "^[-0-9]")  # not true and false
    rows: Int64s = raw[pc.and_not(number, usual).to_numpy(zero_copy_only=False)]
    return rows


def _of_header(keys: Any, headers: Headers, batch_of: Int32s, subject: Subject) -> Hashed:
    """Return the hashes of a header's values. `batch_of` has the batch of each header."""
    named = pc.equal(keys, subject.name.encode()).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(named & (headers.values.lengths >= 0))
    return Hashed(hashes_of_spans(headers.values.take(chosen)), batch_of[chosen])


def _in_order(hashes: Hashes, batches: Int32s) -> Hashed:
    order = np.argsort(batches, kind="stable")
    return Hashed(hashes[order], batches[order])
