"""Readers that are open while an erasure deletes what they read: they let go of it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog import deletions
from seglake.catalog.deletions import DeletionMonitor, notify_readers
from seglake.errors import StoreError, VersionExpired
from seglake.maintain.erasure.erase import erase
from seglake.read.log import Log
from seglake.store import open_store
from tests.harness.lake_server import Wire, serving, until
from tests.makers.fetches import Wanted, fetch
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.served import time_name

WINDOW = f"events.{time_name(T)}.{time_name(T + 60)}"
SECRET = b"secret of the erased"


def made(root: Path) -> tuple[LakeMaker, int]:
    maker = LakeMaker(root)
    rows = [Event(T + i, b"gone" if i % 7 == 0 else b"k", SECRET if i % 7 == 0 else b"v")
            for i in range(100)]  # fmt: skip
    return maker, maker.run({0: rows}, Shape(batch_bytes=300))


def open_deleted(root: Path) -> int:
    """How many deleted files below a folder this process holds open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            target = str(each.readlink())
        except OSError:
            continue
        found += target.startswith(str(root)) and target.endswith(" (deleted)")
    return found


def erased(root: Path) -> None:
    assert erase(str(root), "events", [b"gone"], vacuum=True, grace_hours=0).deleted


def test_a_server_sends_no_erased_record(tmp_path: Path) -> None:
    _, version = made(tmp_path)
    names = [f"events.v{version}", WINDOW, f"{WINDOW}.v{version}"]
    with serving(tmp_path, refresh_ms=600_000) as server, Wire(server.address) as wire:
        for name in ["events", *names]:
            (got,) = fetch(wire, name, [Wanted(0, 0)])
            assert SECRET in got.data
        erased(tmp_path)
        server.refresh()
        for name in ["events", *names]:
            (got,) = fetch(wire, name, [Wanted(0, 0)])
            assert SECRET not in got.data
            assert bool(got.data) == (name == "events")
        (got,) = fetch(wire, WINDOW, [Wanted(0, 0)])  # it is bound anew
        assert got.data
        assert SECRET not in got.data
        server.refresh()
        until(lambda: not open_deleted(tmp_path))


ASKED: dict[str, Callable[[Log], Any]] = {
    "window": lambda log: log.read_range(T, T + 60).read_all(),
    "wide window": lambda log: log.read_range(0, 2**63 - 1).read_all(),
    "record": lambda log: log.record_at(0, 7),
    "fetch": lambda log: log.read(0, 0),
}


@pytest.mark.parametrize("refreshed", [True, False])
def test_an_open_log_says_that_it_expired(
    refreshed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    if not refreshed:
        monkeypatch.setattr(deletions, "_LOCAL_S", 0.02)
    lake = seglake.open(str(tmp_path))
    log = lake.topic("events")
    for _ in range(3):  # what is read again is cached
        for ask in ASKED.values():
            ask(log)
    erased(tmp_path)
    if refreshed:
        lake.refresh()
    else:
        time.sleep(0.05)
    for ask in ASKED.values():
        with pytest.raises(VersionExpired):
            ask(log)
    assert not open_deleted(tmp_path)
    assert lake.refresh().topic("events").read_range(T, T + 60).read_all().num_rows


def test_reads_under_way_and_killed_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change is heeded twice; one that does not end, again and again."""
    store, heard = open_store(str(tmp_path)), list[int]()
    watch = DeletionMonitor(store, lambda: heard.append(1))
    watch.check()
    with notify_readers(store, ["attempts/a/blobs/1", "catalog/log/x"]):
        watch.check()
    assert not heard
    with notify_readers(store, ["topics/t/0/a/1.log"]):
        watch.check()
    for _ in range(3):
        watch.check()
    assert len(heard) == 3  # at its beginning, at its end, once more
    with pytest.raises(StoreError), notify_readers(store, ["topics/t/0/a/1.log"]):
        raise StoreError("killed")
    for _ in range(3):
        watch.check()
    assert len(heard) == 5
    monkeypatch.setattr(deletions, "_UNENDED_S", 0.0)
    for _ in range(3):
        watch.check()
    assert len(heard) == 8
