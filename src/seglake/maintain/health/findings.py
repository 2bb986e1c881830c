"""Findings about a lake: what is wrong, and where."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.layout import Suffix
from seglake.maintain.report import MaintenanceReport


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
