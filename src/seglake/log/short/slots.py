"""The threads that help others to read short windows. They wait in a kernel, not in Python.

The threads start when they are first needed. A forked process starts its own threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

import numpy as np

from seglake.format.records import Int64s
from seglake.locks import Lock
from seglake.log.short.share_kernels import (
    CALLS,
    SLOT_FIELDS,
    WAKES,
    WORDS,
    help_readers,
    read_shares,
)
from seglake.log.threads import DECODERS
from seglake.meanwhile import load

_FUNCTIONS = "read", "write", "pread", "sched_yield"  # of C, as the kernels number them

_LOCK = Lock()
_slots: Int64s = np.zeros((0, SLOT_FIELDS), np.int64)
_pipes: list[tuple[int, int]] = []


def read(shares: Int64s) -> None:
    """Read shares, with help where there are several. Each row has the words of a share."""
    starts = len(shares) > 1 and not len(_slots) and _is_compiled()
    read_shares(shares, _started() if starts else _slots, functions())


def load_kernels() -> None:
    """Load the kernels of `read` and of its helpers, if they are compiled."""
    load(read_shares, np.zeros((0, WORDS), np.int64), _slots, functions())
    load(help_readers, np.zeros(SLOT_FIELDS, np.int64), 0, functions())


def _is_compiled() -> bool:
    """Whether this process has the kernel: until then a helper has nothing to read."""
    return bool(read_shares.signatures)


@cache
def functions() -> Int64s:
    """The addresses of C's functions; empty where one is missing."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    pointers = [getattr(library, name, None) for name in _FUNCTIONS]
    addresses = [
        ctypes.cast(pointer, ctypes.c_void_p).value or 0 for pointer in pointers if pointer
    ]
    return np.array(addresses if len(addresses) == CALLS else [], np.int64)


def _started() -> Int64s:
    """The slots of the helpers, which are started if they do not run yet."""
    global _slots  # noqa: PLW0603  # those of this process
    with _LOCK:
        if not len(_slots):
            slots = np.zeros((DECODERS - 1, SLOT_FIELDS), np.int64)
            for slot in slots:
                _pipes.append(os.pipe())
                _start(slot, *_pipes[-1])
            _slots = slots
    return _slots


def _start(slot: Int64s, reader: int, writer: int) -> None:
    slot[WAKES] = writer
    name = f"seglake-window-{reader}"
    threading.Thread(target=_help, args=(slot, reader), name=name, daemon=True).start()


def _help(slot: Int64s, reader: int) -> None:
    while help_readers(slot, reader, functions()) < 0:
        pass  # a signal interrupted the wait


def _forget() -> None:
    """Forget the slots and close the pipes: threads do not survive a fork."""
    global _slots  # noqa: PLW0603  # as above
    _slots = _slots[:0]
    for end in (end for pipe in _pipes for end in pipe):
        os.close(end)
    _pipes.clear()


os.register_at_fork(after_in_child=_forget)
