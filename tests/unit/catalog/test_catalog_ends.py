"""What a commit that only appends reads of a topic: the ends of its logs, not its history."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from seglake.catalog.delta import file_merges
from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.schema import PartitionRow, Row
from seglake.catalog.table import CatalogTable
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CommitConflict, CorruptData
from seglake.layout import LOG_TABLE
from seglake.store import open_store
from seglake.write.driver.topics import append_time
from tests.harness.counting import CountingStore
from tests.harness.tiers import rest_but
from tests.makers.catalog_rows import commit_rows, new_attempt, run, segment, topic
from tests.makers.lakes import create_catalog, open_catalog

COMMITS, PARTITIONS = 60, 3


@pytest.fixture(autouse=True)
def _small_final_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_merges, "ENOUGH_ROWS", 16)


def _append(catalog: CatalogTable, base: Snapshot, partitions: list[int], **more: Any) -> int:
    """Commit a segment of five records to some log partitions."""
    attempt = new_attempt()
    known = base.find_topic("orders") is not None
    rows: list[Row] = [] if known else [topic(partitions=PARTITIONS)]
    for number in partitions:
        end = base.partition("orders", number).end_offset if known else 0
        rows.append(segment(end, end + 5, partition=number, attempt_id=attempt, **more))
    rows.append(run(attempt, attempt))
    return commit_rows(catalog, rows, base=base, attempt_id=attempt)


def _grown(root: Path) -> CatalogTable:
    """A lake whose last partition has got nothing for long."""
    catalog = create_catalog(str(root))
    for number in range(COMMITS):
        _append(catalog, catalog.newest_ends("orders"), [0, 1] if number > 5 else [0, 1, 2])
    return catalog


def _past(catalog: CatalogTable) -> list[DataFile]:
    return [file for file in catalog.snapshot().files if file.is_past]


def test_files_of_past_segments_are_not_read(tmp_path: Path) -> None:
    made = _grown(tmp_path)
    past = _past(made)
    assert sum(file.rows for file in past) > COMMITS
    final = [file for file in made.snapshot().files if file.rows >= file_merges.ENOUGH_ROWS]
    assert {file.kind: file.is_past for file in final} == {"segment": True, "run": False}
    store = CountingStore(open_store(str(tmp_path)))
    catalog = CatalogTable(store)
    before = store.counts.requests
    ends = catalog.newest_ends("orders")
    files = [file for file in ends.files if file.kind in ("topic", "segment")]
    assert store.counts.requests - before <= len(files) - len(past) + 2
    whole = catalog.snapshot()
    assert ends.version == whole.version
    assert ends.files == whole.files
    for view in whole.partitions("orders"):
        end = ends.partition("orders", view.partition)
        assert end.segment(0) == view.segment(len(view) - 1)
        assert (len(end), end.end_offset) == (1, view.end_offset)


def test_ends_are_refreshed_as_ends(tmp_path: Path) -> None:
    catalog = _grown(tmp_path)
    ends = catalog.newest_ends("orders")
    assert catalog.refresh(ends) is ends
    _append(catalog, ends, [0])
    newer = catalog.refresh(ends)
    assert newer.partition("orders", 0).end_offset == ends.partition("orders", 0).end_offset + 5
    assert [len(view) for view in newer.partitions("orders")] == [1, 1, 1]
    with pytest.raises(CommitConflict):
        _append(catalog, ends, [1])
    attempt = new_attempt()
    aside: list[Row] = [topic("aside"), segment(0, 1, topic="aside", attempt_id=attempt)]
    commit_rows(catalog, aside, base=newer, attempt_id=attempt)
    _append(catalog, newer, [1])
    assert catalog.snapshot().partition("orders", 1).end_offset == 5 * COMMITS + 5


def test_ends_of_a_topic_that_is_new(tmp_path: Path) -> None:
    catalog = create_catalog(str(tmp_path))
    ends = catalog.newest_ends("orders")
    assert ends.find_topic("orders") is None
    assert catalog.refresh(ends) is ends
    _append(catalog, ends, [0])
    assert catalog.refresh(ends).partition("orders", 0).end_offset == 5


def test_a_commit_that_leaves_a_hole_is_refused(tmp_path: Path) -> None:
    catalog = _grown(tmp_path)
    base, attempt = catalog.newest_ends("orders"), new_attempt()
    end = base.partition("orders", 2).end_offset
    for start in (end - 1, end + 1):
        row = segment(start, end + 5, partition=2, attempt_id=attempt)
        with pytest.raises(CorruptData, match=r"orders-2: (no|two) segments? covers? offsets"):
            commit_rows(catalog, [row], base=base, attempt_id=attempt)


@pytest.mark.rest
def test_a_log_whose_records_are_all_gone_goes_on_at_its_end(tmp_path: Path) -> None:
    catalog, attempt = _grown(tmp_path), new_attempt()
    base = catalog.snapshot()
    view = base.partition("orders", 0)
    gone = [(0, view.segment(number).base_offset) for number in range(len(view))]
    row = PartitionRow(
        topic="orders", partition=0, sequence=1,
        log_start_offset=view.end_offset, next_offset=view.end_offset,
    )  # fmt: skip
    upkeep = run("gone", attempt)
    commit_rows(catalog, [row, upkeep], base=base, attempt_id=attempt, replaced=gone)
    ends = catalog.newest_ends("orders")
    assert (len(ends.partition("orders", 0)), ends.partition("orders", 0).sequence) == (0, 1)
    _append(catalog, ends, [0])
    after = catalog.snapshot().partition("orders", 0)
    assert (after.log_start_offset, after.end_offset) == (view.end_offset, view.end_offset + 5)


@pytest.mark.parametrize("kind", rest_but(["LogAppendTime", "CreateTime"], "LogAppendTime"))
def test_append_time_follows_all_segments(tmp_path: Path, kind: str) -> None:
    """Also those that are not read, or are not the last of their log partition."""
    catalog = create_catalog(str(tmp_path))
    settings = replace(topic(partitions=PARTITIONS), timestamp_type=kind)
    first, attempt = segment(0, 5, max_timestamp=10_000), new_attempt()
    commit_rows(catalog, [settings, first], attempt_id=attempt)
    for number in range(COMMITS):
        ends = catalog.newest_ends("orders")
        if kind == "LogAppendTime":
            assert append_time(ends, "orders", 5) == 10_000
        _append(catalog, ends, [0, 1], max_timestamp=9_000 - number)
    assert append_time(catalog.snapshot(), "orders", 5) == 10_000
    assert append_time(catalog.newest_ends("orders"), "orders", 20_000) == 20_000
    assert _past(catalog)


@pytest.mark.rest
def test_rows_of_another_writer_are_read(tmp_path: Path) -> None:
    """An engine that merges the files gives them names of its own."""
    catalog = _grown(tmp_path)
    before = catalog.newest_ends("orders")
    DeltaTable(f"{tmp_path}/{LOG_TABLE}").optimize.compact()
    catalog = open_catalog(str(tmp_path))
    assert not _past(catalog)
    after = catalog.newest_ends("orders")
    for view in before.partitions("orders"):
        assert after.partition("orders", view.partition).end_offset == view.end_offset


@pytest.mark.rest
def test_segments_without_a_topic_are_damage(tmp_path: Path) -> None:
    catalog = _grown(tmp_path)
    version, files = catalog.snapshot().version, catalog.snapshot().files
    left = frozenset(file for file in files if file.kind != "topic")
    with pytest.raises(CorruptData, match="'orders' is not in version"):
        snapshot_files.load_ends(catalog.store, version, left, "orders")


def test_names_say_which_files_are_past() -> None:
    name, other = "past-7c9e6679-7425-40de-944b-e07fc1f90ae7-0a1b2c3d", "part-0000-c000.snappy"
    place = "kind=segment/topic=past-t"
    files = {
        f"{place}/{name}.parquet": True,
        f"{place}/{name.removeprefix('past-')}.parquet": False,
        f"{place}/past-{other}.parquet": False,
    }
    found = {path: DataFile(path, "segment", "past-t", 1, 1).is_past for path in files}
    assert found == files
    assert not DataFile(f"{place}/{name}.parquet", "run", "past-t", 1, 1).is_past
