"""The records of a log partition with one key: which blocks may hold them, and their batches.

A key index names blocks that may hold the key. Without one, all blocks of the window may. Blocks
are read in groups of about 1 MiB. Keys are compared, byte by byte. A batch that loses records is
encoded again, with the offsets and timestamps of those that stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from seglake.format.batch import BatchTable
from seglake.format.decode import Decoded
from seglake.format.filter import filter_batches
from seglake.format.records import Flags, Int64s, Spans
from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.log.rewrite.keep import among
from seglake.log.segment import LogRanges, LogSegment
from seglake.read.window.search_blocks import SearchBlocks

GROUP_BYTES = 2**20
_DECODED_BYTES = 4 * 2**20  # of decompressed records at once
_OWN_BYTES = 700  # of the arrays of a group or of matches


class Matches(NamedTuple):
    """Batches with only the sought records: batch i is data[positions[i] : positions[i + 1]].

    Its offsets are base_offsets[i] to last_offsets[i], inclusive; `ends[i]` is that of its last
    record. `first` is the first record of all, `newest` the first with the largest timestamp.
    """

    data: bytes
    positions: Int64s
    base_offsets: Int64s
    last_offsets: Int64s
    ends: Int64s
    first: OffsetAndTimestamp | None
    newest: OffsetAndTimestamp | None

    @property
    def held_bytes(self) -> int:
        """About what it takes in memory."""
        return _OWN_BYTES + len(self.data) + 4 * self.positions.nbytes


@dataclass(frozen=True)
class SoughtRecords:
    """The records with a key in a window of a log partition.

    `blocks` says where they may be. With `is_elsewhere`, there is nothing to be searched: keys
    choose the partition, and this one is in others.
    """

    key: bytes = field(repr=False)
    blocks: SearchBlocks = field(repr=False)
    is_elsewhere: bool = False

    def since(self, start_ms: int, end_offset: int) -> SoughtRecords:
        """Those of them from a time (ms) on and below an offset."""
        window = self.blocks.bounds.window
        window = window._replace(
            start_ms=max(start_ms, window.start_ms), end_offset=min(end_offset, window.end_offset)
        )
        blocks = SearchBlocks.of(self.blocks.reader, window, self.blocks.sought)
        is_empty = window.start_ms >= window.end_ms
        return replace(self, blocks=blocks, is_elsewhere=self.is_elsewhere or is_empty)

    def name_of(self, segment: LogSegment) -> Hashable:
        """All that the groups of a segment depend on."""
        files = segment.log_key, segment.zonemap_key, segment.keyindex_key
        return *files, self.key, self.blocks.bounds.window

    def groups(self, segment: LogSegment) -> list[LogRanges]:
        """The blocks of a segment that may hold the key, in groups, in offset order."""
        blocks = self.blocks.blocks_of(segment)
        sizes = blocks.ends - blocks.starts
        numbers = (np.cumsum(sizes) - sizes) // GROUP_BYTES
        cuts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        parts = [*cuts, len(numbers)]
        return [blocks.take(slice(first, stop)).joined() for first, stop in pairwise(parts)]

    def single_blocks(self, segment: LogSegment, group: LogRanges) -> list[LogRanges]:
        """The blocks of a group, each alone."""
        blocks = self.blocks.blocks_of(segment)
        inside = (blocks.starts >= group.starts[0]) & (blocks.ends <= group.ends[-1])
        some = blocks.take(inside)
        return [some.take(slice(row, row + 1)) for row in range(len(some.starts))]

    def matches(self, segment: LogSegment, group: LogRanges) -> Matches:
        """The sought records in a group. Raises CorruptData, StoreError and VersionExpired."""
        chunk = self.blocks.reader.fetch.chunk_of(segment, group)
        table = chunk.record_batches
        matches = [
            _matches_of(chunk.data, part, decoded, stays)
            for part, decoded in chunk.decode_in_parts(table[table["count"] > 0], _DECODED_BYTES)
            if (stays := self._flags(decoded)).any()
        ]
        return matches[0] if len(matches) == 1 else _joined(matches)

    def _flags(self, decoded: Decoded) -> Flags:
        window, offsets = self.blocks.bounds.window, decoded.offsets
        flags = has_key(decoded.records.keys, self.key)
        times = decoded.records.timestamps
        flags &= (times >= window.start_ms) & (times < window.end_ms)
        flags &= (offsets >= window.start_offset) & (offsets < window.end_offset)
        return flags


def has_key(keys: Spans, key: bytes) -> Flags:
    """Whether each of the keys is this one; null is not."""
    flags = np.zeros(len(keys), np.bool_)
    alike = np.flatnonzero(keys.lengths == len(key))
    if len(alike):
        flags[alike] = among(keys.take(alike), [key])
    return flags


def newest_of(records: Iterable[OffsetAndTimestamp | None]) -> OffsetAndTimestamp | None:
    """The first of the records with the largest timestamp; None if there is none."""
    return max(filter(None, records), key=lambda record: record.timestamp, default=None)


def held_bytes(groups: Sequence[LogRanges]) -> int:
    """About what the groups of a segment take in memory."""
    return _OWN_BYTES + sum(_OWN_BYTES + 4 * group.starts.nbytes for group in groups)


def _matches_of(data: Any, table: BatchTable, decoded: Decoded, stays: Flags) -> Matches:
    batches = filter_batches(data, table, decoded, stays)
    rows = np.flatnonzero(stays)
    owners = decoded.batch[rows]
    last = np.append(owners[1:] != owners[:-1], True)
    left, offsets, times = batches.table, decoded.offsets[rows], decoded.records.timestamps[rows]
    newest = int(times.argmax())
    return Matches(
        batches.data.tobytes(), np.append(left["position"].astype(np.int64), len(batches.data)),
        left["base_offset"].astype(np.int64), left["last_offset"].astype(np.int64),
        offsets[last], OffsetAndTimestamp(int(offsets[0]), int(times[0])),
        OffsetAndTimestamp(int(offsets[newest]), int(times[newest])),
    )  # fmt: skip


def _joined(parts: Sequence[Matches]) -> Matches:
    none = np.empty(0, np.int64)
    starts = np.cumsum([0, *(len(part.data) for part in parts)])
    positions = [part.positions[:-1] + start for part, start in zip(parts, starts, strict=False)]
    bases, lasts, ends = (
        np.concatenate([none, *(part[number] for part in parts)]) for number in (2, 3, 4)
    )
    data = b"".join(part.data for part in parts)
    return Matches(
        data, np.concatenate([*positions, starts[-1:]]).astype(np.int64), bases, lasts, ends,
        next((part.first for part in parts), None), newest_of(part.newest for part in parts),
    )  # fmt: skip
