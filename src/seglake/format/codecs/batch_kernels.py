"""Write whole batches, with compressed records, header and checksum, in compiled kernels.

The records of a batch are first written to a small array that remains in the processor's caches.
Then they are compressed to their position in the output. Only codecs with an address (`native`) are
supported.
"""

import numpy as np

from seglake.compile.jit import njit
from seglake.format.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    CODEC_MASK,
    COUNT_AT,
    CRC_AT,
    CRC_START,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    OVERHEAD,
    PRODUCER_AT,
)
from seglake.format.codecs.codec_kernels import checksum, compressed_bound, put_compressed
from seglake.format.encode_kernels import put_big_endian, put_records


@njit(cache=True, nogil=True)
def put_batches(framing, attributes, record_bytes, level, addresses, scratch, out, batch_bytes):
    """Write the records of a `Framing` into `out`, each batch after space for its header.

    `record_bytes` has the bytes of each batch's records; `scratch` has space for the largest of
    them. `batch_bytes` receives the bytes of each batch. Returns the bytes of all batches, or a
    negative number for an error of the codec's library.
    """
    at = np.int64(0)
    for batch in range(len(batch_bytes)):
        codec, size = attributes[batch] & CODEC_MASK, record_bytes[batch]
        target, place = (scratch, np.int64(0)) if codec else (out, at + OVERHEAD)
        put_records(framing, batch, target, place)
        if codec:
            room = compressed_bound(codec, size)
            size = put_compressed(out, at + OVERHEAD, room, scratch, size, level, addresses)
            if size < 0:
                return size
        batch_bytes[batch] = OVERHEAD + size
        at += OVERHEAD + size
    return at


@njit(cache=True, nogil=True)
def put_headers(table, starts, out):
    """Write the header of each batch at its start, without a producer and without the checksum."""
    for batch in range(len(table)):
        row, at = table[batch], starts[batch]
        out[at + LEADER_EPOCH_AT : at + OVERHEAD] = 0
        put_big_endian(out, at + BASE_OFFSET_AT, row.base_offset, 8)
        put_big_endian(out, at + LENGTH_AT, row.size - LOG_OVERHEAD, 4)
        out[at + MAGIC_AT] = 2
        put_big_endian(out, at + ATTRIBUTES_AT, np.int64(row.attributes), 2)
        put_big_endian(out, at + LAST_OFFSET_DELTA_AT, row.last_offset - row.base_offset, 4)
        put_big_endian(out, at + BASE_TIMESTAMP_AT, row.base_timestamp, 8)
        put_big_endian(out, at + MAX_TIMESTAMP_AT, row.max_timestamp, 8)
        out[at + PRODUCER_AT : at + COUNT_AT] = 255  # producer id, epoch, base sequence: -1
        put_big_endian(out, at + COUNT_AT, np.int64(row.count), 4)


@njit(cache=True, nogil=True)
def put_checksums(data, starts, sizes, addresses):
    """Write the checksum of each batch into its header."""
    for batch in range(len(starts)):
        at = starts[batch]
        crc = checksum(data, at + CRC_START, at + sizes[batch], addresses)
        put_big_endian(data, at + CRC_AT, crc, 4)
