"""Scan the headers of record batches, to find what an import reads from a partition folder.

An import ends at the high watermark, or at the last stable offset, where the first transaction
without a marker begins, if that is smaller. The active segment may end with an incomplete batch,
which a broker truncates when it starts again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    COUNT_AT,
    HEADER,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_BATCH_BYTES,
    OVERHEAD,
    PRODUCER_AT,
    TRANSACTIONAL,
    BatchTable,
)
from seglake.format.decode import check_crcs, decode_batches, scan
from seglake.format.encode import EncodedBatches, write_crcs
from seglake.format.records import Flags, Int64s, read_only
from seglake.kafka.folder import LogFile, PartitionFolder
from seglake.limits import INT64_MAX
from seglake.store import Reader

READ_BYTES = 4 * 2**20


class SurveyedRange(NamedTuple):
    """Whole record batches of a log. Their positions count from the start of `data`."""

    position: int  # position of the data in the log
    data: Any
    table: BatchTable


class LogToScan(NamedTuple):
    """A log of a folder, and the offsets [start, limit) to import from it.

    All its offsets are below `next_offset`, the base offset of the next log.
    """

    folder: PartitionFolder
    log: LogFile
    next_offset: int
    start: int
    limit: int

    @property
    def is_last(self) -> bool:
        """Return whether it is the log of the active segment."""
        return self.next_offset == INT64_MAX

    @property
    def log_bytes(self) -> int:
        """Return the size of the log in bytes."""
        return self.log.size


@dataclass
class Scan:
    """The batches of a log to import: bytes `begin` to `stop`, offsets `first` to `end`, exclusive.

    `first` and `end` are -1 if no batch is to be imported. `log_end` is the offset after the last
    batch below the limit, even if that batch is below the start. It is -1 without such a batch.
    `complete` is false if a batch is above the limit.
    `unsettled` is the base offset of the first batch that cannot be imported unchanged: a marker,
    or a batch of a transaction. `cut` is a note about a truncated end.
    """

    begin: int = 0
    stop: int = 0
    first: int = -1
    end: int = -1
    log_end: int = -1
    complete: bool = True
    leader_epoch: int = -1
    unsettled: int | None = None
    cut: str | None = None
    events: list[Events] = field(default_factory=list)

    def add(self, batch_range: SurveyedRange, task: LogToScan) -> None:
        """Add the batches of a batch range that are to be imported. Raises CorruptData."""
        table = batch_range.table
        _require_order(table, max(self.log_end, task.log.base_offset), task.next_offset)
        beyond = table[table["last_offset"] >= task.limit]
        below = len(table) - len(beyond)
        if len(beyond):
            self.log_end = min(task.limit, int(beyond["base_offset"][0]))
            self.complete = False
        else:
            self.log_end = int(table["last_offset"][-1]) + 1
        rows = table[:below][table["last_offset"][:below] >= task.start]
        if not len(rows):
            return
        if self.end < 0:
            self.begin = batch_range.position + int(rows["position"][0])
            self.first = int(rows["base_offset"][0])
        self.stop = batch_range.position + int(rows["position"][-1]) + int(rows["size"][-1])
        self.end = int(rows["last_offset"][-1]) + 1
        epochs = batch_headers(batch_range.data, rows)["leader_epoch"]
        self.leader_epoch = max(self.leader_epoch, int(epochs.max()))
        of_transactions = rows["attributes"] & (TRANSACTIONAL | CONTROL) != 0
        if self.unsettled is None and of_transactions.any():
            self.unsettled = int(rows["base_offset"][of_transactions.argmax()])
        events = batch_events(batch_range.data, rows)
        events["position"] += batch_range.position
        self.events.append(events)


def _require_order(table: BatchTable, first: int, end: int) -> None:
    """Raise CorruptData unless offsets ascend from `first` on, and are below `end`.

    No checksum covers the offsets.
    """
    follows = np.append(first, table["last_offset"][:-1] + 1)
    for row in np.flatnonzero((table["base_offset"] < follows) | (table["last_offset"] >= end))[:1]:
        low, high = table["base_offset"][row], table["last_offset"][row]
        what = (
            f"the record batch has offsets {low} to {high}, but only {follows[row]} to {end - 1} "
            f"are possible here"
        )
        raise CorruptData(what, position=int(table["position"][row]))


class SegmentPart(NamedTuple):
    """A part of a log that becomes a segment over offsets `base_offset` to `end_offset`."""

    log: LogFile
    begin: int
    stop: int
    base_offset: int
    end_offset: int

    @property
    def log_bytes(self) -> int:
        """Return how many bytes of the log are read."""
        return self.stop - self.begin


class Extent(NamedTuple):
    """The offsets to import from a folder: `start` to `end`, exclusive, in `parts`.

    `log_end` is the end of the log, or -1 if that is above the high watermark. `last_stable` is
    where the first open transaction begins, or None. `unsettled` is the base offset of the first
    batch that cannot be imported unchanged, or None. `notes` describe what was left out.
    """

    folder: PartitionFolder
    start: int
    end: int
    log_end: int
    last_stable: int | None
    unsettled: int | None
    parts: list[SegmentPart]
    aborted: Transactions
    leader_epoch: int
    notes: list[str]


def logs_to_scan(folder: PartitionFolder, start: int, limit: int | None) -> list[LogToScan]:
    """Return the logs of a folder that may have offsets from `start` up to `limit`."""
    top = INT64_MAX if limit is None else limit
    ends = [*(log.base_offset for log in folder.logs[1:]), INT64_MAX]
    return [
        LogToScan(folder, log, end, start, top)
        if log.end_offset is None
        else LogToScan(folder, log, log.end_offset, start, min(top, end))
        for log, end in zip(folder.logs, ends, strict=True)
        if end > start and (log.base_offset < top or end == INT64_MAX)
    ]


def scan_log(_store: Reader, task: LogToScan) -> Scan:
    """Scan the headers of a log. Raises CorruptData, with file and position, and StoreError."""
    result = Scan()
    try:
        for batch_range in surveyed_ranges(task.folder.store, task.log):
            if isinstance(batch_range, CorruptData):
                result.cut = _require_torn(task, batch_range, result.log_end)
                break
            whole = _intact(task, batch_range, result)
            if len(whole.table):
                try:
                    result.add(whole, task)
                except CorruptData as damage:
                    raise damage.within("", batch_range.position) from damage
            if result.cut is not None or not result.complete:
                break
    except CorruptData as damage:
        if damage.file:
            raise
        raise damage.within(task.folder.place(task.log.key)) from damage
    return result


def surveyed_ranges(store: Reader, log: LogFile) -> Iterator[SurveyedRange | CorruptData]:
    """Yield the batches of a log, a few MiB at a time. For a damaged log, end with the damage.

    The position of the damage counts from the start of the log.
    """
    at, size = 0, READ_BYTES
    while at < log.size:
        stop = min(log.size, at + size)
        data = store.read(log.key, at, stop)
        table, damage = scan(data)
        whole = int(table["size"].sum(dtype=np.int64))
        if len(table):
            yield SurveyedRange(at, data, table)
        if damage is not None and not (damage.cut_short and stop < log.size):
            yield damage.error.within("", at)
            return
        # A batch that is larger than the data is read again, whole.
        head = bytes(memoryview(data)[:LOG_OVERHEAD])
        size = READ_BYTES if whole else max(_batch_bytes(head), size + 1)
        if size > MAX_BATCH_BYTES + OVERHEAD:
            yield CorruptData(
                f"the record batch has {size} bytes, more than a reader accepts", position=at
            )
            return
        at += whole


def _intact(task: LogToScan, batch_range: SurveyedRange, result: Scan) -> SurveyedRange:
    """Truncate a batch range at the first batch that the broker did not finish writing.

    Such batches exist only if the broker was not stopped cleanly, above its recovery point.
    """
    folder = task.folder
    if not task.is_last or folder.clean or folder.recovery_point is None:
        return batch_range
    try:
        check_crcs(batch_range.data, batch_range.table)
    except CorruptData as damage:
        rows = batch_range.table[batch_range.table["position"] < damage.position]
        end = int(rows["last_offset"][-1]) + 1 if len(rows) else max(result.log_end, 0)
        if end < folder.recovery_point:
            raise damage.within("", batch_range.position) from damage
        position = batch_range.position + damage.position
        result.cut = _cut(task, position, "contain no valid record batch")
        return batch_range._replace(table=rows)
    return batch_range


def _require_torn(task: LogToScan, damage: CorruptData, log_end: int) -> str:
    """Return a note about the truncated end of an active segment. Raises any other damage."""
    folder, log, position = task.folder, task.log, damage.position
    if not task.is_last:
        raise damage
    head = bytes(folder.store.read(log.key, position, min(position + OVERHEAD, log.size)))
    magic = head[MAGIC_AT : MAGIC_AT + 1]
    if _is_zero(folder.store, log, position):
        return _cut(task, position, "are zeros that the broker preallocated")
    if magic in {b"", b"\2"} and _batch_bytes(head) > log.size - position:
        return _cut(task, position, "are the beginning of a record batch")
    written = INT64_MAX if folder.clean or folder.recovery_point is None else folder.recovery_point
    if magic not in {b"\0", b"\1"} and max(log_end, log.base_offset) >= written:
        return _cut(task, position, "contain no valid record batch")
    raise damage


def _batch_bytes(head: bytes) -> int:
    """Return the size of a batch that begins with `head`, or at least the size of a header."""
    if len(head) < LOG_OVERHEAD:
        return OVERHEAD
    return int.from_bytes(head[LENGTH_AT:LOG_OVERHEAD], "big") + LOG_OVERHEAD


def _is_zero(store: Reader, log: LogFile, position: int) -> bool:
    return not any(
        read_only(store.read(log.key, at, min(at + READ_BYTES, log.size))).any()
        for at in range(position, log.size, READ_BYTES)
    )


def _cut(task: LogToScan, position: int, what: str) -> str:
    place, size = task.folder.place(task.log.key), task.log.size - position
    return f"{place}: left out the last {size:,} bytes, from byte {position} on, which {what}"


def combine_scans(
    folder: PartitionFolder, start: int, scans: Sequence[tuple[LogToScan, Scan]]
) -> Extent:
    """Return the extent of a folder from the scans of its logs. `start` is its first offset."""
    waiting, ended = np.empty(0, EVENT), [np.empty(0, TRANSACTION)]
    for _, scanned in scans:
        transactions, waiting = resolve(condense(np.concatenate([waiting, *scanned.events])))
        ended.append(transactions[transactions["aborted"]])
    top = max((task.limit for task, _ in scans), default=INT64_MAX)
    bases = [log.base_offset for log in folder.logs if log.base_offset <= top]
    end = max([start, *bases, *(scan.log_end for _, scan in scans)])
    complete = all(scan.complete for _, scan in scans)
    log_end = max([*bases, *(scan.log_end for _, scan in scans)]) if complete else -1
    last_stable = int(waiting["offset"].min()) if len(waiting) else None
    end = end if last_stable is None else last_stable
    return Extent(
        folder=folder,
        start=start,
        end=end,
        log_end=log_end,
        last_stable=last_stable,
        unsettled=next((s.unsettled for _, s in scans if s.unsettled is not None), None),
        parts=list(_parts((start, end), scans, waiting)),
        aborted=np.concatenate(ended),
        leader_epoch=max((scan.leader_epoch for _, scan in scans), default=-1),
        notes=[scan.cut for _, scan in scans if scan.cut is not None],
    )


def _parts(
    offsets: tuple[int, int], scans: Sequence[tuple[LogToScan, Scan]], waiting: Events
) -> Iterator[SegmentPart]:
    """Yield the segments that cover [start, end) without a hole, each from one log."""
    start, limit = offsets
    for task, scanned in scans:
        bases = [log.base_offset for log in task.folder.logs]
        base = task.log.base_offset
        after = next((later for later in bases if later > base), INT64_MAX)
        first, end, stop = max(base, start), min(after, limit), scanned.stop
        if first >= end:
            continue
        if 0 <= scanned.first < first:
            first = scanned.first
        open_here = waiting[waiting["offset"] == limit]
        if len(open_here) and limit < after:
            stop = int(open_here["position"][0])
        yield SegmentPart(task.log, min(scanned.begin, stop), stop, first, end)


# ---------------- markers
# Find the markers of transactions, and convert batches of transactions to plain batches.
#
# A producer has one transaction at a time. Its record batches carry its id and a bit; a *marker*,
# a control batch of one record, ends it (`ControlRecordType`).

ABORT, COMMIT = 0, 1

_KEY_BYTES = 4  # size of a marker's key: version i16, type i16


def batch_headers(data: Any, table: BatchTable) -> npt.NDArray[np.void]:
    """Return the batch headers in `data`. Positions in `table` count from the start of `data`."""
    places = table["position"][:, None] + np.arange(OVERHEAD)
    return read_only(data)[places].view(HEADER).reshape(-1)


def control_markers(data: Any, table: BatchTable) -> tuple[Int64s, Int64s]:
    """Return the row and the type of each control record in the control batches of `table`.

    Types are Kafka's: `ABORT`, `COMMIT`, and others that end no transaction. Raises CorruptData
    with the position of the batch.
    """
    decoded = decode_batches(data, table, control=True)
    keys = decoded.records.keys
    short = np.flatnonzero(keys.lengths < _KEY_BYTES)
    if len(short):
        position = int(table["position"][decoded.batch[short[0]]])
        raise CorruptData("the key of a control record is too short", position=position)
    places = keys.starts[:, None] + np.array([2, 3])
    high, low = keys.data[places].astype(np.int64).T
    return decoded.batch.astype(np.int64), (high << 8) | low


def without_transactions(batches: EncodedBatches) -> EncodedBatches:
    """Remove producer, sequence and the transactional bit from batches of transactions.

    So no reader waits for a marker. Checksums are recomputed. All other bytes are kept.
    """
    rows = np.flatnonzero(batches.table["attributes"] & TRANSACTIONAL)
    if not len(rows):
        return batches
    data, table = batches.data.copy(), batches.table.copy()
    starts = table["position"][rows]
    data[starts + ATTRIBUTES_AT + 1] &= 0xFF - TRANSACTIONAL
    data[starts[:, None] + np.arange(PRODUCER_AT, COUNT_AT)] = 0xFF
    table["attributes"][rows] &= ~TRANSACTIONAL
    first = int(starts[0])
    write_crcs(data[first:], table[rows])
    return EncodedBatches(data, table)


# ---------------- transactions
# Find the aborted and the open transactions of a log partition.
#
# An *event* is a record batch of a transaction, or the marker that ends one. Of the batches of a
# transaction only the first matters, so memory holds little of a log. Whole transactions are
# resolved when their markers are read. Events without a marker are kept for the next log.

DATA = -1  # the kind of an event that is a record batch; a marker has ABORT or COMMIT

EVENT = np.dtype(
    [("producer_id", np.int64), ("offset", np.int64), ("kind", np.int8), ("position", np.int64)]
)
"""`position` is the byte in the log at which the batch begins."""

TRANSACTION = np.dtype(
    [("producer_id", np.int64), ("first", np.int64), ("last", np.int64), ("aborted", np.bool_)]
)
"""`first` is the base offset of the first batch, and `last` is the offset of the marker."""

Events = npt.NDArray[np.void]
Transactions = npt.NDArray[np.void]


def batch_events(data: Any, table: BatchTable) -> Events:
    """Return the events of batches. Positions in `table` count from the start of `data`.

    Raises CorruptData with the position of the batch.
    """
    attributes = table["attributes"]
    of_data = table[(attributes & TRANSACTIONAL != 0) & (attributes & CONTROL == 0)]
    control = table[attributes & CONTROL != 0]
    if not len(of_data) and not len(control):
        return np.empty(0, EVENT)
    rows, kinds = control_markers(data, control)
    ends = (kinds == ABORT) | (kinds == COMMIT)
    batches = np.concatenate([of_data, control[rows[ends]]])
    events = np.empty(len(batches), EVENT)
    events["producer_id"] = batch_headers(data, batches)["producer_id"]
    events["offset"], events["position"] = batches["base_offset"], batches["position"]
    events["kind"] = np.append(np.full(len(of_data), DATA), kinds[ends])
    return condense(events)


def condense(events: Events) -> Events:
    """Sort events by producer and offset, and keep only the first batch of a transaction."""
    events = events[np.lexsort((events["offset"], events["producer_id"]))]
    first = np.append(True, events["producer_id"][1:] != events["producer_id"][:-1])
    follows = np.append(False, events["kind"][:-1] == DATA)
    needed: Events = events[~((events["kind"] == DATA) & follows & ~first[: len(events)])]
    return needed


def resolve(events: Events) -> tuple[Transactions, Events]:
    """Return the ended transactions, in the order of markers, and the batches of open ones.

    `events` is a result of `condense`. A marker without an earlier batch is ignored, because its
    transaction was empty, or a cleaner removed the records.
    """
    before, after = events[:-1], events[1:]
    of_one = before["producer_id"] == after["producer_id"]
    ended = np.flatnonzero(of_one & (before["kind"] == DATA) & (after["kind"] != DATA))
    transactions = np.empty(len(ended), TRANSACTION)
    transactions["producer_id"] = before["producer_id"][ended]
    transactions["first"], transactions["last"] = before["offset"][ended], after["offset"][ended]
    transactions["aborted"] = after["kind"][ended] == ABORT
    is_open = events["kind"] == DATA
    is_open[ended] = False
    return transactions[np.argsort(transactions["last"])], events[is_open]


def is_aborted(producer_ids: Int64s, offsets: Int64s, aborted: Transactions) -> Flags:
    """Return whether each batch, by producer and base offset, is in one of the transactions."""
    if not len(aborted) or not len(offsets):
        return np.zeros(len(offsets), bool)
    count = len(aborted)
    producers = np.append(aborted["producer_id"], producer_ids)
    places = np.append(aborted["first"], offsets)
    order = np.lexsort((np.arange(len(places)) >= count, places, producers))
    newest = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    source = order[np.maximum(newest, 0)]
    inside = (newest >= 0) & (producers[source] == producers[order])
    inside &= places[order] <= aborted["last"][np.minimum(source, count - 1)]
    flags = np.empty(len(order), bool)
    flags[order] = inside
    return flags[count:]
