"""Is everything in the lake what it must be?

Files are checked by size and CRC-32C. A file that fails is looked into, so that a finding
names the byte. `deep` looks into all of them: every batch's checksum, every record decoded, offsets
in order and without a hole, and the three index files equal to those that the log gives again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.index_files import index_files
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.rows import RunRow, SegmentRow
from seglake.catalog.segment_checks import check_crc, check_size
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, StoreError, VersionExpired
from seglake.layout import SUFFIXES, Suffix
from seglake.maintain.rebuild import policy_of, rebuild_segment
from seglake.maintain.reports import Finding, Progress, Verification, finding_of, silent
from seglake.maintain.segmentwise import over_segments
from seglake.maintain.vacuum import orphans
from seglake.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_BYTES = 8 * 2**20
_IN_A_SNAPSHOT = {"segment", "topic", "partition"}  # kinds of rows; runs and sources are not


def verify(
    root: str,
    *,
    deep: bool = False,
    topics: Collection[str] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Verification:
    """Check the newest version of the lake, or of some of its topics.

    With `spark` the segments are shared out to its executors, otherwise to threads. What is wrong
    is reported, never raised: of each file the first thing. Only a catalog without damage is held
    against the quarantine and tells orphans, which are looked for unless topics are chosen. Raises
    UsageError where there is no lake, and UnknownTopic.
    """
    report = Verification(deep=deep)
    opened = _open(root, storage_options, report)
    if opened is None:
        return report
    table, snapshot = opened
    store, whole = open_store(root, storage_options), not report.findings
    names = topics or [row.topic for row in snapshot.topics()]
    _measure(report, snapshot, names)
    if whole:
        quarantine = QuarantineTable(root, storage_options)
        for name in names:
            report.findings += _check_runs(table, snapshot, quarantine, name)
    share = partial(over_segments, partial(check_segment, deep=deep), store=store, spark=spark)
    with _reporting(report):
        done = 0
        for rows in table.segment_lists(snapshot, names):
            told = partial(_told, progress, done, report.log_bytes)
            for found in share(rows, progress=told):
                report.findings += [Finding(**finding) for finding in found]
            done += sum(row.log_bytes for row in rows)
    if whole and topics is None:
        with _reporting(report):
            report.orphans = sorted(orphans(table, store))
    return report


def _open(
    root: str, storage_options: Mapping[str, str] | None, report: Verification
) -> tuple[CatalogTable, Snapshot] | None:
    """The catalog and its newest version, if it can be read; all that is wrong is reported."""
    with _reporting(report):
        table = CatalogTable.open(root, storage_options)
        damage = list(table.damage())
        for file, error in damage:
            key = f"{layout.LOG_TABLE}/{file.path}"
            report.findings.append(_catalog_finding(file.topic, key, _said(error)))
        if {file.kind for file, _ in damage}.isdisjoint(_IN_A_SNAPSHOT):
            return table, table.snapshot()
    return None


def _measure(report: Verification, snapshot: Snapshot, topics: Collection[str]) -> None:
    logs = [view.segments.details["sizes"][:, 0] for t in topics for view in snapshot.partitions(t)]
    report.version, report.segments = snapshot.version, sum(map(len, logs))
    report.log_bytes = sum(int(sizes.sum(dtype=np.int64)) for sizes in logs)


@contextmanager
def _reporting(report: Verification) -> Iterator[None]:
    """Turns an error into a finding about the catalog."""
    try:
        yield
    except (CorruptData, StoreError, VersionExpired) as error:
        file = getattr(error, "file", "") or layout.LOG_TABLE
        report.findings.append(_catalog_finding("", file, _said(error)))


def _told(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)


def _said(error: Exception) -> str:
    return error.what if isinstance(error, CorruptData) else str(error)


# the catalog's own rows


def _check_runs(
    table: CatalogTable, snapshot: Snapshot, quarantine: QuarantineTable, topic: str
) -> Iterator[Finding]:
    """Runs: each key once, rows that add up, as many quarantined rows as the run says."""
    runs = table.runs(snapshot, topic)
    keys = Counter((run.pipeline, run.run_id) for run in runs)
    for (pipeline, run_id), count in keys.items():
        if count > 1:
            what = f"run {run_id!r} of pipeline {pipeline!r} was committed {count} times"
            yield _catalog_finding(topic, layout.LOG_TABLE, what)
    kept: Counter[str] = Counter()
    try:
        for rows in quarantine.read(table, snapshot, topic):
            kept.update(dict(_counts(rows["attempt_id"])))
    except (CorruptData, StoreError) as error:
        file = getattr(error, "file", "") or layout.QUARANTINE_TABLE
        yield _catalog_finding(topic, file, _said(error))
        return
    for run in runs:
        yield from _check_counts(run, kept[run.attempt_id])


def _counts(attempts: Any) -> Iterator[tuple[str, int]]:
    for item in pc.value_counts(attempts).to_pylist():
        yield item["values"], item["counts"]


def _check_counts(run: RunRow, kept: int) -> Iterator[Finding]:
    name = f"run {run.run_id!r} of pipeline {run.pipeline!r}"
    if run.input_rows != run.records + run.quarantined:
        what = f"{name} read {run.input_rows} rows, and made {run.records} records of them"
        yield _catalog_finding(run.topic, layout.LOG_TABLE, f"{what} and {run.quarantined} rejects")
    if run.quarantined != kept:
        what = f"{name} rejected {run.quarantined} rows, the quarantine has {kept}"
        yield _catalog_finding(run.topic, layout.QUARANTINE_TABLE, what)


def _catalog_finding(topic: str, file: str, problem: str) -> Finding:
    return Finding(topic, -1, -1, file, 0, problem, "catalog")


# the files of one segment


def check_segment(store: Store, row: SegmentRow, *, deep: bool) -> list[dict[str, Any]]:
    """What is wrong with a segment's files, as the fields of findings."""
    if not deep and not any(first_look(store, row, suffix) for suffix in SUFFIXES):
        return []
    files: dict[Suffix, bytes] = {}
    findings: list[Finding | None] = []
    try:
        files = index_files(rebuild_segment(store, row, policy_of(row)))
    except (CorruptData, StoreError) as error:
        findings.append(finding_of(row, "log", error))
    findings += [first_look(store, row, suffix, files.get(suffix)) for suffix in SUFFIXES[1:]]
    return [finding.as_dict() for finding in findings if finding is not None]


def first_look(
    store: Store, row: SegmentRow, suffix: Suffix, expected: bytes | None = None
) -> Finding | None:
    """What is wrong with a file, if anything: by size and checksum, and by its bytes if known."""
    try:
        size = store.size(row.key(suffix))
        if expected is not None:
            _check_bytes(row, suffix, memoryview(store.read_all(row.key(suffix))), expected)
        check_size(row, suffix, size)
        check_crc(row, suffix, _checksum(store, row.key(suffix), size))
    except (CorruptData, StoreError) as error:
        return finding_of(row, suffix, error)
    return None


def _checksum(store: Store, key: str, size: int) -> int:
    crc = 0
    for start in range(0, size, READ_BYTES):
        crc = crc32c.crc32c(store.read(key, start, min(start + READ_BYTES, size)), crc)
    return crc


def _check_bytes(row: SegmentRow, suffix: Suffix, found: memoryview, expected: bytes) -> None:
    """Raise CorruptData at the first byte that is not what the log gives."""
    if found == expected:
        return
    both = min(len(found), len(expected))
    differ = np.frombuffer(found, np.uint8, both) != np.frombuffer(expected, np.uint8, both)
    position = int(np.argmax(differ)) if differ.any() else both
    what = f"not what the log gives: {len(found)} bytes instead of {len(expected)}"
    if differ.any():
        what = f"not what the log gives: byte {found[position]}, expected {expected[position]}"
    raise CorruptData(what, file=row.key(suffix), position=position)
