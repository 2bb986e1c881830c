"""Find the partition folders of a broker, and read and write its checkpoints."""

from __future__ import annotations

import fcntl
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seglake.errors import CorruptData, InputError, MissingObject
from seglake.layout import is_topic_id, is_topic_name
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.store import Listed, Reader, Store, open_store

_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_SET_ASIDE = re.compile(r".+\.[0-9a-f]{32}-(delete|future|stray)")
_LOG = re.compile(r"([0-9]{20})\.log")
_SWAPPED = re.compile(r"([0-9]{20})\.log\.swap")
_UNFINISHED = (".deleted", ".swap", ".cleaned")
_INTERNAL = "__"  # the prefix of internal topics


class LogFile(NamedTuple):
    """The log of a segment: its key, and its size in bytes.

    `end_offset` is set only for logs in a bucket. Such a log may extend beyond the base offset of
    the next log.
    """

    key: str
    base_offset: int
    size: int
    end_offset: int | None = None


@dataclass(frozen=True)
class PartitionFolder:
    """The log of a partition: a folder `topic-partition` in a log.dir, or objects in a bucket.

    The root of `store` is the log.dir or the bucket.
    `high_watermark`, `recovery_point` and `topic_id` are None if no file has them. `clean` is true
    if the broker was stopped cleanly. `skipped` has the files that no longer belong to a log.
    """

    store: Reader
    topic: str
    partition: int
    logs: Sequence[LogFile]
    skipped: Sequence[str]
    topic_id: str | None
    log_start_offset: int
    high_watermark: int | None
    recovery_point: int | None
    clean: bool

    @property
    def name(self) -> str:
        """Return the folder's name."""
        return f"{self.topic}-{self.partition}"

    @property
    def path(self) -> str:
        """Return the folder's path or URI."""
        return self.place(self.name)

    def place(self, key: str) -> str:
        """Return the path or URI of a file or folder in the log.dir."""
        return f"{self.store.uri}/{key}"


def smallest_limits(folders: Iterable[PartitionFolder]) -> dict[int, int]:
    """Return the smallest high watermark of each partition that has one."""
    limits: dict[int, int] = {}
    for folder in folders:
        if folder.high_watermark is not None:
            limit = limits.get(folder.partition, folder.high_watermark)
            limits[folder.partition] = min(limit, folder.high_watermark)
    return limits


def find_folders(
    source: str, topic: str | None, storage_options: Mapping[str, str] | None
) -> tuple[list[PartitionFolder], list[str]]:
    """Return the partition folders at a source, and the paths of folders that are left out.

    A source is a partition folder, or a folder that contains partition folders. Without `topic`, a
    broker's internal topics are left out. Raises InputError for a source without such a folder, for
    a folder that a running broker uses, and for an interrupted cleaning; CorruptData for an invalid
    checkpoint; StoreError.
    """
    folders, skipped = list[PartitionFolder](), list[str]()
    root, names = _folders(source, storage_options)
    _require_stopped(root)
    checkpoints = [_offsets(root, name) for name in (LOG_STARTS, HIGH_WATERMARKS, RECOVERY_POINTS)]
    clean = _read(root, CLEAN_SHUTDOWN) is not None
    for name, files in sorted(names.items()):
        match = _PARTITION.fullmatch(name)
        chosen = match is not None and match[1] == topic
        is_partition = match and is_topic_name(match[1]) and int(match[2]) <= INT32_MAX
        if match is None or not is_partition or _SET_ASIDE.fullmatch(name):
            skipped += [f"{root.uri}/{name}"] * any(_LOG.fullmatch(file) for file in files)
        elif chosen or (topic is None and not is_internal(name)):
            place = match[1], int(match[2])
            offsets = [checkpoint.get(place) for checkpoint in checkpoints]
            folders.append(_partition_folder(root, *place, files, offsets, clean=clean))
    return folders, skipped


def is_log(name: str) -> bool:
    """Return whether a file of this name is the log of a segment."""
    return _LOG.fullmatch(name) is not None


def is_internal(topic: str) -> bool:
    """Return whether the topic is internal to the broker."""
    return topic.startswith(_INTERNAL)


def _folders(
    source: str, storage_options: Mapping[str, str] | None
) -> tuple[Store, dict[str, dict[str, Listed]]]:
    """Return the log.dir of a source, and by name the files of each folder that it selects."""
    store = open_store(source, storage_options)
    folders = defaultdict[str, dict[str, Listed]](dict)
    for item in store.list():
        folder, _, file = item.key.rpartition("/")
        if "/" not in folder:
            folders[folder][file] = item
    if any(map(_LOG.fullmatch, folders.pop("", {}))):
        parent, _, name = store.uri.rpartition("/")
        root = open_store(parent or "/", storage_options)
        own = {item.key: item._replace(key=f"{name}/{item.key}") for item in store.list()}
        return root, {name: {key: item for key, item in own.items() if "/" not in key}}
    if not any(_LOG.fullmatch(file) for files in folders.values() for file in files):
        raise InputError(
            f"{store.uri} is not the log of a broker. Give a folder `topic-partition` with "
            "segments (00000000000000000000.log and so on), or a log.dir that holds such folders"
        )
    return store, folders


def _partition_folder(
    root: Store,
    topic: str,
    partition: int,
    files: Mapping[str, Listed],
    offsets: Sequence[int | None],
    *,
    clean: bool,
) -> PartitionFolder:
    """Return the folder of a partition. `offsets` come from the broker's checkpoints."""
    log_start, high_watermark, recovery_point = offsets
    name = f"{topic}-{partition}"
    logs = _logs(f"{root.uri}/{name}", files)
    metadata = f"{name}/{METADATA}"
    about = _read(root, metadata)
    return PartitionFolder(
        store=root,
        topic=topic,
        partition=partition,
        logs=logs,
        skipped=sorted(file for file in files if file.endswith(_UNFINISHED)),
        topic_id=about and read_topic_id(about, f"{root.uri}/{metadata}"),
        log_start_offset=max(log_start or 0, logs[0].base_offset if logs else 0),
        high_watermark=high_watermark,
        recovery_point=recovery_point,
        clean=clean,
    )


def _offsets(root: Store, name: str) -> Offsets:
    """Return the offsets of a checkpoint in the root of a log.dir, {} if it is missing."""
    data = _read(root, name)
    return {} if data is None else read_offsets(data, f"{root.uri}/{name}")


def _read(root: Store, key: str) -> Any:
    with suppress(MissingObject):
        return bytes(root.read_all(key))
    return None


def _logs(folder: str, files: Mapping[str, Listed]) -> list[LogFile]:
    logs = [
        LogFile(item.key, base, item.size)
        for file, item in files.items()
        if (base := _base(_LOG, file)) is not None
    ]
    bases = {log.base_offset for log in logs}
    for file in files:
        if file.endswith(".log") and _base(_LOG, file) is None:
            raise InputError(
                f"{folder}/{file} is not the log of a segment. Remove it, or name other folders"
            )
        if (base := _base(_SWAPPED, file)) is not None and base not in bases:
            raise InputError(
                f"{folder}/{file} is left from an interrupted log cleaning. Start the broker, "
                f"which completes the cleaning, and stop it again"
            )
    return sorted(logs)


def _base(pattern: re.Pattern[str], file: str) -> int | None:
    match = pattern.fullmatch(file)
    return int(match[1]) if match and int(match[1]) <= INT64_MAX else None


def _require_stopped(root: Store) -> None:
    """Raise InputError if a broker on this machine has locked the log.dir."""
    lock = Path(root.uri, LOCK)
    if root.remote or not os.access(lock, os.R_OK):
        return
    with lock.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise InputError(
                f"a running broker uses {root.uri}, and its active segments change. Stop it, or "
                f"import a copy"
            ) from error


# ---------------- checkpoint
# The small text files in which a broker stores the state of its logs.
#
# A checkpoint is a version, a number of rows, and the rows (`CheckpointFile`). In the root of a
# log.dir, checkpoints have rows `topic partition offset`. A partition's `leader-epoch-checkpoint`
# has rows `epoch offset`.

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

_VERSION = "0"

Offsets = Mapping[tuple[str, int], int]


def read_offsets(data: bytes, file: str) -> Offsets:
    """Parse the offset of each (topic, partition). Raises CorruptData, which names the file."""
    rows = _rows(data, file)
    try:
        split = [row.rsplit(" ", 2) for row in rows]
        return {(topic, int(number)): int(offset) for topic, number, offset in split}
    except ValueError as error:
        raise CorruptData("a row is not `topic partition offset`", file=file) from error


def format_offsets(offsets: Offsets) -> bytes:
    """Return the content of a checkpoint with these offsets."""
    return _text(f"{topic} {number} {offset}" for (topic, number), offset in offsets.items())


def format_epochs(epochs: Collection[tuple[int, int]]) -> bytes:
    """Return the content of a leader epoch checkpoint from pairs of epoch and first offset."""
    return _text(f"{epoch} {offset}" for epoch, offset in epochs)


def read_topic_id(data: bytes, file: str) -> str:
    """Parse the topic id in a `partition.metadata`. Raises CorruptData, which names the file."""
    lines = dict(line.split(": ", 1) for line in _lines(data, file) if ": " in line)
    if lines.get("version") != _VERSION or not is_topic_id(lines.get("topic_id", "")):
        raise CorruptData("the file is not of version 0 or has no valid topic id", file=file)
    return lines["topic_id"]


def format_metadata(topic_id: str) -> bytes:
    """Return the content of a `partition.metadata`."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}\n".encode()


def _text(rows: Iterable[str]) -> bytes:
    entries = list(rows)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def _rows(data: bytes, file: str) -> list[str]:
    if not data:  # a broker creates it empty at its first start
        return []
    version, count, *rows = [*_lines(data, file), "", ""]
    rows = [row for row in rows if row]
    if version != _VERSION or count != str(len(rows)):
        raise CorruptData(f"this is not a checkpoint of version {_VERSION}", file=file)
    return rows


def _lines(data: bytes, file: str) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptData("this is not text", file=file) from error
