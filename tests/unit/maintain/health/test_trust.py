"""Which manifests a rebuild of the catalog trusts: what was committed comes back, no more."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog import attempts as claims
from seglake.catalog import table as catalog_table
from seglake.catalog import transaction
from seglake.catalog.delta import delta_rs
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import CorruptData, StoreError
from seglake.layout import manifest_key, new_attempt, success_key
from seglake.maintain.health import repair
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import vacuum
from seglake.store import Store
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.observed import observe
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, segments_of, write_file


def lines(keys: int = 5) -> list[Line]:
    return [Line(T + n, f"k{n % keys}") for n in range(30)]


def run_pipeline(root: Path, run: str) -> Pipeline:
    path = write_file(root.parent / f"{run}.jsonl", lines())
    return pipeline_of(root, path)


def with_a_lost_race(root: Path) -> Path:
    """Three runs; the second had lost a race, so its segments have moved."""
    ingest(run_pipeline(root, "0"), "0")
    steps = [partial(ingest, run_pipeline(root, "1"), "1")]

    def progress(name: str) -> None:
        if name == "commit" and steps:
            steps.pop()()

    moved = ingest_files(LocalEngine(), run_pipeline(root, "2"), DeclaredRun("2"), progress)
    assert moved.rebased == 1
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return with_a_lost_race(tmp_path / "lake")


def rebuilt(root: Path) -> Any:
    """What is seen after the catalog was lost and rebuilt."""
    shutil.rmtree(root / "catalog/log")
    rebuild_catalog(str(root), dry_run=False)
    assert verify(str(root), deep=True).findings == []
    return observe(str(root))


def test_a_mark_that_storage_refuses_for_a_while__is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody runs again what ended well; without its mark a rebuild would not trust it."""
    failures, write = [StoreError("busy")] * 3, claims.mark_committed

    def busy(store: Store, attempt_id: str) -> None:
        if failures:
            raise failures.pop()
        write(store, attempt_id)

    monkeypatch.setattr(transaction, "PAUSE_S", 0)
    for module in (catalog_table, transaction):
        monkeypatch.setattr(module, "mark_committed", busy)
    ingest(run_pipeline(root, "3"), "3")
    assert not failures
    before = observe(str(root))
    assert rebuilt(root) == before


def mark(root: Path, attempt_id: str) -> None:
    path = root / success_key(attempt_id)
    path.parent.mkdir(exist_ok=True)
    path.touch()


def test_a_mark_without_a_manifest__is_named(root: Path) -> None:
    unknown = new_attempt()
    mark(root, unknown)
    findings = verify(str(root)).findings
    assert [each.file for each in findings] == [success_key(unknown)]
    with pytest.raises(CorruptData, match=f"no manifest.*{unknown}.*not trusted: none"):
        rebuild_catalog(str(root), force=True, dry_run=False)
    assert open_catalog(str(root)).snapshot().version == 3  # nothing has changed


def test_a_missing_log__names_the_attempts_that_are_not_trusted(root: Path) -> None:
    catalog = open_catalog(str(root))
    runs = {run.run_id: run.attempt_id for run in catalog.runs(catalog.snapshot(), "events")}
    (root / success_key(runs["0"])).unlink()
    last = max(segments_of(root), key=lambda row: row.base_offset)
    (root / last.key("log")).unlink()
    shutil.rmtree(root / "catalog/log")
    with pytest.raises(CorruptData, match=f"is missing.*not trusted: {runs['0']}"):
        rebuild_catalog(str(root), dry_run=False)


@pytest.mark.parametrize("step", ["_move_aside", "_check", "renumber"])
def test_a_late_write_to_the_old_catalog__does_not_stop_a_rebuild(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As on S3, where a request may arrive when its sender is gone; before or after a step."""
    before, late = observe(str(root)), [b'{"version":3,"size":1}']
    where = delta_rs if step == "renumber" else repair
    real, hint = getattr(where, step), root / "catalog/log/_delta_log/_last_checkpoint"

    def stepped(*given: Any) -> Any:
        found = real(*given) if step == "_move_aside" else None
        for content in late[:1]:
            hint.parent.mkdir(parents=True, exist_ok=True)
            hint.write_bytes(late.pop() and content)
        return real(*given) if step != "_move_aside" else found

    monkeypatch.setattr(where, step, stepped)
    assert rebuilt(root) == before


def test_attempts_that_others_build_on__need_no_mark(root: Path) -> None:
    """All but the last commit died before their marks."""
    merge(str(root), "events", everything=True)
    last = undo(str(root), "events", "1")
    marks = [
        path for path in root.glob("attempts/*/success") if path.parent.name != last.attempt_id
    ]
    for path in marks:
        path.unlink()
    before = observe(str(root))
    shutil.rmtree(root / "catalog/log")
    report = rebuild_catalog(str(root), dry_run=False)
    assert (report.untrusted, observe(str(root))) == ([], before)
    vacuum(str(root), dry_run=False, grace_hours=0, retention_hours=0)
    assert observe(str(root)) == before
    assert (root / manifest_key(last.attempt_id)).exists()
