"""Define intrinsics that compare 32 bytes in one step, for the line, JSON and CSV kernels.

Numba generates no vector comparison by itself. Each intrinsic here loads 32 bytes and returns a
mask: bit k is set if byte k matches. The intrinsics take the address of a buffer
(`data.ctypes.data`), because an array as argument costs a reference count. They check no bounds:
buffers have `PADDING` readable bytes after their content.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # ships no types
from numba import types
from numba.extending import intrinsic as _intrinsic

from seglake.format.records import Bytes

PADDING = 64
WIDTH = 32

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_INDEX = ir.IntType(32)
_VECTOR = ir.VectorType(_BYTE, WIDTH)

ByteMask = Callable[[int, int], int]
intrinsic: Any = _intrinsic  # its type hints describe the typing function, not the result


def _pointer(builder: Any, args: Any, type_: Any) -> Any:
    """Build the pointer of the type `type_` to the address base + position.

    The base must be the pointer, and the position an index. From a sum of integers, LLVM may make
    the position the pointer. If a caller's position is the constant 0, LLVM then treats the access
    as one through a null pointer, which never happens in valid code, and deletes the caller's code.
    """
    start = builder.inttoptr(args[0], _BYTE.as_pointer())
    return builder.bitcast(builder.gep(start, [args[1]]), type_.as_pointer())


def _all(byte: int) -> Any:
    return ir.Constant(_VECTOR, [byte] * WIDTH)


def _mask_intrinsic(find: Callable[[Any, Any], Any], about: str) -> Any:
    """Return an intrinsic (base, position) → mask of 32 bytes, as an integer.

    `find` generates the code that compares the bytes.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        bits = find(builder, builder.load(_pointer(builder, args, _VECTOR), align=1))
        return builder.zext(builder.bitcast(bits, ir.IntType(WIDTH)), _WORD)

    def mask(_typing: Any, base: Any, position: Any) -> Any:
        # Numba requires these names, and passes types. The code is in `codegen`.
        del base, position
        return types.int64(types.int64, types.int64), codegen

    mask.__doc__ = about
    return intrinsic(mask)


def _newline(builder: Any, chunk: Any) -> Any:
    return builder.icmp_unsigned("==", chunk, _all(0x0A))


def _string_stop(builder: Any, chunk: Any) -> Any:
    """Build the test for a quote, a backslash, a control character or a byte above ASCII."""
    quote = builder.icmp_unsigned("==", chunk, _all(0x22))
    backslash = builder.icmp_unsigned("==", chunk, _all(0x5C))
    unusual = builder.icmp_signed("<", chunk, _all(0x20))  # signed: 0x80 to 0xFF are negative
    return builder.or_(builder.or_(quote, backslash), unusual)


def _no_digit(builder: Any, chunk: Any) -> Any:
    return builder.icmp_unsigned(">", builder.sub(chunk, _all(0x30)), _all(9))


def _high(builder: Any, chunk: Any) -> Any:
    return builder.icmp_signed("<", chunk, _all(0))


newline_mask: ByteMask = _mask_intrinsic(_newline, "Line feeds among 32 bytes.")
string_stop_mask: ByteMask = _mask_intrinsic(_string_stop, "What `_string_stop` lists.")
no_digit_mask: ByteMask = _mask_intrinsic(_no_digit, "Bytes that are not decimal digits.")
high_mask: ByteMask = _mask_intrinsic(_high, "Bytes beyond ASCII.")


def _pair_mask(_typing: Any, base: Any, position: Any, byte: Any) -> Any:
    """Return the mask of the 32 bytes at `position` that are `byte` or a line feed."""
    del base, position, byte

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        one = ir.Constant(_VECTOR, ir.Undefined)
        one = builder.insert_element(one, builder.trunc(args[2], _BYTE), ir.Constant(_INDEX, 0))
        same = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INDEX, WIDTH), None))
        chunk = builder.load(_pointer(builder, args, _VECTOR), align=1)
        bits = builder.or_(builder.icmp_unsigned("==", chunk, same), _newline(builder, chunk))
        return builder.zext(builder.bitcast(bits, ir.IntType(WIDTH)), _WORD)

    return types.int64(types.int64, types.int64, types.int64), codegen


def _byte_at(_typing: Any, base: Any, position: Any) -> Any:
    """Return the byte at the address base + position, from 0 to 255."""
    del base, position

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args, _BYTE)), _WORD)

    return types.int64(types.int64, types.int64), codegen


def _lowest_bit(_typing: Any, mask: Any) -> Any:
    """Return the number of the lowest set bit, from 0. The result for a mask of 0 is undefined."""
    del mask

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


pair_mask: Callable[[int, int, int], int] = intrinsic(_pair_mask)
byte_at: Callable[[int, int], int] = intrinsic(_byte_at)
lowest_bit: Callable[[int], int] = intrinsic(_lowest_bit)


def padded(size: int) -> Bytes:
    """Return a buffer of `size` uninitialized bytes, followed by PADDING zeros."""
    buffer = np.empty(size + PADDING, np.uint8)
    buffer[size:] = 0
    return buffer
