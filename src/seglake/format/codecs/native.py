"""Find the addresses of C functions for zstd, lz4 and CRC-32C, which kernels call.

The wheels of `zstandard`, `lz4` and `crc32c` contain the libraries. If a library does not export a
required function, or fails its `self_test`, its addresses are 0, and Python calls the library batch
by batch. See docs/decisions/0022-c-functions-by-address.md for the reasons, and for the risks that
are not checked.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import crc32c
import numpy as np

from seglake.compile.locks import fork_safe_lock
from seglake.format.codecs import codec_kernels, self_test
from seglake.format.records import Int64s

_LZ4F_VERSION = 100  # version of the interface of lz4, since 2014

_log = logging.getLogger(__name__)


class _Context(NamedTuple):
    """The working memory of a codec's C functions. Each thread needs its own context."""

    number: int  # position of the context in `addresses`
    create: Callable[[], int | None]
    free: Callable[[int], object]


class _Library(NamedTuple):
    """The C functions of a package, by their positions in `addresses`, and their self-test."""

    package: str
    functions: dict[int, int]
    is_right: Callable[[Int64s], bool]
    slower: str  # what is slower without it
    context: _Context | None = None

    def put(self, addresses: Int64s) -> None:
        """Put the functions into `addresses`, with a new context that is freed with the array."""
        if self.context is not None:
            context = self.context.create()
            if not context:
                return
            weakref.finalize(addresses, self.context.free, context)
            addresses[self.context.number] = context
        addresses[list(self.functions)] = list(self.functions.values())


def addresses() -> Int64s:
    """Return the addresses of C functions and of this thread's contexts.

    `codec_kernels` defines their positions. An address is 0 if its library is not available.
    """
    try:
        own: Int64s = _THREAD.addresses
    except AttributeError:  # the first call of this thread
        return renew()
    return own


def renew() -> Int64s:
    """Return new addresses, with new contexts for this thread.

    After damaged data, an lz4 context cannot be used again.
    """
    new: Int64s = np.zeros(codec_kernels.ADDRESSES, np.int64)
    with _LOCK:
        libraries = _libraries()
    for library in libraries:
        library.put(new)
    _THREAD.addresses = new
    return new


@cache
def _libraries() -> list[_Library]:
    """Return the libraries that exist and pass their test. The first call runs the tests."""
    made = [make() for make in (_crc32c, _zstd, _zstd_writer, _lz4)]
    return [library for library in made if library is not None and _is_right(library)]


def _is_right(library: _Library) -> bool:
    """Return whether a library passes its self-test. Log a warning otherwise."""
    addresses: Int64s = np.zeros(codec_kernels.ADDRESSES, np.int64)
    library.put(addresses)
    if addresses.any() and library.is_right(addresses):
        return True
    _log.warning(
        "a native function of the package %s returns a wrong result, so the package is called "
        "from Python, and %s are slower. Install a version that Seglake supports",
        library.package,
        library.slower,
    )
    return False


def _zstd() -> _Library | None:
    library = _load("zstandard._cffi", "ZSTD_decompressBound", "ZSTD_decompressDCtx")
    if library is None:
        return None
    functions = {
        codec_kernels.ZSTD_BOUND: _address(library.ZSTD_decompressBound),
        codec_kernels.ZSTD_DECOMPRESS: _address(library.ZSTD_decompressDCtx),
    }
    create, free = library.ZSTD_createDCtx, library.ZSTD_freeDCtx
    context = _context(codec_kernels.ZSTD_CONTEXT, create, free)
    return _Library("zstandard", functions, self_test.zstd_is_right, "reads", context)


def _zstd_writer() -> _Library | None:
    library = _load("zstandard._cffi", "ZSTD_compressCCtx", "ZSTD_createCCtx")
    if library is None:
        return None
    functions = {codec_kernels.ZSTD_COMPRESS: _address(library.ZSTD_compressCCtx)}
    create, free = library.ZSTD_createCCtx, library.ZSTD_freeCCtx
    context = _context(codec_kernels.ZSTD_COMPRESS_CONTEXT, create, free)
    return _Library("zstandard", functions, self_test.zstd_writer_is_right, "writes", context)


def _context(number: int, create: Any, free: Any) -> _Context:
    """Declare the types of the C functions `create` and `free`, and return a context of them."""
    create.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return _Context(number, create, free)


def _lz4() -> _Library | None:
    library = _load("lz4.frame._frame", "LZ4F_decompress", "LZ4F_createDecompressionContext")
    if library is None:
        return None
    free = library.LZ4F_freeDecompressionContext
    free.argtypes = [ctypes.c_void_p]

    def create() -> int | None:
        context = ctypes.c_void_p()
        error = library.LZ4F_createDecompressionContext(ctypes.byref(context), _LZ4F_VERSION)
        return None if error else context.value

    functions = {codec_kernels.LZ4_DECOMPRESS: _address(library.LZ4F_decompress)}
    context = _Context(codec_kernels.LZ4_CONTEXT, create, free)
    return _Library("lz4", functions, self_test.lz4_is_right, "reads", context)


def _crc32c() -> _Library | None:
    """Return the library if the processor has a CRC-32C instruction. Else it is no faster."""
    library = _load("crc32c._crc32c", "_crc32c_hw_adler") if crc32c.hardware_based else None
    if library is None:
        return None
    address = _address(library._crc32c_hw_adler)  # noqa: SLF001  # so it is exported
    return _Library(
        "crc32c", {codec_kernels.CRC32C: address}, self_test.checksum_is_right, "reads and writes"
    )


def _load(module: str, *names: str) -> ctypes.CDLL | None:
    """Return the shared library of an extension module if it exports these names, else None."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in names) else None


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


_THREAD = threading.local()
_LOCK = fork_safe_lock()  # so that libraries are tested once
