"""Stop forked processes from using libraries that do not survive a fork.

delta-rs and obstore run threads, which a fork does not copy. In a forked process, their calls never
return, or abort. The parent and the child also share sockets and the list of sockets to wait for.
So a call in the child, or even a connection that ends there, disturbs the parent and may end it.
"""

from __future__ import annotations

import ctypes
import os
import weakref

from seglake.errors import UsageError


class ThreadedLibrary:
    """A library whose threads do not survive a fork."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = 0  # the id of this process or an ancestor that used the library

    def use(self, holder: object) -> None:
        """Check that this process may call the library. Call this before each use of the library.

        `holder` refers to objects of the library. A forked process never frees a holder of its
        parent. Raises UsageError in a process whose parent used the library before the fork.
        """
        _HOLDERS.add(holder)
        process = os.getpid()
        if self._process not in (0, process):
            raise UsageError(
                f"this process was forked after {self._name} was used, and a fork does not copy its"
                ' threads. Start processes with the method "spawn" or "forkserver" of'
                " multiprocessing, or fork before you use Seglake"
            )
        self._process = process


_HOLDERS: weakref.WeakSet[object] = weakref.WeakSet()


def _after_fork() -> None:
    for holder in list(_HOLDERS):
        # With one more reference, not even the exit of the process frees it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))


os.register_at_fork(after_in_child=_after_fork)
