"""Define the layout of a record batch of magic 2, Kafka's unit of compression and checksum.

    offset  size  field                 (`DefaultRecordBatch`, all integers big-endian)
    0       8     base offset           outside the checksum, so a batch can be moved (`rebase`)
    8       4     batch length          bytes after this field
    12      4     partition leader epoch
    16      1     magic                 2
    17      4     CRC-32C               of everything from byte 21 to the end
    21      2     attributes            0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                        6 delete horizon
    23      4     last offset delta
    27      8     base timestamp        of the first record, not the smallest; or the delete horizon
    35      8     max timestamp
    43      8     producer id
    51      2     producer epoch
    53      4     base sequence
    57      4     record count
    61      …     records, or one compressed blob of all records

A record is `length varint, attributes i8, timestamp delta varlong, offset delta varint, body`. Its
body is `key, value, headers`. Keys and values are length-prefixed, headers are preceded by their
count. A body does not depend on its batch.
"""

import numpy as np
import numpy.typing as npt

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)

# The positions of the header's fields in a batch.
(
    BASE_OFFSET_AT, LENGTH_AT, LEADER_EPOCH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT,
    LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT, PRODUCER_AT, _, _, COUNT_AT,
) = (int(place[1]) for place in (HEADER.fields or {}).values())  # fmt: skip

OVERHEAD = HEADER.itemsize
LOG_OVERHEAD = LEADER_EPOCH_AT  # `length` counts the bytes from here on
CRC_START = ATTRIBUTES_AT  # the checksum covers the bytes from here on

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")  # without and with LOG_APPEND_TIME
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # the base timestamp is when Kafka's cleaner may drop the batch's tombstones

LEAST_RECORD_BYTES = 7
MAX_BATCH_BYTES = 512 * 1024 * 1024  # of decompressed records; readers refuse larger batches

UNKNOWN = -2  # only in offset_of_max it is unambiguous, because a timestamp may be -2

TABLE = np.dtype(
    [
        ("position", np.int64),  # of the batch's first byte, in the file
        ("size", np.int32),  # bytes, header included
        ("attributes", np.int16),
        ("base_offset", np.int64),
        ("last_offset", np.int64),  # inclusive
        ("base_timestamp", np.int64),  # ms since the epoch, or -1, as every timestamp here
        ("count", np.int32),  # of records
        ("min_timestamp", np.int64),  # *
        ("max_timestamp", np.int64),
        ("offset_of_max", np.int64),  # * offset of the first record with the largest timestamp
        ("lateness", np.int64),  # * largest ms by which a record is older than an earlier one
    ]
)
"""A row of a batch table, which describes record batches in file order. The columns marked * are
computed from the records. In a table made only from headers, they are `UNKNOWN`."""

BatchTable = npt.NDArray[np.void]
