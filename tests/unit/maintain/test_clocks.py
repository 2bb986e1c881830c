"""No command removes too early because a clock is wrong: all of them, with clocks ahead and behind.

The clock that is wrong is this machine's; that of storage, which the files of the lake have, is
right.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog.schema import MaintenanceRow
from seglake.errors import UsageError
from seglake.layout import SegmentFile, new_attempt, segment_key
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import retain
from seglake.maintain.schedule import maintain_lake
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import vacuum
from tests.harness.tiers import rest_but_today
from tests.makers.compacted import set_topic
from tests.makers.lakes import Event, LakeMaker, open_catalog
from tests.makers.raw_events import Line, ingest, pipeline_of, quarantined, read_lake, write_file

HOUR = 3_600_000
DAY = 24 * HOUR
KEPT = {
    "cleanup.policy": "compact,delete", "retention.ms": DAY, "delete.retention.ms": DAY,
    "min.cleanable.dirty.ratio": 0.0, "quarantine.retention.ms": DAY,
}  # fmt: skip
WRONG = [25 * HOUR, 40 * DAY, -25 * HOUR, -40 * DAY]


@contextlib.contextmanager
def clock_off_by(ms: int) -> Iterator[None]:
    """This machine's clock shows another time; that of storage goes on as it is."""
    real_ns, real = time.time_ns, time.time

    class Shifted(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Shifted:
            return cls.fromtimestamp(real() + ms / 1000, tz)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real_ns() + ms * 1_000_000)
        patch.setattr(time, "time", lambda: real() + ms / 1000)
        patch.setattr(dt, "datetime", Shifted)
        yield


class Lake:
    """A topic of which everything is twelve hours old, and may go twelve hours from now."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "lake"
        self.then = time.time_ns() // 1_000_000 - 12 * HOUR
        self.ingest("1", [Line(self.then, "a"), Line(self.then + 1, "b"), Line(0, broken="{")])
        set_topic(open_catalog(str(self.root)), "events", KEPT)

    def ingest(self, run_id: str, lines: list[Line]) -> None:
        path = write_file(self.folder / run_id / "in.jsonl", lines)
        ingest(pipeline_of(self.root, [path], topic={"partitions": 1}), run_id)

    def die(self, key: str) -> Path:
        """What an attempt wrote twelve hours ago, which may still run."""
        file = SegmentFile("events", 0, new_attempt(), 99, "log")
        open_catalog(str(self.root)).store.put(segment_key(file), key.encode())
        path = self.root / segment_key(file)
        os.utime(path, (self.then / 1000, self.then / 1000))
        return path

    def state(self) -> object:
        """All that an upkeep could remove, old versions and rejects included."""
        newest = seglake.open(str(self.root)).version
        versions = [seglake.open(str(self.root), at).topics() for at in range(1, newest + 1)]
        return read_lake(self.root), quarantined(self.root), _expired(self.root), versions[:2]


def _expired(root: Path) -> list[MaintenanceRow]:
    rows = seglake.open(str(root)).maintenance("events")
    return [row for row in rows if row.operation in {"retain", "expire-rejects"}]


def _erase_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match="may still run"):
        erase(root, "events", ["nobody"], vacuum=True)


COMMANDS: dict[str, Callable[[str], object]] = {
    "retain": retain,
    "compact": lambda root: compact(root, "events", force=True),
    "maintain": maintain_lake,
    "vacuum": lambda root: vacuum(root, dry_run=False),
    "erase": _erase_is_refused,
}


@pytest.mark.parametrize("off_by", WRONG)
@pytest.mark.parametrize("command", rest_but_today(COMMANDS))
def test_nothing_goes_before_its_time(tmp_path: Path, command: str, off_by: int) -> None:
    lake = Lake(tmp_path)
    running = lake.die("b")
    before = lake.state()
    with clock_off_by(off_by):
        COMMANDS[command](str(lake.root))
    assert lake.state() == before
    assert running.exists()


def test_what_is_old_goes_all_the_same(tmp_path: Path) -> None:
    """The same lake, by a right clock, once its settings keep nothing."""
    lake = Lake(tmp_path)
    running, root = lake.die("b"), str(lake.root)
    with pytest.raises(UsageError):
        erase(root, "events", ["b"])
    short = {"retention.ms": HOUR, "quarantine.retention.ms": 0}
    set_topic(open_catalog(root), "events", short)
    assert maintain_lake(root, grace_hours=6).exit_code == 0
    assert read_lake(root) == {0: []}
    assert {row.operation for row in _expired(lake.root)} == {"retain", "expire-rejects"}
    assert not running.exists()


@pytest.mark.parametrize("off_by", WRONG)
@pytest.mark.parametrize("wrong", ["first", "second"])
def test_a_tombstone_stays_for_as_long_as_it_is_to(tmp_path: Path, off_by: int, wrong: str) -> None:
    """Its horizon is set by the first compaction, and the second one may drop it."""
    maker = LakeMaker(tmp_path / "lake", settings=KEPT)
    now = time.time_ns() // 1_000_000
    maker.run({0: [Event(now, b"a", b"v"), Event(now, b"a", None), Event(now, b"b", b"w")]})
    root = str(maker.root)
    for number in ("first", "second"):
        with clock_off_by(off_by if number == wrong else 0):
            compact(root, "events", force=True)
        assert [(r.key, r.value) for r in read_lake(root)[0]] == [(b"a", None), (b"b", b"w")]
    compact(root, "events", force=True, now_ms=now + 100 * DAY)
    assert [r.key for r in read_lake(root)[0]] == [b"b"]


@pytest.mark.parametrize("off_by", WRONG)
def test_young_records_are_not_compacted(tmp_path: Path, off_by: int) -> None:
    maker = LakeMaker(tmp_path / "lake", settings={**KEPT, "min.compaction.lag.ms": DAY})
    then = time.time_ns() // 1_000_000 - 12 * HOUR
    maker.run({0: [Event(then, b"a", b"old"), Event(then, b"a", b"new")]})
    root = str(maker.root)
    for run in (lambda: compact(root, "events", force=True), lambda: maintain_lake(root)):
        with clock_off_by(off_by):
            run()
        assert [r.value for r in read_lake(root)[0]] == [b"old", b"new"]
    compact(root, "events", now_ms=then + 2 * DAY)
    assert [r.value for r in read_lake(root)[0]] == [b"new"]


def test_an_undo_asks_no_clock(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.ingest("2", [Line(lake.then, "c")])
    with clock_off_by(40 * DAY):
        assert undo(str(lake.root), "events", "2").records == 1
    assert [r.key for r in read_lake(lake.root)[0]] == [b"a", b"b"]


# Lengths of time that people give: what cannot be meant is refused, and nothing is touched.

HOPELESS = [-1.0, -0.001, math.nan, math.inf, -math.inf]
CALLS: list[Callable[..., Any]] = [
    lambda root, **hours: vacuum(root, dry_run=False, **hours),
    lambda root, **hours: seglake.erase(root, "events", [b"k"], **hours),
    seglake.maintain_lake,
]
RETENTION = (CALLS[0], "retention_hours")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake, and what a dead attempt left of a moment ago, which a grace of 0 hours removes."""
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(n, b"k") for n in range(3)]})
    left = maker.root / f"topics/events-0/{new_attempt()}/{7:020}.log"
    left.parent.mkdir()
    left.write_bytes(b"x")
    return str(maker.root)


def files(root: str) -> list[Path]:
    return sorted(Path(root).rglob("*"))


@pytest.mark.parametrize("hours", HOPELESS)
@pytest.mark.parametrize(("call", "name"), [*product(CALLS, ["grace_hours"]), RETENTION])
def test_hours_that_cannot_be_meant_are_refused(
    call: Callable[..., Any], name: str, hours: float, root: str
) -> None:
    before = files(root)
    with pytest.raises(UsageError, match=r"hours must be a number of hours, 0 or more, not"):
        call(root, **{name: hours})
    assert files(root) == before


@pytest.mark.parametrize("call", CALLS)
def test_no_grace_at_all_is_a_length_of_time(call: Callable[..., Any], root: str) -> None:
    before = files(root)
    call(root, grace_hours=0)
    assert files(root) != before
