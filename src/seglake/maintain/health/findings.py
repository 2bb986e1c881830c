"""Findings about a lake: what is wrong, and where."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import crc32c
import numpy as np

from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import decode, with_extremes
from seglake.format.index import IndexPolicy
from seglake.format.records import join_tables
from seglake.format.segment import Sealed, rebuild
from seglake.layout import Suffix
from seglake.log.fetch import LogFetch
from seglake.log.files import LogCheck, check_crc, check_size, index_files
from seglake.log.key_index_builder import KeyIndexBuilder
from seglake.log.links import LakeLogs
from seglake.log.segment import LogSegment
from seglake.maintain.report import MaintenanceReport
from seglake.store import Store


@dataclass
class Finding(MaintenanceReport):
    """One thing that is wrong. `position` is the byte of `file` where it shows, or 0.

    `kind` is missing (there is no such object), unreadable (storage failed), damaged (bytes are not
    what they must be) or catalog (rows contradict each other; then `partition` and `base_offset`
    may be -1).
    """

    topic: str
    partition: int
    base_offset: int
    file: str
    position: int
    problem: str
    kind: Literal["missing", "unreadable", "damaged", "catalog"] = "damaged"


def finding_of(row: SegmentRow, suffix: Suffix, error: CorruptData | StoreError) -> Finding:
    """The finding for an error about one of a segment's files."""
    finding = partial(Finding, row.topic, row.partition, row.base_offset)
    if isinstance(error, CorruptData):
        file, what = error.file or row.key(suffix), error.what
        if row.external is not None and file == row.key("log") and row.external not in what:
            what = f"{what}; outside the lake this is {row.external}"
        return finding(file, error.position, what)
    kind: Any = "missing" if isinstance(error, MissingObject) else "unreadable"
    return finding(row.key(suffix), 0, str(error), kind)


def catalog_finding(topic: str, file: str, problem: str | Exception) -> Finding:
    """A finding about the catalog's own rows or files; they are unreadable if storage failed."""
    failed = isinstance(problem, StoreError) and not isinstance(problem, MissingObject)
    what = problem.what if isinstance(problem, CorruptData) else str(problem)
    return Finding(topic, -1, -1, file, 0, what, "unreadable" if failed else "catalog")


# ---------------- segment files
# One segment's files: checked, and its index files rebuilt from the log.
#
# A log is read once, a few MiB at a time. Of each batch, memory holds only a table row.

READ_BYTES = 8 * 2**20
DECODE_BYTES = 16 * 2**20  # of decompressed records at once
_LOG_COLUMNS = (  # which follow from the log
    "end_offset", "record_count", "min_timestamp", "max_timestamp", "offset_of_max_timestamp",
    "max_lateness_ms",
)  # fmt: skip


def check_segment(store: Store, row: SegmentRow, *, deep: bool) -> list[dict[str, Any]]:
    """The findings in a segment's files, as plain values.

    Without `deep`, the damaged byte is searched for in files that fail by size or checksum, and in
    no others.
    """
    if not deep and not any(file_finding(store, row, suffix) for suffix in row.suffixes):
        return []
    files: dict[Suffix, bytes] = {}
    findings: list[Finding | None] = []
    try:
        files = index_files(rebuild_index_files(store, row, row.index_policy))
    except (CorruptData, StoreError) as error:
        findings.append(finding_of(row, "log", error))
    findings += [file_finding(store, row, suffix, files.get(suffix)) for suffix in row.suffixes[1:]]
    return [finding.as_dict() for finding in findings if finding is not None]


def file_finding(
    store: Store, row: SegmentRow, suffix: Suffix, expected: bytes | None = None
) -> Finding | None:
    """The finding in one file, if any: by size and checksum, and by its bytes if `expected`."""
    files = LakeLogs(store)
    try:
        size = files.size(row.key(suffix))
        if expected is not None:
            _check_bytes(row, suffix, memoryview(files.read_all(row.key(suffix))), expected)
        check_size(row, suffix, size)
        check_crc(row, suffix, _checksum(files, row.key(suffix), size))
    except (CorruptData, StoreError) as error:
        return finding_of(row, suffix, error)
    return None


def _checksum(store: LakeLogs, key: str, size: int) -> int:
    crc = 0
    for start in range(0, size, READ_BYTES):
        crc = crc32c.crc32c(store.read(key, start, min(start + READ_BYTES, size)), crc)
    return crc


def _check_bytes(row: SegmentRow, suffix: Suffix, data: memoryview, expected: bytes) -> None:
    """Raise CorruptData at the first byte that differs from the file that the log gives."""
    if data == expected:
        return
    both = min(len(data), len(expected))
    differ = np.frombuffer(data, np.uint8, both) != np.frombuffer(expected, np.uint8, both)
    position = int(np.argmax(differ)) if differ.any() else both
    what = f"not what the log gives: {len(data)} bytes instead of {len(expected)}"
    if differ.any():
        what = f"not what the log gives: byte {data[position]}, expected {expected[position]}"
    raise CorruptData(what, file=row.key(suffix), position=position)


def rebuild_index_files(store: Store, row: SegmentRow, policy: IndexPolicy) -> Sealed:
    """The index files by `policy`, from a complete log that `row` describes.

    Raises CorruptData, with file and position, for any other log, and StoreError.
    """
    keys = KeyIndexBuilder(row.base_offset, policy) if policy.subjects else None
    sealed = rebuild(row.base_offset, checked_batches(store, row, keys), policy)
    for name in _LOG_COLUMNS:
        value, expected = getattr(sealed, name), getattr(row, name)
        if value != expected:
            what = f"{name} is {value}, the catalog says {expected}"
            raise CorruptData(what, file=row.key("log"))
    return sealed if keys is None else sealed._replace(key_index=keys.finish(row.log_bytes))


def checked_batches(
    store: Store, row: SegmentRow, keys: KeyIndexBuilder | None = None
) -> BatchTable:
    """The batch table of a log, every record checked, and added to `keys`.

    Raises as `rebuild_index_files`.
    """
    check_size(row, "log", LakeLogs(store).size(row.key("log")))
    log = LogSegment.of_row(row)
    tables, check = [np.empty(0, TABLE)], LogCheck(row)
    for chunk in LogFetch(store).chunks_of(log, log.log):
        whole = int(chunk.table["size"].sum(dtype=np.int64))
        check.add(memoryview(chunk.data)[:whole], chunk.table)
        tables += chunk.in_parts(chunk.table, DECODE_BYTES, partial(_complete, keys))
    check.check()
    table = join_tables(tables)
    table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
    return table


def _complete(keys: KeyIndexBuilder | None, table: BatchTable, payload: Payload) -> BatchTable:
    """The table of some batches, every record checked."""
    complete = with_extremes(table, decode(table, payload))
    if keys is not None:
        keys.add_payload(table, payload)
    return complete
