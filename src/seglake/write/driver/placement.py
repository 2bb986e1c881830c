"""The offsets of an attempt's segments, and how a lost race moves them.

Segments begin at the ends of the logs in the version that the attempt continues. When other runs
append first, the attempt rebases: it copies its segments to later offsets.

    1. A large run copies its segments, and a small run appends every second.
    2. While the copies are made, small runs append again, so the copies are too low again.
    3. The large run never commits.

So copies after the first ones leave a reserved range: other runs take offsets below the copies, and
an empty segment covers the rest when the run commits. Nobody else knows of the reserved range: runs
append at the end of the log, and a run that dies leaves no hole. A run with few segments reserves
nothing, since its copies take about as long as a commit.

A copy decodes nothing. A base offset is 8 bytes of each record batch, outside its CRC, and index
files have relative offsets. Under LogAppendTime the append time may have to move as well. Then each
record batch gets a new max timestamp and CRC, and the index files are rebuilt from the batch
headers. The checksum of the old log is checked, so a damaged file never gets a valid checksum.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import crc32c
import numpy as np

from seglake.catalog.attempts import require_not_abandoned
from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.engine import Amounts, Engine
from seglake.errors import CorruptData
from seglake.format.batch import BatchTable
from seglake.format.decode import check_crcs, scan
from seglake.format.encode import EncodedBatches, rebase, restamp
from seglake.format.segment import rebuild
from seglake.layout import new_attempt
from seglake.limits import REQUESTS
from seglake.log.encoding import policy_of
from seglake.log.files import LogCheck, check_crc, put_indexes
from seglake.log.key_index_builder import KeyIndexBuilder
from seglake.log.writer import NewSegment, write_segment
from seglake.store import Store
from seglake.write.driver.attempt import Attempt, PlanAgain, end_offsets
from seglake.write.driver.topics import append_time

_FEW_SEGMENTS, _FEW_BYTES = 64, 64 * 2**20  # of a run that leaves no room
_TIMES = 2  # the room is so many times what came while the copies before were made
_MOST_ROOM = 2**30  # offsets: an empty record batch covers it


class Placement:
    """The segments of one attempt, which continue the version that they were planned on."""

    def __init__(self, attempt: Attempt, segments: Iterable[SegmentRow]) -> None:
        self._attempt, self._filled = attempt, list(segments)
        self._empty: list[SegmentRow] = []
        self._ends = self._copied_at = end_offsets(attempt.base, attempt.topic)
        self._append_time_ms = attempt.append_time_ms

    @property
    def rows(self) -> list[SegmentRow]:
        """The segments in the order of the logs, those that cover room among them."""
        return _in_order([*self._filled, *self._empty])

    @property
    def copied_to(self) -> set[str]:
        """The ids, other than the attempt's own, in the names of the segments' files."""
        return {row.attempt_id for row in self.rows} - {self._attempt.attempt_id}

    def follow(self, newest: Snapshot) -> None:
        """Let the segments continue a newer version: copy those whose offsets others took.

        Raises PlanAgain if the records keep their offsets, AttemptAbandoned and what a copy raises.
        """
        before, self._ends = self._ends, end_offsets(newest, self._attempt.topic)
        grown = {p for p, end in self._ends.items() if end > before.get(p, 0)}
        if not grown:
            return
        if self._attempt.settings.topic.offset_field is not None:
            raise PlanAgain("another run appended to the log, and these records keep their offsets")
        begins = self._begins()
        late = {p for p in begins.keys() & grown if self._stamped or begins[p] < self._ends[p]}
        if late:
            self._copy(newest, {p: self._ends[p] + self._room(p) - begins[p] for p in late})
        self._cover()

    @property
    def _stamped(self) -> bool:
        """Whether a log's times are those of appending, which must not go back."""
        return self._attempt.settings.topic.message_timestamp_type == "LogAppendTime"

    @property
    def _few(self) -> bool:
        size_bytes = sum(row.log_bytes for row in self._filled)
        return len(self._filled) <= _FEW_SEGMENTS and size_bytes <= _FEW_BYTES

    def _begins(self) -> dict[int, int]:
        """The first offset of the segments in each log partition."""
        return {row.partition: row.base_offset for row in reversed(self._filled)}

    def _room(self, partition: int) -> int:
        """The offsets to leave free between the end of a log and the copies."""
        if self._stamped or self._few or not self._attempt.report.rebased:
            return 0
        came = self._ends[partition] - self._copied_at.get(partition, 0)
        return min(_TIMES * came, _MOST_ROOM)

    def _copy(self, newest: Snapshot, deltas: dict[int, int]) -> None:
        """Copy the segments of some log partitions, by so many offsets; the others stay."""
        attempt = self._attempt
        for owner in (attempt.attempt_id, *sorted(self.copied_to)):
            require_not_abandoned(attempt.store, owner)  # an erasure would not see the copies
        self._append_time_ms = append_time(newest, attempt.topic, self._append_time_ms)
        copied_to = new_attempt()
        attempt.moved.add(copied_to)
        move = Move(attempt.store, deltas, copied_to, self._append_time_ms)
        with attempt.step("move the segments behind those of another run"):
            copies = move.run(attempt.engine, [r for r in self._filled if r.partition in deltas])
        attempt.report.rebased += 1
        stay = (row for row in self._filled if row.partition not in deltas)
        self._filled, self._copied_at = _in_order([*stay, *copies]), self._ends

    def _cover(self) -> None:
        """Write an empty segment for each room, from the end of the log on."""
        policy, now_ms = policy_of(self._attempt.settings.topic), self._attempt.started_ms
        firsts = {row.partition: row for row in reversed(self._filled)}
        rooms = [
            NewSegment(first.id._replace(base_offset=end), first.base_offset, policy, now_ms)
            for partition, first in firsts.items()
            if (end := self._ends.get(partition, 0)) < first.base_offset
        ]
        known = {(row.id, row.end_offset): row for row in self._empty}
        new = [room for room in rooms if (room.id, room.end_offset) not in known]
        with ThreadPoolExecutor(REQUESTS) as pool:
            known |= pool.map(self._covering, new)
        self._empty = [known[room.id, room.end_offset] for room in rooms]

    def _covering(self, room: NewSegment) -> tuple[tuple[SegmentId, int], SegmentRow]:
        return (room.id, room.end_offset), write_segment(self._attempt.store, room, [])


def _in_order(rows: Iterable[SegmentRow]) -> list[SegmentRow]:
    return sorted(rows, key=lambda row: (row.partition, row.base_offset))


# ---------------- rebase


READ_BYTES = 16 * 2**20


class Move(NamedTuple):
    """The task: one segment → the same segment at other offsets.

    `deltas` are added to the offsets of each log partition. The new files carry `attempt_id`.
    """

    store: Store
    deltas: dict[int, int]
    attempt_id: str
    append_time_ms: int

    def amounts(self, segments: Sequence[SegmentRow]) -> Amounts:
        """The size of each log."""
        return Amounts("bytes", [row.log_bytes for row in segments])

    def run(self, engine: Engine, segments: Sequence[SegmentRow]) -> list[SegmentRow]:
        """Copy every segment to its new offsets; returns their new rows."""
        return engine.map(self, segments)

    def __call__(self, row: SegmentRow) -> SegmentRow:
        """Copy a segment's files; CorruptData if a file differs from the segment's row."""
        store, delta = self.store, self.deltas.get(row.partition, 0)
        moved = dataclasses.replace(
            row,
            attempt_id=self.attempt_id,
            index_attempt_id=self.attempt_id,
            base_offset=row.base_offset + delta,
            end_offset=row.end_offset + delta,
            offset_of_max_timestamp=row.offset_of_max_timestamp + delta,
        )
        stamped = row.timestamp_type == "LogAppendTime" and row.max_timestamp < self.append_time_ms
        stamp = self.append_time_ms if stamped else None
        tables, crc, policy = [], 0, row.index_policy
        indexed = stamped and policy.subjects
        keys = KeyIndexBuilder(moved.base_offset, policy) if indexed else None
        with store.writer(moved.key("log")) as sink:
            for batches in _moved_batches(store, row, delta, stamp):
                sink.write(batches.data)
                crc = crc32c.crc32c(batches.data.data, crc)
                tables.append(batches.table)
                if keys is not None:
                    keys.add(batches.table, batches.data)
        moved = dataclasses.replace(moved, log_crc32c=crc)
        if stamp is None:
            return _copy_indexes(store, row, moved)
        files = keys.finish(moved.log_bytes) if keys is not None else None
        return _stamp_indexes(store, moved, np.concatenate(tables), stamp, files)


def _moved_batches(
    store: Store, row: SegmentRow, delta: int, stamp: int | None
) -> Iterator[EncodedBatches]:
    """The record batches at their new offsets, a few MiB at a time.

    Raises CorruptData for damage; the checksum of the whole log is known only at the end.
    """
    at, want, whole = 0, READ_BYTES, LogCheck(row)
    while at < row.log_bytes:
        data = memoryview(store.read(row.key("log"), at, min(at + want, row.log_bytes)))
        table = _sound_table(row, data, at)
        if not len(table):  # the record batch is larger than the bytes read
            want *= 2
            continue
        size = int(table["size"].sum(dtype=np.int64))
        whole.add(data[:size], table)
        moved = rebase(data[:size], table, delta)
        yield moved if stamp is None else restamp(moved, stamp)
        at, want = at + size, READ_BYTES
    whole.check()


def _sound_table(row: SegmentRow, data: memoryview, at: int) -> BatchTable:
    """The whole record batches in a part of the log; CorruptData unless they are sound.

    The last record batch may be cut short, except at the end of the log.
    """
    table, damage = scan(data, base_position=at)
    try:
        # The CRCs come first. `scan` sees a wrong length of a batch only where the next one should
        # begin, and the CRC names the batch itself.
        check_crcs(data, table, base_position=at)
        if damage is not None and not (damage.cut_short and at + len(data) < row.log_bytes):
            raise damage.error
    except CorruptData as error:
        raise error.within(row.key("log")) from None
    return table


def _copy_indexes(store: Store, row: SegmentRow, moved: SegmentRow) -> SegmentRow:
    for suffix in row.suffixes[1:]:
        data = store.read_all(row.key(suffix))
        check_crc(row, suffix, crc32c.crc32c(data))
        store.put(moved.key(suffix), data)
    return moved


def _stamp_indexes(
    store: Store, row: SegmentRow, table: BatchTable, stamp: int, key_index: bytes | None
) -> SegmentRow:
    table["offset_of_max"] = table["base_offset"]
    sealed = rebuild(row.base_offset, table, row.index_policy)._replace(key_index=key_index)
    return dataclasses.replace(
        row,
        min_timestamp=stamp,
        max_timestamp=stamp,
        offset_of_max_timestamp=row.base_offset,
        **put_indexes(store, row.id, sealed),
    )
