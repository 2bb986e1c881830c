"""The simulated world in short: some histories of the day, those that failed once, and faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.seed_of_the_day import seed_of_the_day
from tests.harness.tiers import rest_but
from tests.simulation.faults import FAULTS, put_back

PROJECT = Path(__file__).parents[2]
OF_TODAY = 20
FOUND = {  # by this history, whatever else finds it
    "a mark of moved segments stops a rebuild": 30_003,
    "a redrive is committed although its run is gone": 30_026,
    "an archive takes another one for a loss of the broker's": 30_066,
    "an undo that was done is an error": 30_002,
    "an erasure does not look again": 30_007,
    "an erasure hides what another one left": 391_004_044,
    "a late manifest of a try that lost counts": 30_006,
    "a vacuum makes no fence": 30_025,
    "a merge replaces what changed meanwhile": 30_522,
    "a command that is run again writes no mark": 30_104,
    "an attempt that was given up commits": 30_014,
    "rejects with an erased binary key stay": 30_340,
    "a refresh takes moved rows twice": 391_000_025,
    "a commit names files of the catalog that a vacuum deleted": 30_330,
    "a refresh takes a rebuilt catalog for the old one": 30_784,
    "a claim that a dead vacuum overruled is not fenced": 30_183,
    "a commit names files of the quarantine that a vacuum deleted": 30_080,
    "an attempt does not announce itself": 30_032,
    "a vacuum takes rejects that come meanwhile for lost ones": 30_040,
    "an erasure takes who writes rows for committed": 30_051,
    "an erasure takes rejects that came after its commit": 30_045,
    "a vacuum takes who paused between rows for committed": 150_007_513,
    "a late write replaces the checkpoint of a rebuild": 42_602,
    "a refresh goes on in a rebuilt catalog behind a late write": 30_062,
    "an attempt that was given up leaves what it wrote": 260_010_035,
    "an erasure leaves old key indexes": 30_015,
    "a reindex that hashes keys does not announce itself": 30_039,
    "a group goes on after the end of what was archived": 30_157,
    "a vacuum makes no fence before segments go": 30_177,
    "a vacuum does not look at tags again": 30_137,
    "an erasure and a tag pass each other": 30_022,
    "a version from before an erasure gets a tag": 30_103,
    "an empty segment covers what others took of the room": 30_294,
    "an erasure passes tags by": 30_013,
    "an erasure that was given up leaves what it wrote for tags": 34_579,
    "a rebuild does not ask chronicles": 30_018,
}


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


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", rest_but(FOUND, "an undo that was done is an error"))
def test_a_fault_that_is_put_back_is_found(fault: str) -> None:
    seed = FOUND[fault]
    done = simulated("--fault", fault, "--histories", "1", "--seed", str(seed))
    assert (done.returncode, " failed: " in done.stdout) == (1, True), done.stdout + done.stderr
    assert simulated("--histories", "1", "--seed", str(seed)).returncode == 0


def test_each_fault_has_a_history_that_finds_it() -> None:
    assert FOUND.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_can_be_put_back(fault: str) -> None:
    """The code that it changes is still there."""
    with put_back(fault):
        pass
