"""Define locks that are free in a forked process, even if a thread of its parent held them.

With an ordinary lock, a fork can block its child forever:

    1. A thread acquires the lock.
    2. Another thread forks the process. The child has a copy of the lock, which is held.
    3. The child has no thread that releases the lock, and waits for it.

So the child frees every `fork_safe_lock`, like Python frees the locks of its own modules.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_safe_lock() -> threading.Lock:
    """Return a lock that is free in a forked child, even if a thread of its parent held it.

    Because of this, the data that the lock protects must be consistent at every moment.
    """
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # noqa: SLF001  # `threading` and `logging` call it, too


os.register_at_fork(after_in_child=_after_fork)
