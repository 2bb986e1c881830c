"""A command that finds nothing to do needs no right to write, and writes nothing."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import seglake
from seglake.errors import StoreError
from seglake.layout import SegmentFile, new_attempt, segment_key
from seglake.maintain.compaction.compact import compact
from seglake.maintain.expiry.retention import retain
from seglake.maintain.merge import merge
from seglake.maintain.schedule import maintain_lake
from seglake.maintain.vacuum import vacuum
from seglake.store.local import _LocalStore
from tests.makers.compacted import set_topic
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, ingest, pipeline_of, read_lake, write_file

DAY = 86_400_000
KEPT = {"cleanup.policy": "compact,delete", "retention.ms": DAY, "quarantine.retention.ms": DAY}
WRITES = ("put", "put_if_absent", "writer", "delete")
COMMANDS: dict[str, Callable[[str], Any]] = {
    "retain": retain,
    "compact": lambda root: compact(root, "events"),
    "merge": lambda root: merge(root, "events"),
    "delete-records": lambda root: seglake.delete_records(root, "events", {0: 0}),
    "delete-records before": lambda root: seglake.delete_records(root, "events", before_time=5),
    "alter": lambda root: seglake.alter(root, "events", {"retention.ms": DAY}),
    "vacuum": lambda root: vacuum(root, dry_run=False),
    "maintain": maintain_lake,
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake of which nothing is due: young records, a young reject, all of it compacted."""
    now = time.time_ns() // 1_000_000
    path = write_file(tmp_path / "a.jsonl", [Line(now, "a"), Line(now, "b"), Line(0, broken="{")])
    root = tmp_path / "lake"
    ingest(pipeline_of(root, path, topic={"partitions": 1}))
    set_topic(open_catalog(str(root)), "events", KEPT)
    compact(str(root), "events", force=True)
    return str(root)


def without_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store of this process may write."""

    def refused(store: _LocalStore, *_given: object, **_named: object) -> NoReturn:
        raise StoreError(f"{store.uri}: permission denied")

    for name in WRITES:
        monkeypatch.setattr(_LocalStore, name, refused)


def state(root: str) -> dict[Path, int]:
    """When each file, and each folder's list of files, last changed."""
    return {path: path.lstat().st_mtime_ns for path in [Path(root), *Path(root).rglob("*")]}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_to_do_needs_no_right_to_write(
    root: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    before = state(root)
    without_rights(monkeypatch)
    done = COMMANDS[command](root)
    if command == "maintain":
        assert [part.error for part in done.parts] == [None] * len(done.parts)
    assert state(root) == before


@pytest.mark.parametrize(
    ("command", "settings"),
    [("retain", {"retention.ms": 0}), ("compact", {"min.cleanable.dirty.ratio": 0.0})],
)
def test_something_to_do_needs_it(
    root: str, monkeypatch: pytest.MonkeyPatch, command: str, settings: dict[str, Any]
) -> None:
    path = write_file(Path(root).parent / "b.jsonl", [Line(time.time_ns() // 1_000_000 - 9, "a")])
    ingest(pipeline_of(root, path, topic={"partitions": 1}), "2")
    set_topic(open_catalog(root), "events", settings)
    before = read_lake(root)
    with monkeypatch.context() as patched:
        without_rights(patched)
        with pytest.raises(StoreError, match="permission denied"):
            COMMANDS[command](root)
    assert read_lake(root) == before
    COMMANDS[command](root)
    assert read_lake(root) != before


def test_a_vacuum_with_something_to_do_needs_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(root) / segment_key(SegmentFile("events", 0, new_attempt(), 99, "log"))
    file.parent.mkdir()
    file.touch()
    os.utime(file, (1e9, 1e9))
    without_rights(monkeypatch)
    with pytest.raises(StoreError, match="permission denied"):
        vacuum(root, dry_run=False)
    assert file.exists()
