"""A catalog of many small commits stays as quick as it was: counted in requests, not in time."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from deltalake import DeltaTable

from seglake.catalog.delta.commit_log import CHECKPOINT_INTERVAL
from seglake.catalog.delta.file_merges import FAN_IN
from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.catalog_rows import commit_rows, new_attempt, run, segment, topic
from tests.makers.lakes import create_catalog

pytestmark = pytest.mark.slow  # hundreds of commits

COMMITS, PARTITIONS = 300, 3
READ_AHEAD = 16  # commits that a refresh looks for in vain
IDLE = 8  # requests of a commit that merges nothing, and looks for a checkpoint now and then


class Grown(NamedTuple):
    """A lake after many commits."""

    root: Path
    versions: list[int]
    requests: list[int]  # of each commit

    def counted(self) -> tuple[CatalogTable, CountingStore]:
        """Its catalog, opened by itself, and what counts its requests."""
        store = CountingStore(open_store(str(self.root)))
        catalog = CatalogTable(store)
        store.counts.requests = store.counts.bytes_read = 0
        return catalog, store


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    root = tmp_path_factory.mktemp("lake")
    create_catalog(str(root))
    lake = Grown(root, [], [])
    catalog, store = lake.counted()
    snapshot = catalog.snapshot()
    for number in range(COMMITS):
        before = store.counts.requests
        lake.versions.append(_commit(catalog, snapshot, number))
        lake.requests.append(store.counts.requests - before)
        snapshot = catalog.refresh(snapshot)
    return lake


def _commit(catalog: CatalogTable, base: Snapshot, number: int) -> int:
    attempt = new_attempt()
    rows: list[Row] = [] if number else [topic(partitions=PARTITIONS)]
    rows += [
        segment(5 * number, 5 * number + 5, partition=partition, attempt_id=attempt)
        for partition in range(PARTITIONS)
    ]
    rows += [run(f"run {number}", attempt)]
    return commit_rows(catalog, rows, base=base, attempt_id=attempt)


def _listed(snapshot: Snapshot) -> list[Any]:
    return [
        (view.partition, view.log_start_offset, [view.segment(n) for n in range(len(view))])
        for view in snapshot.partitions("orders")
    ]


def test_a_commit__costs_the_same_at_the_end(grown: Grown) -> None:
    plain = [count for count in grown.requests if count <= IDLE]
    assert len(plain) >= COMMITS * (1 - 2 / FAN_IN)
    assert len(set(plain[20:])) <= 2
    first, second = grown.requests[: COMMITS // 2], grown.requests[COMMITS // 2 :]
    assert sum(second) <= 1.2 * sum(first)
    assert sum(grown.requests) <= 12 * COMMITS


def test_an_open__reads_few_files_and_few_commits(grown: Grown) -> None:
    catalog, store = grown.counted()
    snapshot = catalog.snapshot()
    read = [file for file in snapshot.files if file.kind in ("segment", "topic", "partition")]
    assert store.counts.requests == len(read) + 1  # is it still the table that was opened?
    assert len(snapshot.files) <= 2 * 2 * FAN_IN
    log = grown.root / "catalog/log/_delta_log"
    last = json.loads((log / "_last_checkpoint").read_text())["version"]
    later = [path for path in log.glob("*.json") if int(path.stem) > last]
    assert len(later) <= 2 * CHECKPOINT_INTERVAL


def test_every_row__is_there_once(grown: Grown) -> None:
    catalog, _ = grown.counted()
    snapshot = catalog.snapshot()
    for view in snapshot.partitions("orders"):
        assert view.segments.base_offsets.tolist() == list(range(0, 5 * COMMITS, 5))
    assert sorted(row.run_id for row in catalog.rows.runs(snapshot, "orders")) == sorted(
        f"run {number}" for number in range(COMMITS)
    )
    kept = {row.attempt_id for row in catalog.rows.segments(snapshot, "orders")}
    assert kept == {row.attempt_id for row in catalog.rows.runs(snapshot, "orders")}


@pytest.mark.parametrize("number", [0, 14, 15, 16, 100, 254, 255, 256, COMMITS - 2, COMMITS - 1])
def test_a_refresh__reads_what_was_added_and_not_what_was_merged(grown: Grown, number: int) -> None:
    catalog, store = grown.counted()
    old = catalog.snapshot(grown.versions[number])
    assert old.partition("orders", 0).end_offset == 5 * number + 5
    loaded = store.counts.bytes_read
    store.counts.requests = store.counts.bytes_read = 0
    new = catalog.refresh(old)
    entries = new.version - old.version
    assert store.counts.requests <= 2 * entries + READ_AHEAD
    if entries < 10:
        assert store.counts.bytes_read < loaded / 3
    fresh = catalog.snapshot()
    assert (new.version, new.files, _listed(new)) == (fresh.version, fresh.files, _listed(fresh))
    assert catalog.refresh(new) is new


def test_every_version__is_still_what_it_was(grown: Grown) -> None:
    catalog, _ = grown.counted()
    for number in range(0, COMMITS, 37):
        snapshot = catalog.snapshot(grown.versions[number])
        for view in snapshot.partitions("orders"):
            assert view.segments.base_offsets.tolist() == list(range(0, 5 * number + 5, 5))


def test_other_readers__see_the_same_rows(grown: Grown) -> None:
    catalog, _ = grown.counted()
    expected = sorted(
        (row.partition, row.base_offset, row.attempt_id)
        for row in catalog.rows.segments(catalog.snapshot(), "orders")
    )
    table = DeltaTable(str(grown.root / "catalog/log"))
    names = ["partition", "base_offset", "attempt_id"]
    native = table.to_pyarrow_table(filters=[("kind", "=", "segment")], columns=names)
    assert sorted(zip(*native.to_pydict().values(), strict=True)) == expected
    rows = duckdb.execute(
        "SELECT partition, base_offset, attempt_id "
        "FROM read_parquet(?, hive_partitioning = true, union_by_name = true) "
        "WHERE kind = 'segment'",
        [table.file_uris()],
    ).fetchall()
    assert sorted(rows) == expected
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not list((grown.root / "catalog/log/_delta_log").glob("_sidecars/*"))
