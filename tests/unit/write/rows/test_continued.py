"""A run tells of lines that begin with a time and continue an event all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seglake.engine import LocalEngine
from seglake.write.check import check
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.makers.raw_events import pipeline_of

OLD = r"\w{3} \d\d \d\d:\d\d:\d\d"
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 7\nValueError: 2026'


def told(tmp_path: Path, lines: list[str], **task: Any) -> list[str]:
    """The hints of a run, which are those of the check, too."""
    (tmp_path / "a.log").write_text("".join(f"{line}\n" for line in lines))
    settings = pipeline_of(
        tmp_path / "lake", [str(tmp_path / "a.log")],
        input={"format": "text", "pattern": rf"(?P<ts>{OLD}) ", "multiline_start_pattern": OLD,
               "multiline_max_bytes": 1000},
        timestamp={"field": "ts", "format": "%b %d %H:%M:%S", "year": 2026, "zone": "UTC"},
        key={"fields": []}, **task,
    )  # fmt: skip
    hints = ingest_files(LocalEngine(), settings, DeclaredRun("1")).hints
    assert [each for each in check(settings, 10_000).problems if "continue" in each] == [
        each for each in hints if "continue" in each
    ]
    return [*hints]


@pytest.mark.parametrize("chunk_bytes", [2500, 1 << 20])
@pytest.mark.parametrize(
    "begin",
    ["2026-11-17T00:09:31.123456+00:00", "[2026-11-17 00:09:31]", "17.11.2026 00:09:31,000",
     "11/17/2026, 0:09:31", "17/Nov/2026:00:09:31"],
)  # fmt: skip
def test_lines_of_another_form_are_told(tmp_path: Path, begin: str, chunk_bytes: int) -> None:
    lines = [f"Nov 16 00:00:{n:02} web sshd[1]: event {n}" for n in range(60)]
    lines += [f"{begin} web cron[2]: event {n}" for n in range(9)]
    remedy = "if events begin there, correct input.multiline_start_pattern and input.pattern"
    assert told(tmp_path, lines, task={"chunk_bytes": chunk_bytes}) == [
        f"9 lines that continue an event begin with a time: {remedy}"
    ]


def test_a_traceback_is_none_of_them(tmp_path: Path) -> None:
    lines = [f"Nov 16 00:00:{n:02} web did {n} at 2026-11-17 00:09:31" for n in range(60)]
    assert told(tmp_path, [*lines[:30], TRACE, *lines[30:], TRACE]) == []


def test_one_line_is_told(tmp_path: Path) -> None:
    (hint,) = told(tmp_path, ["Nov 16 00:00:00 a", "2026-11-17 00:09:31 b"])
    assert hint.startswith("1 line that continues an event begins with a time: ")
