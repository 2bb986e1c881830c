"""What retention reads of the catalog does not grow with the log partitions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.maintain.commit import Clock
from seglake.maintain.expiry.retention import retain_topic
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.catalog_rows import new_attempt, run, segment, topic
from tests.makers.lakes import create_catalog


class Reads(CountingStore):
    def __init__(self, root: Path) -> None:
        super().__init__(open_store(str(root)))
        self.keys = list[str]()

    def read_all(self, key: str) -> Any:
        self.keys.append(key)
        return super().read_all(key)


def catalog(root: Path, partitions: int) -> None:
    """Three runs without a time in each log partition, as after an undo."""
    table = create_catalog(str(root))
    settings = json.dumps({"retention.ms": 10**15})
    for n in range(3):
        attempt = new_attempt()
        segments = [
            segment(n * 5, n * 5 + 5, partition=p, attempt_id=attempt,
                    min_timestamp=-1, max_timestamp=-1, created_at_ms=1000 * n + p)
            for p in range(partitions)
        ]  # fmt: skip
        head = [replace(topic("orders", partitions), settings=settings)] if n == 0 else []
        rows: list[Row] = [*head, *segments, run(str(n), attempt)]
        table.commit(rows, topic="orders", base=table.snapshot(), attempt_id=attempt)


@pytest.mark.parametrize("dry_run", [True, False])
def test_segments_without_a_time_are_looked_for_once(tmp_path: Path, dry_run: bool) -> None:
    counts = []
    for partitions in (2, 24):
        root = tmp_path / str(partitions)
        catalog(root, partitions)
        store = Reads(root)
        table = CatalogTable(store)
        base = table.snapshot()
        store.keys.clear()
        now_ms = 10**15 + 1000 + partitions // 2  # the first run is too old, half of the second
        report = retain_topic(table, "orders", Clock(None, now_ms), dry_run=dry_run, base=base)
        assert report.segments == partitions + partitions // 2
        assert {(m.partition, m.after) for m in report.moved} == {
            (p, 10 if p < partitions // 2 else 5) for p in range(partitions)
        }
        counts.append(sum("kind=segment" in key for key in store.keys))
    assert counts[0] == counts[1]
