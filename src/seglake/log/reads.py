"""Share the store and the caches among all reads of a lake."""

from seglake.catalog.deletions import DeletionMonitor
from seglake.log.block_search import BlockSearch
from seglake.log.byte_cache import ByteCache
from seglake.log.fetch import LogFetch, Meaning
from seglake.log.key_indexes import KeyIndexes
from seglake.log.record_cache import CachedFetch, RecordCache
from seglake.log.zone_maps import ZoneMapCache
from seglake.store import Store, close_unused_files

CACHE_BYTES = 256 * 2**20


class SharedReads:
    """A lake's store, and caches of at most `cache_bytes`.

    Half of the bytes are for zone maps, key indexes and the batches of lookups, the other half for
    the batches of windows. `fetch` gets batches from logs; `cached_fetch` gets them through the
    cache of windows. `missing` returns why a log does not exist, see `LogFetch`. `deletions`
    empties the caches when logs were deleted.
    """

    def __init__(
        self, store: Store, cache_bytes: int = CACHE_BYTES, missing: Meaning | None = None
    ) -> None:
        self.store, self.cache_bytes = store, cache_bytes
        cache = ByteCache(cache_bytes // 2)
        self.fetch = LogFetch(store, missing) if missing else LogFetch(store)
        self.deletions = DeletionMonitor(store, self.forget)
        records = RecordCache(cache_bytes - cache_bytes // 2)
        self.cached_fetch = CachedFetch(self.fetch, records, self.deletions.check_if_due)
        self.zone_maps = ZoneMapCache(store, cache, self.fetch)
        self.key_indexes = KeyIndexes(store, cache)
        self.blocks = BlockSearch(self.fetch, cache)
        self._cache, self.forgotten = cache, 0  # `forgotten` counts the calls of `forget`

    def forget(self) -> None:
        """Close all open files and empty all caches, because logs may have been deleted."""
        self.forgotten += 1
        close_unused_files(self.store)
        self.fetch.forget()
        self._cache.clear()
        self.cached_fetch.cache.clear()
