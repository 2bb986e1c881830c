"""The sources of an import: a broker's folders, or a bucket of Kafka's tiered storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, InputError, UsageError
from seglake.format.batch import TRANSACTIONAL, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import with_record_times
from seglake.format.encode import EncodedBatches
from seglake.format.filter import copied
from seglake.kafka import folder
from seglake.kafka.folder import PartitionFolder, SourceFolders
from seglake.kafka.survey import SegmentPart, Transactions, are_aborted, headers_of, settled
from seglake.kafka.tiered import is_manifest, tiered_partitions
from seglake.log.chunk import Chunk
from seglake.log.fetch import LogFetch
from seglake.log.piece import Piece
from seglake.log.rewrite.segments import AHEAD_BYTES, DECODE_BYTES
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.writer import NewSegment, write_segment
from seglake.store import Listed, Store, open_store

_MEANT = (
    "a source of attach is the bucket that the broker's plugin writes to, with its key.prefix if "
    "it has one: s3://bucket, or s3://bucket/prefix"
)


class TieredBucket(NamedTuple):
    """A bucket of tiered storage, and the sizes of the objects that are meant, by key.

    The keys that are meant begin with `prefix`.
    """

    store: Store
    prefix: str
    sizes: Mapping[str, int]


def find(
    sources: Iterable[str], topic: str | None, storage_options: Mapping[str, str] | None
) -> SourceFolders:
    """The partitions in the sources, as `folder.find` says; or in buckets of tiered storage.

    Raises as `folder.find` and `tiered_partitions`.
    """
    folders, skipped = list[PartitionFolder](), list[str]()
    topics = None if topic is None else {topic}
    for source in sources:
        bucket = _bucket(source, storage_options)
        if bucket is not None:
            partitions = tiered_partitions(bucket.store, bucket.sizes, topics)
            chosen = [item for item in partitions if topic or not folder.is_internal(item.topic)]
            folders += chosen
        else:
            more = folder.find([source], topic, storage_options)
            folders += more.folders
            skipped += more.skipped
    return SourceFolders(folders, skipped)


def find_bucket(source: str, storage_options: Mapping[str, str] | None) -> TieredBucket:
    """The bucket of tiered storage at a source.

    Raises InputError if no segment is there, and UsageError for the folders of a broker.
    """
    bucket = _bucket(source, storage_options)
    if bucket is not None:
        return bucket
    names = [item.key.rpartition("/")[2] for item in open_store(source, storage_options).list()]
    if any(map(folder.is_log, names)):
        raise UsageError(
            f"{source} is not in a bucket of tiered storage, and a broker changes its folders: "
            "import it"
        )
    if not names:
        raise InputError(f"{source}: nothing is there, no key begins so: {_MEANT}")
    raise InputError(
        f"{source}: none of {len(names):,} objects is a manifest of tiered storage "
        f"(<topic>-<topic id>/<partition>/<offset>-<segment id>.rsm-manifest): {_MEANT}"
    )


def _bucket(source: str, storage_options: Mapping[str, str] | None) -> TieredBucket | None:
    """The bucket at a source; None if no manifest is there, or a broker's log before any."""
    store = open_store(source, storage_options)
    prefix, is_tiered = "", _is_tiered(store.list())
    if is_tiered is None and not source.endswith("/"):
        above, _, prefix = store.uri.rpartition("/")
        if above.endswith(":/"):
            return None
        store = open_store(above or "/", storage_options)
        is_tiered = _is_tiered(_beginning_with(prefix, store))
    if not is_tiered:
        return None
    return TieredBucket(
        store, prefix, {item.key: item.size for item in _beginning_with(prefix, store)}
    )


def _beginning_with(prefix: str, store: Store) -> Iterator[Listed]:
    """The objects whose keys begin with a prefix, which has no "/"."""
    if store.remote or not prefix:
        yield from (item for item in store.list() if item.key.startswith(prefix))
        return
    above = Path(store.uri)
    for name in sorted(path.name for path in above.iterdir()) if above.is_dir() else ():
        if name.startswith(prefix) and (above / name).is_dir():
            yield from store.list(name)


def _is_tiered(items: Iterable[Listed]) -> bool | None:
    """Whether manifests of tiered storage come before any log of a broker's folder.

    None without any object.
    """
    is_tiered = None
    for item in items:
        is_tiered = False
        if is_manifest(item.key):
            return True
        if folder.is_log(item.key.rpartition("/")[2]):
            return False
    return is_tiered


# ---------------- parts
# A part of a broker's log becomes a segment: its record batches are copied, checked, settled.
#
# Markers and aborted transactions leave. A log is read some MiB at a time; of each batch that
# stays, memory holds only a table row.


class PartTask(NamedTuple):
    """A part of a log, and the segment that it becomes."""

    folder: PartitionFolder
    part: SegmentPart
    aborted: Transactions
    new: NewSegment

    @property
    def log_bytes(self) -> int:
        """Bytes of log."""
        return self.part.log_bytes


def write_part(store: Store, task: PartTask) -> SegmentRow:
    """Write the segment that a part of a log becomes; returns its row.

    Raises CorruptData, with file and position, UsageError and StoreError.
    """
    with located(task.folder):
        return write_segment(store, task.new, batches_of(task))


@contextmanager
def located(folder: PartitionFolder) -> Iterator[None]:
    """In the block, damage is named with the path of the folder."""
    try:
        yield
    except CorruptData as damage:
        raise CorruptData(
            damage.what, file=folder.place(damage.file), position=damage.position
        ) from damage


def batches_of(task: PartTask) -> Iterator[EncodedBatches]:
    """The batches that come in, checked. Raises CorruptData and StoreError."""
    folder, (log, begin, stop, base, end) = task.folder, task.part
    if begin == stop:
        return
    segment = LogSegment(folder.topic, folder.partition, log.key, "", base, end, log.size, 0)
    piece = Piece.of(segment, LogRanges.one(begin, stop, base, end))
    for chunk in LogFetch(folder.store).chunks([piece], ahead_bytes=AHEAD_BYTES):
        rows = _staying(chunk, task.aborted)
        yield from chunk.in_parts(rows, DECODE_BYTES, partial(_settled, chunk.data))


def _staying(chunk: Chunk, aborted: Transactions) -> BatchTable:
    """The batches without markers and without aborted transactions."""
    table = chunk.record_batches
    of_transactions = table["attributes"] & TRANSACTIONAL != 0
    if not of_transactions.any():
        return table
    first, last = table["base_offset"][0], table["last_offset"][-1]
    near = aborted[(aborted["last"] >= first) & (aborted["first"] <= last)]
    some = table[of_transactions]
    producers = headers_of(chunk.data, some)["producer_id"].astype("i8")
    goes = of_transactions.copy()
    goes[of_transactions] = are_aborted(producers, some["base_offset"], near)
    staying: BatchTable = table[~goes]
    return staying


def _settled(data: Any, part: BatchTable, payload: Payload) -> EncodedBatches:
    return settled(copied(data, with_record_times(part, payload)))
