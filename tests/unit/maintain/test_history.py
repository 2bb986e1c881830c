"""Whoever dies between a commit and its mark, the catalog can be rebuilt from what is left."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seglake.catalog import commits
from seglake.cli.app import app
from seglake.kafka.importing import ImportResult
from seglake.layout import manifest_key, success_key
from seglake.maintain.commit import TopicReport
from seglake.maintain.health.reindex import HealthFinding, ReindexResult, reindex
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import VerifyResult, verify
from seglake.maintain.merge import MergeResult
from seglake.maintain.vacuum import vacuum
from tests.harness.killed import killed as killing
from tests.harness.observed import observe
from tests.makers.lakes import Event, LakeMaker, Shape


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """Two partitions, two runs, several segments each."""
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    for run in range(2):
        rows = [Event(1000 * run + i * 7 % 50, b"k", b"v" * 30) for i in range(60)]
        maker.run({0: rows, 1: rows[:20]}, Shape(codec="zstd", segment_bytes=500))
    return maker


def killed(patch: pytest.MonkeyPatch, act: Callable[[], Any]) -> str:
    """What is killed between its commit and its mark; returns its attempt."""
    dying: list[str] = []

    def die(_store: Any, attempt_id: str) -> None:
        dying.append(attempt_id)
        raise KeyboardInterrupt

    with patch.context() as inner, killing():
        inner.setattr(commits, "mark_committed", die)
        with pytest.raises(KeyboardInterrupt):
            act()
    return dying[0]


def reindexed(maker: LakeMaker) -> None:
    reindex(str(maker.root), "events")


def ingested(maker: LakeMaker) -> None:
    maker.run({0: [Event(7)]})


def lose_catalog(maker: LakeMaker) -> None:
    shutil.rmtree(maker.root / "catalog/log")


def marks(report: VerifyResult) -> list[str]:
    """The marks that are missing; nothing else may be found."""
    assert {each.kind for each in report.findings} <= {"missing"}
    return [each.file for each in report.findings]


def test_vacuum__marks_what_was_killed_and_keeps_its_manifest(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(maker.root)
    dead = [killed(monkeypatch, partial(act, maker)) for act in (reindexed, ingested)]
    before = observe(root)
    assert sorted(marks(verify(root))) == sorted(map(success_key, dead))
    planned = CliRunner().invoke(app, ["vacuum", root, "--dry-run", "--grace-hours", "0"])
    assert "Would write the missing success markers of 2 committed attempts" in planned.output
    assert vacuum(root, grace_hours=0, retention_hours=0, dry_run=True).marked == sorted(dead)
    assert sorted(marks(verify(root))) == sorted(map(success_key, dead))
    done = vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    assert done.marked == sorted(dead)
    report = verify(root)
    assert (report.findings, report.orphans) == ([], [])
    lose_catalog(maker)
    rebuild_catalog(root, dry_run=False)
    assert observe(root) == before


def _last_commit(maker: LakeMaker) -> None:
    max((maker.root / "catalog/log/_delta_log").glob("*.json")).write_bytes(b"{")


def _segments(maker: LakeMaker) -> None:
    for path in maker.root.glob("catalog/log/kind=segment/*/*.parquet"):
        path.write_bytes(b"")


def _everything_but_runs(maker: LakeMaker) -> None:
    """Each commit but the first lost its description, as if it was cleaned up since."""
    for path in sorted((maker.root / "catalog/log/_delta_log").glob("*.json"))[1:]:
        path.write_text(path.read_text().replace("seglake.attempt", "another.attempt"))
    _segments(maker)


@pytest.mark.parametrize("damage", [_last_commit, _segments, _everything_but_runs])
def test_a_damaged_catalog__tells_which_attempts_are_committed(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, damage: Callable[[LakeMaker], None]
) -> None:
    """The run was killed, and nobody started it again."""
    killed(monkeypatch, lambda: ingested(maker))
    maker.topic = "other"
    ingested(maker)
    before = observe(str(maker.root))
    damage(maker)
    planned = rebuild_catalog(str(maker.root), dry_run=True)
    assert planned.untrusted == []
    assert len(list(maker.root.glob("attempts/*/success"))) == len(planned.attempts) - 1
    rebuild_catalog(str(maker.root), dry_run=False)
    assert observe(str(maker.root)) == before
    assert verify(str(maker.root)).findings == []


def test_a_manifest_that_is_gone__is_found(maker: LakeMaker) -> None:
    reindexed(maker)
    table, snapshot = maker.catalog, maker.catalog.snapshot()
    (run, *_) = table.rows.runs(snapshot, "events")
    (index, *_) = {row.index_attempt_id for row in table.rows.segments(snapshot, "events")}
    gone = [manifest_key(attempt) for attempt in (run.attempt_id, index)]
    for key in gone:
        (maker.root / key).unlink()
    report = verify(str(maker.root))
    assert sorted(each.file for each in report.findings) == sorted(gone)
    assert {each.problem for each in report.findings} == {
        "the manifest of a committed attempt is missing, which a rebuild of the catalog needs"
    }
    assert report.exit_code == 1


# Rows of maintenance: what every reader of the catalog reads, and what only the caller gets.

MANY = 1000
FILES = [f"topics/events-0/{number:020}.log" for number in range(MANY)]
REPORTS: list[tuple[TopicReport, str]] = [
    (
        MergeResult("t", damaged=[HealthFinding("t", 0, 0, file, 0, "bad") for file in FILES]),
        "damaged",
    ),
    (
        ReindexResult("t", damaged=[HealthFinding("t", 0, 0, file, 0, "bad") for file in FILES]),
        "damaged",
    ),
    (ImportResult("t", notes=[f"{file} is left out" for file in FILES]), "notes"),
]


@pytest.mark.parametrize(("report", "name"), REPORTS)
def test_a_row_does_not_grow_with_the_files_of_a_report(report: TopicReport, name: str) -> None:
    told = json.loads(report.row("x").report)
    assert (told[name], told[f"{name}_more"]) == (report.as_dict()[name][:10], MANY - 10)
    assert len(report.row("x").report) < 3000
    assert len(json.loads(report.as_json())[name]) == MANY
