"""`seglake attach`: logs in a bucket of Kafka's tiered storage become a topic where they lie.

Each log is read once, as an import reads it: checksums are checked, index files made in the lake.
But instead of a copy the lake gets a link. Nothing here, or anywhere else, writes to the bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seglake.catalog.rows import SegmentRow
from seglake.errors import CorruptData, UsageError
from seglake.kafka.importing import Imported, Intake, Way, take_in
from seglake.kafka.parts import PartTask, batches_of, located
from seglake.kafka.survey import Extent
from seglake.kafka.tiered import TieredPartition
from seglake.log.links import Link
from seglake.log.tasks import Progress, logged
from seglake.log.writer import LogWriter, sealed_row
from seglake.store import Store


def attach_logs(
    root: str,
    sources: Sequence[str],
    *,
    topic: str | None = None,
    name: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = logged,
) -> list[Imported]:
    """Attach the topics in buckets of Kafka's tiered storage, each in one commit.

    A source is a folder that holds the objects of Aiven's plugin, on object storage or local. The
    rest is as `import_logs`, but logs stay where they are, and their batches as they are. Raises
    UsageError for other sources and for logs with transactions, which an import resolves, and else
    as `import_logs`.
    """
    intake = Intake(root, sources, topic, name, dry_run, storage_options)
    return take_in(intake, _ATTACH, progress)


def _require_plain(extent: Extent) -> None:
    """Raise UsageError for what can only be copied."""
    path = extent.folder.path
    if not isinstance(extent.folder, TieredPartition):
        raise UsageError(
            f"{path} is not in a bucket of tiered storage, and a broker changes its folders: "
            "import it"
        )
    if extent.unsettled is not None:
        raise UsageError(
            f"{path}: the record batch at offset {extent.unsettled} is of a transaction, or ends "
            "one; where the log lies nothing can take aborted records out: import the topic, "
            "`seglake import` reads the same source"
        )


def _attach_part(store: Store, task: PartTask) -> SegmentRow:
    """Write index files and the link of a part of a log in a bucket; returns the segment's row.

    Raises CorruptData, with file and position, UsageError and StoreError.
    """
    with located(task.folder):
        log, link = _checked(task), _link(task)
        row = sealed_row(store, task.new, log, external=link.uri)
        store.put(row.key("log"), link.dump())
        return row


def _checked(task: PartTask) -> LogWriter:
    """The checksum and the table of a part's batches. Raises CorruptData and StoreError."""
    part, end, log = task.part, task.new.end_offset, LogWriter(_NoBytes(), task.part.base_offset)
    for batches in batches_of(task):
        log.write(batches)
    if (log.size, log.end) != (part.log_bytes, end):
        what = f"{log.size} bytes of record batches end at offset {log.end}, not {end}"
        raise CorruptData(what, file=part.log.key, position=part.stop)
    return log


def _link(task: PartTask) -> Link:
    folder, part = task.folder, task.part
    assert isinstance(folder, TieredPartition)  # noqa: S101  # others were refused
    chunks = folder.chunks[part.log.key]
    return Link(folder.store.uri, part.log.key, part.begin, part.log_bytes, chunks)


class _NoBytes:
    """The bytes are where they are."""

    def write(self, _data: Any) -> None:
        pass


_ATTACH = Way("attach", _attach_part, _require_plain)
