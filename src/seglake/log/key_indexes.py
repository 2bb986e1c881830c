"""Read, cache and search the key indexes of many segments, and ignore damaged ones.

The tables are read first, then the pages of the blocks in question. If a key index is missing or
damaged, a warning is logged, and the segment is scanned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.format import keyindex
from seglake.format.index import Subject
from seglake.format.key_hashes import Hashes
from seglake.format.records import Flags
from seglake.log.byte_cache import ByteCache
from seglake.log.segment import LogSegment
from seglake.store import Store

_HEAD_BYTES = 16 * 1024  # first read of a file that is not read whole: most tables are shorter
_SMALL_BYTES = 64 * 1024  # the largest file that is read whole
_OWN_BYTES = 1000  # memory of an index's objects

SubjectHashes = Mapping[Subject, Hashes]  # subject → sorted hashes, of which one must occur
NO_HASHES: SubjectHashes = {}

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
                raise CorruptData(f"the key index is of a log with {tables.log_bytes} bytes")
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
