"""Topics of a version are read when they are asked for, and say what they say read at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, UnknownTopic, VersionExpired
from seglake.read.lake import Lake
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.harness.tiers import rest_but
from tests.makers.catalog_rows import append, drop_first
from tests.makers.lakes import create_catalog, open_catalog
from tests.makers.strategies import examples

NAMES = ["a", "b", "c", "d", "e"]


def _append(table: CatalogTable, name: str) -> None:
    """Five more records of a topic, which may be new."""
    append(table, table.snapshot(), 5, name)


def _said(snapshot: Snapshot, name: str) -> Any:
    """All that a version says of a topic."""
    row = snapshot.find_topic(name)
    views = [
        (view.log_start_offset, view.end_offset, view.sequence,
         [view.segment(at) for at in range(len(view))])
        for view in snapshot.find_partitions(name)
    ]  # fmt: skip
    return row, views


def _all(snapshot: Snapshot) -> Any:
    return snapshot.version, snapshot.names(), [_said(snapshot, name) for name in NAMES]


def _lake(root: Path, topics: int) -> str:
    table = create_catalog(str(root))
    for number in range(topics):
        _append(table, f"t-{number:03}")
    return str(root)


steps = st.one_of(
    st.tuples(st.sampled_from(["append", "append", "cut", "ask"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["refresh", "open"]), st.lists(st.sampled_from(NAMES), max_size=2)),
)


@given(st.lists(steps, max_size=14))
@examples(40)
def test_a_version_says_the_same_however_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[str, Any]]
) -> None:
    """The judge is a version that is read at once."""
    table = create_catalog(str(tmp_path_factory.mktemp("lake")))
    seen, wanted = table.snapshot(topics=()), table.snapshot()
    for step, what in done:
        if step == "append":
            _append(table, what)
        elif step == "cut":
            base = table.snapshot()
            view = base.find_partition(what, 0)
            if view is not None and len(view):
                drop_first(table, base, what)
        elif step == "ask":
            assert _said(seen, what) == _said(wanted, what)
        else:
            seen = table.refresh(seen) if step == "refresh" else table.snapshot(topics=what)
            wanted = table.snapshot()
            assert seen.names() == [row.topic for row in wanted.topics()]
    assert _all(seen) == _all(wanted)
    assert [row.topic for row in seen.topics()] == seen.names()


def _reads(root: str, names: list[str]) -> int:
    """The requests for data files, of a lake of which some topics are read."""
    store = CountingStore(open_store(root))
    lake = Lake(store)
    before = store.counts.requests
    for name in names:
        assert lake.topic(name).end_offsets() == {0: 5, 1: 0}
    return store.counts.requests - before


@pytest.mark.parametrize("topics", rest_but([8, 40], 8))
def test_one_topic_costs_the_same_in_any_lake(tmp_path: Path, topics: int) -> None:
    root = _lake(tmp_path, topics)
    assert _reads(root, ["t-003"]) == 2  # its settings, and its segments
    assert _reads(root, ["t-003", "t-000", "t-003"]) == 4
    assert _reads(root, [f"t-{number:03}" for number in range(topics)]) == 2 * topics


def test_an_open_reads_no_rows(tmp_path: Path) -> None:
    root = _lake(tmp_path, 3)
    for path in (tmp_path / "catalog/log").glob("kind=*/**/*.parquet"):
        path.write_bytes(b"")
    lake = Lake(open_store(root))
    assert lake.topics() == ["t-000", "t-001", "t-002"]
    with pytest.raises(CorruptData):
        lake.topic("t-000")
    with pytest.raises(UnknownTopic, match="Did you mean 't-001'"):
        lake.topic("t-0001")


def test_a_damaged_topic_leaves_the_others_alone(tmp_path: Path) -> None:
    root = _lake(tmp_path, 4)
    for path in (tmp_path / "catalog/log").glob("kind=segment/topic=t-002/*.parquet"):
        path.write_bytes(b"")
    lake = Lake(open_store(root))
    for name in ("t-000", "t-001", "t-003"):
        assert lake.topic(name).end_offsets() == {0: 5, 1: 0}
    with pytest.raises(CorruptData):
        lake.topic("t-002")
    with pytest.raises(CorruptData):
        open_catalog(root).snapshot()


def test_a_topic_that_a_vacuum_took_is_of_an_expired_version(tmp_path: Path) -> None:
    root = _lake(tmp_path, 2)
    lake = Lake(open_store(root))
    kept = lake.topic("t-000")
    for path in (tmp_path / "catalog/log").glob("kind=*/**/*.parquet"):
        path.unlink()
    assert lake.topic("t-000").end_offsets() == kept.end_offsets() == {0: 5, 1: 0}
    with pytest.raises(VersionExpired, match="deleted files of version 2"):
        lake.topic("t-001")


def test_many_threads_ask_at_once(tmp_path: Path) -> None:
    root, names = _lake(tmp_path, 12), [f"t-{number:03}" for number in range(12)]
    for _ in range(3):
        lake = Lake(open_store(root))
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lake.topic, names * 3))
        assert [log.end_offsets() for log in found] == [{0: 5, 1: 0}] * 36
