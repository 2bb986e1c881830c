"""Logs that rotate, as docs/files.md has it: a file under a new name is another file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seglake.errors import InputError
from seglake.maintain.undo import undo
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file


def count(lake: Path) -> int:
    return sum(map(len, read_lake(lake).values()))


def rotate(log: Path, name: str, lines: int) -> None:
    """The log gets another name, and begins anew with so many lines."""
    log.rename(log.with_name(name))
    write_file(log, [Line(T + at) for at in range(lines)])


def test_a_log_that_was_ingested_under_its_first_name_comes_twice(tmp_path: Path) -> None:
    log, lake = tmp_path / "in" / "app.log", tmp_path / "lake"
    write_file(log, [Line(T + at) for at in range(5)])
    ingest(pipeline_of(lake, log.parent), "1")
    rotate(log, "app.log.1", 2)
    with pytest.raises(InputError, match=r"app\.log changed after it was ingested"):
        ingest(pipeline_of(lake, log.parent), "2")
    ingest(pipeline_of(lake, log.parent, on_changed_source="ingest-as-new"), "2")
    assert count(lake) == 5 + 7
    undo(str(lake), "events", "2")
    assert count(lake) == 5


def test_files_whose_names_stay_come_once(tmp_path: Path) -> None:
    log, lake = tmp_path / "in" / "app.log", tmp_path / "lake"
    write_file(log, [Line(T + at) for at in range(5)])
    settings = pipeline_of(lake, log.parent, input={"exclude": ["*.log"], "on_empty": "ok"})
    assert ingest(settings, "1").records == 0
    rotate(log, "app.log-20261101", 2)
    assert ingest(settings, "2").records == 5
    rotate(log, "app.log-20261102", 1)
    assert ingest(settings, "3").records == 2


def test_packed_files_alone_come_once(tmp_path: Path) -> None:
    log, lake = tmp_path / "in" / "app.log", tmp_path / "lake"
    write_file(log, [Line(T + at) for at in range(5)])
    settings = pipeline_of(lake, log.parent, input={"include": ["*.log-*.gz"], "on_empty": "ok"})
    rotate(log, "app.log-20261101", 2)
    assert ingest(settings, "1").records == 0
    old = log.with_name("app.log-20261101")
    old.with_name(f"{old.name}.gz").write_bytes(gzip.compress(old.read_bytes()))
    old.unlink()
    assert ingest(settings, "2").records == 5
