"""The identity of a lake: given once, kept by everything that keeps the lake."""

import shutil
import uuid
from pathlib import Path

import pytest

import seglake
from seglake.errors import UsageError, VersionExpired
from seglake.maintain.health.repair import rebuild_catalog
from tests.makers.lakes import Event, LakeMaker, T


def made(root: Path, runs: int) -> LakeMaker:
    maker = LakeMaker(root)
    for _ in range(runs):
        maker.run({0: [Event(T)]})
    return maker


def identity(root: Path) -> str:
    return seglake.open(str(root)).identity


@pytest.mark.parametrize("lost", [False, True])
def test_an_identity_stays(lost: bool, tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    opened = seglake.open(str(tmp_path))
    maker.run({0: [Event(T)]})
    first = identity(tmp_path)
    assert opened.refresh().identity == first
    maker.run({0: [Event(T)]})
    if lost:
        shutil.rmtree(tmp_path / "catalog/log")
    rebuild_catalog(str(tmp_path), force=True, dry_run=False)
    assert identity(tmp_path) == first
    assert uuid.UUID(first).version == 4
    LakeMaker(tmp_path).run({0: [Event(T)]})
    assert identity(tmp_path) == first


def test_two_lakes_have_two(tmp_path: Path) -> None:
    for name in "ab":
        LakeMaker(tmp_path / name).run({0: [Event(T)]})
    assert identity(tmp_path / "a") != identity(tmp_path / "b")


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 3), (1, 30), (3, 30)])
def test_an_open_lake_never_becomes_another_one(tmp_path: Path, before: int, after: int) -> None:
    """With a checkpoint (thirty versions), delta-rs goes on with the table that is there."""
    root = tmp_path / "lake"
    made(root, before)
    lake = seglake.open(str(root))
    log, identity = lake.topic("events"), lake.identity
    shutil.rmtree(root)
    made(root, after)
    for _ in range(2):
        for act in (lake.refresh, lake.reopen):
            with pytest.raises(VersionExpired):
                act()
        for version in {*range(1, after + 1)} - {before}:
            with pytest.raises((VersionExpired, UsageError)):
                log.at(version)
        assert lake.identity == identity


def test_an_open_catalog_never_becomes_the_rebuilt_one(tmp_path: Path) -> None:
    catalog = made(tmp_path, 1).catalog
    rebuild_catalog(str(tmp_path), dry_run=False, force=True)
    newest = seglake.open(str(tmp_path)).version
    for version in (None, newest, None, newest):
        with pytest.raises(VersionExpired):
            catalog.snapshot(version)
