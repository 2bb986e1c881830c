"""Both passes over some log partitions, on an engine. The lake is not changed: files are written.

FindKeys        segments → last records by hash range        the first pass
FindSurvivors   hash ranges → offsets that stay, by segment
CleanGroups     segments and offsets → segments              the second pass
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from seglake.catalog.schema import SegmentRow
from seglake.engine import Engine, Task, share_out
from seglake.limits import INT64_MAX
from seglake.log.tasks import Progress, logged
from seglake.maintain.compaction.cleaning import CleanGroup, CleanGroups, edges_of, groups_of
from seglake.maintain.compaction.keys import FindKeys, Keys, LogPart
from seglake.maintain.compaction.policy import LogToClean, Policy
from seglake.maintain.compaction.survivors import SURVIVORS, TOMBSTONES, BlobBucket, FindSurvivors
from seglake.store import Store
from seglake.write.spool.spool import SPOOLED, clear, packed_rows, unpacked_rows

BUCKET_ROWS = 1_250_000  # a reduce task has a table of 48 MiB for it
_TASKS_PER_CORE = 4
_MOST_BLOBS = 3_000_000  # of a log partition: the driver holds a row for each

Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupReplacement(NamedTuple):
    """The segments of a group, and the one that replaces them."""

    old: Sequence[SegmentRow]
    new: SegmentRow


class CleanedLog(NamedTuple):
    """What a round made of one log partition: the groups that changed, and what became of records.

    Records below the log start offset are not counted.
    """

    log: LogToClean
    groups: Sequence[GroupReplacement]
    records: int
    null_keys: int
    superseded: int
    expired_tombstones: int

    @property
    def records_after(self) -> int:
        """The records that stay."""
        return self.records - self.null_keys - self.superseded - self.expired_tombstones


class How(NamedTuple):
    """How to compact: with `force` also logs that are not due; as of the time `now_ms`.

    New delete horizons count from `ahead_ms` later. A bucket has about `bucket_rows` keys.
    """

    force: bool
    now_ms: int
    progress: Progress = logged
    bucket_rows: int = BUCKET_ROWS
    ahead_ms: int = 0


@dataclass(frozen=True)
class Passes:
    """The two passes of one attempt.

    The result depends only on the segments, the policy and the time, not on the number of cores.
    """

    store: Store
    engine: Engine
    attempt_id: str
    policy: Policy
    how: How

    def clean(self, logs: Sequence[LogToClean]) -> list[CleanedLog]:
        """Clean logs, each with a segment to clean. Raises CorruptData and StoreError."""
        if not logs:
            return []
        try:
            spooled, records, null_keys = self._keys(logs)
            spooled, keys, expired = self._survivors(logs, spooled)
            segments = self._cleaned(logs, spooled)
        finally:
            clear(self.store, self.attempt_id)
        return [
            CleanedLog(
                log,
                new,
                records[log.partition],
                null_keys[log.partition],
                records[log.partition] - null_keys[log.partition] - keys[log.partition],
                expired[log.partition],
            )
            for log, new in zip(logs, segments, strict=True)
        ]

    def _keys(self, logs: Sequence[LogToClean]) -> tuple[pa.Table, Counter[int], Counter[int]]:
        """The rows of the keys' blobs; by partition the records, and those with a null key."""
        total = _log_bytes(logs)
        cores = self.engine.cores_for(total)
        least = total // (_TASKS_PER_CORE * cores)
        log_parts = [log_part for log in logs for log_part in self._log_parts(log, least)]
        sizes = [log_part.size_bytes for log_part in log_parts]
        task = FindKeys(self.store, self.attempt_id, self.how.now_ms)
        parts, done = list[Keys](), 0
        for numbers, keys in self._run(task, log_parts, sizes, cores):
            parts.append(keys)
            done += sum(sizes[number] for number in numbers)
            self.how.progress(done, 2 * total)
        return (
            unpacked_rows(part.packed for part in parts),
            sum((part.records for part in parts), Counter()),
            sum((part.null_keys for part in parts), Counter()),
        )

    def _log_parts(self, log: LogToClean, least_bytes: int) -> Iterator[LogPart]:
        """The log cut into parts of a task's size, of whole segments."""
        records = sum(row.record_count for row in log.rows)
        buckets = -(-records // self.how.bucket_rows) or 1
        least_bytes = max(least_bytes, _log_bytes([log]) * buckets // _MOST_BLOBS)
        rows, size = list[SegmentRow](), 0
        for row in log.rows:
            rows.append(row)
            size += row.log_bytes
            if size >= least_bytes or row is log.rows[-1]:
                first = log.rows[0].base_offset
                yield LogPart(log.partition, rows, first, log.log_start_offset, buckets)
                rows, size = [], 0

    def _survivors(
        self, logs: Sequence[LogToClean], keys: pa.Table
    ) -> tuple[pa.Table, Counter[int], Counter[int]]:
        """The rows of the survivors' blobs; by partition the keys, and the tombstones that go."""
        edges = {log.partition: edges_of(log.rows) for log in logs}
        buckets = [
            BlobBucket.of(partition, edges[partition], spooled)
            for (partition, _), spooled in _parts(keys, "partition", "number")
        ]
        task = FindSurvivors(self.store, self.attempt_id)
        most = _MOST_BLOBS // _TASKS_PER_CORE // max(map(len, edges.values()))
        cores = min(self.engine.cores_for(_log_bytes(logs)), most)
        runs = self._run(task, buckets, [bucket.rows for bucket in buckets], cores)
        parts = [survivors for _, survivors in runs]
        return (
            unpacked_rows(part.packed for part in parts),
            sum((part.keys for part in parts), Counter()),
            sum((part.expired for part in parts), Counter()),
        )

    def _cleaned(
        self, logs: Sequence[LogToClean], spooled: pa.Table
    ) -> list[list[GroupReplacement]]:
        """The groups of each log that change, given the rows of the survivors' blobs."""
        total = _log_bytes(logs)
        survivors = {partition: part for (partition,), part in _parts(spooled, "partition")}
        groups = [
            (number, group)
            for number, log in enumerate(logs)
            for group in self._groups(log, survivors.get(log.partition, SPOOLED.empty_table()))
        ]
        sizes = [group.log_bytes for _, group in groups]
        fresh_ms = self.how.now_ms + self.how.ahead_ms
        horizon_ms = min(fresh_ms + self.policy.delete_retention_ms, INT64_MAX)
        task = CleanGroups(self.store, self.attempt_id, horizon_ms, self.policy.subjects)
        rows, left, cores = dict[int, SegmentRow](), sum(sizes), self.engine.cores_for(sum(sizes))
        for numbers, written in self._run(task, [group for _, group in groups], sizes, cores):
            rows |= zip(numbers, written, strict=True)
            left -= sum(sizes[number] for number in numbers)
            self.how.progress(2 * total - left, 2 * total)
        self.how.progress(2 * total, 2 * total)  # the groups that stay as they are
        new: list[list[GroupReplacement]] = [[] for _ in logs]
        for number, (log_number, group) in enumerate(groups):
            new[log_number].append(GroupReplacement(group.rows, rows[number]))
        return new

    def _groups(self, log: LogToClean, spooled: pa.Table) -> Iterator[CleanGroup]:
        """The groups that lose a record, or have a tombstone without a delete horizon."""
        newest, fresh = np.zeros((2, len(log.rows)), np.int64)
        kinds, units = spooled["kind"].to_numpy(), spooled["unit"].to_numpy()
        counts = spooled["records"].to_numpy()
        for kind, column in ((SURVIVORS, newest), (TOMBSTONES, fresh)):
            np.add.at(column, units[kinds == kind], counts[kinds == kind])
        stored = np.array([row.record_count for row in log.rows])
        changes = (newest < stored) | (fresh > 0)
        for group in groups_of(log.rows, self.policy):
            some = slice(group.start, group.stop)
            if changes[some].any():
                own = pa.array((units >= group.start) & (units < group.stop))
                yield CleanGroup(group.start, log.rows[some], packed_rows(spooled.filter(own)))

    def _run(
        self,
        task: Task[list[Item], Result],
        items: Sequence[Item],
        sizes: Sequence[int],
        cores: int,
    ) -> Iterator[tuple[list[int], Result]]:
        """Share items out to tasks; yields the numbers of each task's items, and its result.

        As many tasks as there are cores are given to the engine together, so that progress is seen.
        """
        shares = share_out(sizes, _TASKS_PER_CORE * cores) if items else []
        for first in range(0, len(shares), cores):
            wave = shares[first : first + cores]
            work = [[items[number] for number in share] for share in wave]
            yield from zip(wave, self.engine.map(task, work), strict=True)


def _log_bytes(logs: Sequence[LogToClean]) -> int:
    return sum(row.log_bytes for log in logs for row in log.rows)


def _parts(spooled: pa.Table, *names: str) -> Iterator[tuple[tuple[int, ...], pa.Table]]:
    """The rows with each combination of values in these columns."""
    ordered = spooled.sort_by([(name, "ascending") for name in names])
    columns = np.stack([ordered[name].to_numpy() for name in names])
    ends = np.flatnonzero((np.diff(columns) != 0).any(axis=0)) + 1
    for first, end in pairwise([0, *ends.tolist(), len(ordered)] if len(ordered) else []):
        yield tuple(columns[:, first].tolist()), ordered.slice(first, end - first)
