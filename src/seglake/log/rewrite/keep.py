"""Decide which records are kept when the segments of one log partition are rewritten.

A `RecordFilter` is a value that is pickled for the process that runs a task. A rewrite first calls
`batch_retention` for whole batches, which needs only their headers. A batch that is decided this
way is not decoded. Then the rewrite calls `records` for the other batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.format.batch import CONTROL, BatchTable
from seglake.format.decode import Decoded
from seglake.format.encode_kernels import copy_bodies
from seglake.format.records import Bytes, Int64s, Spans, fixed
from seglake.limits import INT64_MAX
from seglake.log.rewrite.bitmap_kernels import count_bits, pick_bits

Flags = npt.NDArray[np.bool_]
BatchRetention = npt.NDArray[np.int8]

UNDECIDED, STAYS, GOES = range(3)  # decision on a batch: decide per record, keep all, or drop all


class RecordFilter:
    """A rule that keeps every record, and the base of all other rules."""

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        """Return the decision on each batch, from the offsets, attributes and counts in the table.

        A row of the table may describe a whole segment. Then only `GOES` has an effect.
        """
        return np.full(len(table), STAYS, np.int8)

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """Return whether each record is kept. `decoded` has all records of these batches."""
        del table
        return np.ones(len(decoded.offsets), bool)

    def delete_horizons_ms(
        self, table: BatchTable, decoded: Decoded, stays: Flags
    ) -> Int64s | None:
        """Return the delete horizon of each batch in ms, or `NO_HORIZON`. None means no horizons.

        A rewrite uses the horizons only of batches that are `UNDECIDED`.
        """
        del table, decoded, stays
        return None


@dataclass(frozen=True)
class ExcludeOffsets(RecordFilter):
    """Keeps every record, except in ascending ranges of offsets [starts[i], ends[i])."""

    starts: Int64s
    ends: Int64s

    @staticmethod
    def from_ranges(ranges: Iterable[tuple[int, int]]) -> ExcludeOffsets:
        """Return a rule from pairs of start and end (exclusive), in any order. They may overlap."""
        merged: list[list[int]] = []
        for start, end in sorted(ranges):
            if start >= end:
                continue
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(end, merged[-1][1])
            else:
                merged.append([start, end])
        columns = np.array(merged, np.int64).reshape(-1, 2).T.copy()
        return ExcludeOffsets(*columns)

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        """Return the decision on each batch, see `RecordFilter.batch_retention`."""
        first, last = table["base_offset"], table["last_offset"]
        number = self.ends.searchsorted(first, "right")  # of the first range that ends after it
        starts, ends = np.append(self.starts, INT64_MAX), np.append(self.ends, INT64_MAX)
        decisions = np.where(starts[number] > last, STAYS, UNDECIDED)
        goes = (starts[number] <= first) & (last < ends[number])
        return np.where(goes, GOES, decisions).astype(np.int8)

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """Return whether each record is kept, see `RecordFilter.records`."""
        del table
        number = self.ends.searchsorted(decoded.offsets, "right")
        starts = np.append(self.starts, INT64_MAX)
        stays: Flags = starts[number] > decoded.offsets
        return stays


@dataclass(frozen=True)
class KeepTimes(RecordFilter):
    """Keeps only records of the times [start_ms, end_ms)."""

    start_ms: int
    end_ms: int

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        """Return the decision on each batch, see `RecordFilter.batch_retention`."""
        goes = (table["max_timestamp"] < self.start_ms) | (table["count"] == 0)
        return np.where(goes, GOES, UNDECIDED).astype(np.int8)

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """Return whether each record is kept, see `RecordFilter.records`."""
        del table
        times = decoded.records.timestamps
        return (times >= self.start_ms) & (times < self.end_ms)


@dataclass(frozen=True)
class KeepOffsets(RecordFilter):
    """Keeps only the offsets in bitmaps.

    Bitmap i is sizes[i] bytes of `bits` from places[i] on. Bit n of bitmap i stands for offset
    bases[i] + n; the lowest bit of a byte is first. Bitmaps ascend and do not overlap. An offset in
    no bitmap is dropped. A bit is set only where there is a record.
    """

    bases: Int64s
    places: Int64s
    sizes: Int64s
    bits: Bytes

    @staticmethod
    def from_bitmaps(bitmaps: Sequence[tuple[int, Any]]) -> KeepOffsets:
        """Return the rule for bitmaps, each given as (offset of its first bit, bytes)."""
        parts = [np.frombuffer(data, np.uint8) for _, data in sorted(bitmaps, key=lambda p: p[0])]
        sizes = np.array([len(part) for part in parts], np.int64)
        bases = np.array(sorted(base for base, _ in bitmaps), np.int64)
        bits = np.concatenate([*parts, np.empty(0, np.uint8)])
        return KeepOffsets(bases, np.cumsum(sizes) - sizes, sizes, bits)

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        """Return the decision on each batch, see `RecordFilter.batch_retention`."""
        first, end = table["base_offset"], table["last_offset"] + 1
        number, start = self._places_of(first)
        stop = self._within(number, end)
        counts = np.empty(len(table), np.int64)
        count_bits(fixed(self.bits), start, stop, counts)
        decisions = np.where(counts == table["count"], STAYS, UNDECIDED)
        decisions[counts == 0] = GOES
        later = np.append(self.bases, INT64_MAX)[number + 1]  # where the next bitmap begins
        decisions[later < end] = UNDECIDED  # the batch extends into the next bitmap
        return decisions.astype(np.int8)

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """Return whether each record is kept, see `RecordFilter.records`."""
        del table
        number, bit = self._places_of(decoded.offsets)
        inside = bit < self._within(number, decoded.offsets + 1)
        stays = np.zeros(len(bit), bool)
        picked = np.empty(int(inside.sum()), bool)
        pick_bits(fixed(self.bits), bit[inside], picked)
        stays[inside] = picked
        return stays

    def _places_of(self, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Return two arrays: the bitmap of each offset, and the position of its bit in `bits`.

        The bitmap is the last one that begins at or before the offset, or -1.
        """
        number = self.bases.searchsorted(offsets, "right") - 1
        return number, self._within(number, offsets)

    def _within(self, number: Int64s, offsets: Int64s) -> Int64s:
        """Return the position in `bits` of each offset's bit, limited to the bitmap number[i]."""
        bases, places, sizes = (np.append(c, 0) for c in (self.bases, self.places, self.sizes))
        bits: Int64s = 8 * places[number] + np.clip(offsets - bases[number], 0, 8 * sizes[number])
        return bits


@dataclass(frozen=True)
class ExcludeKeys(RecordFilter):
    """Keeps every record, except records with one of these keys. Control records are kept."""

    keys: frozenset[bytes]

    @staticmethod
    def from_keys(keys: Collection[bytes]) -> ExcludeKeys:
        """Return a rule from any collection of keys."""
        return ExcludeKeys(frozenset(keys))

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        """Return the decision on each batch, see `RecordFilter.batch_retention`."""
        plain = (table["attributes"] & CONTROL == 0) & (len(self.keys) > 0)
        return np.where(plain, UNDECIDED, STAYS).astype(np.int8)

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """Return whether each record is kept, see `RecordFilter.records`."""
        gone = among(decoded.records.keys, self.keys)
        gone &= table["attributes"][decoded.batch] & CONTROL == 0
        return ~gone


def among(items: Spans, keys: Collection[bytes]) -> Flags:
    """Return, for each item, whether it is one of `keys`. A null never is."""
    sizes = np.maximum(items.lengths, 0).astype(np.int64)
    ends = np.cumsum(sizes)
    data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    copy_bodies(fixed(items.starts), fixed(sizes), fixed(items.data), data)
    arrays: list[Any] = [np.append(0, ends), data]
    buffers: list[Any] = [None, *map(pa.py_buffer, arrays)]
    array = pa.Array.from_buffers(pa.large_binary(), len(items), buffers)
    matches: Any = pc.is_in(array, pa.array(list(keys), pa.large_binary()))
    flags: Flags = matches.to_numpy(zero_copy_only=False) & (items.lengths >= 0)
    return flags
