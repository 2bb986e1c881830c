"""Locks that a forked process finds free, whatever its parent's threads were doing."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class Lock:
    """A lock for `with`. What it guards must be sound at every moment for readers without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _ALIVE.add(self)

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
        """Forget that another thread held it when this process was forked."""
        self._lock = threading.Lock()


_ALIVE: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_ALIVE):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
