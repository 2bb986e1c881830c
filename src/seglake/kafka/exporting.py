"""Export a topic as partition folders that a broker mounts, with the same offsets.

Logs and indexes are copied byte for byte. With a window, exactly its records are copied.

- Leader epochs become 0, the first epoch of a new topic, because a broker treats higher epochs as
  epochs of the future.
- Segments without records are left out, except the first one of a log. Its batch gets a timestamp,
  or a broker would treat the segment as new as its file, and find no time after it.
- Each log ends with an empty segment at its end offset. So records that the broker adds get later
  offsets.
- `partition.metadata`, with the topic id, is written only on request. The target has its own file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np

from seglake.catalog.schema import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import PartitionView
from seglake.engine import Progress, SegmentTasks
from seglake.errors import UsageError
from seglake.format.batch import LEADER_EPOCH_AT, BatchTable
from seglake.format.encode import EncodedBatches
from seglake.format.filter import blank
from seglake.format.index import IndexPolicy
from seglake.format.records import Bytes
from seglake.format.segment import rebuild
from seglake.kafka import folder as folders
from seglake.layout import Suffix, is_topic_id
from seglake.log.fetch import LogFetch
from seglake.log.files import LogCheck, check_crc, check_size
from seglake.log.links import LakeLogs
from seglake.log.rewrite.keep import KeepTimes
from seglake.log.rewrite.segments import staying
from seglake.log.segment import LogSegment, Window
from seglake.log.writer import LogWriter
from seglake.maintain.commit import MaintenanceReport
from seglake.read.window.plan import open_window
from seglake.store import Store, open_store
from seglake.times.instants import Time

FIRST_EPOCH = 0  # the first epoch of a new topic

_COPIED: tuple[Suffix, ...] = ("index", "timeindex")
_EMPTY = ("log", *_COPIED)  # the files of a segment without a record


@dataclass
class ExportedPartition(MaintenanceReport):
    """A partition folder that was written: its log, from `log_start_offset` to `end_offset`."""

    partition: int
    folder: str
    log_start_offset: int
    end_offset: int
    segments: int
    log_bytes: int


@dataclass(repr=False)
class ExportResult(MaintenanceReport):
    """The result of an export of one version of the lake."""

    topic: str
    version: int
    segments: int = 0
    log_bytes: int = 0
    partitions: list[ExportedPartition] = field(default_factory=list)


def export_logs(
    root: str,
    topic: str,
    dest: str,
    *,
    start: Time | None = None,
    end: Time | None = None,
    topic_id: str | None = None,
    version: int | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Write a topic as partition folders below `dest`, local or on object storage.

    `start` and `end` bound the timestamps as in `Log.read_range`. `topic_id` is the id of the topic
    at the target, for `partition.metadata`. Without it, the file at the target must be kept. A file
    `log-start-offset-checkpoint` is written next to the folders. docs/kafka.md has the steps that
    mount them.

    Raises UsageError if `dest` is not empty or inside the lake, for a window that ends before it
    starts, and for an invalid topic id; UnknownTopic; CorruptData, with file and position; and
    StoreError. After an error, everything that was written below `dest` is deleted.

    Example:
        >>> exported = seglake.export_logs("lake", "web", "broker-data")
        >>> exported.segments
        4
    """
    window = _window(start, end)
    if topic_id is not None and not is_topic_id(topic_id):
        raise UsageError(f"{topic_id!r} is not a topic id. For the id: kafka-topics --describe")
    table = CatalogTable.open(open_store(root, storage_options))
    snapshot = table.snapshot(version)
    views = {view.partition: view for view in snapshot.partitions(topic)}
    target = open_store(dest, storage_options)
    require_outside(table.store, target)
    for item in target.list():
        raise UsageError(f"{target.uri} is not empty: it has {item.key}. Name a new folder")
    rows = [row for row in table.rows.segments(snapshot, topic) if _is_wanted(row, views, window)]
    work = partial(_write, target=target, window=window)
    tasks = [*_tasks(rows)]
    with ExitStack() as on_error:
        on_error.callback(lambda: target.delete([item.key for item in target.list()]))
        written = SegmentTasks.from_session(table.store, None, progress).map(work, tasks)
        logs = [part for part in written if part is not None]
        report = ExportResult(topic, snapshot.version)
        for number, view in views.items():
            own = [part for part in logs if part.partition == number]
            report.partitions.append(_finish(target, view, own, topic_id, whole=window is None))
        starts = {(topic, part.partition): part.log_start_offset for part in report.partitions}
        target.put(folders.LOG_STARTS, folders.format_offsets(starts))
        on_error.pop_all()
    report.segments = sum(part.segments for part in report.partitions)
    report.log_bytes = sum(part.log_bytes for part in report.partitions)
    return report


def require_outside(lake: Store, target: Store) -> None:
    """Raise UsageError if the target is inside the lake, where a vacuum may delete its files.

    Local folders are compared by file, not by name, so links are resolved.
    """
    if lake.remote != target.remote:
        return
    if lake.remote:
        inside = f"{target.uri}/".startswith(f"{lake.uri}/")
    else:
        place = Path(target.uri).resolve()
        existing = (folder for folder in (place, *place.parents) if folder.exists())
        inside = any(folder.samefile(lake.uri) for folder in existing)
    if inside:
        raise UsageError(f"{target.uri} is inside the lake {lake.uri}. Name a folder outside it")


class _ExportTask(NamedTuple):
    """A segment to write."""

    row: SegmentRow
    is_first: bool  # whether it is the first segment of its log

    @property
    def log_bytes(self) -> int:
        """Return the size of its log in bytes."""
        return self.row.log_bytes


class _WrittenLog(NamedTuple):
    """A log in a partition folder."""

    partition: int
    base_offset: int
    end_offset: int
    log_bytes: int


def _window(start: Time | None, end: Time | None) -> Window | None:
    if start is None and end is None:
        return None
    window = open_window(start, end)
    if window.end_ms <= window.start_ms:
        raise UsageError(f"the window from {start} to {end} is empty. Give a later end")
    return window


def _tasks(rows: Iterable[SegmentRow]) -> Iterator[_ExportTask]:
    for _, its in groupby(rows, key=lambda row: row.partition):
        for number, row in enumerate(its):
            yield _ExportTask(row, number == 0)


def _is_wanted(row: SegmentRow, views: Mapping[int, PartitionView], window: Window | None) -> bool:
    if row.end_offset <= views[row.partition].log_start_offset:
        return False
    if window is None:
        return True
    meets = row.min_timestamp < window.end_ms and row.max_timestamp >= window.start_ms
    return row.record_count > 0 and meets


def _write(
    store: Store, task: _ExportTask, *, target: Store, window: Window | None
) -> _WrittenLog | None:
    """Write a segment as files of a broker. Return None if no record is in the window."""
    row = task.row
    if window is not None and not (
        window.start_ms <= row.min_timestamp and row.max_timestamp < window.end_ms
    ):
        keep = KeepTimes(window.start_ms, window.end_ms)
        return _write_some(target, row, staying(store, [row], keep))
    if not row.record_count:
        nothing = blank(row.base_offset, row.end_offset - 1, max_timestamp=0)
        return _write_some(target, row, iter([nothing])) if task.is_first else None
    for suffix in _COPIED:
        data = store.read_all(row.key(suffix))
        check_crc(row, suffix, crc32c.crc32c(data))
        target.put(_key(row, row.base_offset, suffix), data)
    with target.writer(_key(row, row.base_offset, "log")) as sink:
        for data in _log(store, row):
            sink.write(data)
    return _WrittenLog(row.partition, row.base_offset, row.end_offset, row.log_bytes)


def _log(store: Store, row: SegmentRow) -> Iterator[Any]:
    """Yield the bytes of a log, with the leader epoch of a new topic in each batch.

    Raises CorruptData, at the end if the checksum of the log is wrong.
    """
    check_size(row, "log", LakeLogs(store).size(row.key("log")))
    log, check = LogSegment.from_row(row), LogCheck(row)
    for chunk in LogFetch(store).chunks([log.whole()]):
        data = memoryview(chunk.data)[: int(chunk.table["size"].sum(dtype=np.int64))]
        check.add(data, chunk.table)
        yield _fresh(data, chunk.table)
    check.check()


def _write_some(
    target: Store, row: SegmentRow, parts: Iterator[EncodedBatches]
) -> _WrittenLog | None:
    """Write the given batches of a segment as a segment that begins with the first of them."""
    first = next((part for part in parts if len(part.table)), None)
    if first is None:
        return None
    base = int(first.table["base_offset"][0])
    with target.writer(_key(row, base, "log")) as sink:
        log = LogWriter(sink, base, IndexPolicy())  # without a key index, which Kafka does not have
        for part in chain([first], parts):
            log.write(EncodedBatches(_fresh(part.data, part.table), part.table))
    sealed = rebuild(base, log.table, row.index_policy)
    target.put(_key(row, base, "index"), sealed.files["index"])
    target.put(_key(row, base, "timeindex"), sealed.files["timeindex"])
    return _WrittenLog(row.partition, base, log.end, log.size)


def _fresh(data: Any, table: BatchTable) -> Bytes:
    """Return the batches with the leader epoch of a new topic. No checksum covers leader epochs."""
    own = np.frombuffer(data, np.uint8).copy()
    own[table["position"][:, None] + (LEADER_EPOCH_AT + np.arange(4))] = FIRST_EPOCH
    return own


def _finish(
    target: Store,
    view: PartitionView,
    logs: list[_WrittenLog],
    topic_id: str | None,
    *,
    whole: bool,
) -> ExportedPartition:
    """Write the empty last segment and the checkpoints of a partition, and return its report."""
    end = view.end_offset if whole or not logs else max(log.end_offset for log in logs)
    first = min((log.base_offset for log in logs), default=end)
    folder = _folder(view)
    for suffix in _EMPTY:
        target.put(f"{folder}/{end:020d}.{suffix}", b"")
    target.put(f"{folder}/{folders.LEADER_EPOCHS}", folders.format_epochs([(0, first)]))
    if topic_id is not None:
        target.put(f"{folder}/{folders.METADATA}", folders.format_metadata(topic_id))
    return ExportedPartition(
        partition=view.partition,
        folder=f"{target.uri}/{folder}",
        log_start_offset=max(view.log_start_offset, first),
        end_offset=end,
        segments=len(logs),
        log_bytes=sum(log.log_bytes for log in logs),
    )


def _folder(place: PartitionView | SegmentRow) -> str:
    return f"{place.topic}-{place.partition}"


def _key(row: SegmentRow, base_offset: int, suffix: Suffix) -> str:
    return f"{_folder(row)}/{base_offset:020d}.{suffix}"
