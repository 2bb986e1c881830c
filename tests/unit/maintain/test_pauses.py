"""A process pauses before a commit, however long: no commit names what a vacuum deletes."""

from pathlib import Path

import pytest

from seglake.catalog.quarantine.table import QuarantineTable
from seglake.maintain.erasure.erase import erase
from seglake.maintain.merge import merge
from seglake.maintain.tagging import tag
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import _Sweep, vacuum
from seglake.store import open_store
from tests.harness.meanwhile import before_first
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file

LINES = 30


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Three runs with rejects."""
    for run in range(3):
        made = [Line(T + n, f"k{n % 5}", broken=None if n % 10 else "{") for n in range(LINES)]
        path = write_file(tmp_path / f"{run}.jsonl", made)
        ingest(pipeline_of(tmp_path / "lake", path), str(run))
    return str(tmp_path / "lake")


def sweep(root: str) -> None:
    """As after a pause that is longer than all that is spared."""
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)


def assert_rejects_can_be_read(root: str) -> None:
    store = open_store(root)
    for key in QuarantineTable(store).all_keys("events"):
        store.size(key)
    assert erase(root, "events", ["nobody"], raw_containing="nothing", grace_hours=0).version == -1


def test_rejects_that_go_while_a_vacuum_deletes__stay_until_the_next(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag lets it look again; the run that was undone by then had rejects in the table."""
    tag(root, "first")
    tag(root, "first", delete=True)
    merge(root, "events", everything=True)

    def undo_and_tag() -> None:
        undo(root, "events", "2")
        tag(root, "second")

    before_first(monkeypatch, _Sweep, "_without_new_tags", undo_and_tag)
    sweep(root)
    before = QuarantineTable(open_store(root)).all_keys("events")
    assert_rejects_can_be_read(root)
    sweep(root)
    assert len(QuarantineTable(open_store(root)).all_keys("events")) < len(before)
    assert_rejects_can_be_read(root)
