"""The libraries of zstd, lz4 and CRC-32C by address, for kernels that treat many batches at once.

The wheels of `zstandard`, `lz4` and `crc32c` have them. Where one does not export what is needed,
its addresses are 0, and Python calls the library batch by batch.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import crc32c
import numpy as np

from seglake.format.codecs import kernels
from seglake.format.records import Int64s

_LZ4F_VERSION = 100  # of its interface, since 2014


class _Library(NamedTuple):
    """What a codec needs: its functions by the kernels' numbers, and a context for each thread."""

    functions: dict[int, int]
    context: int  # the kernels' number of the context
    create: Callable[[], int | None]
    free: Callable[[int], object]


class _Thread(threading.local):
    """The addresses for the kernels, with contexts of this thread."""

    def __init__(self) -> None:
        self.addresses = new_addresses()


def new_addresses() -> Int64s:
    """As `addresses`, with contexts of their own, which are freed with the array."""
    found: Int64s = np.zeros(kernels.ADDRESSES, np.int64)
    found[kernels.CRC32C] = _crc32c()
    for library in _libraries():
        if context := library.create():
            weakref.finalize(found, library.free, context)
            found[library.context] = context
            found[list(library.functions)] = list(library.functions.values())
    return found


def addresses() -> Int64s:
    """The libraries' functions and this thread's contexts, by the kernels' numbers; 0: not here."""
    return _THREAD.addresses


def renew() -> None:
    """Give this thread new contexts: after damaged data, lz4's is of no more use."""
    _THREAD.__init__()  # type: ignore[misc]


@cache
def _libraries() -> list[_Library]:
    return [library for make in (_zstd, _zstd_writer, _lz4) if (library := make()) is not None]


def _zstd() -> _Library | None:
    library = _load("zstandard._cffi", "ZSTD_decompressBound", "ZSTD_decompressDCtx")
    if library is None:
        return None
    functions = {
        kernels.ZSTD_BOUND: _address(library.ZSTD_decompressBound),
        kernels.ZSTD_DECOMPRESS: _address(library.ZSTD_decompressDCtx),
    }
    create, free = library.ZSTD_createDCtx, library.ZSTD_freeDCtx
    return _with_context(functions, kernels.ZSTD_CONTEXT, create, free)


def _zstd_writer() -> _Library | None:
    library = _load("zstandard._cffi", "ZSTD_compressCCtx", "ZSTD_createCCtx")
    if library is None:
        return None
    functions = {kernels.ZSTD_COMPRESS: _address(library.ZSTD_compressCCtx)}
    create, free = library.ZSTD_createCCtx, library.ZSTD_freeCCtx
    return _with_context(functions, kernels.ZSTD_COMPRESS_CONTEXT, create, free)


def _with_context(functions: dict[int, int], context: int, create: Any, free: Any) -> _Library:
    """Functions of C that need a context, which `create` returns."""
    create.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return _Library(functions, context, create, free)


def _lz4() -> _Library | None:
    library = _load("lz4.frame._frame", "LZ4F_decompress", "LZ4F_createDecompressionContext")
    if library is None:
        return None
    free = library.LZ4F_freeDecompressionContext
    free.argtypes = [ctypes.c_void_p]

    def create() -> int | None:
        context = ctypes.c_void_p()
        library.LZ4F_createDecompressionContext(ctypes.byref(context), _LZ4F_VERSION)
        return context.value

    functions = {kernels.LZ4_DECOMPRESS: _address(library.LZ4F_decompress)}
    return _Library(functions, kernels.LZ4_CONTEXT, create, free)


@cache
def _crc32c() -> int:
    """The function for processors with an instruction for it; the others gain nothing."""
    library = _load("crc32c._crc32c", "_crc32c_hw_adler") if crc32c.hardware_based else None
    return _address(library._crc32c_hw_adler) if library else 0  # noqa: SLF001  # so it is exported


def _load(module: str, *names: str) -> ctypes.CDLL | None:
    """The shared library of an extension module, if it exports these names."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library = ctypes.CDLL(found.origin)
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in names) else None


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


_THREAD = _Thread()
