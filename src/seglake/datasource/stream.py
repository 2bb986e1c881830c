"""Streaming queries: every commit of the catalog since the last micro-batch is the next one.

An offset is `{"topic": {"0": 23}, "@version": 7}`: as in Spark's Kafka source the next offset to
read of each partition, and the version of the catalog that the micro-batch up to there is read
from. Spark writes the end of each micro-batch to the checkpoint before it runs, and asks for the
same range after a failure: then it is read from that version again, whatever was removed since.

Where a new query starts is bound once, as in Kafka's source: a topic that comes a moment later is
read from its beginning, and a query that is killed in its first micro-batch starts again at the
same place. Kafka's source keeps these offsets beside the checkpoint. A source in Python is given no
place there, and after a kill Spark asks `initialOffset` again; so that is always `{}`, and they
stand in the end of the first micro-batch, as `"@start"`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from seglake.datasource import tasks
from seglake.datasource.batch import read_task
from seglake.datasource.binding import (
    Offsets,
    Readers,
    bind,
    chosen,
    held,
    present,
    report_loss,
    settled,
)
from seglake.datasource.options import Options, TopicPartition
from seglake.datasource.plain import plain_errors
from seglake.errors import VersionExpired
from seglake.read.lake import Lake
from seglake.read.lake import open as open_lake
from seglake.read.window.plan import Window, pieces_in

Json = dict[str, Any]

VERSION, START = "@version", "@start"  # which no topic can be called

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark asks of a streaming query. Raises UsageError for options that are a batch's."""

    def __init__(self, options: Options) -> None:
        self._options, self._starting = options, options.stream_start()
        self._available_now = False  # what is there is known, and is all that will be read
        self._latest: Offsets | None = None
        self._triggered_at = -math.inf

    def initialOffset(self) -> Json:  # noqa: N802  # Spark's name, as those below
        """Not known yet: where a new query starts stands in the end of its first micro-batch."""
        return {}

    @plain_errors
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802  # Spark's name
        """Where the micro-batch from `start` ends, which is `start` if there is nothing to do."""
        lake = self._newest()
        readers = chosen(lake, self._options.topics)
        self._latest = _ends(readers)
        starts = _from_json(start) if start else self._bound(readers)
        ends = self._reached(starts, readers, limit)
        if not start:
            return {**_to_json(ends), START: _to_json(starts), VERSION: lake.version}
        return start if ends == starts else {**_to_json(ends), VERSION: lake.version}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """As maxOffsetsPerTrigger and minOffsetsPerTrigger say; a minimum is checked either way."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802  # Spark's name
        """The ends of the logs as last seen, for the query's progress."""
        return _to_json(self._latest) if self._latest else None

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """What is committed now is all that the query will read."""
        self._lake.refresh()
        self._available_now = True

    @plain_errors
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of the micro-batch [start, end): what was written down, whatever came since."""
        ends = _from_json(end)
        readers = held(self._at(end.get(VERSION)), ends)
        starts = self._completed(_from_json(end.get(START, start)), ends, readers)
        ranges = present(starts, ends, readers, fail_on_data_loss=self._options.fail_on_data_loss)
        pieces = (p for name, (low, high) in ranges.items()
                  for p in pieces_in(readers[name], Window(start_offset=low, end_offset=high))
                  if low < high)  # fmt: skip
        return [InputPartition(task) for task in tasks.planned(pieces, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(partition, self._options)

    @cached_property
    def _lake(self) -> Lake:
        return open_lake(self._options.root, storage_options=self._options.storage)

    def _newest(self) -> Lake:
        return self._lake if self._available_now else self._lake.refresh()

    def _at(self, version: int | None) -> Lake:
        """The lake at a version, or at the newest if it is not retained."""
        if version == self._lake.version:
            return self._lake
        if version is not None:
            try:
                return open_lake(self._options.root, version, self._options.storage)
            except VersionExpired as error:
                _log.warning("%s: this micro-batch is read from the newest version", error)
        return self._newest()

    def _bound(self, readers: Readers) -> Offsets:
        """Where a new query starts, in the logs as they are now."""
        starts = settled(bind(self._starting, readers, self._options.no_match), readers)
        fail = self._options.fail_on_data_loss
        ranges = present(starts, _ends(readers), readers, fail_on_data_loss=fail)
        return {partition: low for partition, (low, _) in ranges.items()}

    def _reached(self, starts: Offsets, readers: Readers, limit: ReadLimit) -> Offsets:
        """As far as a micro-batch from `starts` goes: the ends of the logs, unless limited."""
        latest = _ends(readers)
        known = {p: starts.get(p, r.view.log_start_offset) for p, r in readers.items()}
        records = sum(latest[p] - known[p] for p in known)
        if not isinstance(limit, ReadAllAvailable) and self._too_few(records):
            return starts
        return prorated(limit.max_rows, known, latest) if isinstance(limit, ReadMaxRows) else latest

    def _too_few(self, records: int) -> bool:
        """Whether to wait for more records, but no longer than maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._available_now:  # which would leave a rest
            return False
        now = time.monotonic()
        waited_ms = 1000 * (now - self._triggered_at)
        if records < least and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._triggered_at = now
        return False

    def _completed(self, starts: Offsets, ends: Offsets, readers: Readers) -> Offsets:
        """A start for every end; partitions that came or went, or went back, may be a loss."""
        for partition in sorted(starts.keys() ^ ends.keys()):
            if partition in starts:
                self._loss(f"{partition} is gone, read so far to {starts[partition]}")
            elif partition in readers and readers[partition].view.log_start_offset:
                at = readers[partition].view.log_start_offset
                self._loss(f"{partition} is new and starts at offset {at}, not at 0")
        for partition in ends.keys() - readers.keys():
            self._loss(f"{partition} is not in the lake")
        completed = {}
        for partition, reader in readers.items():
            start, end = starts.get(partition, reader.view.log_start_offset), ends[partition]
            if start > end:
                self._loss(f"{partition} was read to offset {start} and ends at {end}")
            completed[partition] = min(start, end)
        return completed

    def _loss(self, message: str) -> None:
        report_loss(message, fail=self._options.fail_on_data_loss)


def prorated(limit: int, starts: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
    """Ends nearer to the starts, so that about `limit` offsets are between: Kafka's rule.

    Each partition gets the share that it has of what is there, and at least one offset.
    """
    sizes = {p: end - starts[p] for p, end in ends.items() if end > starts[p]}
    total = sum(sizes.values())
    nearer = dict(ends)
    for partition, size in sizes.items():
        share = max(1, limit * size // total)
        nearer[partition] = min(ends[partition], starts[partition] + share)
    return nearer


def _ends(readers: Readers) -> Offsets:
    return {partition: reader.view.end_offset for partition, reader in readers.items()}


def _to_json(offsets: Offsets) -> Json:
    found: Json = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def _from_json(offsets: Json) -> Offsets:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        if topic not in (VERSION, START)
        for number, offset in numbers.items()
    }
