"""Blobs: what goes from stage to stage. A few large compressed byte strings, never single records.

A map task cuts each chunk of its input into one sorted piece per log partition, and each piece into
blobs. A blob of records holds timestamps and encoded bodies in the run's order; where the order is
that of arrival nothing is left to merge, and a blob holds finished record batches instead. Rejected
rows and line counts travel the same way.

The place of a record in the run's total order is (key, second, unit, sequence, position in the
blob). For files, `key` is the event time and `second` 0: equal times stay in order of file and
position. For a DataFrame, `second` is the caller's order column. In arrival order both are 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import lz4.block
import numpy as np

from seglake.errors import CorruptData
from seglake.format.batch import TABLE, Batches, Bodies
from seglake.format.records import Int64s

RECORDS, BATCHES, REJECTS, SUMMARY = range(4)  # kinds

COLUMN_BYTES = 32  # of one record: key, second or timestamp, start and size of its body
LARGEST_RATIO = 255  # of LZ4, by its format


class Blob(NamedTuple):
    """A blob and what the driver has to know of it."""

    kind: int
    unit: int  # number of the input unit, in the order of the frozen input list
    data: bytes = b""
    partition: int = 0
    sequence: int = 0  # number of the blob within its unit, from 1
    records: int = 0
    size_bytes: int = 0  # of the bodies, uncompressed, or of finished batches
    key: int = 0  # of the first record
    second: int = 0
    last_key: int = 0  # of the last record
    last_second: int = 0
    counts: str = ""  # of a unit's summary


@dataclass(frozen=True)
class Run:
    """Consecutive records of the total order: their keys, timestamps and bodies.

    `seconds` is None where the position decides among equal keys.
    """

    keys: Int64s
    seconds: Int64s | None
    timestamps: Int64s
    bodies: Bodies

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, start: int, end: int) -> Run:
        """Records `start` to `end`, exclusive, over the same buffers."""
        chosen = slice(start, end)
        seconds = None if self.seconds is None else self.seconds[chosen]
        keys = self.keys[chosen]
        timestamps = keys if self.timestamps is self.keys else self.timestamps[chosen]
        return Run(keys, seconds, timestamps, self.bodies.take(chosen))

    @property
    def size_bytes(self) -> int:
        """Bytes of the bodies and columns; the buffers below may hold more."""
        return int(self.bodies.sizes.sum()) + COLUMN_BYTES * len(self)

    def detached(self) -> Run:
        """The same records over buffers of their own, so that larger ones can go."""
        keys = self.keys.copy()
        timestamps = keys if self.timestamps is self.keys else self.timestamps.copy()
        return Run(
            keys,
            None if self.seconds is None else self.seconds.copy(),
            timestamps,
            self.bodies.detached(),
        )


_HEAD = struct.Struct("<qBBxxxxxx")  # records, keys are the timestamps, seconds present


def pack_run(run: Run) -> bytes:
    """A run as one compressed string; its bodies must stand without gaps, in order."""
    n = len(run)
    same = run.keys is run.timestamps
    columns = [run.timestamps] + ([] if same else [run.keys])
    columns += [] if run.seconds is None else [run.seconds]
    first = int(run.bodies.starts[0]) if n else 0
    size = int(run.bodies.sizes.sum())
    parts: list[Any] = [_HEAD.pack(n, same, run.seconds is not None)]
    parts += [_pack_integers(np.diff(column, prepend=0)) for column in columns]
    parts += [_pack_integers(run.bodies.sizes), run.bodies.data[first : first + size].data]
    return _squeeze(b"".join(parts))


def unpack_run(data: Any) -> Run:
    """The inverse of `pack_run`. Raises CorruptData."""
    raw = _expand(data)
    _require(len(raw) >= _HEAD.size)
    n, same, has_seconds = _HEAD.unpack_from(raw)
    at = _HEAD.size
    _require(n >= 0 and at + 8 * n * (2 + (not same) + has_seconds) <= len(raw))
    columns = []
    for _ in range(1 + (not same) + has_seconds):
        columns.append(np.cumsum(_unpack_integers(raw, at, n)))
        at += 8 * n
    sizes = _unpack_integers(raw, at, n)
    _require(sizes.min(initial=0) >= 0 and sizes.max(initial=0) <= len(raw))  # no sum overflows
    _require(sizes.sum() == len(raw) - at - 8 * n)
    bodies = Bodies(np.cumsum(sizes) - sizes, sizes, np.frombuffer(raw, np.uint8, -1, at + 8 * n))
    keys = columns[0] if same else columns[1]
    return Run(keys, columns[-1] if has_seconds else None, columns[0], bodies)


def _pack_integers(values: Int64s) -> bytes:
    # equal bytes side by side: small numbers cost next to nothing after compression
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8).T.tobytes()


def _unpack_integers(raw: bytes, at: int, n: int) -> Int64s:
    planes = np.frombuffer(raw, np.uint8, 8 * n, at).reshape(8, n)
    return np.ascontiguousarray(planes.T).view(np.int64).reshape(-1)


def pack_batches(batches: Batches) -> bytes:
    """Finished batches as one string; only uncompressed ones are worth compressing here."""
    table = _squeeze(batches.table.tobytes())
    data = batches.data.tobytes()
    plain = not (batches.table["attributes"] & 7).any()
    if plain:
        data = _squeeze(data)
    return struct.pack("<qq", len(table), plain) + table + data


def unpack_batches(data: Any) -> Batches:
    """The inverse of `pack_batches`. Raises CorruptData."""
    view = memoryview(data)
    _require(len(view) >= 16)
    size, plain = struct.unpack_from("<qq", view)
    _require(0 <= size <= len(view) - 16)
    rows, rest = _expand(view[16 : 16 + size]), view[16 + size :]
    _require(len(rows) % TABLE.itemsize == 0)
    raw = _expand(rest) if plain else rest
    table = np.frombuffer(rows, TABLE)
    _require(table["size"].sum(dtype=np.int64) == len(raw))
    return Batches(np.frombuffer(raw, np.uint8), table)


def _squeeze(raw: bytes) -> bytes:
    # LZ4: a blob lives for seconds, so speed counts for more than size
    packed: bytes = lz4.block.compress(raw)
    return packed


def _expand(data: Any) -> bytes:
    size = int.from_bytes(memoryview(data)[:4], "little")
    _require(size <= LARGEST_RATIO * len(data))
    try:
        raw: bytes = lz4.block.decompress(data)
    except (lz4.block.LZ4BlockError, ValueError):
        _require(sound=False)
    return raw


def _require(sound: bool | np.bool_) -> None:
    if not sound:
        raise CorruptData("a blob between two stages is damaged; run again")
