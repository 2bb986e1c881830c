"""Read and cache the zone maps of many segments, and rebuild damaged ones.

A small zone map is read and checked whole, in one request. Of a large zone map, the fences are read
first, then only the entries that a lookup needs, so that a first lookup takes two requests. A
missing or damaged zone map is rebuilt from the log, in memory, with a warning. The results do not
change.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.format import zonemap
from seglake.format.batch import TABLE
from seglake.format.decode import with_extremes
from seglake.format.index import IndexPolicy
from seglake.format.records import join_tables
from seglake.format.segment import choose_indexed
from seglake.log.byte_cache import ByteCache
from seglake.log.fetch import LogFetch
from seglake.log.segment import LogSegment
from seglake.log.zones.search import ReadRanges, ZoneSearch
from seglake.store import Store

_PART_BYTES = 2**20  # decompressed at a time

_log = logging.getLogger(__name__)


class ZoneMapCache:
    """The zone maps of a lake's segments."""

    def __init__(self, store: Store, cache: ByteCache, fetch: LogFetch | None = None) -> None:
        self._store, self._cache, self._fetch = store, cache, fetch or LogFetch(store)

    def open(self, segment: LogSegment) -> ZoneSearch:
        """Return the zone map of a segment. Raises CorruptData, StoreError."""
        zones: ZoneSearch | None = self._cache.get(segment.zonemap_key)
        if zones is None:
            zones = ZoneSearch(segment, self)
            self.grown(segment, zones)
        return zones

    def grown(self, segment: LogSegment, zones: ZoneSearch) -> None:
        """Cache a zone map with its current size."""
        self._cache.put(segment.zonemap_key, zones, zones.size_bytes)

    def head(self, segment: LogSegment) -> tuple[Any, ReadRanges | None]:
        """Return the beginning of the file, and a function that reads the rest, if any."""
        size = end = segment.zonemap_bytes
        if large := size > zonemap.SMALL_BYTES:
            end = zonemap.head_bytes_at_most(size)
        (head,) = self._read(segment, [(0, end)])
        if end < (more := min(zonemap.head_bytes(head), size)):  # a zone map with smaller fences
            (head,) = self._read(segment, [(0, more)])
        return head, partial(self._read, segment) if large else None

    def _read(self, segment: LogSegment, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Read ranges of the zone map. Raise CorruptData if the file has another size."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        try:
            return self._store.read_ranges(segment.zonemap_key, starts, ends) if ranges else []
        except MissingObject:
            raise
        except StoreError:
            size = self._store.size(segment.zonemap_key)
            if size == segment.zonemap_bytes:
                raise
            what = f"{size} bytes instead of {segment.zonemap_bytes} bytes"
            raise CorruptData(what, file=segment.zonemap_key) from None

    def remake(self, segment: LogSegment, damage: Exception) -> bytes:
        """Rebuild a zone map from the log. Any index policy gives the same results."""
        _log.warning(
            "%s cannot be used, so a zone map is built from the log in memory: %s",
            segment.zonemap_key,
            damage,
        )
        tables = [np.empty(0, TABLE)]
        for chunk in self._fetch.chunks_of(segment, segment.log):
            for part, decoded in chunk.decode_in_parts(chunk.table, _PART_BYTES):
                tables.append(with_extremes(part, decoded))
        table = join_tables(tables)
        table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
        zones = zonemap.build(segment.base_offset, table, choose_indexed(table, IndexPolicy()))
        return zonemap.encode(zones)
