"""Attempts at a run in processes of their own, without Spark, and how to kill them."""

import multiprocessing
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from tests.chaos.victim import Death, Job, Upkeep, steps_told

PATIENCE_S = 300
ANYTHING = "anything"
KILLED = {0, -signal.SIGKILL, -signal.SIGALRM}  # else an attempt failed that nobody killed


class Hit(NamedTuple):
    """What a kill hit, and the exit code of the attempt: 0 if it came through all the same."""

    what: str
    moment: str
    code: int


class Steps:
    """What the trace of an undisturbed run tells: its steps, and how long each takes."""

    def __init__(self, trace: Path, seconds: float) -> None:
        steps = steps_told(trace)
        self.seconds = seconds
        self.report = [step.what for step in steps if step.moment == "in"]
        self.count = Counter((step.moment, step.what) for step in steps if step.moment != "in")
        self.taken_by = Counter[
            str
        ]()  # how many commands of a story take a step, if there are many
        self.during: dict[str, float] = defaultdict(float)
        began: dict[str, float] = {}
        for step in steps:
            began[step.what] = step.at_s if step.moment == "during" else began.get(step.what, 0)
            if step.moment == "after":
                longest = max(self.during[step.what], step.at_s - began[step.what])
                self.during[step.what] = longest

    def death(self, number: int, chance: random.Random, but: Container[str] = ()) -> Death:
        """At the step of this number, counted round and round in an order of their own.

        By turns it is one that few commands take, and one that many take.
        """
        names = sorted(name for name in self.count if name[1] not in but)
        random.Random(len(names)).shuffle(names)
        names.sort(key=lambda name: self.taken_by[name[1]])
        at = number // 2 % len(names)
        name = names[-1 - at if number % 2 else at]
        delay_s = max(1e-6, chance.random() * self.during[name[1]])
        return Death(*name, chance.randrange(self.count[name]), delay_s)


class Turn(NamedTuple):
    """Which of the ways to kill has its turn, counted round and round."""

    number: int
    by_name: bool  # at a step that is chosen by its name, if there is a choice


JobT = TypeVar("JobT", bound=Job | Upkeep)
_Job_contra = TypeVar("_Job_contra", bound=Job | Upkeep, contravariant=True)


class Attack(Protocol[_Job_contra]):
    """A way to start attempts and to kill them."""

    def __call__(
        self, job: _Job_contra, trace: Path, steps: Steps, turn: Turn, chance: random.Random
    ) -> Hit | None:
        """One attempt; None if it ended before it could be hit."""


class Forked:
    """An attempt in a fork of a process that has imported everything: it starts at once."""

    def __init__(self, job: Job | Upkeep, trace: Path, death: Death | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.chaos.warmed"])
        trace.unlink(missing_ok=True)
        self._process = context.Process(target=_run, args=(dict(os.environ), job, trace, death))
        self._process.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def ended(self) -> int:
        """Its exit code, as soon as it ends."""
        self._process.join(PATIENCE_S)
        code = self._process.exitcode
        self._process.kill()
        assert code is not None, "the attempt hangs"
        assert code in KILLED, f"an attempt ended with {code}"
        return code


def _run(environment: dict[str, str], job: Job | Upkeep, trace: Path, death: Death | None) -> None:
    os.environ.update(environment)  # the process that was forked began with an older one
    with Path(os.devnull).open("w") as nowhere:  # an attempt that fails is told by its exit code
        os.dup2(nowhere.fileno(), 2)
    job.run(trace, death)


def kill_forked(
    job: Job | Upkeep, trace: Path, steps: Steps, turn: Turn, chance: random.Random
) -> Hit | None:
    """An attempt that ends at a step chosen by its name, or is killed at any moment."""
    if turn.by_name:
        code = Forked(job, trace, steps.death(turn.number, chance)).ended()
        if not code:  # a run that is there has few steps
            return None
        last = steps_told(trace)[-1]
        return Hit(last.what, last.moment, code)
    victim = Forked(job, trace)
    time.sleep(chance.random() * steps.seconds)
    victim.kill()
    code = victim.ended()
    return Hit(ANYTHING, "during", code) if code else None
