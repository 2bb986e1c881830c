"""Cache values in memory by key, such as zone maps, key indexes and the batches of lookups."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from seglake.compile.locks import fork_safe_lock


class _Entry:
    __slots__ = ("size", "used", "value")

    def __init__(self, value: Any, size: int) -> None:
        self.value, self.size, self.used = value, size, False


class ByteCache:
    """Values by key, of at most `limit_bytes` in total.

    A hit is one dictionary look-up and takes no lock. Eviction first drops values that were not
    used since its last round (second chance). A value larger than the limit is not cached.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._entries = OrderedDict[Hashable, _Entry]()  # a dict finds its first key slowly
        self._lock = fork_safe_lock()

    def __contains__(self, key: Hashable) -> bool:
        """Return whether there is a value for `key`. This does not count as a use."""
        return key in self._entries

    def get(self, key: Hashable) -> Any:
        """Return the value of `key`, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Cache `value`, which takes `size` bytes. Call this again if a value has grown."""
        with self._lock:
            self._drop(key)
            if size > self.limit_bytes:
                return
            while self.size_bytes + size > self.limit_bytes:
                self._evict()
            self._entries[key] = _Entry(value, size)
            self.size_bytes += size

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._entries.clear()
            self.size_bytes = 0

    def _evict(self) -> None:
        oldest = next(iter(self._entries))
        entry = self._entries[oldest]
        if entry.used:
            entry.used = False
            self._entries.move_to_end(oldest)
        else:
            self._drop(oldest)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        self.size_bytes -= entry.size if entry else 0
