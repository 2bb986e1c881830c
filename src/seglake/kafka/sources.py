"""Read the sources of an import: a broker's folders, or a bucket of Kafka's tiered storage."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard

from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, InputError, SeglakeError, UsageError
from seglake.format.batch import TRANSACTIONAL, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import with_record_times
from seglake.format.encode import EncodedBatches
from seglake.format.filter import copied
from seglake.kafka import folder
from seglake.kafka.folder import LogFile, PartitionFolder
from seglake.kafka.survey import (
    SegmentPart,
    Transactions,
    batch_headers,
    is_aborted,
    without_transactions,
)
from seglake.layout import is_topic_id, is_topic_name
from seglake.limits import INT32_MAX
from seglake.log.fetch import Chunk, LogFetch
from seglake.log.links import MAX_CHUNK_BYTES, ChunkedLogs, Chunks
from seglake.log.rewrite.segments import AHEAD_BYTES, DECODE_BYTES
from seglake.log.segment import LogSegment
from seglake.log.writer import NewSegment, write_segment
from seglake.store import Listed, Store, open_store

_MEANT = (
    "a source of attach is the bucket that the broker's plugin writes to, with its key.prefix if "
    "it has one: s3://bucket, or s3://bucket/prefix"
)


class TieredBucket(NamedTuple):
    """A bucket of tiered storage, and the sizes of its objects by key.

    `sizes` has only the keys that begin with `prefix`.
    """

    store: Store
    prefix: str
    sizes: Mapping[str, int]


def find_sources(
    sources: Iterable[str], topic: str | None, storage_options: Mapping[str, str] | None
) -> tuple[list[PartitionFolder], list[str]]:
    """Return the partitions in the sources, and the paths of folders that are left out.

    A source is a bucket of tiered storage, or a folder that `find_folders` accepts. Raises what
    `find_folders` and `tiered_partitions` raise.
    """
    folders, skipped = list[PartitionFolder](), list[str]()
    topics = None if topic is None else {topic}
    for source in sources:
        bucket = _bucket(source, storage_options)
        if bucket is not None:
            partitions = tiered_partitions(bucket.store, bucket.sizes, topics)
            folders += [each for each in partitions if topic or not folder.is_internal(each.topic)]
        else:
            more, left_out = folder.find_folders(source, topic, storage_options)
            folders += more
            skipped += left_out
    return folders, skipped


def find_bucket(source: str, storage_options: Mapping[str, str] | None) -> TieredBucket:
    """Return the bucket of tiered storage at a source.

    Raises InputError if no segment is there, and UsageError for the folders of a broker.
    """
    bucket = _bucket(source, storage_options)
    if bucket is not None:
        return bucket
    names = [item.key.rpartition("/")[2] for item in open_store(source, storage_options).list()]
    if any(map(folder.is_log, names)):
        raise UsageError(
            f"{source} has local logs of a broker, which cannot be attached, because the broker "
            f"changes them. Import them: `seglake import`"
        )
    if not names:
        raise InputError(f"there is no object below {source}. Correct the source: {_MEANT}")
    raise InputError(
        f"{source} has {len(names):,} objects, but no manifest of tiered storage (<topic>-<topic "
        f"id>/<partition>/<offset>-<segment id>.rsm-manifest). Correct the source: {_MEANT}"
    )


def _bucket(source: str, storage_options: Mapping[str, str] | None) -> TieredBucket | None:
    """Return the bucket at a source, or None if no manifest precedes the logs of a broker."""
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
    """Yield the objects whose keys begin with a prefix. The prefix has no "/"."""
    if store.remote or not prefix:
        yield from (item for item in store.list() if item.key.startswith(prefix))
        return
    above = Path(store.uri)
    for name in sorted(path.name for path in above.iterdir()) if above.is_dir() else ():
        if name.startswith(prefix) and (above / name).is_dir():
            yield from store.list(name)


def _is_tiered(items: Iterable[Listed]) -> bool | None:
    """Return whether a manifest of tiered storage precedes any log of a broker's folder.

    Return None if there is no object.
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
# Write a part of a broker's log as a segment: check its record batches, and copy them.
#
# Markers and aborted transactions are left out. A log is read some MiB at a time. Memory holds only
# a table row of each batch that is copied.


class PartTask(NamedTuple):
    """A part of a log, and the segment that it becomes."""

    folder: PartitionFolder
    part: SegmentPart
    aborted: Transactions
    new: NewSegment

    @property
    def log_bytes(self) -> int:
        """Return how many bytes of the log are read."""
        return self.part.log_bytes


def write_part(store: Store, task: PartTask) -> SegmentRow:
    """Write a part of a log as a segment. Return the segment's row.

    Raises CorruptData, with file and position, UsageError and StoreError.
    """
    with errors_located(task.folder):
        return write_segment(store, task.new, read_batches(task))


@contextmanager
def errors_located(folder: PartitionFolder) -> Iterator[None]:
    """Add the path of the folder to the CorruptData that the block raises."""
    try:
        yield
    except CorruptData as damage:
        raise CorruptData(
            damage.what, file=folder.place(damage.file), position=damage.position
        ) from damage


def read_batches(task: PartTask) -> Iterator[EncodedBatches]:
    """Yield the batches to import, checked. Raises CorruptData and StoreError."""
    folder, (log, begin, stop, base, end) = task.folder, task.part
    if begin == stop:
        return
    segment = LogSegment(folder.topic, folder.partition, log.key, "", base, end, log.size, 0)
    piece = segment.part(begin, stop, base, end)
    for chunk in LogFetch(folder.store).chunks([piece], ahead_bytes=AHEAD_BYTES):
        rows = _without_aborted(chunk, task.aborted)
        yield from chunk.in_parts(rows, DECODE_BYTES, partial(_settled, chunk.data))


def _without_aborted(chunk: Chunk, aborted: Transactions) -> BatchTable:
    """Return the batches without markers and without aborted transactions."""
    table = chunk.record_batches
    of_transactions = table["attributes"] & TRANSACTIONAL != 0
    if not of_transactions.any():
        return table
    first, last = table["base_offset"][0], table["last_offset"][-1]
    near = aborted[(aborted["last"] >= first) & (aborted["first"] <= last)]
    some = table[of_transactions]
    producers = batch_headers(chunk.data, some)["producer_id"].astype("i8")
    goes = of_transactions.copy()
    goes[of_transactions] = is_aborted(producers, some["base_offset"], near)
    staying: BatchTable = table[~goes]
    return staying


def _settled(data: Any, part: BatchTable, payload: Payload) -> EncodedBatches:
    return without_transactions(copied(data, with_record_times(part, payload)))


# ---------------- tiered storage
# Partitions in a bucket of Kafka's tiered storage, as Aiven's plugin writes it.
#
# A segment is three objects, whose keys begin with the plugin's prefix (`ObjectKeyFactory`):
#
#     <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>.<suffix>
#
# `log` holds the log, possibly in chunks (`log.links`), and `indexes` Kafka's indexes. The
# `rsm-manifest` is written last. It is JSON with the chunks and the offsets of the log
# (`SegmentManifestV1`). Several leaders may have copied the same offsets. Their leader epochs
# decide which copies are used.

_MANIFEST = re.compile(r"(?:.*/)?[0-9]{20}-[A-Za-z0-9_-]{22}\.rsm-manifest")
_VERSION = "1"
_ID_LENGTH = 23  # "-" and a topic id, at the end of a topic's folder
_REQUESTS = 16  # concurrent requests
_MAX_INDEX_BYTES = 1 << 20  # a chunk takes up to four bytes of it


class RemoteLog(NamedTuple):
    """A log in a bucket, which covers offsets `base_offset` to `end_offset`, exclusive.

    `epochs` has pairs of a leader epoch and the offset at which it begins, ascending.
    """

    place: tuple[str, str, int]  # topic, topic id, partition
    key: str
    base_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...]
    chunks: Chunks


@dataclass(frozen=True)
class TieredPartition(PartitionFolder):
    """A partition in a bucket, with the interface of a folder. `uri` is the URI of its objects."""

    uri: str
    chunks: Mapping[str, Chunks]

    @property
    def path(self) -> str:
        """Return the URI of its objects."""
        return self.uri

    def place(self, key: str) -> str:
        """Return the URI of an object. A URI, as in the error of a chunk, is returned unchanged."""
        return key if key.startswith(f"{self.store.uri}/") else super().place(key)


def is_manifest(key: str) -> bool:
    """Return whether this is the key of a segment's manifest."""
    return _MANIFEST.fullmatch(key) is not None


Refuse = Callable[[str, SeglakeError], object]
"""A function that is called with a topic and an error of this topic."""


def _raise(_topic: str, error: SeglakeError) -> None:
    raise error


def tiered_partitions(
    store: Store, sizes: Mapping[str, int], topics: Collection[str] | None, refuse: Refuse = _raise
) -> list[TieredPartition]:
    """Return the partitions of `topics`, or of all topics, from the object sizes by key.

    Segments without a manifest or without a log are left out, because their copy or deletion has
    not ended. Raises StoreError. `refuse` is called with a topic and its error: InputError for an
    unsupported segment, CorruptData for a damaged manifest. If it does not raise the error,
    partitions of the topic may be missing.
    """
    keys = [key for key in sizes if is_manifest(key) and _log_key(key) in sizes]
    chosen = [key for key in keys if topics is None or _may_be_of(key, topics)]
    places = defaultdict[tuple[str, str, int], list[RemoteLog]](list)
    for log in _remote_logs(store, chosen, topics, refuse):
        places[log.place].append(log)
    unfinished, partitions = sorted({*filter(is_manifest, sizes)} - {*keys}), []
    for (topic, *_), logs in sorted(places.items()):
        try:
            partitions.append(_partition(store, logs, unfinished))
        except InputError as error:
            refuse(topic, error)
    return partitions


def _remote_logs(
    store: Store, keys: Sequence[str], topics: Collection[str] | None, refuse: Refuse
) -> Iterator[RemoteLog]:
    """Read the manifests, and yield the logs of these topics. Pass errors to `refuse`."""
    with ThreadPoolExecutor(_REQUESTS) as workers:
        read = list(workers.map(lambda key: bytes(store.read_all(key)), keys))
    names, damaged = dict[str, str](), list[tuple[str, SeglakeError]]()
    for key, data in zip(keys, read, strict=True):
        try:
            log = parse_manifest(data, key, f"{store.uri}/{key}")
        except (CorruptData, InputError) as error:
            damaged.append((key, error))
            continue
        names[_topic_folder(key)] = log.place[0]
        if topics is None or log.place[0] in topics:
            yield log
    for key, problem in damaged:
        topic = names.get(_topic_folder(key), _topic_folder(key)[:-_ID_LENGTH])
        if topics is None or topic in topics or _topic_folder(key) not in names:
            refuse(topic, problem)


def _topic_folder(key: str) -> str:
    """Return the folder name, "<prefix><topic>-<topic id>", in a key, or "" if it has no folder."""
    return key.split("/")[-3] if key.count("/") > 1 else ""


def _log_key(manifest: str) -> str:
    return f"{manifest.removesuffix('.rsm-manifest')}.log"


def _may_be_of(key: str, topics: Collection[str]) -> bool:
    """Return whether a key may belong to one of these topics. Keys may begin with a prefix."""
    folder = _topic_folder(key)
    return not folder or folder[:-_ID_LENGTH].endswith((*topics,))


def parse_manifest(data: bytes, key: str, file: str) -> RemoteLog:
    """Parse the manifest at `key`. Raises CorruptData and InputError, which name the file."""
    try:
        manifest: Mapping[str, Any] = json.loads(data)
        if manifest["version"] != _VERSION:
            raise InputError(
                f"the manifest {file} has version {manifest['version']}, but Seglake reads only "
                f"version {_VERSION}"
            )
        if manifest.get("encryption") is not None:
            raise InputError(
                f"the segment of {file} is encrypted, and only the broker has the key. Let a "
                f"consumer such as Kafka Connect write the records as files, and ingest those"
            )
        about = manifest["remoteLogSegmentMetadata"]
        place = about["remoteLogSegmentId"]["topicIdPartition"]
        epochs = ((int(epoch), int(at)) for epoch, at in about["segmentLeaderEpochs"].items())
        log = RemoteLog(
            (place["topicPartition"]["topic"], place["topicId"],
             int(place["topicPartition"]["partition"])),
            _log_key(key), int(about["startOffset"]), int(about["endOffset"]) + 1,
            tuple(sorted(epochs)), _chunks(manifest, file),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, zstandard.ZstdError) as error:
        raise CorruptData(f"this is not the manifest of a segment: {error!r}", file=file) from error
    _check(log, file)
    return log


def _check(log: RemoteLog, file: str) -> None:
    """Raise CorruptData if values in a manifest are impossible."""
    topic, topic_id, partition = log.place
    firsts = [at for _, at in log.epochs]
    if not is_topic_name(topic) or not is_topic_id(topic_id) or not 0 <= partition <= INT32_MAX:
        raise CorruptData(f"{topic!r}, {topic_id!r}, {partition} is not a partition", file=file)
    if not 0 <= log.base_offset < log.end_offset or firsts != sorted(firsts) or not firsts:
        what = f"offsets {log.base_offset} to {log.end_offset} with epochs {log.epochs}"
        raise CorruptData(f"{what} cannot belong to a segment", file=file)


def _chunks(manifest: Mapping[str, Any], file: str) -> Chunks:
    """Parse the chunks of a log. Raises InputError, ValueError, KeyError or TypeError."""
    index = manifest["chunkIndex"]
    size, chunk_bytes = int(index["originalFileSize"]), int(index["originalChunkSize"])
    if not manifest["compression"]:
        return Chunks(size).check()
    if min(size, chunk_bytes) > MAX_CHUNK_BYTES:
        raise InputError(
            f"the log of {file} is compressed in chunks of {chunk_bytes:,} bytes. Seglake reads at "
            f"most {MAX_CHUNK_BYTES:,} bytes. Let a consumer such as Kafka Connect write "
            f"the records as files, and ingest those"
        )
    if index["type"] == "variable":
        sizes = _sizes(index["transformedChunks"])
    else:
        count = -(-size // chunk_bytes)
        whole = int(index["transformedChunkSize"])
        sizes = (*(whole,) * (count - 1), int(index["finalTransformedChunkSize"]))
    return Chunks(size, chunk_bytes, sizes).check()


def _sizes(text: str) -> tuple[int, ...]:
    """Decode the sizes of chunks, in the plugin's `ChunkSizesBinaryCodec`. Raises ValueError.

    count i32 | smallest i32 | width i8 | all but the last, less the smallest | last i32
    """
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the sizes of chunks are not base64 ({error})") from error
    if not 0 <= zstandard.frame_content_size(packed) <= _MAX_INDEX_BYTES:
        raise ValueError("the index of chunks is too large")
    data = zstandard.ZstdDecompressor().decompress(packed)
    count, rest = int.from_bytes(data[:4], "big"), data[4:]
    if count < 2:
        smallest, width = 0, 0
    else:
        smallest, width, rest = int.from_bytes(rest[:4], "big"), rest[4], rest[5:]
    if width > 4 or len(rest) != max(count - 1, 0) * width + 4 * (count > 0):
        raise ValueError(f"{len(data)} bytes cannot be the sizes of {count} chunks")
    if not count:
        return ()
    digits = np.frombuffer(rest[:-4], np.uint8).reshape(count - 1, width).astype(np.int64)
    above = digits @ (256 ** np.arange(width, dtype=np.int64)[::-1])
    return (*(above + smallest).tolist(), int.from_bytes(rest[-4:], "big"))


def _partition(
    store: Store, logs: Sequence[RemoteLog], unfinished: Sequence[str]
) -> TieredPartition:
    """Return the partition that these logs form."""
    topic, topic_id, partition = logs[0].place
    chosen = choose_logs(logs)
    folder = chosen[0].key.rpartition("/")[0]
    chunks = {log.key: log.chunks for log in chosen}
    return TieredPartition(
        store=ChunkedLogs(store, chunks),
        topic=topic,
        partition=partition,
        logs=[LogFile(log.key, log.base_offset, log.chunks.log_bytes, log.end_offset)
              for log in chosen],
        skipped=[key for key in unfinished if key.rpartition("/")[0] == folder],
        topic_id=topic_id,
        log_start_offset=chosen[0].base_offset,
        high_watermark=chosen[-1].end_offset,
        recovery_point=None,
        clean=True,
        uri=f"{store.uri}/{folder}".rstrip("/"),
        chunks=chunks,
    )  # fmt: skip


def choose_logs(logs: Sequence[RemoteLog]) -> list[RemoteLog]:
    """Choose the logs that together form the log of one partition, in order.

    Each log is used up to the base offset of the next one. Records that a later leader truncated
    are not used. Raises InputError if no log has some of the offsets.
    """
    begins = _begins(logs)
    lost = {epoch for log in logs for epoch in _lost(log, begins)}
    ends = {log.key: _sound_end(log, begins, lost) for log in logs}
    sound = [log for log in logs if ends[log.key] > log.base_offset]
    order = sorted(sound, key=lambda log: (log.base_offset, -ends[log.key]))
    chosen = order[:1]
    for log in order[1:]:
        end = ends[chosen[-1].key]
        if log.base_offset > end:
            raise InputError(
                f"offsets {end} to {log.base_offset} of {log.place[0]}-{log.place[2]} are "
                f"missing between {chosen[-1].key} and {log.key}. The bucket lost a segment, or "
                f"is still being copied. Try again later, or use another copy"
            )
        if ends[log.key] > end:
            while len(chosen) > 1 and ends[chosen[-2].key] >= log.base_offset:
                chosen.pop()  # the preceding log reaches this one, too
            chosen.append(log)
    return chosen


def _begins(logs: Iterable[RemoteLog]) -> dict[int, int]:
    """Return the offset at which each leader epoch begins."""
    begins: dict[int, int] = {}
    for log in logs:
        for epoch, at in log.epochs:
            begins[epoch] = min(at, begins.get(epoch, at))
    return begins


def _lost(log: RemoteLog, begins: Mapping[int, int]) -> Iterator[int]:
    """Yield the epochs of the log whose records a later leader truncated.

    Epochs only grow along a log. So an epoch is lost if this log has records of an older epoch at
    offsets where the lost epoch had already begun, and a later epoch after these records.
    """
    ends = [*(at for _, at in log.epochs[1:]), log.end_offset]
    for (epoch, _), (later, _), end in zip(log.epochs, log.epochs[1:], ends, strict=False):
        between = (start for start in begins if epoch < start < later)
        yield from (start for start in between if begins[start] < end)


def _sound_end(log: RemoteLog, begins: Mapping[int, int], lost: Collection[int]) -> int:
    """Return the end of the records that no later leader truncated."""
    newest = max((epoch for epoch, _ in log.epochs if epoch not in lost), default=-1)
    own = [at for epoch, at in log.epochs if epoch in lost]
    later = [at for epoch, at in begins.items() if epoch > newest and epoch not in lost]
    return min([log.end_offset, *own, *later])
