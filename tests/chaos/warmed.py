"""Imported by the process that victims are forked from, so that each finds its kernels compiled.

Whole runs are made here, all but the catalog: a fork must not inherit the threads of a Delta
library.
"""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from seglake.catalog import attempts as claims
from seglake.catalog.schema import FILE_SCHEMAS, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import EMPTY
from seglake.engine import LocalEngine
from seglake.layout import new_attempt
from seglake.store import open_store
from seglake.write.driver.commit import RebaseTask
from tests.chaos import victim
from tests.makers.raw_events import TINY, Line, T, ingest, pipeline_of, write_file

__all__ = ["victim"]


class _NoCatalog:
    """Of a lake without topics, with its rows and commits; `made` has the rows of a commit."""

    def __init__(self, store: Any) -> None:
        self.store, self.made = store, list[Any]()
        self.rows = self.commits = self

    def snapshot(self, **_: Any) -> Any:
        return EMPTY

    def newest_ends(self, _topic: str) -> Any:
        return EMPTY

    def run(self, *_: Any) -> None:
        return None

    def run_rows(self, *_: Any) -> list[Any]:
        return []

    def sources_at(self, *_: Any) -> Any:
        return FILE_SCHEMAS["source"].empty_table()

    def make(self, change: Change, *, topic: str, attempt_id: str, **_: Any) -> int:
        claims.claim(self.store, attempt_id, topic)  # else the attempt deletes what it wrote
        self.made = [*change.rows]
        return 1


def _warm(folder: Path, order: str, clock: str) -> None:
    content = [Line(T + at % 7, key) for at in range(30) for key in ("a", "b", None)]
    paths = [write_file(folder / f"in.jsonl{packing}", content) for packing in ("", ".gz")]
    settings = pipeline_of(
        folder / order, paths, order=order, task=TINY,
        topic={"message.timestamp.type": clock, "batch.size": 300, "segment.bytes": 1500},
    )  # fmt: skip
    catalog = _NoCatalog(open_store(settings.root))
    with patch.object(CatalogTable, "create", lambda *_: catalog):
        ingest(settings)
    segments = [row for row in catalog.made if isinstance(row, SegmentRow)]
    RebaseTask(catalog.store, {0: 5}, new_attempt(), T + 1).run(LocalEngine(), segments)


open_store("s3://any")  # imports what it needs, and contacts nothing
with tempfile.TemporaryDirectory() as _folder:
    for _settings in (("time", "CreateTime"), ("arrival", "LogAppendTime")):
        _warm(Path(_folder), *_settings)
