"""Kernels as plain Python, so that a fuzzer sees which of their branches an input takes.

For processes that numba does not compile in (NUMBA_DISABLE_JIT). Two things work only when
compiled, and get stand-ins here: intrinsics, and fields of a row of a structured array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

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
    from seglake.log import fetch_kernels as fetch  # noqa: PLC0415
    from seglake.log.decode import column_kernels as columns  # noqa: PLC0415
    from seglake.log.zones import zone_kernels as zones  # noqa: PLC0415

    plain: dict[str, Any] = {
        "uncounted": lambda data: data,
        "_eight_bytes": _eight_bytes,
        "_zeros_below": lambda bits: np.uint64(_lowest_bit(int(bits) | 1 << 64)),
    }
    vars(encode_kernels)["_copy"] = _copy
    no_library = np.zeros(codec_kernels.ADDRESSES, np.int64)
    vars(native)["addresses"] = lambda: no_library
    vars(decode_kernels).update(plain)
    for module in (decode_kernels, encode_kernels, batch_kernels, columns, fetch, zones):
        for name, function in list(vars(module).items()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                setattr(module, name, _with_records(function))


def _copy(out: Any, at: int, data: Any, start: int, length: int) -> None:
    out[at : at + length] = data[start : start + length]


def _eight_bytes(data: Any, at: int) -> np.uint64:
    assert at >= 0
    assert at + 8 <= len(data)
    return np.uint64(int.from_bytes(data[at : at + 8].tobytes(), "little"))


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
        return function(*map(_table, arguments))

    return call


def _table(argument: Any) -> Any:
    structured = isinstance(argument, np.ndarray) and argument.dtype.names
    return _Table(argument) if structured else argument


class _Table:
    """A structured array whose rows have their fields as attributes."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> _Row:
        return _Row(self._rows[number])


class _Row:
    def __init__(self, fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        return self._fields[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value
