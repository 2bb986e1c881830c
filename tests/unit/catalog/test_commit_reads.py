"""What stands between a plan and the put of its commit: requests, and how many run at once."""

import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seglake.catalog.delta.data_files import DataFile, write_file
from seglake.catalog.schema import MaintenanceRow, Row, file_table
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change, DividedFile, Removal, divide_files
from seglake.catalog.transaction import transact_upkeep
from seglake.catalog.version.snapshot import Snapshot
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.catalog_rows import commit_rows, new_attempt, run, segment, topic
from tests.makers.lakes import create_catalog

COMMITS = 6  # so few leave their files as they are


class Noting(CountingStore):
    """A store that notes its requests up to the put of a commit, and how many reads run at once."""

    def __init__(self, root: Path, *, remote: bool = False) -> None:
        super().__init__(open_store(str(root)))
        self.remote, self.until_put = remote, 0
        self.reads, self.at_once, self._running = 0, 0, 0
        self._noting = threading.Lock()

    def read_all(self, key: str) -> Any:
        with self._noting:
            self.reads, self._running = self.reads + 1, self._running + 1
            self.at_once = max(self.at_once, self._running)
        time.sleep(0.005 if self.remote else 0)
        with self._noting:
            self._running -= 1
        return super().read_all(key)

    def put_if_absent(self, key: str, data: Any) -> bool:
        made = super().put_if_absent(key, data)
        if "/_delta_log/" in key and not self.until_put:
            self.until_put = self.counts.requests
        return made


def _grown(root: Path, attempts: int) -> None:
    """A lake whose one log has a segment of each of so many attempts."""
    catalog = create_catalog(str(root))
    cuts = [attempts * number // COMMITS for number in range(COMMITS + 1)]
    for start, end in itertools.pairwise(cuts):
        rows: list[Row] = [] if start else [topic(partitions=1)]
        for number in range(start, end):
            attempt = new_attempt()
            rows.append(segment(5 * number, 5 * number + 5, attempt_id=attempt))
            rows.append(run(str(number), attempt))
        base = catalog.snapshot()
        commit_rows(catalog, rows, base=base)


def _requests_of_a_merge(root: Path, attempts: int) -> int:
    """The requests of a commit that replaces all segments by one, from its plan to its put."""
    _grown(root, attempts)
    store, mine, planned = Noting(root), new_attempt(), list[int]()
    upkeep = MaintenanceRow(
        topic="orders", operation="merge", attempt_id=mine, started_at_ms=1, finished_at_ms=2
    )

    def plan(_: Snapshot) -> Change:
        planned.append(store.counts.requests)
        rows: list[Row] = [segment(0, 5 * attempts, attempt_id=mine), upkeep]
        return Change(rows, [(0, 5 * number) for number in range(attempts)])

    catalog = CatalogTable(store)
    transact_upkeep(catalog, "orders", mine, plan)
    assert [row.attempt_id for row in catalog.rows.segments(catalog.snapshot(), "orders")] == [mine]
    return store.until_put - planned[0]


def test_a_merge_asks_nothing_for_each_attempt_before_its_put(tmp_path: Path) -> None:
    few = _requests_of_a_merge(tmp_path / "few", 50)
    many = _requests_of_a_merge(tmp_path / "many", 400)
    assert few == many <= 15


def _files(store: Noting, count: int) -> list[DataFile]:
    """Data files of one segment each, all of which may hold any; likelier ones come first."""
    files = []
    for number in range(count):
        table = file_table([segment(number, number + 1)])
        written = write_file(store, "table", "segment", "orders", table)
        bounds = {"max_timestamp": (0, number)}
        files.append(DataFile(written.path, "segment", "orders", written.size_bytes, 1, bounds))
    return files


def _divided(store: Noting, files: list[DataFile], gone: Sequence[int]) -> list[DividedFile]:
    offsets = pa.array(gone, pa.int64())
    removal = Removal("segment", {}, len(gone), lambda rows: pc.is_in(rows["base_offset"], offsets))
    return divide_files(store, "table", files, removal)


def test_files_that_lose_rows_are_read_side_by_side(tmp_path: Path) -> None:
    store = Noting(tmp_path, remote=True)
    parts = _divided(store, _files(store, 31), range(31))
    assert [part.goes["base_offset"].to_pylist() for part in parts] == [[n] for n in range(31)]
    assert store.reads == 31
    assert store.at_once > 4


@pytest.mark.parametrize(
    ("remote", "at", "reads"), [(True, 0, 1), (True, 4, 7), (False, 0, 1), (False, 4, 5)]
)
def test_no_more_is_read_when_all_rows_are_found(
    tmp_path: Path, remote: bool, at: int, reads: int
) -> None:
    """The likeliest file comes alone; what is read at once then doubles, where that is faster."""
    store = Noting(tmp_path, remote=remote)
    (part,) = _divided(store, _files(store, 31), [at])
    assert part.goes["base_offset"].to_pylist() == [at]
    assert store.reads == reads
