"""Maintenance of merged rejects: the same goes, and the same stays, as without table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from seglake.catalog.attempts import abandon_unless_claimed
from seglake.catalog.quarantine import table
from seglake.catalog.quarantine.files import is_merged, writing_attempt
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.cli.health import vacuum as told
from seglake.layout import QUARANTINE_TABLE
from seglake.maintain import vacuum as vacuum_module
from seglake.maintain.health.verify import verify
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import VacuumResult, vacuum
from seglake.store import open_store
from tests.harness.meanwhile import before_first
from tests.makers.raw_events import quarantined
from tests.unit.maintain.erasure.test_unfinished import Lake, between_the_commits
from tests.unit.maintain.test_vacuum import age

KEYS = ("gone", "also", "kept")
DAY = 86_400


@contextmanager
def merging(fan_in: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "FAN_IN", fan_in)
        yield


class Row(NamedTuple):
    """A reject: its run, its line, and its bytes."""

    run: str
    line: int
    raw: bytes


def rejects(lake: Lake) -> list[Row]:
    return [Row(Path(each.path).parent.name, each.number, each.raw)
            for each in quarantined(lake.root)]  # fmt: skip


def stored(lake: Lake) -> list[Row]:
    """The rows of all files, whether the quarantine names them or not."""
    tables = [pq.ParquetFile(path).read() for path in parts(lake)]
    columns: Any = ([table[name].to_pylist() for name in ("source_file", "line", "raw")]
                    for table in tables)  # fmt: skip
    rows = (each for table in columns for each in zip(*table, strict=True))
    return sorted(Row(Path(path).parent.name, line, raw) for path, line, raw in rows)


def parts(lake: Lake) -> list[Path]:
    return sorted(Path(lake.root).glob(f"{QUARANTINE_TABLE}/topic=events/*.parquet"))


def sweep(lake: Lake, **options: Any) -> VacuumResult:
    return vacuum(str(lake.root), **{"dry_run": False, "grace_hours": 0} | options)


def live(lake: Lake) -> list[str]:
    return QuarantineTable(open_store(str(lake.root))).all_keys("events")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake with three runs, the rejects of two of which are in a merged file."""
    made = Lake(tmp_path)
    with merging(2):
        for _ in range(3):
            made.ingest("gone", "also", "kept")
        yield made


def test_a_merged_file__is_named_and_the_others_wait(lake: Lake) -> None:
    assert (len(live(lake)), sum(map(is_merged, live(lake)))) == (2, 1)
    assert len(parts(lake)) == 4
    assert verify(str(lake.root)).orphans == []
    assert [each for each in sweep(lake, grace_hours=24).deleted if "quarantine" in each] == []
    assert len(parts(lake)) == 4


def test_merged_files__go_after_the_grace(lake: Lake) -> None:
    for path in lake.root.rglob("*"):
        age(path, 2 * DAY)
    would = sweep(lake, grace_hours=24, dry_run=True).deleted
    deleted = sweep(lake, grace_hours=24).deleted
    assert [each for each in deleted if "quarantine" in each] == would
    assert sorted(f"{QUARANTINE_TABLE}/topic=events/{path.name}" for path in parts(lake)) == live(
        lake
    )
    assert len(rejects(lake)) == 9


def test_rejects_of_a_run_that_was_undone__leave_a_merged_file(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rejects(lake)
    undo(str(lake.root), "events", run_id="run 1")
    told(str(lake.root), dry_run=True, grace_hours=0)
    assert "1 merged file of the quarantine to remove" in capsys.readouterr().out
    would = sweep(lake, dry_run=True).rewritten
    report = sweep(lake)
    assert report.rewritten == would != []
    stay = [each for each in before if each.run != "1"]
    assert rejects(lake) == stay
    assert sweep(lake).deleted == would
    assert stored(lake) == stay
    assert sweep(lake).rewritten == []


@pytest.mark.parametrize("at", [0, -9])
def test_a_merged_file_that_is_damaged__does_not_stop_a_vacuum(lake: Lake, at: int) -> None:
    """Neither bytes of rows that are wrong, nor its abandon_unless_claimed."""
    (merged,) = filter(is_merged, live(lake))
    undo(str(lake.root), "events", run_id="run 1")
    data = bytearray((lake.root / merged).read_bytes())
    data[at] ^= 1
    (lake.root / merged).write_bytes(data)
    report = sweep(lake)
    assert report.rewritten == []
    assert report.deleted != []
    assert merged in live(lake)


def test_a_vacuum_that_drops_rejects__holds_nobody_up(lake: Lake) -> None:
    undo(str(lake.root), "events", run_id="run 1")
    sweep(lake)
    (merged,) = filter(is_merged, live(lake))
    assert abandon_unless_claimed(open_store(str(lake.root)), str(writing_attempt(merged)))
    assert lake.erase("gone").running == []


def test_an_erasure__keeps_a_merged_file_one(lake: Lake) -> None:
    (before,) = filter(is_merged, live(lake))
    lake.erase("gone", vacuum=True)
    assert not any(b"gone" in row.raw for row in stored(lake))
    (after,) = filter(is_merged, live(lake))
    assert before != after
    assert len(rejects(lake)) == 6


def test_an_erasure__deletes_what_a_vacuum_had_written_anew(lake: Lake) -> None:
    """An attempt wrote that file which never commits, and the quarantine named it until now."""
    undo(str(lake.root), "events", run_id="run 1")
    assert sweep(lake).rewritten != []
    would = lake.erase("gone", vacuum=True, dry_run=True).deleted
    assert lake.erase("gone", vacuum=True).deleted == would
    assert not any(b'"gone"' in row.raw for row in stored(lake))


def test_an_erasure__does_not_miss_what_is_merged_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = partial(lake.ingest, "kept", good=["kept"])
    before_first(monkeypatch, QuarantineTable, "replace_files", more)
    report = lake.erase("gone")
    assert report.rejects == 3
    lake.erase("nobody", vacuum=True)
    assert not any(b'"gone"' in row.raw for row in rejects(lake))
    lake.erase("gone", vacuum=True)
    assert not any(b'"gone"' in row.raw for row in stored(lake))
    assert lake.findings() == []


def test_an_erasure_that_died__is_ended_after_a_merge(lake: Lake) -> None:
    with between_the_commits():
        lake.erase("gone")
    files = live(lake)
    lake.ingest("kept", good=["kept"])
    assert not set(files) & set(live(lake))  # all of them are merged by now
    lake.erase("nobody", grace_hours=0)
    assert not any(b'"gone"' in row.raw for row in rejects(lake))
    assert lake.findings() == []


def test_a_file_that_is_named_while_a_vacuum_looks__stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge is committed after the vacuum has looked, and before its fence."""
    real, find = QuarantineTable.remove_files, vacuum_module._find

    def later(table: QuarantineTable, *given: Any) -> set[str]:
        monkeypatch.setattr(QuarantineTable, "remove_files", real)
        return real(table, *given)

    held = QuarantineTable(open_store(str(lake.root)))
    listed: Sequence[str] = live(lake)

    def found(*given: Any, **named: Any) -> Any:
        """As if the vacuum had not seen yet that the table names its files."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QuarantineTable, "retained_keys", lambda *_: set())
            return find(*given, **named)

    monkeypatch.setattr(QuarantineTable, "remove_files", later)
    monkeypatch.setattr(vacuum_module, "_find", found)
    for path in lake.root.rglob("*"):
        age(path, 2 * DAY)
    report = sweep(lake)
    assert held.all_keys("events") == listed
    assert not set(listed) & set(report.deleted)
    assert len(rejects(lake)) == 9


def test_an_erasure_that_paused_while_a_vacuum_came__writes_its_files_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vacuum deletes files that an erasure has written and not named yet, after a fence."""

    def vacuumed() -> None:
        for path in lake.root.rglob("*"):
            age(path, 2 * DAY)
        assert [each for each in sweep(lake).deleted if "quarantine" in each]

    before_first(monkeypatch, QuarantineTable, "replace_files", vacuumed)
    lake.erase("gone")
    assert len(rejects(lake)) == 6
    assert lake.findings() == []
