"""Commit an attempt, which makes it visible, and handle lost races.

After a lost race, the attempt continues the newest version: it commits its rows again, after the
rows of the other runs. But the attempt is planned again if the newest version has its run, files of
its input, or another number of partitions. A redrive is also planned again if another commit closed
rejects that the redrive would take over.

Only maintenance reads the success marker next to an attempt's manifest. A run is committed even if
its marker cannot be written.

Segments begin at the ends of the logs in the version that the attempt continues. When other runs
append first, the attempt rebases: it copies its segments to later offsets.

    1. A large run copies its segments, and a small run appends every second.
    2. While it copies, small runs append again, so the offsets of the copies are taken, too.
    3. The large run never commits.

So from the second rebase on, an attempt leaves a reserved range between the end of the log and its
copies. Other runs append in that range, and an empty segment covers the rest of it when the run
commits. The reserved range is visible to no other run: runs append at the end of the log, and a run
that dies leaves no hole. A run with few segments reserves nothing, because its copies take about as
long as a commit.

Copying decodes no records. The base offset of a record batch is 8 bytes outside its CRC, and index
files have relative offsets. Under LogAppendTime the append time may have to change as well. Then
each record batch gets a new max timestamp and CRC, and the index files are rebuilt from the batch
headers. The checksum of the old log is checked, so a damaged file never gets a valid checksum.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import crc32c
import numpy as np

from seglake.advice.finding import Finding
from seglake.catalog.attempts import require_not_abandoned
from seglake.catalog.quarantine.open_rejects import redrive_from_run
from seglake.catalog.schema import Row, RunRow, SegmentRow
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.engine import Engine
from seglake.errors import CorruptData, UsageError
from seglake.format.batch import BatchTable
from seglake.format.decode import check_crcs, scan
from seglake.format.encode import EncodedBatches, rebase, restamp
from seglake.format.segment import rebuild
from seglake.layout import new_attempt
from seglake.limits import REQUESTS
from seglake.log.files import LogCheck, check_crc, put_indexes
from seglake.log.key_indexes import KeyIndexBuilder
from seglake.log.writer import NewSegment, policy_of, write_segment
from seglake.store import Store
from seglake.terminal.wording import counted, history_command, nearest
from seglake.write.driver.attempt import Attempt, ReplanRequired, end_offsets
from seglake.write.driver.report import Report
from seglake.write.driver.run_input import SplitCounts
from seglake.write.driver.topics import (
    append_time,
    current_topic,
    partition_growth_finding,
    topic_rows,
)

_COMPARED = 1000  # newest run ids that are compared with a mistyped one


class Commit:
    """The commit of one attempt. `counts` maps split numbers to counts of lines and rows."""

    def __init__(self, attempt: Attempt, counts: SplitCounts, segments: list[SegmentRow]) -> None:
        self._attempt, self._base = attempt, attempt.base
        self._placement = Placement(attempt, segments)
        self._topic_rows = topic_rows(attempt.base, attempt.pipeline, attempt.seed)
        self._sources = attempt.input.rows(counts, attempt.topic, attempt.attempt_id)

    def run(self) -> int:
        """Commit the attempt, after a rebase if necessary. Return a version with its segments.

        Raises ReplanRequired, AttemptAbandoned, CommitConflict after too many lost races, and
        StoreError. After a StoreError the segments may be visible. The next attempt checks this.
        """
        attempt = self._attempt
        version = transact(
            attempt.table, attempt.topic, attempt.attempt_id, self._change, attempt.base
        )
        return -1 if version is None else version  # never None, because the run row is committed

    def _change(self, base: Snapshot) -> Change:
        """Return the change that the attempt makes to the version `base`."""
        if base is not self._base:
            self._rebase_onto(base)
        removal = self._removal(base)
        rows = [*removal.rows, *self._rows(removal.rows)]
        other_attempts = {*removal.other_attempts, *self._placement.copied_to}
        return removal._replace(rows=rows, other_attempts=other_attempts)

    def _removal(self, base: Snapshot) -> Change:
        """Return the change that removes the replaced runs, and fill in the report."""
        replacement, report = self._attempt.replacement, self._attempt.report
        if replacement is None:
            return Change()
        if not (report.records or replacement.with_nothing):
            runs = replacement.runs(base)
            if not runs and self._attempt.run.interval is None:
                self._require_input(base)
            _require_nothing(runs, report)
        removal = replacement.change(base)
        removed = [row for row in removal.rows if isinstance(row, RunRow)]
        report.replaced_runs = [row.run_id for row in removed]
        report.replaced_records = replacement.records
        report.replaced_files = sum(row.input_files for row in removed if not redrive_from_run(row))
        return removal

    def _require_input(self, base: Snapshot) -> None:
        """Raise UsageError if other runs ingested all files of the input.

        The run id may be mistyped, because the run to replace does not exist. A run with an
        interval is not checked, because other runs may have ingested its files.
        """
        report = self._attempt.report
        if report.input_files or not (report.skipped_files or report.changed_files):
            return
        owner, other = self._owner(base)
        said = (
            f"pipeline {report.pipeline!r} has no run {report.run_id!r} to replace in topic "
            f"{report.topic!r}, and other runs already ingested all its "
            f"files{owner and f', such as {owner!r}'}. Nothing was committed"
        )
        lists = history_command(self._attempt.pipeline.root, report.topic)
        raise UsageError("; ".join([said, *map(str, other), lists]))

    def _owner(self, base: Snapshot) -> tuple[str, list[Finding]]:
        """Return the id of a run of this pipeline that ingested the files before, and findings.

        If there are several such runs, choose the run with the most similar id, or else the newest
        one. If only other pipelines ingested the files, return "" and a finding about them.
        """
        attempt, report = self._attempt, self._attempt.report
        runs = attempt.table.rows.runs(base, attempt.topic)
        owners = [run for run in runs if run.attempt_id in attempt.input.owners]
        names = [run.run_id for run in owners if run.pipeline == report.pipeline]
        if names:
            return (nearest(report.run_id, names[-_COMPARED:]) or names[-1:])[0], []
        own = {"own": report.pipeline}
        return "", [Finding("other-pipeline", run.pipeline, own) for run in owners[-1:]]

    def describe_input(self) -> None:
        """If other runs ingested all input files, add one of these runs to the report."""
        attempt, report = self._attempt, self._attempt.report
        if attempt.input.owners and attempt.input.is_empty():
            report.owner, of_another = self._owner(self._base)
            growth = partition_growth_finding(self._base, attempt.settings.topic)
            report.findings = [*growth, *of_another]

    def _rebase_onto(self, newest: Snapshot) -> None:
        """Continue the version `newest`. Rebase segments whose offsets another commit took.

        Raises ReplanRequired if another commit ingested or removed some of the input, committed
        this run, or changed the number of partitions.
        """
        attempt = self._attempt
        name, run_id = attempt.pipeline.name, attempt.run.run_id
        committed = attempt.table.rows.run(newest, attempt.topic, name, run_id)
        if committed != attempt.table.rows.run(self._base, attempt.topic, name, run_id):
            raise ReplanRequired("another attempt committed this run")
        if attempt.input.is_taken(newest, attempt.sources):
            raise ReplanRequired("another commit ingested or removed some of the input")
        partitions = current_topic(newest, attempt.pipeline).partitions
        if partitions != attempt.settings.topic.partitions:
            raise ReplanRequired("the topic's partitions changed")
        self._base, self._topic_rows = newest, topic_rows(newest, attempt.pipeline, attempt.seed)
        self._placement.rebase_onto(newest)

    def _rows(self, others: Iterable[Row]) -> list[Row]:
        """Complete the report, and return the rows that the attempt commits.

        `others` are the other rows of the same commit.
        """
        attempt, report = self._attempt, self._attempt.report
        segments = self._placement.rows
        report.describe(segments)
        self.describe_input()
        start_ms, end_ms = attempt.run.interval or (None, None)
        key = (attempt.topic, attempt.pipeline.name, attempt.run.run_id)
        runs = (row for row in others if isinstance(row, RunRow))
        replaced = (r.sequence for r in runs if (r.topic, r.pipeline, r.run_id) == key)
        before = (row.sequence for row in attempt.table.rows.run_rows(self._base, *key))
        run = RunRow(
            topic=attempt.topic,
            pipeline=attempt.pipeline.name,
            run_id=attempt.run.run_id,
            attempt_id=attempt.attempt_id,
            fingerprint=attempt.pipeline.fingerprint(),
            interval_start_ms=start_ms,
            interval_end_ms=end_ms,
            interval_records=report.interval_records,
            records=report.records,
            quarantined=report.quarantined,
            input_files=report.input_files,
            input_rows=report.input_rows,
            input_bytes=report.input_bytes,
            output_bytes=report.output_bytes,
            started_at_ms=attempt.started_ms,
            finished_at_ms=now_ms(),
            report=report.as_row(),
            sequence=max([*before, *replaced], default=-1) + 1,
            offset_ranges=offset_ranges(segments),
        )
        return [*self._topic_rows, run, *segments, *self._sources]


def _require_nothing(replaced: Iterable[RunRow], report: Report) -> None:
    """Raise UsageError if a run to replace has records, rejects or files.

    Call it only if the attempt has no records. A replacement would then lose the run's data.
    """
    lost = [run for run in replaced if run.records or run.quarantined or run.input_files]
    if not lost:
        return
    records, names = sum(run.records for run in lost), sorted(repr(run.run_id) for run in lost)
    raise UsageError(
        f"{report.summary.partition('. ')[0]}, so run {', '.join(names)} "
        f"({counted(records, 'record')}) was not replaced. Correct the input. To only remove a "
        "run, use `seglake undo`. To replace it anyway, add --replace-with-nothing"
    )


def offset_ranges(segments: Iterable[SegmentRow]) -> str:
    """Return the offsets of a run as JSON: partition → a list with one range [start, end)."""
    ranges: dict[int, list[int]] = {}
    for row in segments:
        ranges.setdefault(row.partition, [row.base_offset, 0])[1] = row.end_offset
    return json.dumps({partition: [ends] for partition, ends in ranges.items()})


# ---------------- placement

_FEW_SEGMENTS, _FEW_BYTES = 64, 64 * 2**20  # a run with at most this much output reserves nothing
_TIMES = 2  # reserved offsets per offset that other runs appended during the previous rebase
_MOST_RESERVED = 2**30  # limit of reserved offsets, which one empty record batch can cover


class Placement:
    """The segments of one attempt. They begin at the ends of the logs in a catalog version."""

    def __init__(self, attempt: Attempt, segments: Iterable[SegmentRow]) -> None:
        self._attempt, self._filled = attempt, list(segments)
        self._empty: dict[NewSegment, SegmentRow] = {}
        self._ends = self._copied_at = end_offsets(attempt.base, attempt.topic)
        self._append_time_ms = attempt.append_time_ms

    @property
    def rows(self) -> list[SegmentRow]:
        """Return the rows of all segments, sorted by partition and base offset.

        They include the empty segments that cover reserved ranges.
        """
        return _in_order([*self._filled, *self._empty.values()])

    @property
    def copied_to(self) -> set[str]:
        """Return the attempt ids in the names of rebased segments, without the attempt's own id."""
        return {row.attempt_id for row in self.rows} - {self._attempt.attempt_id}

    def rebase_onto(self, newest: Snapshot) -> None:
        """Copy segments whose offsets are taken in the version `newest` to later offsets.

        Raises ReplanRequired if the records keep their offsets, AttemptAbandoned, CorruptData and
        StoreError.
        """
        before, self._ends = self._ends, end_offsets(newest, self._attempt.topic)
        grown = {p for p, end in self._ends.items() if end > before.get(p, 0)}
        if not grown:
            return
        if self._attempt.settings.topic.offset_field is not None:
            raise ReplanRequired(
                "another run appended to the log, and these records keep their offsets"
            )
        begins = {row.partition: row.base_offset for row in reversed(self._filled)}
        late = {p for p in begins.keys() & grown if self._stamped or begins[p] < self._ends[p]}
        if late:
            deltas = {p: self._ends[p] + self._reserved_offsets(p) - begins[p] for p in late}
            self._copy(newest, deltas)
        self._cover()

    @property
    def _stamped(self) -> bool:
        """Return whether timestamps are append times, which must not decrease in a log."""
        return self._attempt.settings.topic.message_timestamp_type == "LogAppendTime"

    def _reserved_offsets(self, partition: int) -> int:
        """Return how many offsets to leave free between the end of a log and rebased segments."""
        size_bytes = sum(row.log_bytes for row in self._filled)
        few = len(self._filled) <= _FEW_SEGMENTS and size_bytes <= _FEW_BYTES
        if self._stamped or few or not self._attempt.report.rebased:
            return 0
        appended = self._ends[partition] - self._copied_at.get(partition, 0)
        return min(_TIMES * appended, _MOST_RESERVED)

    def _copy(self, newest: Snapshot, deltas: dict[int, int]) -> None:
        """Copy the segments of the partitions in `deltas` to later offsets.

        `deltas` maps partitions to the numbers that are added to offsets.
        """
        attempt = self._attempt
        # Stop if the attempt was abandoned: an erasure may have finished its search and would miss
        # the copies.
        for owner in (attempt.attempt_id, *sorted(self.copied_to)):
            require_not_abandoned(attempt.store, owner)
        self._append_time_ms = append_time(newest, attempt.topic, self._append_time_ms)
        copied_to = new_attempt()
        attempt.moved.add(copied_to)
        move = RebaseTask(attempt.store, deltas, copied_to, self._append_time_ms)
        with attempt.step("move the segments to offsets after another run"):
            copies = move.run(attempt.engine, [r for r in self._filled if r.partition in deltas])
        attempt.report.rebased += 1
        stay = (row for row in self._filled if row.partition not in deltas)
        self._filled, self._copied_at = _in_order([*stay, *copies]), self._ends

    def _cover(self) -> None:
        """Write an empty segment for each range between the end of a log and copied segments."""
        policy, now_ms = policy_of(self._attempt.settings.topic), self._attempt.started_ms
        firsts = {row.partition: row for row in reversed(self._filled)}
        ranges = [
            NewSegment(first.id._replace(base_offset=end), first.base_offset, policy, now_ms)
            for partition, first in firsts.items()
            if (end := self._ends.get(partition, 0)) < first.base_offset
        ]
        new, store = [each for each in ranges if each not in self._empty], self._attempt.store
        with ThreadPoolExecutor(REQUESTS) as pool:
            written = pool.map(lambda segment: write_segment(store, segment, []), new)
            known = self._empty | dict(zip(new, written, strict=True))
        self._empty = {each: known[each] for each in ranges}


def _in_order(rows: Iterable[SegmentRow]) -> list[SegmentRow]:
    return sorted(rows, key=lambda row: (row.partition, row.base_offset))


# ---------------- rebase

READ_BYTES = 16 * 2**20


class RebaseTask(NamedTuple):
    """The task that copies one segment to other offsets.

    `deltas` has the number that is added to the offsets of each log partition. The names of the new
    files contain `attempt_id`.
    """

    store: Store
    deltas: dict[int, int]
    attempt_id: str
    append_time_ms: int

    def run(self, engine: Engine, segments: Sequence[SegmentRow]) -> list[SegmentRow]:
        """Copy every segment to its new offsets, and return their new rows."""
        return engine.map(self, segments)

    def __call__(self, row: SegmentRow) -> SegmentRow:
        """Copy a segment's files, and return the row of the copy.

        Raises CorruptData if a file differs from the segment's row.
        """
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
        tables, crc, keys = [], 0, KeyIndexBuilder(moved.base_offset, row.index_policy)
        with store.writer(moved.key("log")) as sink:
            for batches in _moved_batches(store, row, delta, stamp):
                sink.write(batches.data)
                crc = crc32c.crc32c(batches.data.data, crc)
                tables.append(batches.table)
                if stamped:
                    keys.add(batches.table, batches.data)
        moved = dataclasses.replace(moved, log_crc32c=crc)
        if stamp is None:
            for suffix in row.suffixes[1:]:
                data = store.read_all(row.key(suffix))
                check_crc(row, suffix, crc32c.crc32c(data))
                store.put(moved.key(suffix), data)
            return moved
        return _stamp_indexes(store, moved, np.concatenate(tables), stamp, keys)


def _moved_batches(
    store: Store, row: SegmentRow, delta: int, stamp: int | None
) -> Iterator[EncodedBatches]:
    """Yield the record batches of a segment with `delta` added to their offsets.

    An item has about `READ_BYTES`. `stamp` is the new append time in ms. If it is None, timestamps
    do not change. Raises CorruptData for damage. The checksum of the whole log is checked only at
    the end.
    """
    at, want, whole = 0, READ_BYTES, LogCheck(row)
    while at < row.log_bytes:
        data = memoryview(store.read(row.key("log"), at, min(at + want, row.log_bytes)))
        table = _sound_table(row, data, at)
        if not len(table):  # the record batch is larger than `data`
            want *= 2
            continue
        size = int(table["size"].sum(dtype=np.int64))
        whole.add(data[:size], table)
        moved = rebase(data[:size], table, delta)
        yield moved if stamp is None else restamp(moved, stamp)
        at, want = at + size, READ_BYTES
    whole.check()


def _sound_table(row: SegmentRow, data: memoryview, at: int) -> BatchTable:
    """Return the complete record batches in `data`, which begins at byte `at` of the log.

    The last record batch in `data` may be incomplete, except at the end of the log. Raises
    CorruptData for damage.
    """
    table, damage = scan(data, base_position=at)
    try:
        # Check the CRCs first. `scan` notices a wrong length of a batch only where the next one
        # should begin, but the error for a CRC contains the position of the damaged batch.
        check_crcs(data, table, base_position=at)
        if damage is not None and not (damage.cut_short and at + len(data) < row.log_bytes):
            raise damage.error
    except CorruptData as error:
        raise error.within(row.key("log")) from None
    return table


def _stamp_indexes(
    store: Store, row: SegmentRow, table: BatchTable, stamp: int, keys: KeyIndexBuilder
) -> SegmentRow:
    table["offset_of_max"] = table["base_offset"]
    sealed = rebuild(row.base_offset, table, row.index_policy)
    return dataclasses.replace(
        row,
        min_timestamp=stamp,
        max_timestamp=stamp,
        offset_of_max_timestamp=row.base_offset,
        **put_indexes(store, row.id, sealed.files | keys.finish(row.log_bytes)),
    )
