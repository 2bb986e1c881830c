"""Where the segments of an attempt stand in the logs, before and after lost races.

When others appended to a log, the segments are copied behind what came. Others may come as long as
that takes, so a run with many segments would never end beside a run a second. Therefore copies
after the first ones leave room: others take offsets below them, and an empty segment covers what
is left when the run commits. Nobody else knows of the room: runs go on at the end of the log, and
a run that dies leaves no hole. A run with few segments leaves none, for copies of them take about
as long as a commit.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from seglake.catalog.attempts import require_not_abandoned
from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.layout import new_attempt
from seglake.limits import REQUESTS
from seglake.log.encoding import policy_of
from seglake.log.writer import NewSegment, write_segment
from seglake.write.driver.attempt import Attempt, PlanAgain, end_offsets
from seglake.write.driver.rebase import Move
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
