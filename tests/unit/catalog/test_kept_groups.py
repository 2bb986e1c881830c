"""Offsets of consumer groups that are stored with a lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglake.catalog import groups
from seglake.catalog.groups import GroupOffset
from seglake.errors import CorruptData
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.vacuum import vacuum
from tests.makers.kept_groups import store_offsets
from tests.makers.lakes import Event, LakeMaker, open_catalog
from tests.makers.raw_events import T


@pytest.fixture
def root(tmp_path: Path) -> str:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T)]})
    return str(maker.root)


def test_a_vacuum_and_a_rebuild_keep_the_offsets_of_groups(root: str) -> None:
    table = open_catalog(root)
    store_offsets(table, "events", "g", {0: 2, 1: 0}, "m")
    (kept,) = groups.group_offsets(table.store, table.lake, "g")
    assert kept.offsets == {0: GroupOffset(2, "m"), 1: GroupOffset(0, "m")}
    assert groups.lake_offsets(table.store, "another lake at this root") == []
    assert not vacuum(root, dry_run=False, grace_hours=0).unknown
    rebuild_catalog(root, dry_run=False, force=True)
    table = open_catalog(root)
    assert groups.lake_offsets(table.store, table.lake) == [kept]


@pytest.mark.parametrize(
    "bad", [b"{", b"[]", b'{"offsets": {"0": [1, 2, 3]}}', b'{"offsets": {"0": 1}}']
)
def test_a_damaged_object_of_a_group_is_named(root: str, bad: bytes) -> None:
    table = open_catalog(root)
    key = store_offsets(table, "events", "größe/..", {0: 1})
    table.store.put(key, bad)
    with pytest.raises(CorruptData, match=key):
        groups.group_offsets(table.store, table.lake, "größe/..")
