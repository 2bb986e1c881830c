"""Attach logs in a bucket of Kafka's tiered storage to a lake, without a copy.

Each log is read once, to check its checksums and to write index files to the lake. The lake gets a
link instead of a copy of the log. Seglake never writes to the bucket.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import NamedTuple

from seglake.catalog.schema import SegmentRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.engine import Progress
from seglake.errors import CorruptData, InputError, SeglakeError, UsageError
from seglake.kafka.folder import PartitionFolder, is_internal
from seglake.kafka.importing import (
    ImportMethod,
    ImportResult,
    TargetLake,
    TopicIntake,
    require_single_topic,
)
from seglake.kafka.sources import (
    PartTask,
    TieredBucket,
    TieredPartition,
    errors_located,
    find_bucket,
    read_batches,
    tiered_partitions,
)
from seglake.kafka.survey import Extent
from seglake.log.links import Link
from seglake.log.writer import LogWriter, sealed_row
from seglake.maintain.commit import open_lake_store
from seglake.store import Store
from seglake.store.dry import NullSink


def attach_logs(
    root: str,
    sources: Sequence[str],
    *,
    topic: str | Collection[str] | None = None,
    name: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[ImportResult]:
    """Attach the topics in buckets of Kafka's tiered storage, each in one commit.

    A source is a folder with the objects of Aiven's plugin, on object storage or local, or a prefix
    of their keys. `topic` names one or several topics. The rest is like `import_logs`, but logs
    are not copied, and their batches are not changed. So logs with transactions are refused.

    If a topic is refused, its report has the reason, as `refused`, and other topics are attached.
    If all topics are refused, raises the reason, or a UsageError with all reasons. Raises
    InputError and UsageError for sources that are not buckets of tiered storage.

    Example:
        >>> seglake.attach_logs("lake", ["s3://bucket/tiered"], topic="orders")  # doctest: +SKIP
    """
    topics = None if topic is None else {topic} if isinstance(topic, str) else {*topic}
    with open_lake_store(root, storage_options, dry_run=dry_run) as store:
        lake = TargetLake(store, progress)
        # Read the version before the buckets are listed, or a new object would look deleted.
        before = lake.newest()
        offer = _plan_attach([find_bucket(source, storage_options) for source in sources], topics)
        require_single_topic({*offer.topics, *offer.refused}, name)
        reports = {each.topic: each for each in _attached(lake, offer, name, dry_run=dry_run)}
        gone = _gone(lake, before, offer.buckets, {name} if topics and name else topics)
    for own, uris in gone.items():
        reports.setdefault(own, ImportResult(own, dry_run=dry_run)).gone = uris
    if all(report.refused and not report.gone for report in reports.values()):
        if len(offer.refused) == 1:
            raise next(iter(offer.refused.values()))
        why = "; ".join(f"{topic}: {error}" for topic, error in sorted(offer.refused.items()))
        raise UsageError(f"no topic can be attached: {why}")
    return [reports[own] for own in sorted(reports)]


class _AttachPlan(NamedTuple):
    """The partitions of each topic in some buckets, and the errors of refused topics."""

    buckets: Sequence[TieredBucket]
    topics: dict[str, list[PartitionFolder]]
    refused: dict[str, SeglakeError]


def _plan_attach(buckets: Sequence[TieredBucket], names: Collection[str] | None) -> _AttachPlan:
    """Return the plan for the named topics, or, without names, for all except internal topics.

    Raises InputError if there is no topic.
    """
    topics, refused = defaultdict[str, list[PartitionFolder]](list), dict[str, SeglakeError]()
    for bucket in buckets:
        for part in tiered_partitions(bucket.store, bucket.sizes, names, refused.setdefault):
            topics[part.topic].append(part)
    where = ", ".join(bucket.store.uri for bucket in buckets)
    for topic in {*(names or ())} - {*topics, *refused}:
        refused[topic] = InputError(f"{where} has no topic {topic!r}. Give another --topic")
    every = {*topics, *refused} if names else {*filterfalse(is_internal, {*topics, *refused})}
    if not every:
        raise InputError(
            f"{where} has only internal topics of the broker. To attach one of them, give --topic"
        )
    reasons = {topic: error for topic, error in refused.items() if topic in every}
    return _AttachPlan(buckets, {topic: topics[topic] for topic in every - {*refused}}, reasons)


def _attached(
    lake: TargetLake, offer: _AttachPlan, name: str | None, *, dry_run: bool
) -> Iterator[ImportResult]:
    """Yield a report for each attached or refused topic. Add errors to `offer.refused`."""
    for topic, folders in sorted(offer.topics.items()):
        try:
            run = TopicIntake(lake, _ATTACH, name or topic, folders, [])
            run.survey(lake.newest())
            yield run.dry_run_report() if dry_run else run.run()
        except SeglakeError as error:
            offer.refused[topic] = error
    for topic, reason in offer.refused.items():
        yield ImportResult(name or topic, dry_run=dry_run, refused=str(reason))


def _gone(
    lake: TargetLake,
    base: Snapshot,
    buckets: Sequence[TieredBucket],
    topics: Collection[str] | None,
) -> dict[str, list[str]]:
    """Return, by topic, the URIs of objects that a version links to and the buckets lack."""
    gone = dict[str, list[str]]()
    for row in base.topics():
        views = base.partitions(row.topic)
        external = any(view.segments.details["external"].any() for view in views)
        if external and (topics is None or row.topic in topics):
            uris = [each.external or "" for each in lake.table().rows.segments(base, row.topic)]
            gone[row.topic] = [uri for uri in uris if any(_is_gone(uri, each) for each in buckets)]
    return {topic: uris for topic, uris in gone.items() if uris}


def _is_gone(uri: str, bucket: TieredBucket) -> bool:
    """Return whether the URI is in the bucket and has no object."""
    begin = f"{bucket.store.uri}/"
    mine = uri.startswith(f"{begin}{bucket.prefix}")
    return mine and uri.removeprefix(begin) not in bucket.sizes


def _require_plain(extent: Extent) -> None:
    """Raise UsageError for a log with transactions, which can only be imported."""
    if extent.unsettled is not None:
        raise UsageError(
            f"{extent.folder.path} has a transaction at offset {extent.unsettled}, and aborted "
            "records cannot be removed from an attached log. Import the topic instead: "
            "`seglake import`"
        )


def _attach_part(store: Store, task: PartTask) -> SegmentRow:
    """Write index files and the link for a part of a log. Return the segment's row.

    Raises CorruptData, with file and position, UsageError and StoreError.
    """
    folder, part = task.folder, task.part
    assert isinstance(folder, TieredPartition)  # noqa: S101  # sources are always buckets
    chunks = folder.chunks[part.log.key]
    link = Link(folder.store.uri, part.log.key, part.begin, part.log_bytes, chunks)
    with errors_located(folder):
        row = sealed_row(store, task.new, _checked(task), external=link.uri)
        store.put(row.key("log"), link.dump())
        return row


def _checked(task: PartTask) -> LogWriter:
    """Check the batches of a part, and return their table. Raises CorruptData and StoreError."""
    part, end = task.part, task.new.end_offset
    log = LogWriter(NullSink(), part.base_offset, task.new.policy)
    for batches in read_batches(task):
        log.write(batches)
    if (log.size, log.end) != (part.log_bytes, end):
        what = f"{log.size} bytes of record batches end at offset {log.end}, not {end}"
        raise CorruptData(what, file=part.log.key, position=part.stop)
    return log


_ATTACH = ImportMethod("attach", _attach_part, _require_plain)
