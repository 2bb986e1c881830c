"""Decompress, compress and check batches in kernels that call C libraries by address.

`payload_bounds` computes how much space the records of each batch need at most, and `decompress`
fills the space. `put_compressed` compresses records. `wrong_checksum` compares the checksums of
batches. An address is an argument and never a constant, because numba's cache outlives the process.
"""

import ctypes

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from seglake.compile.fallback import meanwhile, plainly
from seglake.compile.jit import njit
from seglake.format.batch import CODEC_MASK, OVERHEAD
from seglake.format.encode_kernels import put_bytes

ADDRESSES = 8
(
    ZSTD_BOUND, ZSTD_DECOMPRESS, ZSTD_CONTEXT, LZ4_DECOMPRESS, LZ4_CONTEXT, CRC32C,
    ZSTD_COMPRESS, ZSTD_COMPRESS_CONTEXT,
) = range(ADDRESSES)  # fmt: skip
ZSTD_MORE_BYTES = 128  # zstd adds at most this, plus a 256th of the records' bytes
NOT_COMPUTED = -2  # the checksums were not compared
NOT_HERE = -1  # the bound of a batch that these kernels cannot decompress

_NONE, _LZ4, _ZSTD = 0, 3, 4
_LZ4_MAGIC = 0x184D2204
_LZ4_LEAST_BYTES = 11  # magic, flags, block size, header checksum, end mark


def call_of(count):
    """Return an intrinsic that calls the C function at an address with `count` arguments.

    Arguments and result are 64-bit integers or pointers.
    """

    def typed(_typing_context, _address, _arguments):
        def generate(_context, builder, _signature, arguments):
            word = ir.IntType(64)
            function = builder.inttoptr(
                arguments[0], ir.FunctionType(word, [word] * count).as_pointer()
            )
            words = [builder.extract_value(arguments[1], number) for number in range(count)]
            return builder.call(function, words)

        return types.int64(types.int64, types.UniTuple(types.int64, count)), generate

    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)

    def plain(address, words):
        return int(prototype(int(address))(*map(int, words)))

    return plainly(plain)(intrinsic(typed))


_call2, _call3, _call5, _call6 = map(call_of, (2, 3, 5, 6))


@njit(cache=True, nogil=True)
@meanwhile(lambda *_: NOT_COMPUTED)
def wrong_checksum(log, starts, ends, stored, addresses):
    """Return the first batch b whose stored[b] is not the CRC of log[starts[b] : ends[b]], or -1.

    Returns `NOT_COMPUTED` until the kernel is compiled.
    """
    for i in range(len(starts)):
        if checksum(log, starts[i], ends[i], addresses) != np.int64(stored[i]):
            return i
    return -1


@njit(cache=True, nogil=True)
def checksum(data, start, end, addresses):
    """Return the CRC-32C of data[start:end]. `addresses` must have the address of CRC32C."""
    words = (0xFFFFFFFF, data.ctypes.data + start, end - start)
    return ~_call3(addresses[CRC32C], words) & 0xFFFFFFFF


def _all_not_here(*arguments):
    arguments[-1].fill(NOT_HERE)
    return CODEC_MASK


@njit(cache=True, nogil=True)
@meanwhile(_all_not_here)
def payload_bounds(log, table, addresses, max_bytes, bounds):
    """Fill `bounds` with an upper bound of the decompressed bytes of each batch.

    Positions in the batch table are positions in `log`. The bound is `NOT_HERE` if the codec has no
    address, if the bound would exceed `max_bytes`, or if the payload is not a frame of its codec.
    Returns 0 if no batch is compressed.
    """
    codecs = np.int64(0)
    for i in range(len(table)):
        start, end = table[i].position + OVERHEAD, table[i].position + table[i].size
        attributes = table[i].attributes
        bounds[i] = payload_bound(log, start, end, attributes, addresses, max_bytes)
        codecs |= attributes & CODEC_MASK
    return codecs


@njit(cache=True, nogil=True)
def payload_bound(log, start, end, attributes, addresses, max_bytes):
    """Return an upper bound of the decompressed bytes of log[start:end], see `payload_bounds`."""
    codec, bound = attributes & CODEC_MASK, np.int64(NOT_HERE)
    if codec == _NONE:
        bound = end - start
    elif codec == _ZSTD and addresses[ZSTD_DECOMPRESS] and start < end:
        bound = _call2(addresses[ZSTD_BOUND], (log.ctypes.data + start, end - start))
    elif codec == _LZ4 and addresses[LZ4_DECOMPRESS]:
        bound = _lz4_bound(log, start, end)
    return bound if 0 <= bound <= max_bytes else np.int64(NOT_HERE)


@njit(cache=True, nogil=True)
def _little_endian(data, at):
    """Return the unsigned 32 bits at `at`, least significant byte first."""
    word = np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return word | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24


@njit(cache=True, nogil=True)
def _lz4_bound(data, start, end):
    """Return an upper bound of the decompressed bytes of the LZ4 frame data[start:end].

    The bound is the sum over the blocks of the frame. Returns `NOT_HERE` for other bytes.
    """
    if end - start < _LZ4_LEAST_BYTES or _little_endian(data, start) != _LZ4_MAGIC:
        return NOT_HERE
    flags, block_bytes = data[start + 4], 1 << (8 + 2 * ((data[start + 5] >> 4) & 7))
    at = start + 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = np.int64(0)
    while at + 4 <= end:
        size = _little_endian(data, at)
        if size == 0:
            return bound
        whole = size & 0x80000000  # this bit marks a block that is not compressed
        size &= 0x7FFFFFFF
        bound += size if whole else block_bytes
        at += 4 + size + (4 if flags & 0x10 else 0)
    return NOT_HERE


@njit(cache=True, nogil=True)
@meanwhile(lambda *arguments: arguments[5])  # `row`
def decompress(log, table, bounds, addresses, out, row, enough_bytes, out_ends, sizes):
    """Decompress batches from `row` on into `out`, one after another.

    Fills `out_ends` with the end of each batch's records in `out`. Stops before a batch that these
    kernels cannot decompress, that does not fit, or that is damaged. Stops after the batch that
    reaches `enough_bytes`. Returns the first batch that is not decompressed.
    """
    at = out_ends[row - 1] if row else np.int64(0)
    while row < len(table) and bounds[row] >= 0 and at + bounds[row] <= len(out):
        start, end = table[row].position + OVERHEAD, table[row].position + table[row].size
        size = put_payload(
            out, at, bounds[row], log, start, end, table[row].attributes, addresses, sizes
        )
        if size < 0:
            break
        at += size
        out_ends[row] = at
        row += 1
        if at >= enough_bytes:
            break
    return row


@njit(cache=True, nogil=True)
def put_payload(out, at, bound, log, start, end, attributes, addresses, sizes):
    """Decompress the payload log[start:end] of a batch to a position with `bound` bytes of space.

    Returns the decompressed bytes, or -1 if the payload is damaged. `sizes` has space for two
    numbers.
    """
    codec, size = attributes & CODEC_MASK, end - start
    if codec == _NONE:
        put_bytes(out, at, log, start, size)
        return size
    source, target = log.ctypes.data + start, out.ctypes.data + at
    if codec == _ZSTD:
        length = _call5(
            addresses[ZSTD_DECOMPRESS], (addresses[ZSTD_CONTEXT], target, bound, source, size)
        )
        return length if 0 <= length <= bound else np.int64(-1)
    sizes[0], sizes[1] = bound, size
    place = sizes.ctypes.data
    left = _call6(
        addresses[LZ4_DECOMPRESS], (addresses[LZ4_CONTEXT], target, place, source, place + 8, 0)
    )
    return sizes[0] if left == 0 and sizes[1] == size and sizes[0] <= bound else np.int64(-1)


@njit(cache=True, nogil=True, inline="always")
def compressed_bound(codec, size):
    """Return an upper bound of the compressed size of `size` bytes of records.

    The codec must be one that kernels can compress with.
    """
    return size + (size >> 8) + ZSTD_MORE_BYTES if codec == _ZSTD else size


@njit(cache=True, nogil=True)
def put_compressed(out, at, room, records, size, level, addresses):
    """Compress records[:size] with zstd to a position with `room` bytes of space.

    Returns the compressed bytes, or a negative number for an error of the library.
    """
    words = (
        addresses[ZSTD_COMPRESS_CONTEXT], out.ctypes.data + at, room, records.ctypes.data, size,
        np.int64(level),
    )  # fmt: skip
    return _call6(addresses[ZSTD_COMPRESS], words)
