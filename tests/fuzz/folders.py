"""Targets that read what a broker left in its folders: logs and notes.

A log is the active one of its folder, so that its end may be torn. What is found wrong is
CorruptData; else every batch that would come in is read.
"""

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seglake.catalog.schema import SegmentId
from seglake.errors import CorruptData, InputError
from seglake.format.batch import CONTROL, TRANSACTIONAL
from seglake.format.index import IndexPolicy
from seglake.kafka import folder
from seglake.kafka.folder import LogFile, PartitionFolder
from seglake.kafka.sources import PartTask, read_batches
from seglake.kafka.survey import Extent, combine_scans, logs_to_scan, scan_log
from seglake.layout import is_topic_id, new_attempt
from seglake.log.writer import NewSegment
from seglake.store import Listed
from tests.fuzz.targets import target
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.lakes import Event, Shape

EVENTS = (Event(1000, b"k", b"v"), Event(990, None, b"value" * 8), Event(1010, b"key", None))
STEPS = [
    Step(-1, EVENTS), Step(1, EVENTS), Step(2, EVENTS[:1]), Step(1, commits=False), Step(2),
    Step(-1, EVENTS), Step(3, EVENTS),
]  # fmt: skip


class _Files:
    """A log.dir of one log."""

    uri, remote = "folders", False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self, _key: str) -> int:
        return len(self._data)

    def read(self, _key: str, start: int, end: int) -> bytes:
        return self._data[start:end]

    def read_all(self, _key: str) -> bytes:
        return self._data

    def list(self, _prefix: str = "") -> Iterator[Listed]:
        yield from ()


def _folder(data: bytes, recovery_point: int | None) -> PartitionFolder:
    store: Any = _Files(data)
    log = LogFile(f"events-0/{0:020d}.log", 0, len(data))
    return PartitionFolder(store, "events", 0, [log], [], None, 0, None, recovery_point, False)


@functools.cache
def _logs() -> list[bytes]:
    found = []
    for shape in (Shape(), Shape("zstd"), Shape("lz4", append_time_ms=2000)):
        with tempfile.TemporaryDirectory() as name:
            folder = BrokerLog(STEPS, shape).write(Path(name, "events-0"))
            found.append((folder / f"{0:020d}.log").read_bytes())
    return found


def _extent(folder: PartitionFolder) -> Extent:
    wanted = logs_to_scan(folder, 0, None)
    return combine_scans(folder, 0, [(each, scan_log(folder.store, each)) for each in wanted])


@target(CorruptData, InputError, seeds=_logs, max_bytes=1500)
def broker_logs(data: bytes) -> None:
    """A log of a broker: what comes in of it, and what its batches become."""
    folder = _folder(data, 0 if len(data) % 2 else None)
    extent = _extent(folder)
    for part in extent.parts:
        attempt = new_attempt()
        new = NewSegment(
            SegmentId("events", 0, part.base_offset, attempt, attempt), part.end_offset,
            IndexPolicy(), 0,
        )  # fmt: skip
        for batches in read_batches(PartTask(folder, part, extent.aborted, new)):
            assert not np.any(batches.table["attributes"] & (TRANSACTIONAL | CONTROL))
            assert batches.table["last_offset"].max(initial=0) < part.end_offset


def _notes() -> list[bytes]:
    offsets = folder.format_offsets({("a.b", 0): 7, ("c", 12): 2**40})
    metadata = folder.format_metadata("AAAAAAAAAAAAAAAAAAAAAQ")
    return [offsets, metadata]


@target(CorruptData, seeds=_notes, max_bytes=300)
def broker_notes(data: bytes) -> None:
    """Checkpoints and topic ids."""
    if len(data) % 2:
        folder.read_offsets(data, "note")
    else:
        assert is_topic_id(folder.read_topic_id(data, "note"))
