"""Index files of existing segments written anew, by the same policy or another one.

Logs are read and never copied: the new files stand under an attempt of their own, and one commit
lets the segments' rows name them. Readers of older versions keep the files that these name. No
run row is written, since nothing was ingested: the commit carries the attempt, and the attempt's
manifest says which segments it replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from seglake import layout
from seglake.catalog.index_files import put_indexes
from seglake.catalog.manifest import mark_committed
from seglake.catalog.rows import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.errors import CommitConflict, CorruptData, StoreError
from seglake.format.index import IndexPolicy
from seglake.maintain.rebuild import policy_of, rebuild_segment
from seglake.maintain.reports import Finding, Progress, Reindexed, finding_of, silent
from seglake.maintain.segmentwise import over_segments
from seglake.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_COMMITS = 100  # tries at the catalog before giving up under contention


def reindex(
    root: str,
    topic: str,
    policy: IndexPolicy | None = None,
    *,
    spark: SparkSession | None = None,
    partitions: Collection[int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Reindexed:
    """Write the index files of a topic, or of some of its partitions, anew, in one commit.

    Without a policy each segment keeps its own, and the new files equal the old ones byte for byte.
    With `spark` the segments are shared out to its executors, otherwise to threads. A segment that
    another commit changed meanwhile is left as it is, and counted. Raises CorruptData, before
    anything is committed, if a log is damaged; UnknownTopic, StoreError and CommitConflict.
    """
    table = CatalogTable.open(root, storage_options)
    snapshot = table.snapshot()
    chosen = {snapshot.partition(topic, number).partition for number in partitions or ()}
    rows = [
        row
        for row in table.segments(snapshot, snapshot.topic(topic).topic)
        if partitions is None or row.partition in chosen
    ]
    store = open_store(root, storage_options)
    share = partial(over_segments, spark=spark, progress=progress)
    report = reindex_rows(table, store, topic, rows, policy, share)
    for finding in report.damaged[:1]:
        if finding.kind != "damaged":
            raise StoreError(finding.problem)
        raise CorruptData(finding.problem, file=finding.file, position=finding.position)
    return report


def reindex_rows(
    table: CatalogTable,
    store: Store,
    topic: str,
    rows: Sequence[SegmentRow],
    policy: IndexPolicy | None,
    share: Callable[..., list[Any]],
    *,
    leave_damaged: bool = False,
) -> Reindexed:
    """Write the index files of some segments and commit; `share` is `over_segments`, or like it.

    If a log is damaged, nothing is committed, or, with `leave_damaged`, everything else is.
    """
    report = Reindexed(topic, layout.new_attempt())
    work = partial(write_indexes, policy=policy, attempt_id=report.attempt_id)
    results = share(work, rows, store)
    report.damaged = [Finding(**result["damage"]) for result in results if "damage" in result]
    if report.damaged and not leave_damaged:
        return report
    renewed = {
        row: SegmentRow(**result["row"])
        for row, result in zip(rows, results, strict=True)
        if "row" in result
    }
    report.version, done = replace_rows(table, store, topic, renewed, report.attempt_id)
    report.segments, report.skipped = len(done), len(renewed) - len(done)
    report.index_bytes_before = sum(map(_index_bytes, done))
    report.index_bytes = sum(_index_bytes(renewed[row]) for row in done)
    return report


def write_indexes(
    store: Store, row: SegmentRow, *, policy: IndexPolicy | None, attempt_id: str
) -> dict[str, Any]:
    """Write one segment's index files under an attempt: its new row, or what ails its log."""
    policy = policy or policy_of(row)
    try:
        sealed = rebuild_segment(store, row, policy)
    except (CorruptData, StoreError) as error:
        return {"damage": finding_of(row, "log", error).as_dict()}
    renewed = replace(
        row,
        index_attempt_id=attempt_id,
        index_interval_kind=policy.by,
        index_interval=policy.interval,
    )
    renewed = replace(renewed, **put_indexes(store, renewed.key, sealed))
    return {"row": asdict(renewed)}


def replace_rows(
    table: CatalogTable,
    store: Store,
    topic: str,
    renewed: Mapping[SegmentRow, SegmentRow],
    attempt_id: str,
) -> tuple[int, list[SegmentRow]]:
    """Put new rows in place of those old ones that still stand, in one commit.

    Returns the version (-1 if none of them stands) and the rows that were replaced. The new rows
    must be those of `attempt_id`. Raises CommitConflict after many lost races, and StoreError.
    """
    for remaining in reversed(range(MAX_COMMITS)):
        base = table.snapshot()
        live = set(table.segments(base, topic))
        ours = [old for old, new in renewed.items() if new in live]
        if ours:  # a try that seemed to fail was in
            mark_committed(store, attempt_id)
            return base.version, ours
        standing = [old for old in renewed if old in live]
        if not standing:
            return -1, []
        try:
            version = table.commit(
                [renewed[old] for old in standing],
                topic=topic,
                base=base,
                attempt_id=attempt_id,
                replaced=[(old.partition, old.base_offset) for old in standing],
            )
        except (CommitConflict, StoreError):
            if not remaining:
                raise
        else:
            return version, standing
    raise AssertionError  # the last try returns or raises


def _index_bytes(row: SegmentRow) -> int:
    return row.index_bytes + row.timeindex_bytes + row.zonemap_bytes
