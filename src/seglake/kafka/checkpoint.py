"""The small text files in which a broker notes what it knows of its logs.

A checkpoint is a version, a number of rows, and the rows (`CheckpointFile`). Those in the root of a
log.dir have rows `topic partition offset`; a partition's `leader-epoch-checkpoint` has rows
`epoch offset`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from seglake.errors import CorruptData
from seglake.layout import is_topic_id

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
    """The offset of each (topic, partition). Raises CorruptData, which names the file."""
    rows = _rows(data, file)
    try:
        split = [row.rsplit(" ", 2) for row in rows]
        return {(topic, int(number)): int(offset) for topic, number, offset in split}
    except ValueError as error:
        raise CorruptData("a row is not `topic partition offset`", file=file) from error


def offsets_text(offsets: Offsets) -> bytes:
    """The content of a checkpoint with these offsets."""
    return _text(f"{topic} {number} {offset}" for (topic, number), offset in offsets.items())


def epochs_text(epochs: Collection[tuple[int, int]]) -> bytes:
    """The content of a leader epoch checkpoint: each epoch, and the offset at which it begins."""
    return _text(f"{epoch} {offset}" for epoch, offset in epochs)


def read_topic_id(data: bytes, file: str) -> str:
    """The topic's id in a `partition.metadata`. Raises CorruptData, which names the file."""
    lines = dict(line.split(": ", 1) for line in _lines(data, file) if ": " in line)
    if lines.get("version") != _VERSION or not is_topic_id(lines.get("topic_id", "")):
        raise CorruptData("no topic id of version 0 stands here", file=file)
    return lines["topic_id"]


def metadata_text(topic_id: str) -> bytes:
    """The content of a `partition.metadata`."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}\n".encode()


def _text(rows: Iterable[str]) -> bytes:
    entries = list(rows)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def _rows(data: bytes, file: str) -> list[str]:
    if not data:  # as a broker makes it at its first start
        return []
    version, count, *rows = [*_lines(data, file), "", ""]
    rows = [row for row in rows if row]
    if version != _VERSION or count != str(len(rows)):
        raise CorruptData(f"this is no checkpoint of version {_VERSION}", file=file)
    return rows


def _lines(data: bytes, file: str) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptData("this is not text", file=file) from error
