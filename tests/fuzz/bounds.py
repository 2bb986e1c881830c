"""What an input may not do: reach beyond its buffer, take memory or time without bound."""

import ctypes
import mmap
import re
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

MEMORY_BYTES = 512 * 2**20  # that one input may take
INPUT_S = 20  # that one input may take, on a loaded machine

_libc = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0


def guarded(data: Any) -> Bytes:
    """A copy of `data` behind which no byte can be read: trying kills the process."""
    view = memoryview(data).cast("B")
    buffer = guarded_buffer(len(view))
    buffer[:] = np.frombuffer(view, np.uint8)
    return buffer


def guarded_buffer(size: int) -> Bytes:
    """`size` zeros at the end of a page; the next page cannot be touched."""
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    if _libc.mprotect(ctypes.c_void_p(whole.ctypes.data + pages), mmap.PAGESIZE, _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return whole[pages - size : pages]


def limit_memory(more_bytes: int) -> None:
    """Let this process take so much more address space than it has."""
    size = re.search(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert size is not None
    limit = int(size[1]) * 1024 + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def limit_time(seconds: float) -> None:
    """End this process unless this is called again within so many seconds; 0: no longer."""
    signal.setitimer(signal.ITIMER_REAL, seconds)  # nobody catches SIGALRM
