"""Kernels as plain Python, so that a fuzzer sees which of their branches an input takes.

For processes that numba does not compile in (NUMBA_DISABLE_JIT). Two things work only when
compiled, and get stand-ins here: intrinsics of text, and fields of a row of a structured array.
"""

import ctypes
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from seglake.compile.fallback import argument
from seglake.text import simd as bytescan

_WIDTH = bytescan.WIDTH


def install() -> None:
    """To be called before anything of Seglake that has kernels is imported."""
    bytescan.byte_at = _byte_at
    bytescan.lowest_bit = _lowest_bit
    bytescan.newline_mask = _mask(lambda byte: byte == 0x0A)
    bytescan.string_stop_mask = _mask(lambda byte: byte in (0x22, 0x5C) or not 0x20 <= byte < 0x80)
    bytescan.no_digit_mask = _mask(lambda byte: not 0x30 <= byte <= 0x39)
    bytescan.high_mask = _mask(lambda byte: byte >= 0x80)
    bytescan.pair_mask = _pair_mask
    from seglake.format import decode_kernels, encode_kernels  # noqa: PLC0415
    from seglake.format.codecs import batch_kernels, codec_kernels, native  # noqa: PLC0415
    from seglake.log import column_kernels as columns  # noqa: PLC0415
    from seglake.log import fetch_kernels as fetch  # noqa: PLC0415
    from seglake.log import zone_kernels as zones  # noqa: PLC0415

    no_library = np.zeros(codec_kernels.ADDRESSES, np.int64)
    vars(native)["addresses"] = lambda: no_library
    compiled = (decode_kernels, encode_kernels, batch_kernels, codec_kernels, columns, fetch, zones)
    for module in compiled:
        for name, function in list(vars(module).items()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                setattr(module, name, _with_records(function))


def _lowest_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _byte_at(base: int, position: int) -> int:
    return ctypes.c_ubyte.from_address(int(base + position)).value


def _mask(wanted: Callable[[int], bool]) -> Callable[[int, int], int]:
    bits = [int(wanted(byte)) for byte in range(256)]

    def mask(base: int, position: int) -> int:
        chunk = ctypes.string_at(int(base + position), _WIDTH)
        return sum(bits[byte] << place for place, byte in enumerate(chunk))

    return mask


def _pair_mask(base: int, position: int, byte: int) -> int:
    return _mask(lambda found: found in (0x0A, int(byte)))(base, position)


def _with_records(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gets structured arrays as tables."""

    def call(*arguments: Any) -> Any:
        return function(*map(argument, arguments))

    return call
