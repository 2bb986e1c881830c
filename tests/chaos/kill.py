"""Kill ingests anywhere, run them again, and compare: python -m tests.chaos.kill --kills 1000

A round takes a lake, kills one to three attempts at the same run in it, and then lets the run end.
Half of the kills come at a step chosen by name, so that each is tried as often as the rare ones;
the others come at any moment. After each kill readers must see the old or the new version, and
after the last one everything must be as if nothing had happened. Exits 1 at the first difference,
with the seed that makes it happen again (moments apart: those are the machine's).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.chaos.scenarios import SHAPES, Scenario
from tests.chaos.victim import Job

PROJECT = Path(__file__).parents[2]
PATIENCE_S = 180
ANY_MOMENT = "at any moment"


class Victim(Protocol):
    """A running attempt."""

    def kill(self, chance: random.Random) -> None:
        """SIGKILL for one of its processes."""

    def ended(self, patience_s: float) -> int | None:
        """Its exit code, or None if it is still running after that time."""


class Forked:
    """An attempt in a fork of a process that has imported everything: it starts at once."""

    def __init__(self, job: Job, trace: Path, die_at: int | None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.chaos.warmed"])
        self._process = context.Process(target=job.run, args=(str(trace), die_at))
        self._process.start()

    def kill(self, chance: random.Random) -> None:
        """SIGKILL."""
        del chance
        self._process.kill()

    def ended(self, patience_s: float) -> int | None:
        """The exit code."""
        self._process.join(patience_s)
        return self._process.exitcode


class Submitted:
    """An attempt on Spark: a driver, a JVM and Python workers, in a process group of their own."""

    def __init__(self, job: Job, trace: Path, die_at: int | None) -> None:
        arguments = json.dumps([job, str(trace), die_at])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.victim", arguments],
            cwd=PROJECT, env=os.environ | {"PYTHONPATH": f"{PROJECT}/src"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def kill(self, chance: random.Random) -> None:
        """SIGKILL for the driver, the JVM or a Python worker."""
        members = _members_of(self._process.pid)
        if members:
            os.kill(chance.choice(members), signal.SIGKILL)

    def ended(self, patience_s: float) -> int | None:
        """The exit code of the driver; whatever it left behind is ended too."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
        for member in _members_of(self._process.pid):
            os.kill(member, signal.SIGKILL)
        return code


def _members_of(group: int) -> list[int]:
    """The living processes of a process group that this program has made."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


class Kill(NamedTuple):
    """A kill that hit."""

    shape: str
    where: str
    seen: str  # by readers afterwards: old or new


class Campaign:
    """Rounds over scenarios of every shape, drawn from a seed."""

    def __init__(
        self, folder: Path, seed: int, start: Callable[[Job, Path, int | None], Victim],
        *, spark: bool = False,
    ) -> None:  # fmt: skip
        self._folder, self._start, self._spark = folder, start, spark
        self._chance = random.Random(seed)
        self.kills: list[Kill] = []
        self._rounds = 0
        self._scenarios: dict[int, Scenario] = {}
        self._steps: dict[str, list[str]] = {}  # of each shape
        self._seconds: dict[str, float] = {}

    def run(self, kills: int, told: Callable[[int], None] = lambda _kills: None) -> None:
        """Rounds until so many kills hit."""
        while len(self.kills) < kills:
            self._round(
                self._scenario(self._rounds % len(SHAPES)),
                min(self._chance.randint(1, 3), kills - len(self.kills)),
            )
            self._rounds += 1
            told(len(self.kills))

    def _scenario(self, number: int) -> Scenario:
        """The scenario of one shape, made and watched when it is wanted first."""
        if number not in self._scenarios:
            made = Scenario(SHAPES[number], self._folder / str(number), self._chance)
            self._watch(made)
            self._scenarios[number] = made
        return self._scenarios[number]

    def _watch(self, scenario: Scenario) -> None:
        """Learn which steps an undisturbed run takes, and how long they take."""
        trace, seconds = self._folder / "trace", []
        for _ in range(1 if self._spark else 2):  # the first one starts the process to fork from
            trace.unlink(missing_ok=True)
            lake, begun = scenario.lake("watched"), time.monotonic()
            code = self._start(scenario.job(lake, spark=self._spark), trace, None).ended(PATIENCE_S)
            assert code == 0, f"an attempt that nobody killed ended with {code}"
            seconds.append(time.monotonic() - begun)
            scenario.assert_undisturbed(lake)
        self._seconds[scenario.shape.name] = min(seconds)
        self._steps[scenario.shape.name] = trace.read_text().splitlines()

    def _round(self, scenario: Scenario, kills: int) -> None:
        lake = scenario.lake("lake")
        for _ in range(kills):
            self._attempt(scenario, lake)
        # the engine has no part in what comes out, so the quick one ends every run
        end = Forked(scenario.job(lake), self._folder / "trace", None)
        assert end.ended(PATIENCE_S) == 0, "the run did not end after it was killed"
        scenario.assert_undisturbed(lake)
        scenario.next_run(lake)
        scenario.assert_last(lake)

    def _attempt(self, scenario: Scenario, lake: Path) -> None:
        """One attempt that is killed, or was too quick for that."""
        name, job = scenario.shape.name, scenario.job(lake, spark=self._spark)
        steps, trace = self._steps[name], self._folder / "trace"
        trace.unlink(missing_ok=True)
        by_name = self._chance.random() < 0.5
        die_at = self._chance.choice(_places(self._chance, steps)) if by_name else None
        victim = self._start(job, trace, die_at)
        if not by_name:
            time.sleep(self._chance.random() * self._seconds[name])
            victim.kill(self._chance)
        code = victim.ended(PATIENCE_S)
        assert code is not None, "the attempt hangs"
        seen = scenario.assert_old_or_new(lake)
        if code:
            where = trace.read_text().splitlines()[-1] if by_name else ANY_MOMENT
            self.kills.append(Kill(name, where, seen))
        else:
            assert seen == "new"


def _places(chance: random.Random, steps: list[str]) -> list[int]:
    """Where a step of one name, drawn among the names, comes in a run."""
    places = defaultdict(list)
    for number, step in enumerate(steps):
        places[step].append(number)
    return places[chance.choice(sorted(places))]


def table(kills: list[Kill]) -> str:
    """The kills as a table in Markdown."""
    lines = ["| killed | kills | readers saw the old version | the new one |", "|---|--:|--:|--:|"]
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for kill in kills:
        seen[kill.where][kill.seen] += 1
    for where in sorted(seen, key=lambda where: (where == ANY_MOMENT, where)):
        old, new = seen[where]["old"], seen[where]["new"]
        lines.append(f"| {where} | {old + new} | {old} | {new} |")
    shapes = Counter(kill.shape for kill in kills)
    total = ", ".join(f"{count} {shape}" for shape, count in shapes.items())
    return "\n".join([*lines, "", f"{len(kills)} kills of runs: {total}."])


def main(arguments: list[str]) -> int:
    """Run a campaign; prints the seed first and the table last."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--spark-kills", type=int, default=0, help="of runs on Spark, as well")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    kills: list[Kill] = []
    for start, count in ((Forked, given.kills), (Submitted, given.spark_kills)):
        if count:
            with tempfile.TemporaryDirectory(prefix="seglake-chaos-") as folder:
                campaign = Campaign(Path(folder), given.seed, start, spark=start is Submitted)
                campaign.run(count, _tell if sys.stderr.isatty() else lambda _kills: None)
                kills += campaign.kills
    print(table(kills))
    return 0


def _tell(kills: int) -> Any:
    print(f"\r{kills} kills", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
