"""The job `archive` in a process of its own, asked again and again, or killed at a step."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.judges.kafka_jars import SPARK_KAFKA

PROJECT = Path(__file__).parents[2]
PATIENCE_S = 300
_PROGRAM = """\
import shlex, sys
from seglake.jobs.archive import main
for line in sys.stdin:
    print("exit", main(shlex.split(line)), flush=True)
"""


class Done(NamedTuple):
    """What came of a job: its exit code, and of each topic its report."""

    code: int
    topics: list[dict[str, Any]]


class Archivist:
    """A process that runs the job with one Spark session; a context manager that kills it."""

    def __init__(self, folder: Path, root: Path, bootstrap: str) -> None:
        self._root, self._bootstrap = str(root), bootstrap
        self._printed = folder / f"archivist-{time.monotonic_ns()}.log"
        java = os.environ.get("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        env = {
            **os.environ, "PYTHONPATH": str(PROJECT / "src"), "SPARK_SUBMIT_OPTS": java,
            "SEGLAKE_KAFKA_JARS": str(SPARK_KAFKA),
        }  # fmt: skip
        with self._printed.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], env=env, cwd=folder, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Archivist:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def run(self, topics: Sequence[str], bootstrap: str = "", *options: str) -> Done:
        """Run the job to its end, also on another broker."""
        self._ask(topics, bootstrap or self._bootstrap, *options)
        assert self._process.stdout is not None
        report: dict[str, Any] = {"topics": []}
        for line in self._process.stdout:
            if line.startswith("exit "):
                return Done(int(line.split()[1]), report["topics"])
            if line.startswith("{"):
                report = json.loads(line)
        raise AssertionError(f"the job died:\n{self._printed.read_text()[-5000:]}")

    def killed_at(self, step: str, topics: Sequence[str], after_s: float = 0.0) -> None:
        """Run the job, and kill the process some time after a step of its run has begun."""
        seen = self._printed.read_text(errors="replace").count(f": {step}\n")
        self._ask(topics, self._bootstrap)
        deadline = time.monotonic() + PATIENCE_S
        while self._printed.read_text(errors="replace").count(f": {step}\n") <= seen:
            assert time.monotonic() < deadline, f"no step {step!r}: {self._printed.read_text()}"
            assert self._process.poll() is None, self._printed.read_text()[-5000:]
            time.sleep(0.005)
        time.sleep(after_s)
        self.kill()

    def kill(self) -> None:
        """Kill the process with its JVM and workers, as a machine that loses power does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, topics: Sequence[str], bootstrap: str, *options: str) -> None:
        named = [word for topic in topics for word in ("--topic", topic)]
        named += ["--root", self._root, "--bootstrap", bootstrap, *options]
        assert self._process.stdin is not None
        self._process.stdin.write(shlex.join(named) + "\n")
        self._process.stdin.flush()
