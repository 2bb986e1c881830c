"""A replay from its first look at the target to its report."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from seglake.catalog.groups import GroupOffset
from seglake.errors import UsageError
from seglake.log.decode.columns import schema_of
from seglake.log.execute import MEMORY_BYTES, execute
from seglake.log.piece import Window
from seglake.pace import Pace
from seglake.read.log import Log
from seglake.read.window.plan import pieces_of
from seglake.replay.report import ReplayReport
from seglake.replay.sender import Sender
from seglake.replay.streams import PartitionStream, due, next_due_ms
from seglake.replay.target import Target
from seglake.replay.tempo import Tempo
from seglake.times.instants import Time, format_ms, to_epoch_ms

_COLUMNS = ["offset", "timestamp", "key", "value", "headers"]
_COMMIT_RECORDS, _COMMIT_S = 20_000, 1.0
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
    groups: Sequence[str] = (),
) -> ReplayReport:
    """Write the records with start <= timestamp < end into a topic of a real Kafka.

    Partitions, offset order, keys, values, headers and timestamps are kept. A replay is known by
    its name, by default topic and window. A call with the same name goes on behind the last record
    that the earlier one committed, and does nothing if that was the last of the window.

    When all of it is there, the consumer `groups` that an archive has kept with the lake go on at
    the target where they stood, unless they have committed something there (`commit_groups`).

    Raises UsageError, also for a group that is not kept, ConfigError and StoreError as `Target`
    does, CorruptData.
    """
    start_ms, end_ms = to_epoch_ms(start), to_epoch_ms(end)
    if not 1 <= start_ms <= end_ms:
        raise UsageError(
            "a replay begins after 1970 and ends where it begins or later: librdkafka takes the"
            " timestamp 0 for now"
        )
    group_offsets = _group_offsets(log, groups)
    name = name or f"{log.topic}/{format_ms(start_ms)}/{format_ms(end_ms)}"
    tempo, state = tempo or Tempo(), target.prepared(len(log.partitions()))
    sender = target.sender(name, state)
    behind = target.positions(name, log.partitions())  # another may have filled a new topic
    report = ReplayReport(
        name, log.topic, target.topic, log.version, start_ms, end_ms, state.created, behind
    )
    began = time.monotonic()
    windows = {
        p: Window(start_ms, end_ms, start_offset=behind.get(p, -1) + 1) for p in log.partitions()
    }
    _send(log, windows, sender, tempo, report)
    if group_offsets:
        report.groups = target.commit_groups(name, group_offsets)
    report.seconds = time.monotonic() - began
    return report


def _group_offsets(log: Log, groups: Sequence[str]) -> dict[str, dict[int, GroupOffset]]:
    """Where the asked groups stood in the topic."""
    if not groups:
        return {}
    offsets = {stood.group: stood.offsets for stood in log.kept_groups()}
    if missing := sorted({*groups} - offsets.keys()):
        raise UsageError(
            f"group {missing[0]!r} is not kept for topic {log.topic!r}, which has"
            f" {', '.join(offsets) or 'none'}: `seglake archive --group` keeps it"
        )
    return {group: offsets[group] for group in groups}


def _send(
    log: Log, windows: Mapping[int, Window], sender: Sender, tempo: Tempo, report: ReplayReport
) -> None:
    streams, total = _opened(log, windows)
    pace, uncommitted, waits_for = Pace("records at most"), 0, next_due_ms(streams)
    tempo.start(waits_for)
    while streams:
        sent = 0
        for partition, batch in due(streams, tempo.now_ms(), tempo.step):
            sender.send(partition, _rows(batch))
            report.sent[partition] = report.sent.get(partition, 0) + len(batch)
            sent += len(batch)
            uncommitted += len(batch)
            if uncommitted >= _COMMIT_RECORDS or sender.open_s > _COMMIT_S:
                sender.commit()
                uncommitted = 0
            tempo.after(len(batch))
        streams = [stream for stream in streams if stream.left]
        if streams and not sent:
            _wait(streams, sender, tempo)
        if line := pace.line(report.records, total):
            _log.info("%s", line)
    sender.commit()


def _wait(streams: Sequence[PartitionStream], sender: Sender, tempo: Tempo) -> None:
    following = next_due_ms(streams)
    if sender.open_s + tempo.seconds_until(following) > _COMMIT_S:
        sender.commit()  # what is sent becomes visible before the wait
    tempo.wait_for(following)


def _opened(log: Log, windows: Mapping[int, Window]) -> tuple[list[PartitionStream], int]:
    """The streams that have records, and the most records that they can have."""
    memory, total, streams = max(_LEAST_MEMORY, MEMORY_BYTES // max(1, len(windows))), 0, []
    for partition, window in windows.items():
        reader = log.reader(partition)
        pieces = list(pieces_of([(reader, window)]))
        total += sum(piece.records_at_most for piece in pieces)
        batches = execute(
            reader.cached_fetch, pieces, schema_of(_COLUMNS), memory_bytes=memory, threads=1
        )
        streams.append(PartitionStream(partition, batches))
    return [stream for stream in streams if stream.left], total


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Records as the client's library takes them: as dicts."""
    at = batch.schema.get_field_index("timestamp")
    plain = batch.set_column(at, "timestamp", batch["timestamp"].cast(pa.int64()))
    return plain.to_pylist()
