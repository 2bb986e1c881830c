"""Each run keeps the seconds of its tests and names the slowest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tiers import rest_but

PROJECT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(30))
def test_short(number): pass
@pytest.mark.rest
def test_longer(): pass
"""


def outcome(folder: Path, *more: str) -> tuple[int, str, list[str]]:
    """The exit code of a run, what it prints, and the lines of its file."""
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = rest: later\n")
    file = folder / "build" / "durations.tsv"
    command = [sys.executable, "-m", "pytest", "-p", "tests.harness.durations"]
    alone = {"COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, f"--durations-file={file}", *more, "test_some.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **alone},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, file.read_text().splitlines()


@pytest.mark.parametrize("parallel", rest_but([(), ("-p", "xdist", "-n", "2")], ()))
def test_a_run_keeps_its_durations_and_names_the_slowest(
    tmp_path: Path, parallel: tuple[str, ...]
) -> None:
    code, told, (head, *lines) = outcome(tmp_path, *parallel)
    assert code == 0
    assert "slowest 20 of 31; all are in" in told
    assert told.count(" s  test_some.py::test_") == 20
    assert head.split("\t") == ["seconds", "setup", "call", "teardown", "test"]
    rows = [line.split("\t") for line in lines]
    assert len(rows) == len({row[-1] for row in rows}) == 31
    assert rows == sorted(rows, key=lambda row: -float(row[0]))
    assert all(abs(float(row[0]) - sum(map(float, row[1:4]))) < 0.01 for row in rows)
