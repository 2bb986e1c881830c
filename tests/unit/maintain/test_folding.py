"""Old manifests are archived, then go: a rebuild, an undo and `verify` know no difference."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog import attempts as claims
from seglake.catalog.attempts import (
    Manifest,
    find_manifest,
    read_archives,
    read_manifest,
    write_manifest,
)
from seglake.catalog.schema import Row
from seglake.errors import CorruptData, MissingObject
from seglake.layout import ATTEMPTS, CHRONICLES, manifest_key, new_attempt, rejects_key, success_key
from seglake.maintain import vacuum as vacuums
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import History, verify
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import delete_objects, vacuum
from seglake.store import open_store
from tests.harness.observed import observe
from tests.makers.catalog_rows import run, segment, topic
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file

HOUR_S = 3600


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuums, "_FEW", 3)


def made(root: Path, runs: int) -> Path:
    """A lake with some runs."""
    for number in range(runs):
        path = root.parent / f"{number}.jsonl"
        if not path.exists():
            write_file(path, [Line(T + at, f"k{at}") for at in range(9)])
        ingest(pipeline_of(root, path), str(number))
    return root


def names(root: Path, name: str) -> set[str]:
    """The attempts that have an object of this name."""
    return {path.parent.name for path in (root / ATTEMPTS).glob(f"*/{name}")}


def aged(root: Path, hours: float) -> None:
    """All that is there gets older."""
    for path in [path for path in root.rglob("*") if path.is_file()]:
        before = path.stat().st_mtime - hours * HOUR_S
        os.utime(path, (before, before))


def swept(root: Path, hours: float = 25) -> Any:
    aged(root, hours)
    return vacuum(str(root), dry_run=False)


def rebuilt(root: Path) -> Any:
    shutil.rmtree(root / "catalog/log")
    rebuild_catalog(str(root), dry_run=False)
    return observe(str(root))


def test_a_lake_whose_manifests_are_folded_is_rebuilt_as_before(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 4)
    before, attempts = observe(str(root)), names(root, "manifest.json")
    assert vacuum(str(root), dry_run=False).folded == 0  # they are young
    aged(root, 25)
    assert vacuum(str(root), dry_run=True).folded == 4
    assert not (root / CHRONICLES).exists()
    assert vacuum(str(root), dry_run=False).folded == 4
    assert vacuum(str(root), dry_run=False).folded == 0  # once
    assert names(root, "manifest.json") == names(root, "success") == attempts
    report = swept(root)
    assert len(report.deleted) == 8
    assert names(root, "manifest.json") == names(root, "success") == set()
    assert verify(str(root)).findings == []
    assert observe(str(root)) == before
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert rebuilt(copy) == before
    assert verify(str(copy)).findings == []
    made(root, 6)  # two more
    assert len(names(root, "manifest.json")) == 2
    after = observe(str(root))
    assert rebuilt(root) == after


def test_the_fates_of_commits_go_when_nobody_can_ask_any_more(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 3)
    attempts = names(root, "fate")
    assert len(attempts) == 3
    swept(root)
    swept(root)
    assert names(root, "fate") == attempts
    swept(root, 31 * 24)
    assert names(root, "fate") == set()
    assert verify(str(root)).findings == []


def test_a_run_whose_manifest_is_folded_is_undone(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 3)
    swept(root)
    swept(root)
    assert undo(str(root), "events", "1").records == 9
    after = observe(str(root))
    assert verify(str(root)).findings == []
    assert rebuilt(root) == after


def test_a_repeated_command_finds_what_is_folded(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 3)
    undo(str(root), "events", "0")
    before = observe(str(root))
    swept(root)
    swept(root)
    assert undo(str(root), "events", "0").status == "already done"
    marks = names(root, "success")
    assert len(marks) == 1  # it may have lacked its mark
    assert verify(str(root)).findings == []
    assert rebuilt(root) == before
    swept(root)
    assert not names(root, "success") & marks


def test_a_vacuum_that_dies_between_manifests_and_marks_leaves_a_sound_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(tmp_path / "lake", 3)
    before = observe(str(root))
    swept(root)
    with monkeypatch.context() as patched:
        patched.setattr("seglake.maintain.vacuum.delete_objects", _dies_at(2))
        with pytest.raises(KeyboardInterrupt):
            swept(root)
    assert names(root, "manifest.json") == set()
    assert len(names(root, "success")) == 3
    assert verify(str(root)).findings == []
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert rebuilt(copy) == before
    swept(root)
    assert names(root, "success") == set()


def _dies_at(call: int) -> Callable[..., None]:
    """A deletion that works until its n-th call with keys."""
    calls = list[int]()

    def deleting(store: Any, keys: Any, *given: Any) -> None:
        calls.extend([1] * bool(keys))
        if len(calls) == call:
            raise KeyboardInterrupt
        delete_objects(store, keys, *given)

    return deleting


def test_a_manifest_that_comes_late_does_not_count(tmp_path: Path) -> None:
    """A write of an earlier try reaches storage when the chronicle is there."""
    root = made(tmp_path / "lake", 3)
    before = observe(str(root))
    attempt_id = min(names(root, "manifest.json"))
    late = (root / manifest_key(attempt_id)).read_bytes().replace(b"events", b"others")
    swept(root)
    swept(root)
    (root / manifest_key(attempt_id)).parent.mkdir(exist_ok=True)
    (root / manifest_key(attempt_id)).write_bytes(late)
    (root / success_key(attempt_id)).write_bytes(b"")
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert rebuilt(copy) == before
    assert vacuum(str(root), dry_run=False).deleted == []
    swept(root)
    assert names(root, "manifest.json") == set()


def test_a_chronicle_that_is_damaged_is_named_and_nothing_goes_for_its_sake(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 3)
    swept(root)
    (path,) = (root / CHRONICLES).iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    aged(root, 25)
    assert vacuum(str(root), dry_run=False).folded == 3  # into another one
    assert len(names(root, "manifest.json")) == 3
    (finding,) = verify(str(root)).findings
    assert finding.file == f"{CHRONICLES}/{path.name}"
    with pytest.raises(CorruptData, match="not a manifest archive"):
        rebuild_catalog(str(root), dry_run=True, force=True)


def test_a_lake_without_a_catalog_and_with_a_chronicle_is_no_new_lake(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 3)
    swept(root)
    swept(root)
    shutil.rmtree(root / ATTEMPTS)
    shutil.rmtree(root / "catalog/log")
    with pytest.raises(CorruptData, match="runs were committed to it"):
        open_catalog(str(root))


def test_a_manifest_that_cannot_be_read_stays(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 4)
    bad = min(names(root, "manifest.json"))
    (root / manifest_key(bad)).write_bytes(b"{")
    assert swept(root).folded == 3
    swept(root)
    assert names(root, "manifest.json") == names(root, "success") == {bad}


def test_the_list_of_an_erasure_that_did_not_end_stays(tmp_path: Path) -> None:
    root = made(tmp_path / "lake", 4)
    attempt_id = min(names(root, "manifest.json"))
    listed = root / rejects_key(attempt_id, 0)
    listed.write_bytes(b"{}")
    assert swept(root).folded == 3
    swept(root)
    assert names(root, "manifest.json") == names(root, "success") == {attempt_id}
    listed.unlink()
    made(root, 6)
    assert swept(root).folded == 3
    listed.write_bytes(b"{}")  # put back late
    swept(root)
    assert names(root, "manifest.json") == set()
    assert listed.exists()


manifests = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=12
)


@given(manifests, st.integers(1, 4_000))
def test_chronicles_tell_what_the_manifests_said(
    given_ones: list[tuple[int, int, bool]], most_bytes: int
) -> None:
    """Some attempts lost races, some are not marked; chronicles are cut where they are full."""
    store = open_store("memory://")
    marked = dict[str, int]()
    for number, (races, partition, is_marked) in enumerate(given_ones):
        attempt = new_attempt()
        for lost in range(races + 1):
            rows: list[Row] = [
                topic(),
                run(f"{number} {lost}", attempt),
                segment(number, number + 1, attempt_id=attempt, partition=partition),
            ]
            write_manifest(store, Manifest(attempt, rows, version=number, lake="x"), lost)
        if is_marked:
            store.put(success_key(attempt), b"")
            marked[attempt] = races
    untrusted = list[str]()
    before = History.from_store(store, (), untrusted).manifests
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(claims, "_MOST_BYTES", most_bytes)
        assert claims.write_archives(store, marked) == marked.keys()
    for attempt in marked:
        store.delete([item.key for item in store.list(f"{ATTEMPTS}/{attempt}")])
    again = list[str]()
    assert History.from_store(store, (), again).manifests == before
    assert again == untrusted
    assert read_archives(store).keys() == marked.keys()
    for attempt in marked:
        with pytest.raises(MissingObject):
            read_manifest(store, attempt)
        assert find_manifest(store, attempt, T) == before[attempt]
    with pytest.raises(MissingObject):
        find_manifest(store, new_attempt(), T)
