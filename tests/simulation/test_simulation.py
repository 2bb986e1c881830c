"""The simulated world in short: some histories of the day, those that failed once, and faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tiers import of_today, rest_but, seed_of_the_day
from tests.simulation.__main__ import STEADY
from tests.simulation.faults import FAULTS

PROJECT = Path(__file__).parents[2]


def simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation`, in a process of its own: it replaces Seglake's clock."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    variables = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False, env=variables
    )


@pytest.mark.parametrize("one_in", rest_but([1, 2], 2))
@pytest.mark.long
def test_histories_of_the_day(one_in: int) -> None:
    """And each is the same call for call when it is played again."""
    given = ("--histories", str(10 // one_in), "--seed", str(seed_of_the_day() * 1000))
    done = simulated(*given, "--repeat", "--steady", *map(str, of_today(STEADY, one_in)))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("one_in", rest_but([1, 3], 3))
@pytest.mark.long
def test_every_fault_that_is_put_back_is_found(one_in: int) -> None:
    """By its script or its seed, of which neither fails without the fault."""
    chosen = of_today(FAULTS, one_in)
    done = simulated("--found", *chosen)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count(": found") == len(chosen)
