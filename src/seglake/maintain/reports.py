"""What maintenance found and did, for people and machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from seglake.catalog.rows import SegmentRow
from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.layout import Suffix

Progress = Callable[[int, int], None]  # bytes of log done, and bytes of log in all

_log = logging.getLogger(__name__)


def silent(_done: int, _total: int) -> None:
    """Tell nobody."""


def logged(done: int, total: int) -> None:
    """Tell the log."""
    _log.info("%d of %d bytes of log done", done, total)


@dataclass
class Told:
    """A report as plain values, and as JSON."""

    def as_dict(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)

    def as_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


@dataclass
class Finding(Told):
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
    """What went wrong with one of a segment's files."""
    place = (row.topic, row.partition, row.base_offset)
    if isinstance(error, CorruptData):
        return Finding(*place, error.file or row.key(suffix), error.position, error.what)
    kind: Any = "missing" if isinstance(error, MissingObject) else "unreadable"
    return Finding(*place, row.key(suffix), 0, str(error), kind)


@dataclass
class Verification(Told):
    """What `verify` found in one version of the lake; it is sound if `findings` is empty.

    Missing objects are findings too. `orphans` are objects that no retained version names: what
    failed or running attempts wrote. They are harmless.
    """

    version: int = -1
    deep: bool = False
    segments: int = 0
    log_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[Finding]:
        """The findings that are objects which do not exist."""
        return [finding for finding in self.findings if finding.kind == "missing"]

    @property
    def exit_code(self) -> int:
        """0 if nothing is wrong, else 1."""
        return 1 if self.findings else 0


@dataclass
class Reindexed(Told):
    """What a re-index did. `version` is that of the commit, -1 if there was nothing to commit.

    `skipped` segments changed meanwhile; `damaged` are the files that are damaged, missing or
    unreadable, so that their segments could not be indexed.
    """

    topic: str
    attempt_id: str
    version: int = -1
    segments: int = 0
    skipped: int = 0
    index_bytes_before: int = 0
    index_bytes: int = 0
    damaged: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if every segment could be indexed, else 1."""
        return 1 if self.damaged else 0


@dataclass
class Vacuumed(Told):
    """What a vacuum deleted, or would delete.

    `catalog_files` are data files of the catalog, `deleted` all other objects, `deleted_bytes` the
    size of both. `young` objects belong to attempts that may still run, `unknown` ones are not
    Seglake's; both were left alone.
    """

    dry_run: bool
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0
    catalog_files: list[str] = field(default_factory=list)
    young: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass
class Rebuilt(Told):
    """What a rebuild of the catalog did.

    `untrusted` attempts have a manifest without a mark of success: they were left out.
    """

    dry_run: bool
    backup: str = ""
    version: int = -1
    attempts: list[str] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)  # → segments
    missing: list[str] = field(default_factory=list)  # index files to make anew: none of that size
