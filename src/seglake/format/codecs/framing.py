"""Write the records of many batches into one array, compressed, with space for batch headers.

One kernel writes all batches if they are uncompressed or zstd. With another codec, each batch is
compressed separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from seglake.format import encode_kernels
from seglake.format.batch import CODEC_MASK, OVERHEAD
from seglake.format.codecs import batch_kernels, codec_kernels, native
from seglake.format.codecs.compression import IDS, Compress, Zstd
from seglake.format.records import Bytes, Int64s, fixed


class Framed(NamedTuple):
    """Consecutive batches whose headers are not written yet, and the size of each in bytes."""

    data: Bytes
    sizes: Int64s


class Framing(NamedTuple):
    """The records of batches. Batch b has the records firsts[b] to firsts[b + 1], exclusive.

    The body of record i is data[starts[i] : starts[i] + sizes[i]], see `encode.Bodies`.
    """

    timestamps: Int64s
    offsets: Int64s
    starts: Int64s
    sizes: Int64s
    data: Bytes
    firsts: Int64s
    base_timestamps: Int64s  # one per batch, like `base_offsets`
    base_offsets: Int64s

    def record_bytes(self) -> Int64s:
        """Return the size in bytes of each batch's uncompressed records."""
        sizes = np.empty(len(self.base_offsets), np.int64)
        encode_kernels.measure_records(self, sizes)
        return sizes

    def framed(
        self, attributes: Any, record_bytes: Int64s, compressors: Mapping[int, Compress | None]
    ) -> Framed:
        """Write and compress the batches. `compressors` maps each codec in use to a function."""
        zstd = compressors.get(IDS["zstd"])
        here = set[int]() if not _has_zstd() or not isinstance(zstd, Zstd) else {IDS["zstd"]}
        if set(compressors) <= here | {0}:
            level = zstd.level if isinstance(zstd, Zstd) else 0
            return self._at_once(fixed(attributes.astype(np.int64)), fixed(record_bytes), level)
        return self._one_by_one((attributes & CODEC_MASK).tolist(), record_bytes, compressors)

    def _at_once(self, attributes: Int64s, record_bytes: Int64s, level: int) -> Framed:
        packed = attributes & CODEC_MASK != 0
        more = (record_bytes >> 8) + codec_kernels.ZSTD_MORE_BYTES
        bounds = OVERHEAD + record_bytes + packed * more
        out = np.empty(int(bounds.sum()), np.uint8)
        scratch = np.empty(int(record_bytes[packed].max(initial=0)), np.uint8)
        sizes = np.empty(len(record_bytes), np.int64)
        end = batch_kernels.put_batches(
            self, attributes, record_bytes, level, native.addresses(), scratch, out, sizes
        )
        if end < 0:
            raise MemoryError("zstd cannot compress a record batch")
        return Framed(out[:end], sizes)

    def _one_by_one(
        self, codecs: list[int], record_bytes: Int64s, compressors: Mapping[int, Compress | None]
    ) -> Framed:
        ends = np.cumsum(record_bytes)
        plain = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        encode_kernels.fill_records(self, fixed(ends - record_bytes), plain)
        parts: list[Any] = [bytes(OVERHEAD)] * (2 * len(codecs))
        bounds = pairwise([0, *ends.tolist()])
        for number, ((start, end), codec) in enumerate(zip(bounds, codecs, strict=True)):
            compress, records = compressors[codec], plain.data[start:end]
            parts[2 * number + 1] = records if compress is None else compress(records)
        sizes = np.fromiter(map(len, parts[1::2]), np.int64, len(codecs)) + OVERHEAD
        return Framed(np.frombuffer(bytearray().join(parts), np.uint8), sizes)


def _has_zstd() -> bool:
    return bool(native.addresses()[codec_kernels.ZSTD_COMPRESS])
