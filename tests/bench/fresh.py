"""A process that reads windows by one reader, and nothing else: `python -m tests.bench.fresh`.

It takes a `Task` as JSON from standard input, and prints a `Told`. So no reader has another's
garbage, threads or memory beside it.
"""

import gc
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.events import Int64s, numbers_in
from tests.bench.measure import other_work
from tests.bench.page_cache import hold
from tests.bench.peers import READERS, seglake_reader

WARM_UP = 5  # windows of each length, which do not count


class Task(NamedTuple):
    """The reader, a name in `READERS`, or Seglake if there is a `root`; and the windows."""

    name: str
    root: str
    topic: str
    parquet: str
    folder: str
    windows: dict[str, list[int]]  # first ms, by length in ms; the first ones are the warm-up
    busy: bool  # whether other work is done between two windows


class Told(NamedTuple):
    """Seconds of the windows of the warm-up (`first`) and of the others, and what was read."""

    first: dict[str, list[float]]
    seconds: dict[str, list[float]]
    digests: dict[str, list[str]]


def digest(numbers: Int64s) -> str:
    """Return a hash of a set of events."""
    return hashlib.sha256(numbers.tobytes()).hexdigest()


def read_alone(task: Task) -> Told:
    """Run the task in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.fresh"], input=json.dumps(task), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"{task.name}: {done.stderr[-2000:]}")
    return Told(*json.loads(done.stdout))


def told(task: Task) -> Told:
    """Run the task in this process."""
    read, place = _opened(task)
    between = other_work() if task.busy else lambda: None

    def timed(start: int, length: str) -> tuple[float, Any]:
        between()
        begun = time.perf_counter()
        table = read(start, start + int(length))
        return time.perf_counter() - begun, table

    first = {
        length: [timed(start, length)[0] for start in starts[:WARM_UP]]
        for length, starts in task.windows.items()
    }
    seconds: dict[str, list[float]] = {}
    digests: dict[str, list[str]] = {}
    for length, starts in task.windows.items():
        hold([place])
        gc.collect()
        found = [timed(start, length) for start in starts[WARM_UP:]]
        seconds[length] = [spent for spent, _ in found]
        digests[length] = [digest(numbers_in(table["value"])) for _, table in found]
        del found
    return Told(first, seconds, digests)


def _opened(task: Task) -> tuple[Any, str | Path]:
    """Return the reader, and the files that it reads."""
    if task.root:
        return seglake_reader(task.root, task.topic)(), task.root
    reader = READERS[task.name]
    place = Path(task.folder, reader.place) if reader.place else task.parquet
    return reader.open(Path(task.parquet), Path(task.folder))(), place


if __name__ == "__main__":
    print(json.dumps(told(Task(*json.loads(sys.stdin.read())))))
