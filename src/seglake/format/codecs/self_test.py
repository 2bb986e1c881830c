"""Test each library that kernels call by address on a few hundred bytes before it is used.

The results are compared with the Python API of the same package. A test runs the kernels' source as
Python, which calls the addresses through ctypes, with the arguments of a compiled kernel. So no
kernel is compiled or loaded, and an argument in the wrong position is detected. A wrong signature
may crash the process, which no test can catch. So `pyproject.toml` bounds the packages' versions.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

import crc32c
import lz4.frame
import numpy as np
import zstandard

from seglake.format.batch import MAX_BATCH_BYTES
from seglake.format.codecs import codec_kernels
from seglake.format.records import Bytes, Int64s, fixed

_TEXT = bytes(range(256)) + b"offset, timestamp, key, value; " * 20
_LONG_TEXT = 30 * _TEXT  # the library uses tables for checksums of 24 KiB and more
_LZ4, _ZSTD = 3, 4  # codec numbers in record batches
_LEVEL = 1


def checksum_is_right(addresses: Int64s) -> bool:
    """Return whether the function for checksums gives the results of the package `crc32c`."""
    checksum, data = _as_python()["checksum"], fixed(np.frombuffer(_LONG_TEXT, np.uint8))
    spans = [(0, len(data)), (3, 900), (5, 9), (5, 5)]
    checksums = [checksum(data, start, end, addresses) for start, end in spans]
    return checksums == [crc32c.crc32c(_LONG_TEXT[start:end]) for start, end in spans]


def zstd_is_right(addresses: Int64s) -> bool:
    """Return whether the functions decompress frames of `zstandard`, and refuse a cut frame."""
    frame = zstandard.ZstdCompressor(_LEVEL).compress(_TEXT)
    bound = _as_python()["payload_bound"]
    data = fixed(np.frombuffer(frame, np.uint8))
    size = bound(data, 0, len(data), _ZSTD, addresses, MAX_BATCH_BYTES)
    return bool(size == len(_TEXT)) and _decompresses(_ZSTD, data, addresses)


def lz4_is_right(addresses: Int64s) -> bool:
    """Return whether the functions at `addresses` read frames of `lz4`, and refuse a cut one."""
    data = fixed(np.frombuffer(lz4.frame.compress(_TEXT), np.uint8))
    return _decompresses(_LZ4, data, addresses)


def zstd_writer_is_right(addresses: Int64s) -> bool:
    """Return whether `zstandard` decompresses what the functions at `addresses` compress."""
    records, size = fixed(np.frombuffer(_TEXT, np.uint8)), len(_TEXT)
    out = np.empty(codec_kernels.ZSTD_MORE_BYTES + size + (size >> 8), np.uint8)
    frame_size = _as_python()["put_compressed"](out, 0, len(out), records, size, _LEVEL, addresses)
    try:
        frame = out[: max(frame_size, 0)].tobytes()
        return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False) == _TEXT
    except zstandard.ZstdError:
        return False


def _decompresses(codec: int, frame: Bytes, addresses: Int64s) -> bool:
    """Return whether `frame` decompresses to the test text, and a cut frame is refused."""
    put_payload, sizes = _as_python()["put_payload"], np.empty(2, np.int64)
    out, size = np.zeros(len(_TEXT), np.uint8), len(_TEXT)
    whole = put_payload(out, 0, size, frame, 0, len(frame), codec, addresses, sizes)
    right = whole == size and out.tobytes() == _TEXT
    cut = put_payload(out, 0, size, frame, 0, len(frame) - 1, codec, addresses, sizes)
    return bool(right and cut < 0)


@cache
def _as_python() -> dict[str, Any]:
    """Return the globals of the kernels' module, with each kernel as a Python function."""
    names = dict(vars(codec_kernels))
    for name, kernel in vars(codec_kernels).items():
        function = getattr(kernel, "py_func", kernel)  # the kernel itself without numba
        if isinstance(function, FunctionType) and function.__module__ == codec_kernels.__name__:
            names[name] = FunctionType(function.__code__, names, name)
    return names
