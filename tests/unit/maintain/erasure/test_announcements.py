"""An attempt that has begun, and written nothing yet, is no secret: an erasure knows of it."""

import datetime as dt
import re
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from seglake.catalog import attempts as claims
from seglake.catalog import failed_run
from seglake.catalog.quarantine.files import read_all_rejects, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import AttemptAbandoned, QuarantineLimit, SeglakeError, UsageError
from seglake.layout import announcement_key, new_attempt, new_blobs_key
from seglake.maintain import commit
from seglake.maintain import merge as merge_module
from seglake.maintain import undo as undo_module
from seglake.maintain.compaction import compact as compact_module
from seglake.maintain.compaction import passes
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure import erase as erase_module
from seglake.maintain.erasure.erase import TopicAttempts, erase
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import replace_files, undo
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from seglake.write.driver import report as failure
from seglake.write.driver import run as run_module
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.meanwhile import before_first
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

PATIENCE_S = 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run with the key `gone`, and a reject that another setting would mend."""
    made = [*(Line(T + n, ("gone", "kept")[n % 2]) for n in range(8)), Line(T, broken='{"k":"x"}')]
    ingest(pipeline_of(tmp_path / "lake", write_file(tmp_path / "first.jsonl", made)), "first")
    return tmp_path / "lake"


def next_run(root: Path, number: int = 0, key: str = "gone", **changes: Any) -> Pipeline:
    path = write_file(root.parent / f"next-{number}.jsonl", [Line(T + n, key) for n in range(4)])
    return pipeline_of(root, path, **changes)


def keys_of(root: Path) -> set[bytes | None]:
    return {each.key for records in read_lake(root).values() for each in records}


def announcements(root: Path) -> list[Path]:
    return sorted(root.glob("attempts/*/begun"))


class Paused:
    """A run in a thread, which waits before its first task: it has written nothing."""

    def __init__(self, pipeline: Pipeline, run_id: str) -> None:
        self._begun, self._go = threading.Event(), threading.Event()
        self._run = (LocalEngine(), pipeline, DeclaredRun(run_id), self._progress)
        self._thread = threading.Thread(target=lambda: ingest_files(*self._run))
        self._thread.start()
        assert self._begun.wait(PATIENCE_S)

    def _progress(self, step: str) -> None:
        if step == "list input":
            self._begun.set()
            assert self._go.wait(PATIENCE_S)

    def end(self) -> None:
        self._go.set()
        self._thread.join(PATIENCE_S)


def refused_at(step: str, root: Path) -> Callable[[str], None]:
    """Progress that tries to erase at the first step of that name."""
    steps = [step]

    def progress(name: str) -> None:
        if name in steps:
            steps.remove(name)
            with pytest.raises(UsageError, match=r"may still run.*--wait"):
                erase(str(root), "events", ["gone"])

    return progress


def test_an_erasure_beside_a_redrive__is_refused(root: Path) -> None:
    pipeline = pipeline_of(root, [root.parent / "first.jsonl"], key={"fields": ["x"]})
    with pytest.raises(SeglakeError):  # the reject is still none of a record
        redrive(LocalEngine(), pipeline, "first", progress=refused_at("list rejects", root))
    assert announcements(root) == []


class Copier(NamedTuple):
    """A command that copies records: where it copies, where it announces itself, and its call."""

    copies: Any
    announces: Any
    call: Callable[[Path], object]


COPIERS = {
    "merge": Copier(commit, merge_module, lambda root: merge(str(root), "events", everything=True)),
    "compact": Copier(
        passes, compact_module, lambda root: compact(str(root), "events", force=True)
    ),
    "undo": Copier(commit, undo_module, lambda root: undo(str(root), "events", "a")),
    "replace": Copier(
        commit,
        run_module,
        lambda root: replace_files(LocalEngine(), next_run(root, 9, "new"), DeclaredRun("a")),
    ),
    "erase": Copier(commit, erase_module, lambda root: erase(str(root), "events", ["other"])),
}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A lake with something to copy for each: two runs in the same segments, and one more."""
    root = tmp_path / "copied"
    changes = {"topic": {"cleanup.policy": "compact,delete", "compression.type": "none"}}
    for number, keys in enumerate(["gone", "other"], 1):
        ingest(next_run(root, number, keys, **changes), "ab"[number - 1])
    merge(str(root), "events", everything=True)
    ingest(next_run(root, 3, "gone", **changes), "c")
    return root


def files_with_the_key(root: Path, key: str = "gone") -> list[Path]:
    return [each for each in root.rglob("*.log") if key.encode() in each.read_bytes()]


@pytest.mark.parametrize("name", COPIERS)
def test_an_erasure_beside_a_command_that_copies_records__is_refused(
    copied: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Before its first copy only its announcement tells of it, and the copy has the key."""
    copier, refusals = COPIERS[name], list[str]()

    def refused() -> None:
        with pytest.raises(UsageError, match=r"may still run.*--wait") as refusal:
            erase(str(copied), "events", ["gone"], vacuum=True)
        refusals.append(str(refusal.value))

    before_first(monkeypatch, copier.copies, "rewrite", refused)
    copier.call(copied)
    assert refusals
    assert announcements(copied) == []
    assert erase(str(copied), "events", ["gone"], vacuum=True).exit_code == 0
    assert files_with_the_key(copied) == []


@pytest.mark.parametrize("name", COPIERS)
def test_what_was_erased_before_an_announcement__is_not_copied(
    copied: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A command may have read a version before; once it is announced, it goes by the newest."""

    def erased_before() -> None:
        assert erase(str(copied), "events", ["gone"], vacuum=True).exit_code == 0
        assert files_with_the_key(copied) == []

    before_first(monkeypatch, COPIERS[name].announces, "announce", erased_before)
    COPIERS[name].call(copied)
    assert files_with_the_key(copied) == []


def test_an_erasure_that_waits__erases_what_comes_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next attempt has begun by then; it began behind the erasure, so nobody waits for it."""
    first, later = Paused(next_run(root), "2"), list[Paused]()
    (waited_for,) = [path.parent.name for path in announcements(root)]

    def sleep(_seconds: float) -> None:
        assert later == []
        later.append(Paused(next_run(root, 1, key="kept"), "3"))
        first.end()

    monkeypatch.setattr(
        erase_module, "time", SimpleNamespace(sleep=sleep, monotonic=count(0, 2).__next__)
    )
    done = erase(str(root), "events", ["gone"], wait=True, vacuum=True)
    assert (done.records, done.running, done.exit_code) == (8, [], 0)
    (told,) = [each.getMessage() for each in caplog.records]
    assert waited_for in told
    times = re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", told)
    since, dead_at = map(dt.datetime.fromisoformat, times)
    assert dead_at - since >= dt.timedelta(hours=24)  # the grace, if the attempt were killed
    assert keys_of(root) == {b"kept"}
    later[0].end()
    assert len([each for rows in read_lake(root).values() for each in rows]) == 8
    assert verify(str(root), deep=True).findings == []


def test_an_attempt_that_fails__withdraws(root: Path) -> None:
    with pytest.raises(SeglakeError):
        ingest(pipeline_of(root, root.parent / "no such folder"), "2")
    assert announcements(root) == []
    assert erase(str(root), "events", ["gone"]).records == 4


def test_a_dead_attempt_that_writes_while_an_erasure_deletes__leaves_no_key(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum gave it up, it was not dead, and its log came after the erasure's look."""
    table = open_catalog(str(root))
    rows = [row for row in table.rows.segments(table.snapshot(), "events") if row.record_count]
    late, dead = open_store(str(root)), new_attempt()
    claims.abandon(late, dead)
    logs_of = {row.key("log"): bytes(late.read_all(row.key("log"))) for row in rows}
    real: Any = vars(erase_module)["delete_objects"]
    deletions = list[int]()

    def delete(store: Any, keys: Any) -> None:
        real(store, keys)
        deletions.append(len(keys))
        if len(deletions) == 2:  # the first is of lists of rejects
            for row in rows:
                key = row.key("log")
                late.put(key.replace(row.attempt_id, dead), logs_of[key])

    monkeypatch.setattr(erase_module, "delete_objects", delete)
    done = erase(str(root), "events", ["gone"], vacuum=True, grace_hours=0)
    assert files_with_the_key(root) == []
    assert [key for key in done.deleted if dead in key]
    assert deletions[-1] > 0


def test_an_erasure_ends_though_attempts_end_all_the_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What committed attempts leave is no reason to look again."""
    looks, real = list[TopicAttempts](), erase_module.find_attempts

    def look_after_a_run(*given: Any) -> TopicAttempts:
        assert len(looks) < 9
        number = len(looks)
        ingest(next_run(root, number, key="kept"), f"more-{number}")
        committed = open_catalog(str(root)).rows.runs(open_catalog(str(root)).snapshot(), "events")
        open_store(str(root)).put(new_blobs_key(committed[-1].attempt_id), b"left")
        looks.append(real(*given))
        return looks[-1]

    monkeypatch.setattr(erase_module, "find_attempts", look_after_a_run)
    done = erase(str(root), "events", ["gone"], vacuum=True)
    assert files_with_the_key(root) == []
    assert looks[-1].remaining_objects
    assert done.version >= 0


def test_a_dead_announcement__is_removed_and_its_attempt_cannot_commit(root: Path) -> None:
    store, dead = open_store(str(root)), new_attempt()
    store.put(announcement_key(dead), b'{"topic": "events"}')
    with pytest.raises(UsageError, match=dead):
        erase(str(root), "events", ["gone"])
    vacuum(str(root), dry_run=False, grace_hours=0)
    assert announcements(root) == []
    assert claims.is_abandoned(store, dead)
    assert erase(str(root), "events", ["gone"]).records == 4


def test_the_announcement_of_a_committed_attempt__is_removed_when_it_is_old(root: Path) -> None:
    """Killed between the commit and its end."""
    table = open_catalog(str(root))
    (run,) = table.rows.runs(table.snapshot(), "events")
    open_store(str(root)).put(announcement_key(run.attempt_id), b'{"topic": "events"}')
    assert erase(str(root), "events", ["gone"]).records == 4
    vacuum(str(root), dry_run=False)
    assert len(announcements(root)) == 1
    vacuum(str(root), dry_run=False, grace_hours=0)
    assert announcements(root) == []
    assert verify(str(root), deep=True).findings == []


def test_an_erasure_beside_rejects_of_a_dead_attempt__can_be_done_again(root: Path) -> None:
    """Its file of the quarantine loses some rejects; the others get no new object."""
    store, dead = open_store(str(root)), new_attempt()
    table = QuarantineTable(store)
    (known,) = table.all_keys("events")
    rows = read_all_rejects(store, known)
    index = rows.column_names.index("attempt_id")
    rows = rows.set_column(index, "attempt_id", pa.array([dead] * len(rows)))
    raw = pa.array([b"gone"] * len(rows), rows["raw"].type)
    other = rows.set_column(rows.column_names.index("raw"), "raw", raw)
    written = write_rejects(store, "events", dead, pa.concat_tables([rows, other]))
    table.add_files([written], dead)
    first = erase(str(root), "events", ["gone"], grace_hours=0)
    assert (first.rejects, first.exit_code) == (1, 0)
    assert erase(str(root), "events", ["gone"]).version == -1


def samples_with(root: Path, key: bytes) -> list[Path]:
    return [path for path in root.glob("attempts/*/report.json") if key in path.read_bytes()]


def rejecting(root: Path) -> Pipeline:
    """Settings of a run with records and a reject that has a key."""
    lines = [Line(T, "kept"), Line(T, broken='{"k":"gone"}')]
    return pipeline_of(root, write_file(root.parent / "rejecting.jsonl", lines))


def test_an_attempt_that_was_given_up__leaves_no_sample_with_the_key(root: Path) -> None:
    def progress(step: str) -> None:
        if step == "list input":
            erase(str(root), "events", ["gone"], vacuum=True, grace_hours=0)

    with pytest.raises(AttemptAbandoned):
        ingest_files(LocalEngine(), rejecting(root), DeclaredRun("2"), progress)
    assert len(list(root.glob("attempts/*/report.json"))) == 1
    assert samples_with(root, b"gone") == []


def test_an_attempt_that_is_given_up_while_it_fails__leaves_no_sample_with_the_key(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sample came after the erasure's look at samples."""
    rewrite = failed_run.rewrite_failed_run
    monkeypatch.setattr(failure, "rewrite_failed_run", lambda store, failed: (
        claims.abandon(store, failed.attempt_id), rewrite(store, failed)))  # fmt: skip
    with pytest.raises(QuarantineLimit):
        ingest(rejecting(root).model_copy(update={"max_quarantine_ratio": 0.0}), "2")
    assert len(list(root.glob("attempts/*/report.json"))) == 1
    assert samples_with(root, b"gone") == []


def test_an_attempt_that_fails_before_the_last_look__leaves_no_sample_with_the_key(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not run any more at that look, so nobody is told of it."""
    looks, real = list[TopicAttempts](), erase_module.find_attempts

    def look_after_a_failure(*given: Any) -> TopicAttempts:
        if looks:
            with pytest.raises(QuarantineLimit):
                ingest(rejecting(root).model_copy(update={"max_quarantine_ratio": 0.0}), "2")
            assert samples_with(root, b"gone")
        looks.append(real(*given))
        return looks[-1]

    monkeypatch.setattr(erase_module, "find_attempts", look_after_a_failure)
    assert erase(str(root), "events", ["gone"]).exit_code == 0
    assert len(looks) == 2
    assert samples_with(root, b"gone") == []
