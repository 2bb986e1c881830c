"""Convert options to the partitions and offsets that a query reads, once per query.

Spark's Kafka source leaves "earliest" and "latest" to its tasks. Here all offsets are numbers
before the first task starts, so a plan is exact and does not change.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from seglake.datasource.options import EARLIEST, LATEST, Bound, TopicChoice, TopicPartition
from seglake.errors import OffsetOutOfRange, UnknownTopic, UsageError
from seglake.log.reads import PartitionReader
from seglake.read.lake import Lake
from seglake.read.log import Log

Offsets = dict[TopicPartition, int]
Readers = dict[TopicPartition, PartitionReader]

_log = logging.getLogger(__name__)


def open_readers(lake: Lake, topics: TopicChoice) -> Readers:
    """Return the partitions that a query reads, sorted. Raises UnknownTopic if one is missing."""
    names = topics.named or {partition.topic for partition in topics.assigned or ()}
    if topics.pattern is not None:
        names = {name for name in lake.topics() if topics.pattern.search(name)}
    logs = _logs(lake, names)
    partitions = sorted(logs if topics.assigned is None else topics.assigned)
    for partition in partitions:
        if partition not in logs:
            raise UnknownTopic(f"option assign names partition {partition}, which does not exist")
    return _readers(logs, partitions)


def existing_readers(lake: Lake, partitions: Collection[TopicPartition]) -> Readers:
    """Return readers of the partitions that exist in the lake, in the order of `partitions`."""
    logs = _logs(lake, {partition.topic for partition in partitions} & set(lake.topics()))
    return _readers(logs, [partition for partition in partitions if partition in logs])


def _logs(lake: Lake, names: Iterable[str]) -> dict[TopicPartition, Log]:
    logs = {name: lake.topic(name) for name in sorted(names)}
    return {TopicPartition(name, p): log for name, log in logs.items() for p in log.partitions()}


def _readers(logs: Mapping[TopicPartition, Log], partitions: Iterable[TopicPartition]) -> Readers:
    return {partition: logs[partition].reader(partition.partition) for partition in partitions}


def bind(bound: Bound, readers: Readers, no_match: Literal["error", "latest"]) -> Offsets:
    """Return the offset of a bound in each partition.

    If no record is at a time or later, the offset is the end of the log, or a UsageError is raised
    if `no_match` is "error".
    """
    value, values = bound.value, bound.by_partition
    if isinstance(value, int):
        values = dict.fromkeys(readers, value)
    elif values.keys() != readers.keys():
        differing = ", ".join(sorted(map(str, values.keys() ^ readers.keys())))
        raise UsageError(
            f"option {bound.name} must name exactly the partitions that are read. It differs in"
            f" {differing}"
        )
    if bound.is_time:
        values = {p: _first_at(readers[p], values[p], p, bound.name, no_match) for p in readers}
    ends = {p: {EARLIEST: r.view.log_start_offset, LATEST: r.view.end_offset}
            for p, r in readers.items()}  # fmt: skip
    return {p: ends[p].get(values[p], values[p]) for p in readers}


def clip_to_logs(
    starts: Offsets, ends: Offsets, readers: Readers, *, fail_on_data_loss: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """Clip the ranges [start, end) to the logs. Offsets outside a log are reported as a loss."""
    ranges = {}
    for partition, reader in readers.items():
        low, high = reader.view.log_start_offset, reader.view.end_offset
        start, end = starts[partition], ends[partition]
        if start < low or max(start, end) > high:
            report_loss(
                f"offsets {start} to {end} (exclusive) of {partition} are requested, but its log "
                f"has {low} to {high}",
                fail=fail_on_data_loss,
            )
        first = min(max(start, low), high)
        ranges[partition] = first, max(first, min(end, high))
    return ranges


def report_loss(message: str, *, fail: bool) -> None:
    """Raise OffsetOutOfRange, or only log a warning if the option failOnDataLoss is false."""
    if fail:
        raise OffsetOutOfRange(f"{message}. To skip missing records, set failOnDataLoss to false")
    _log.warning("%s. Skipping the missing records, because failOnDataLoss is false", message)


def _first_at(
    reader: PartitionReader, time: int, partition: TopicPartition, name: str, no_match: str
) -> int:
    place = reader.offset_for_time(time)
    if place is None and no_match == "error":
        raise UsageError(
            f"option {name}: {partition} has no record at or after {time}. To start at the end "
            f"of the log instead, set startingOffsetsByTimestampStrategy to latest"
        )
    return LATEST if place is None else place.offset
