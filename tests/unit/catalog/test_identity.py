"""The identity of a lake: given once, kept by everything that keeps the lake."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

import seglake
from seglake.catalog.table import CatalogTable
from seglake.maintain.health.repair import rebuild_catalog
from seglake.store import open_store
from tests.makers.lakes import Event, LakeMaker

T = 1_700_000_000_000


def identity(root: Path) -> str:
    return seglake.open(str(root)).identity


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_an_identity_stays(older: bool, lost: bool, tmp_path: Path) -> None:
    """Also that of a lake which had none: its next commit writes it down."""
    if older:
        CatalogTable.create_empty(open_store(str(tmp_path)), None)
        first = identity(tmp_path)
        assert uuid.UUID(first).version == 5
    maker = LakeMaker(tmp_path)
    opened = seglake.open(str(tmp_path))
    maker.run({0: [Event(T)]})
    first = first if older else identity(tmp_path)
    assert opened.refresh().identity == first
    maker.run({0: [Event(T)]})
    if lost:
        shutil.rmtree(tmp_path / "catalog/log")
    rebuild_catalog(str(tmp_path), force=True, dry_run=False)
    assert identity(tmp_path) == first
    assert (uuid.UUID(first).version == 5) == older
    LakeMaker(tmp_path).run({0: [Event(T)]})
    assert identity(tmp_path) == first


def test_two_lakes_have_two(tmp_path: Path) -> None:
    for name in "ab":
        LakeMaker(tmp_path / name).run({0: [Event(T)]})
    assert identity(tmp_path / "a") != identity(tmp_path / "b")
