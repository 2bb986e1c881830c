"""The quick profile tries other examples each day, the steady one the same for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.seed_of_the_day import seed_of_the_day

pytestmark = pytest.mark.slow  # processes of their own

PROJECT = Path(__file__).parents[2]
PLUGIN = "-p", "tests.harness.seed_of_the_day", "-c", os.devnull
ALONE = {"PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PROFILES = """
from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("quick", derandomize=False, database=None)
settings.load_profile("steady")
"""
TESTS = """
from hypothesis import given
from hypothesis import strategies as st

@given(number=st.integers(0, 10**9))
def test_some(number): print("tried", number)
def test_fails(): assert {passes}
"""


def tried(folder: Path, *arguments: str, seed: str = "7", passes: bool = True) -> tuple[str, str]:
    """What a run tells, and the numbers that it tries."""
    (folder / "conftest.py").write_text(PROFILES)
    (folder / "test_some.py").write_text(TESTS.format(passes=passes))
    command = [sys.executable, "-m", "pytest", "-s", "-p", "_hypothesis_pytestplugin"]
    done = subprocess.run(
        [
            *command,
            "-p",
            "tests.harness.seed_of_the_day",
            "-c",
            os.devnull,
            f"--rootdir={folder}",
            *arguments,
            "test_some.py",
        ],
        cwd=folder,
        env={**os.environ, **ALONE, "SEGLAKE_SEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if passes else 1), done.stdout
    numbers = [line.rpartition("tried ")[2] for line in done.stdout.splitlines() if "tried" in line]
    return done.stdout, " ".join(numbers)


@pytest.mark.rest
def test_examples_are_those_of_the_day(tmp_path: Path) -> None:
    quick = "--hypothesis-profile=quick"
    told, first = tried(tmp_path, quick)
    assert len(set(first.split())) > 9
    assert "seed of the day: 7; SEGLAKE_SEED=7 in the environment tries the same again" in told
    assert tried(tmp_path, quick)[1] == first
    assert tried(tmp_path, quick, seed="8")[1] != first
    assert tried(tmp_path, quick, "--hypothesis-seed=7", seed="8")[1] == first
    failed = tried(tmp_path, quick, "-q", passes=False)[0]  # where there is no header
    assert "seed of the day: 7" in failed


def test_the_steady_profile_knows_no_day(tmp_path: Path) -> None:
    told, first = tried(tmp_path)
    assert "seed of the day" not in told
    assert tried(tmp_path, seed="8")[1] == first


def test_the_seed_is_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEGLAKE_SEED", raising=False)
    assert 20_260_101 <= seed_of_the_day() < 21_000_101
    monkeypatch.setenv("SEGLAKE_SEED", "5")
    assert seed_of_the_day() == 5
