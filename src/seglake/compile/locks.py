"""Define locks that are free in a forked process, even if a thread of its parent held them.

With an ordinary lock, a fork can block its child forever:

    1. A thread acquires the lock.
    2. Another thread forks the process. The child has a copy of the lock, which is held.
    3. The child has no thread that releases the lock, and waits for it.

So every `Lock` is replaced by a new, free one in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class Lock:
    """A lock for `with`, which a fork frees in the child.

    So the protected data must be consistent at every moment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Free the lock in a forked process."""
        self._lock = threading.Lock()


_LOCKS: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)
