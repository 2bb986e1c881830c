"""Standard output on a full disk ends every command with one line and exit code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker

FULL = Path("/dev/full")
JOB = """
import sys
from seglake.cli.submit import submit

def report():
    print("{}")

sys.exit(submit(report, []))
"""
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = LakeMaker(tmp_path_factory.mktemp("full") / "lake")
    maker.run({0: [Event(1_700_000_000_000 + i, b"k", b"v" * 50) for i in range(3000)]})
    return maker.root


def told(command: list[object], output: Path | None = FULL, unbuffered: str = "") -> str:
    """What a command with a full standard output says; its exit code is 1."""
    with (output or Path(os.devnull)).open("wb") as stdout:
        done = subprocess.run(
            [sys.executable, *map(str, command)], stdout=stdout, stderr=subprocess.PIPE,
            text=True, check=False, timeout=90,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "options", rest_but(["--json", "--format csv", "--format parquet"], "--json")
)
def test_a_read(root: Path, options: str) -> None:
    errors = told(["-m", "seglake", "read", root, "events", *options.split()])
    assert errors.count("\n") == 1
    assert "standard output: No space left on device" in errors


@pytest.mark.parametrize("unbuffered", rest_but(["", "1"], "1"))
def test_a_short_report(root: Path, unbuffered: str) -> None:
    errors = told(["-m", "seglake", "metrics", root], unbuffered=unbuffered)
    assert errors == "seglake: standard output: No space left on device\n"


def test_a_job() -> None:
    assert told(["-c", JOB]) == "report: standard output: No space left on device\n"


def test_another_error_is_the_one_that_is_told(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seglake", "read", str(root), "absent"], check=False, timeout=90,
        stdout=FULL.open("wb"), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (done.returncode, "standard output" in done.stderr) == (2, False)


def test_a_device_of_output(root: Path) -> None:
    read = ["-m", "seglake", "read", root, "events", "--format", "jsonl", "--output", FULL]
    errors = told(read, output=None)
    assert errors == "seglake: /dev/full: cannot be written: No space left on device\n"


def test_a_reader_that_goes_is_no_error(root: Path) -> None:
    command = [sys.executable, "-m", "seglake", "read", str(root), "events"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    run.stdout.close()
    _, errors = run.communicate(timeout=90)
    assert b"standard output" not in errors
    assert b"Traceback" not in errors
