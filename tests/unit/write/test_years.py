"""Times without a year: a file that goes on after New Year is told, by check and by an ingest."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.config import Pipeline
from seglake.write.check import check
from seglake.write.map.years import Course, course_of
from tests.makers.raw_events import ingest, pipeline_of

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = {"format": "text", "pattern": r"(?P<ts>\w{3} [ \d]\d [\d:]{8}) (?P<n>\d+)"}


def write(path: Path, begin: datetime, count: int = 100) -> None:
    times = (begin + timedelta(minutes=n) for n in range(count))
    path.write_text("".join(f"{time:%b %e %H:%M:%S} {n}\n" for n, time in enumerate(times)))


def settings(tmp_path: Path, **changes: Any) -> Pipeline:
    timestamp = {"format": "%b %e %H:%M:%S", "year": 2025, "zone": "UTC"}
    return pipeline_of(
        tmp_path / "lake",
        [str(tmp_path / "in")],
        input=TEXT,
        timestamp=timestamp,
        key={"fields": ["n"]},
        **changes,
    )


@pytest.mark.parametrize("split_bytes", [1 << 20, 100])
def test_times_that_go_back_at_new_year_are_told(tmp_path: Path, split_bytes: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a", NEW_YEAR - timedelta(days=300))
    write(folder / "b", NEW_YEAR - timedelta(minutes=50))
    write(folder / "c", NEW_YEAR - timedelta(minutes=7))
    task = {"split_bytes": split_bytes, "chunk_bytes": split_bytes}
    pipeline = settings(tmp_path, task=task)
    told = (
        f"{folder}/b: times go back from 2025-12-31T23:59:00.000Z to 2025-01-01T00:00:00.000Z (and "
        "those of 1 file more): they name no year, and all get timestamp.year = 2025; ingest lines "
        "of another year from files of their own, by a pipeline with that year"
    )
    assert ingest(pipeline, "1").hints == [told]
    if split_bytes > 100:
        assert check(pipeline, 300).problems == [told]


def test_init_prints_findings_of_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begin = NEW_YEAR - timedelta(minutes=50)
    lines = (f"{begin + timedelta(minutes=n):%b %e %H:%M:%S} host app: {n}\n" for n in range(100))
    Path("messages").write_text("".join(lines))
    told = CliRunner().invoke(app, ["init", "messages"]).stdout
    assert "messages: times go back from" in told
    report = json.loads(CliRunner().invoke(app, ["init", "messages", "--force", "--json"]).stdout)
    assert any("times go back from" in problem for problem in report["problems"])


def test_times_of_several_files_may_go_back(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a", NEW_YEAR - timedelta(days=5))
    write(folder / "b", NEW_YEAR - timedelta(days=360))
    (folder / "c").write_text((folder / "a").read_text() + "Jul  5 10:00:00 7\n")
    assert ingest(settings(tmp_path), "1").hints == []


def test_the_course_of_parts_is_that_of_the_whole() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        times = random.integers(0, 1000, random.integers(0, 9))
        cuts = np.sort(random.integers(0, len(times) + 1, 2))
        joined = Course()
        for part in np.split(times, cuts):
            joined = joined.then(course_of(part))
        whole = course_of(times)
        assert joined[:2] == whole[:2]
        assert joined.from_ms - joined.to_ms == whole.from_ms - whole.to_ms
