"""A process that reads windows by one reader, and nothing else: `python -m tests.bench.fresh`.

It takes a `Task` as JSON from standard input, and prints a `Told`. So no reader has another's
garbage, threads or memory beside it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.events import Int64s, numbers_in
from tests.bench.floors import numbers_between, window_reader
from tests.bench.measure import other_work
from tests.bench.memory import own_peak
from tests.bench.page_cache import hold
from tests.bench.peers import READERS, Read, seglake_reader

WARM_UP = 5  # windows of each length, which do not count


class Task(NamedTuple):
    """Who reads: a name in `READERS`, or ours where there is a `root`; and the windows."""

    name: str
    root: str
    topic: str
    parquet: str
    folder: str
    windows: dict[str, list[int]]  # first ms, by length in ms; the first ones are the warm-up
    side_by_side: str  # the length of which several threads read all windows, or nothing
    threads: int
    busy: bool  # whether other work comes between two windows
    codec: str  # that of the lake, whose batches are decompressed, and no more; or nothing


class Told(NamedTuple):
    """Seconds of each window, new and again, by length; what was read; the memory in bytes.

    `first` has those of the warm-up, the first ones of the process. `together` has the seconds of
    all windows in all threads, and of each in its thread.
    """

    first: dict[str, list[float]]
    new: dict[str, list[float]]
    again: dict[str, list[float]]
    digests: dict[str, list[str]]
    together: tuple[float, list[float]]
    peak: int


def digest(numbers: Int64s) -> str:
    """What tells one set of events from another."""
    return hashlib.sha256(numbers.tobytes()).hexdigest()


def read_alone(task: Task) -> Told:
    """Have a new process do this."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.fresh"], input=json.dumps(task), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"{task.name}: {done.stderr[-2000:]}")
    return Told(*json.loads(done.stdout))


def told(task: Task) -> Told:
    """What this process found."""
    opened = _opened(task)
    read, between = opened(), other_work() if task.busy else _nothing

    def timed(start: int, length: str) -> tuple[float, Any]:
        between()
        return _timed(read, start, int(length))

    first = {
        length: [timed(start, length)[0] for start in starts[:WARM_UP]]
        for length, starts in task.windows.items()
    }
    new: dict[str, list[float]] = {}
    again: dict[str, list[float]] = {}
    digests: dict[str, list[str]] = {}
    for length, starts in task.windows.items():
        hold([_place(task)])
        gc.collect()
        found = [timed(start, length) for start in starts[WARM_UP:]]
        new[length] = [seconds for seconds, _ in found]
        digests[length] = [
            digest(_numbers(task, table, start, start + int(length)))
            for start, (_, table) in zip(starts[WARM_UP:], found, strict=True)
        ]
        del found
        for _ in range(3):  # what a cache keeps at a third read is there at the fourth
            again[length] = [timed(start, length)[0] for start in starts[WARM_UP:]]
    peak = own_peak()
    return Told(first, new, again, digests, _together(task, opened), peak)


def _nothing() -> None:
    """No other work."""


def _numbers(task: Task, found: Any, start: int, end: int) -> Int64s:
    return numbers_between(found, start, end) if task.codec else numbers_in(found["value"])


def _opened(task: Task) -> Any:
    if task.codec:
        return window_reader(task.root, task.codec)
    if task.root:
        return seglake_reader(task.root, task.topic)
    return READERS[task.name].open(Path(task.parquet), Path(task.folder))


def _place(task: Task) -> str | Path:
    """What it reads."""
    if task.root:
        return task.root
    place = READERS[task.name].place
    return Path(task.folder, place) if place else task.parquet


def _timed(read: Read, start: int, length: int) -> tuple[float, Any]:
    begun = time.perf_counter()
    table = read(start, start + length)
    return time.perf_counter() - begun, table


def _together(task: Task, opened: Any) -> tuple[float, list[float]]:
    if not task.side_by_side:
        return 0.0, []
    hold([_place(task)])
    starts, length = task.windows[task.side_by_side], int(task.side_by_side)

    def one(number: int) -> list[float]:
        read, turn = opened(), number * len(starts) // task.threads
        return [_timed(read, start, length)[0] for start in [*starts[turn:], *starts[:turn]]]

    begun = time.perf_counter()
    with ThreadPoolExecutor(task.threads) as pool:
        each = list(pool.map(one, range(task.threads)))
    return time.perf_counter() - begun, [seconds for some in each for seconds in some]


if __name__ == "__main__":
    print(json.dumps(told(Task(*json.loads(sys.stdin.read())))))
