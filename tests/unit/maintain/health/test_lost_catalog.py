"""Whatever happens to the catalog, a scheduled run neither begins anew nor ingests a file twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog.table import CatalogTable
from seglake.errors import SeglakeError, VersionExpired
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from tests.makers.raw_events import Line, ingest, pipeline_of, read_lake, write_file

T = 1_700_000_000_000


def _removed(root: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(root / "catalog/log")


def _half_made(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Killed once the new table is there, and empty."""
    real = CatalogTable.create_empty

    def die(*args: Any) -> Any:
        real(*args)
        raise KeyboardInterrupt

    with patch.context() as inner:
        inner.setattr(CatalogTable, "create_empty", die)
        with pytest.raises(KeyboardInterrupt):
            rebuild_catalog(str(root), force=True, dry_run=False)


def _sources_changed(root: Path, _: pytest.MonkeyPatch) -> None:
    """One letter of a path."""
    (path,) = root.glob("catalog/log/kind=source/*/*.parquet")
    data = path.read_bytes()
    assert b"a.jsonl" in data
    path.write_bytes(data.replace(b"a.jsonl", b"b.jsonl"))


@pytest.mark.parametrize("happened", [_removed, _half_made, _sources_changed])
def test_an_ingest_afterwards_fails_until_the_catalog_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    root = tmp_path / "lake"
    write_file(tmp_path / "in/a.jsonl", [Line(T + n) for n in range(40)])
    pipeline = pipeline_of(root, tmp_path / "in")
    ingest(pipeline, "1")
    before = read_lake(root)
    happened(root, monkeypatch)
    write_file(tmp_path / "in/c.jsonl", [Line(T + n) for n in range(10)])
    assert verify(str(root)).exit_code == 1
    for run_id in "23":
        with pytest.raises(SeglakeError):
            ingest(pipeline, run_id)
    rebuild_catalog(str(root), dry_run=False)
    assert read_lake(root) == before
    assert ingest(pipeline, "2").records == 10
    assert verify(str(root), deep=True).findings == []


def test_a_lake_that_is_open_does_not_go_on_in_a_rebuilt_catalog(tmp_path: Path) -> None:
    """The rebuilt catalog's first number is the next one of the old: its rows are no news."""
    write_file(tmp_path / "in/a.jsonl", [Line(T + n) for n in range(40)])
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"), "1")
    lake = seglake.open(str(tmp_path / "lake"))
    lake.refresh()
    before = lake.version
    rebuilt = rebuild_catalog(str(tmp_path / "lake"), force=True, dry_run=False)
    assert rebuilt.version == before + 1
    with pytest.raises(VersionExpired, match="created anew"):
        lake.refresh()


def test_a_late_write_of_an_old_commit_makes_a_rebuilt_catalog_no_news(tmp_path: Path) -> None:
    """Storage carries the newest commit of before out once more, when the catalog is rebuilt."""
    write_file(tmp_path / "in/a.jsonl", [Line(T + n) for n in range(40)])
    pipeline, root = pipeline_of(tmp_path / "lake", tmp_path / "in"), tmp_path / "lake"
    ingest(pipeline, "1")
    lake = seglake.open(str(root))
    lake.refresh()
    late = root / f"catalog/log/_delta_log/{lake.version:020}.json"
    content = late.read_bytes()
    rebuild_catalog(str(root), force=True, dry_run=False)
    late.write_bytes(content)
    with pytest.raises(VersionExpired, match="created anew"):
        lake.refresh()
    assert seglake.open(str(root)).topic("events").end_offsets() == {0: 14, 1: 13, 2: 13}
    write_file(tmp_path / "in/b.jsonl", [Line(T + n) for n in range(10)])
    assert ingest(pipeline, "2").records == 10
    assert verify(str(root), deep=True).findings == []
