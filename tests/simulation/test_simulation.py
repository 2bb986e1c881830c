"""The simulated world in short: some histories of the day, those that failed once, and faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tiers import seed_of_the_day
from tests.simulation.faults import FAULTS

PROJECT = Path(__file__).parents[2]
OF_TODAY = 10


def simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation`, in a process of its own: it replaces Seglake's clock."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    variables = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False, env=variables
    )


@pytest.mark.timeout(600)
def test_histories_of_the_day() -> None:
    """And each is the same call for call when it is played again."""
    seed = seed_of_the_day() * 1000
    done = simulated("--histories", str(OF_TODAY), "--seed", str(seed), "--steady", "--repeat")
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.timeout(900)
def test_every_fault_that_is_put_back_is_found() -> None:
    """By its script or its seed, of which neither fails without the fault."""
    done = simulated("--found")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count(": found") == len(FAULTS)
