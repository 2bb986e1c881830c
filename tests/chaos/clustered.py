"""Attempts at a run on Spark, and which of their many processes is killed when."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import seglake
from tests.chaos.attempts import PATIENCE_S, Hit, Steps, Turn
from tests.chaos.victim import OF_TASKS, Death, Job, steps_told

PROJECT = Path(__file__).parents[2]
SOURCES = str(Path(seglake.__file__).parents[1])
POLL_S = 0.02
LATEST_S = 1.0  # after a step of the report began
DAWDLE_S = 3.0

DRIVER, JVM, EXECUTOR, WORKER = "the driver", "the JVM", "an executor's JVM", "a Python worker"
TARGETS = (DRIVER, WORKER, EXECUTOR, JVM)
_COMMANDS = {
    JVM: "org.apache.spark.deploy.SparkSubmit",
    EXECUTOR: "CoarseGrainedExecutorBackend",
    WORKER: "pyspark.worker",
}
SETTINGS = {  # two copies of a task that is slow, and a task may fail often
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": SOURCES,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.task.maxFailures": "8",
}


class Submitted:
    """An attempt on Spark: a driver, its JVM, and executors with Python workers."""

    def __init__(self, job: Job, trace: Path, death: Death | None = None) -> None:
        trace.unlink(missing_ok=True)
        trace.touch()
        self._trace = trace
        self._others = {each.pid for each in _alive()}  # a session of the tests, for one
        environment = {"PYTHONPATH": SOURCES, "PYSPARK_PYTHON": sys.executable}
        self.log = trace.with_suffix(".log")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.victim", json.dumps([job, str(trace), death])],
                cwd=PROJECT, env=os.environ | environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def runs(self) -> bool:
        """Whether the driver is alive."""
        return self._process.poll() is None

    def awaits(self, step: str) -> None:
        """Wait for a step of the report, or the end."""
        while self.runs():
            if any(told.moment == "in" and told.what == step for told in steps_told(self._trace)):
                return
            time.sleep(POLL_S)

    def kill(self, target: str, chance: random.Random) -> bool:
        """SIGKILL for one of its processes, as soon as there is one; False if it ended before."""
        while self.runs():
            found = self._members(target)
            if found:
                _kill(chance.choice(found))
                return True
            time.sleep(POLL_S)
        return False

    def ended(self) -> int:
        """The exit code of the driver; what it leaves behind may go on for a while."""
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError("the attempt hangs") from None

    def end(self) -> None:
        """See to it that nothing of it runs any more."""
        for target in (DRIVER, JVM, WORKER):
            for pid in self._members(target):
                _kill(pid)
        self._process.wait()
        deadline = time.monotonic() + PATIENCE_S
        while self._members(EXECUTOR):
            assert time.monotonic() < deadline, "executors stay when their driver has gone"
            time.sleep(POLL_S)

    def _members(self, target: str) -> list[int]:
        if target == DRIVER:
            return [self._process.pid] * self.runs()
        command = _COMMANDS[target]
        started = [each for each in _started(self._process.pid) if each.pid not in self._others]
        return [each.pid for each in started if command in each.command()]


class OnSpark:
    """Attempts on the Spark of these settings; each kind of process is killed in its turn."""

    def __init__(
        self, settings: dict[str, str], notes: Path, targets: tuple[str, ...] = TARGETS
    ) -> None:
        self._settings, self._notes, self._targets = settings, notes, targets
        self._last: Submitted | None = None

    def __call__(
        self, job: Job, trace: Path, steps: Steps, turn: Turn, chance: random.Random
    ) -> Hit | None:
        """One attempt; in half of them the tasks are unruly as well."""
        self.end()
        self._notes.mkdir(exist_ok=True)
        unruly = (chance.randrange(10**6), DAWDLE_S, str(self._notes))
        job = job._replace(spark=self._settings, unruly=unruly if chance.random() < 0.5 else None)
        targets = (*self._targets, "")
        target = targets[turn.number % len(targets)]
        if not target:
            death = steps.death(turn.number, chance, set(OF_TASKS.values()))
            return self._at_a_step(job, trace, death)
        self._last = victim = Submitted(job, trace)
        step = chance.choice(steps.report)
        victim.awaits(step)
        time.sleep(chance.random() * LATEST_S)
        hit = victim.kill(target, chance)
        code = victim.ended()
        assert hit or not code, f"an attempt that nobody killed failed: see {victim.log}"
        return Hit(target, step, code) if hit else None

    def _at_a_step(self, job: Job, trace: Path, death: Death) -> Hit | None:
        """The driver, at one of the steps that it takes itself."""
        self._last = victim = Submitted(job, trace, death)
        code = victim.ended()
        assert code <= 0, f"an attempt that nobody killed failed: see {victim.log}"
        return Hit(DRIVER, " ".join(steps_told(trace)[-1][1:]), code) if code else None

    def end(self) -> None:
        """End what the last attempt left behind."""
        if self._last is not None:
            self._last.end()


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int

    def command(self) -> str:
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text().replace("\0", " ")
        except OSError:
            return ""


def _started(driver: int) -> list[_Process]:
    """The driver's session, and what this process and its children have started."""
    every = list(_alive())
    mine, found = {os.getpid()}, {each for each in every if each.session == driver}
    while more := {each for each in every if each.parent in mine} - found:
        mine = {each.pid for each in more}
        found |= more
    return sorted(found)


def _alive() -> Iterator[_Process]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                yield _Process(int(path.parent.name), int(parent), int(session))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
