"""Replay a window of a topic into a real Kafka, and report what was sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.limits import INT64_MAX
from seglake.log.execute import MEMORY_BYTES, execute, schema_of
from seglake.log.segment import Window
from seglake.read.log import Log
from seglake.read.window.plan import pieces_of
from seglake.replay.target import Sender, Target
from seglake.terminal.progress import Pace
from seglake.times.instants import Time, format_ms, to_epoch_ms

_COLUMNS = ["offset", "timestamp", "key", "value", "headers"]
_COMMIT_RECORDS, _COMMIT_S = 20_000, 1.0
_STEP_RECORDS = 1000  # between two checks whether to commit
_LEAST_MEMORY = 2 * 2**20  # bytes for a partition

_log = logging.getLogger("seglake.replay")


def replay_window(
    log: Log,
    start: Time,
    end: Time,
    target: Target,
    *,
    name: str | None = None,
    tempo: Tempo | None = None,
) -> ReplayReport:
    """Write the records with start <= timestamp < end into a topic of a real Kafka.

    Partitions, offset order, keys, values, headers and timestamps are kept. The name, by default
    topic and window, identifies a replay. A call with the same name continues after the last record
    that an earlier call committed, and does nothing if that was the last record of the window.

    Raises UsageError, CorruptData, and, like `Target`, ConfigError and StoreError.

    Example:
        >>> target = seglake.Target("broker:9092", "incident")  # doctest: +SKIP
        >>> seglake.replay_window(log, "2026-06-01T12:00:00Z", "2026-06-01T12:05:00Z",
        ...     target)  # doctest: +SKIP
    """
    start_ms, end_ms = to_epoch_ms(start), to_epoch_ms(end)
    if not 1 <= start_ms <= end_ms:
        raise UsageError(
            f"a replay cannot have the window from {start!r} to {end!r}. Start it after 1970, and "
            f"end it after its start"
        )
    name = name or f"{log.topic}/{format_ms(start_ms)}/{format_ms(end_ms)}"
    tempo, created = tempo or Tempo(), target.prepare(len(log.partitions()))
    sender = target.sender(name)
    behind = target.positions(name, log.partitions())  # a new topic may have records, too
    report = ReplayReport(
        name, log.topic, target.topic, log.version, start_ms, end_ms, created, behind
    )
    began = time.monotonic()
    windows = {
        p: Window(start_ms, end_ms, start_offset=behind.get(p, -1) + 1) for p in log.partitions()
    }
    _send(log, windows, sender, tempo, report)
    report.seconds = time.monotonic() - began
    return report


def _send(
    log: Log, windows: Mapping[int, Window], sender: Sender, tempo: Tempo, report: ReplayReport
) -> None:
    streams, total = _opened(log, windows)
    pace, uncommitted, waits_for = Pace("records at most"), 0, next_due_ms(streams)
    tempo.start(waits_for)
    while streams:
        sent = 0
        for partition, batch in take_due(streams, tempo.now_ms(), _STEP_RECORDS):
            sender.send(partition, _rows(batch))
            report.sent[partition] = report.sent.get(partition, 0) + len(batch)
            sent += len(batch)
            uncommitted += len(batch)
            if uncommitted >= _COMMIT_RECORDS or sender.open_s > _COMMIT_S:
                sender.commit()
                uncommitted = 0
        streams = [stream for stream in streams if stream.has_next]
        if streams and not sent:
            following = next_due_ms(streams)
            if sender.open_s + tempo.seconds_until(following) > _COMMIT_S:
                sender.commit()  # the sent records become visible before the wait
            tempo.wait_for(following)
        if line := pace.line(report.records, total):
            _log.info("%s", line)
    sender.commit()


def _opened(log: Log, windows: Mapping[int, Window]) -> tuple[list[PartitionStream], int]:
    """Open the windows. Return the streams that have records, and an upper bound of the records."""
    memory, total, streams = max(_LEAST_MEMORY, MEMORY_BYTES // max(1, len(windows))), 0, []
    for partition, window in windows.items():
        reader = log.reader(partition)
        pieces = list(pieces_of([(reader, window)]))
        total += sum(piece.records_at_most for piece in pieces)
        batches = execute(
            reader.cached_fetch, pieces, schema_of(_COLUMNS), memory_bytes=memory, threads=1
        )
        streams.append(PartitionStream(partition, batches))
    return [stream for stream in streams if stream.has_next], total


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert a batch to dictionaries for `Sender.send`."""
    at = batch.schema.get_field_index("timestamp")
    plain = batch.set_column(at, "timestamp", batch["timestamp"].cast(pa.int64()))
    return plain.to_pylist()


# ---------------- report


@dataclass
class ReplayReport:
    """The result of a replay.

    `resumed_after` maps a partition to the last lake offset that an earlier call committed.
    """

    name: str
    topic: str
    target: str
    version: int
    start_ms: int
    end_ms: int
    created: bool
    resumed_after: dict[int, int]
    sent: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Return how many records this call sent."""
        return sum(self.sent.values())

    def partitions(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each partition that has records of the replay."""
        for partition in sorted(self.sent.keys() | self.resumed_after.keys()):
            yield {
                "partition": partition,
                "records": self.sent.get(partition, 0),
                "resumed_after": self.resumed_after.get(partition),
            }


# ---------------- streams
# Read the records of log partitions in offset order, as they become due.
#
# A record is due at the largest timestamp of its partition up to it. So event time orders records
# of different partitions, and offsets order the records of one partition.


class PartitionStream:
    """The remaining records of one partition. `batches` are in offset order and not empty."""

    def __init__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        self.partition = partition
        self._batches, self._highest = batches, -1
        self._batch: pa.RecordBatch | None = None
        self._due: Int64s = np.empty(0, np.int64)
        self._at = 0
        self._advance()

    @property
    def has_next(self) -> bool:
        """Return whether there is another record."""
        return self._batch is not None

    @property
    def next_due_ms(self) -> int:
        """Return the event time at which the next record is due, INT64_MAX at the end."""
        return INT64_MAX if self._batch is None else int(self._due[self._at])

    @property
    def known_until_ms(self) -> int:
        """Return the event time at which the last record in memory is due, INT64_MAX at the end."""
        return INT64_MAX if self._batch is None else int(self._due[-1])

    def take(self, until_ms: int, at_most: int) -> pa.RecordBatch | None:
        """Return the next records that are due at or before `until_ms`, or None."""
        if self._batch is None:
            return None
        end = int(np.searchsorted(self._due, until_ms, "right"))
        end = min(end, self._at + at_most)
        if end <= self._at:
            return None
        taken = self._batch.slice(self._at, end - self._at)
        self._at = end
        if end == len(self._batch):
            self._advance()
        return taken

    def _advance(self) -> None:
        self._batch, self._at = next(self._batches, None), 0
        if self._batch is not None:
            times = self._batch["timestamp"].cast(pa.int64()).to_numpy()
            self._due = np.maximum(np.maximum.accumulate(times), self._highest)
            self._highest = int(self._due[-1])


def next_due_ms(streams: Sequence[PartitionStream]) -> int:
    """Return the event time at which the next record is due, INT64_MAX at the end."""
    return min((stream.next_due_ms for stream in streams), default=INT64_MAX)


def take_due(
    streams: Sequence[PartitionStream], until_ms: int, at_most: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (partition, its records due at or before `until_ms`), at most `at_most` of each.

    A partition advances only as far as the others have records in memory, so all advance
    together. If a record is due, at least one record is yielded.
    """
    horizon = min(until_ms, *(stream.known_until_ms for stream in streams))
    for stream in streams:
        while (batch := stream.take(horizon, at_most)) is not None:
            yield stream.partition, batch


# ---------------- tempo
# Control the speed of a replay: event time relative to real time.

_LONGEST_S = 0.5  # the longest sleep, so that progress is shown


class Tempo:
    """The clock of a replay. It starts when `start` is called.

    Args:
        speed: Milliseconds of event time per millisecond. None sends all records immediately.
        clock: Returns the seconds of a monotonic clock.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed, self._clock, self._sleep = speed, clock, sleep
        self._begun, self._first_ms = clock(), 0

    def start(self, first_ms: int) -> None:
        """Start the clock at the event time `first_ms`."""
        self._begun, self._first_ms = self._clock(), first_ms

    def now_ms(self) -> int:
        """Return the current event time. Records that are due until then may be sent."""
        if self._speed is None:
            return INT64_MAX
        passed_ms = (self._clock() - self._begun) * 1000
        return self._first_ms + int(passed_ms * self._speed)

    def seconds_until(self, time_ms: int) -> float:
        """Return the seconds until an event time, 0 if it is already reached."""
        if self._speed is None:
            return 0.0
        at = self._begun + (time_ms - self._first_ms) / 1000 / self._speed
        return max(0.0, at - self._clock())

    def wait_for(self, time_ms: int) -> None:
        """Sleep until an event time, but at most half a second."""
        self._sleep(min(_LONGEST_S, max(0.001, self.seconds_until(time_ms))))
