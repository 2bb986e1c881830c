"""Plan and run streaming queries. A micro-batch has the records committed since the last one.

An offset is `{"topic": {"0": 23}, "@version": 7}`: the next offset to read of each partition, as in
Spark's Kafka source, and the catalog version from which the micro-batch is read. Spark
writes the end of each micro-batch to the checkpoint before the micro-batch runs, and requests the
same range after a failure. The range is then read from the same version, even if records were
removed from the lake since.

The start of a new query is bound once, as in Kafka's source. A topic that appears a moment later is
read from its beginning, and a query that is killed in its first micro-batch starts again at the
same offsets. Kafka's source stores the start next to the checkpoint. A source in Python cannot, and
after a kill Spark calls `initialOffset` again. So `initialOffset` always returns `{}`, and the end
of the first micro-batch contains the start, as `"@start"`.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as spark

from seglake.cached import cached_property
from seglake.datasource.batch import pieces, plan_tasks, read_task
from seglake.datasource.offsets import (
    Offsets,
    Readers,
    bind,
    clip_to_logs,
    existing_readers,
    open_readers,
    report_loss,
)
from seglake.datasource.options import Options, TopicPartition
from seglake.datasource.plain_errors import PlainErrors
from seglake.errors import VersionExpired
from seglake.log.segment import Window
from seglake.read.lake import Lake
from seglake.read.lake import open as open_lake

Json = dict[str, Any]

VERSION, START = "@version", "@start"  # no topic can have such a name

_log = logging.getLogger(__name__)


class SparkStreamReader(DataSourceStreamReader, spark.SupportsTriggerAvailableNow):
    """A streaming query of Spark. Raises UsageError for options of batch queries."""

    def __init__(self, options: Options) -> None:
        self._options, self._starting = options, options.stream_start()
        self._available_now = False  # if so, the newest version is bound
        self._latest: Offsets | None = None
        self._triggered_at = -math.inf

    def initialOffset(self) -> Json:  # noqa: N802  # Spark's name, as below
        """Return `{}`, because the end of the first micro-batch contains the start of the query."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lake, whose version may have expired when tasks begin."""
        return {name: value for name, value in self.__dict__.items() if name != "_lake"}

    @PlainErrors()
    def latestOffset(self, start: Json, limit: spark.ReadLimit) -> Json:  # noqa: N802
        """Return the end of the micro-batch from `start`, or `start` if it would be empty."""
        lake = self._newest()
        readers = open_readers(lake, self._options.topics)
        self._latest = _ends(readers)
        starts = _from_json(start) if start else self._bound(readers)
        ends = self._reached(starts, readers, limit)
        if not start:
            return {**_to_json(ends), START: _to_json(starts), VERSION: lake.version}
        return start if ends == starts else {**_to_json(ends), VERSION: lake.version}

    def getDefaultReadLimit(self) -> spark.ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit from maxOffsetsPerTrigger, or else from minOffsetsPerTrigger."""
        if self._options.max_offsets_per_trigger is not None:
            return spark.ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return spark.ReadMinRows(self._options.min_offsets_per_trigger)
        return spark.ReadAllAvailable()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802  # Spark's name
        """Return the ends of the logs at the last `latestOffset`, for the query's progress."""
        return _to_json(self._latest) if self._latest else None

    @PlainErrors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Bind the newest version. The query reads nothing that is committed later."""
        self._lake.refresh()
        self._available_now = True

    @PlainErrors()
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of the micro-batch [start, end), in the version that `end` names.

        The tasks read the newest version if that version expires before the plan is complete.
        """
        ends = _from_json(end)
        try:
            return self._planned(self._at(end.get(VERSION)), start, end, ends)
        except VersionExpired as error:
            _log.warning("%s. Reading this micro-batch from the newest version", error)
        newest = open_lake(self._options.root, storage_options=self._options.storage)
        return self._planned(newest, start, end, ends)

    def _planned(self, lake: Lake, start: Json, end: Json, ends: Offsets) -> list[InputPartition]:
        readers = existing_readers(lake, ends)
        starts = self._completed(_from_json(end.get(START, start)), ends, readers)
        ranges = clip_to_logs(
            starts, ends, readers, fail_on_data_loss=self._options.fail_on_data_loss
        )
        windows = [(readers[name], Window(start_offset=low, end_offset=high))
                  for name, (low, high) in ranges.items() if low < high]  # fmt: skip
        to_read = pieces(lake, windows, self._options)
        return [InputPartition(task) for task in plan_tasks(lake, to_read, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(partition, self._options)

    @cached_property
    def _lake(self) -> Lake:
        return open_lake(self._options.root, storage_options=self._options.storage)

    def _newest(self) -> Lake:
        return self._lake if self._available_now else self._lake.refresh()

    def _at(self, version: int | None) -> Lake:
        """Return the lake at a version. Raises VersionExpired if it is not retained."""
        if version is None:
            return self._newest()
        if version == self._lake.version:
            return self._lake
        return open_lake(self._options.root, version, self._options.storage)

    def _bound(self, readers: Readers) -> Offsets:
        """Return the start of a new query, clipped to the current logs."""
        starts = bind(self._starting, readers, self._options.no_match)
        fail = self._options.fail_on_data_loss
        ranges = clip_to_logs(starts, _ends(readers), readers, fail_on_data_loss=fail)
        return {partition: low for partition, (low, _) in ranges.items()}

    def _reached(self, starts: Offsets, readers: Readers, limit: spark.ReadLimit) -> Offsets:
        """Return the end of a micro-batch from `starts`: the ends of the logs, unless limited."""
        latest = _ends(readers)
        first = {p: starts.get(p, r.view.log_start_offset) for p, r in readers.items()}
        records = sum(latest[p] - first[p] for p in first)
        if not isinstance(limit, spark.ReadAllAvailable) and self._too_few(records):
            return starts
        return (
            prorate(limit.max_rows, first, latest)
            if isinstance(limit, spark.ReadMaxRows)
            else latest
        )

    def _too_few(self, records: int) -> bool:
        """Return whether to wait for more records, at most for maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._available_now:  # otherwise, some records would never be read
            return False
        now = time.monotonic()
        waited_ms = 1000 * (now - self._triggered_at)
        if records < least and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._triggered_at = now
        return False

    def _completed(self, starts: Offsets, ends: Offsets, readers: Readers) -> Offsets:
        """Return a start for each end, and report lost records.

        Records are lost if a partition vanished, ends too early, or is new but begins above 0.
        """
        for partition in sorted(starts.keys() ^ ends.keys()):
            if partition in starts:
                self._loss(f"{partition} is missing, but was read up to offset {starts[partition]}")
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


def prorate(limit: int, starts: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
    """Return ends of a micro-batch with about `limit` offsets in total, by Kafka's rule.

    Each partition gets its share of all unread offsets, and at least one offset.
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
    topics: Json = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def _from_json(offsets: Json) -> Offsets:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        if topic not in (VERSION, START)
        for number, offset in numbers.items()
    }
