"""Whatever happens to the catalog, a scheduled run neither begins anew nor ingests a file twice."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog.table import CatalogTable
from seglake.errors import SeglakeError
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
