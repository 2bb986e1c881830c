"""Varints, big-endian integers and byte copies: the kernels that every other kernel is made of.

Varints are Kafka's (`ByteUtils`): zigzag, then groups of seven bits, least significant first, at
most 5 bytes for 32-bit and 10 bytes for 64-bit values. Readers return the position after the value,
or `BAD` where the bytes end early or the value is longer than its type allows.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BAD = -1

INT32_MAX = 2**31 - 1


@njit(cache=True, nogil=True, inline="always")
def varint_size(value: int) -> int:
    """Bytes that `value` takes as a varint or varlong, 1 to 10."""
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while zigzag >= np.uint64(128):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True, inline="always")
def put_varint(out, at: int, value: int) -> int:  # type: ignore[no-untyped-def]  # kernel
    """Write `value` at `at`; returns the position after it."""
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag >= np.uint64(128):
        out[at] = np.uint8(zigzag & np.uint64(127)) | np.uint8(128)
        zigzag >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(zigzag)
    return at + 1


@njit(cache=True, nogil=True)
def get_varint(data, at: int, end: int, max_bytes: int):  # type: ignore[no-untyped-def]  # kernel
    """(value, position after it) of the varint at `at`; position `BAD` if it is malformed.

    `max_bytes` is 5 for a 32-bit and 10 for a 64-bit value. The value is reduced to its width.
    """
    zigzag = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(max_bytes):
        if at >= end:
            return np.int64(0), np.int64(BAD)
        byte = data[at]
        at += 1
        zigzag |= np.uint64(byte & np.uint8(127)) << shift
        if byte < 128:
            if max_bytes == 5:
                zigzag &= np.uint64(0xFFFFFFFF)
            return np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1)), np.int64(at)
        shift += np.uint64(7)
    return np.int64(0), np.int64(BAD)


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types
def _copy(typing_context, out, at, data, start, length):  # type: ignore[no-untyped-def]  # kernel
    """memcpy between byte arrays: a loop over bytes takes six times as long on typical keys."""
    del typing_context

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # LLVM
        target = context.make_array(signature.args[0])(context, builder, arguments[0])
        source = context.make_array(signature.args[2])(context, builder, arguments[2])
        to = builder.gep(target.data, [arguments[1]])
        origin = builder.gep(source.data, [arguments[3]])
        cgutils.raw_memcpy(builder, to, origin, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


@njit(cache=True, nogil=True, inline="always")
def put_bytes(out, at: int, data, start: int, length: int) -> int:  # type: ignore[no-untyped-def]  # kernel
    """Copy `length` bytes, none if it is negative; returns the position after them."""
    if length <= 0:
        return at
    _copy(out, at, data, start, length)
    return at + length


@njit(cache=True, nogil=True, inline="always")
def put_big_endian(out, at: int, value: int, width: int) -> None:  # type: ignore[no-untyped-def]  # kernel
    """Write the low `width` bytes of `value`, most significant first."""
    bits = np.uint64(value)
    for i in range(width):
        out[at + width - 1 - i] = np.uint8(bits & np.uint64(255))
        bits >>= np.uint64(8)


@njit(cache=True, nogil=True, inline="always")
def get_big_endian(data, at: int, width: int) -> int:  # type: ignore[no-untyped-def]  # kernel
    """The signed integer of `width` bytes at `at`, most significant first."""
    bits = np.uint64(0)
    for i in range(width):
        bits = (bits << np.uint64(8)) | np.uint64(data[at + i])
    shift = np.uint64(64 - 8 * width)
    return np.int64(bits << shift) >> np.int64(shift)
