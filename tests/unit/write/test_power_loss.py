"""What a loss of power would leave, by an account of what was synced and when."""

from __future__ import annotations

import os
import posix
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from seglake.catalog.delta import commit_log
from seglake.store import open_store
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file

SMALL = {"segment.bytes": 700, "batch.size": 100}


class Disk:
    """The bytes of files, and the names in folders, that a loss of power leaves."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bytes: dict[int, int] = {}  # by file: how many
        self._names: dict[int, dict[str, int]] = {}  # by folder: the files and folders by name
        self.syncs: Counter[str] = Counter()  # of folders
        self.watch: Callable[[], None] = lambda: None

    def sync(self, fd: int) -> None:
        """In place of `os.fsync`, which does nothing in tests."""
        posix.fsync(fd)
        found, path = os.fstat(fd), Path(f"/proc/self/fd/{fd}").readlink()
        if not path.is_dir():
            self._bytes[found.st_ino] = found.st_size
            return
        self._names[found.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        self.syncs[str(path)] += 1
        self.watch()

    def lost(self) -> list[str]:
        """What is there now and would not be; blobs and temporary files need not."""
        return [path for path in map(str, self._all()) if self._is_lost(Path(path))]

    def _all(self) -> Iterator[Path]:
        for path in [self._root, *self._root.rglob("*")]:
            if path.suffix != ".tmp" and "blobs" not in path.parts:
                yield path

    def _is_lost(self, path: Path) -> bool:
        found, above = path.stat(), path.parent.stat().st_ino
        named = self._names.get(above, {}).get(path.name) == found.st_ino
        return not named or (path.is_file() and self._bytes.get(found.st_ino) != found.st_size)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path / "new")
    monkeypatch.setattr(os, "fsync", made.sync)
    return made


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    made = [Line(T + n, "abcdef"[n % 6], broken=None if n % 7 else "{") for n in range(60)]
    return write_file(tmp_path / "in/a.jsonl", made)


def test_what_a_commit_names_is_on_the_disk_before_it(
    tmp_path: Path, inputs: Path, disk: Disk
) -> None:
    """All of it, up to the folder in which the lake is: nobody else made that last either."""
    lake, lost = tmp_path / "new/folder/lake", []
    commit = lake / f"catalog/log/_delta_log/{1:020}.json"
    disk.watch = lambda: lost.append(disk.lost()) if commit.exists() else None
    ingest(pipeline_of(lake, inputs, topic=SMALL))
    assert lost[0] == []  # when the name of the commit came to the disk
    assert lost[-1] == disk.lost() == []


def test_folders_are_synced_once_and_not_for_every_file(
    tmp_path: Path, inputs: Path, disk: Disk
) -> None:
    ingest(pipeline_of(tmp_path / "new", inputs, topic=SMALL))
    for folder in (tmp_path / "new/topics").iterdir():
        (attempt,) = folder.iterdir()
        assert disk.syncs[str(folder)] == 1  # for the attempt's folder
        assert disk.syncs[str(attempt)] == len(list(attempt.iterdir())) >= 8  # its files
    assert disk.syncs[str(tmp_path / "new/topics")] == 3  # partitions


def test_a_folder_that_came_back_is_synced_again(tmp_path: Path, disk: Disk) -> None:
    """Not by whom it was made: what is not durable makes folders, too."""
    store = open_store(str(tmp_path / "new"))
    store.put("attempts/a/begun", b"")
    store.delete(["attempts/a/begun"])
    with store.writer("attempts/a/0", durable=False) as stream:
        stream.write(b"a blob")
    store.put("attempts/a/success", b"")
    assert disk.lost() == [str(tmp_path / "new/attempts/a/0")]


def test_commits_go_once_the_checkpoint_is_on_the_disk(
    tmp_path: Path, inputs: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = []

    def clean_up(table: DeltaTable) -> Any:
        lost.append([path for path in disk.lost() if "checkpoint" in path])
        return real(table)

    real = DeltaTable.cleanup_metadata
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", clean_up)
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 1)
    ingest(pipeline_of(tmp_path / "new", inputs))
    assert lost[0] == []
    assert len(lost) >= 1
    assert open_catalog(str(tmp_path / "new")).snapshot().version == 1
