"""Ingests of much larger files than a task may hold, and the memory that they take."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.makers.raw_events import T

PROJECT = Path(__file__).parents[2]
MIB = 2**20
TASK = {
    "split_bytes": 2 * MIB, "chunk_bytes": MIB, "blob_bytes": MIB // 8, "merge_bytes": MIB,
    "piece_bytes": 2 * MIB,
}  # fmt: skip
TASK_BYTES = 6 * MIB  # what these bounds add up to
LIMIT_BYTES = 2**29  # address space that the ingest may take, beside what it begins with
_EVENTS: dict[str, Any] = {
    "task": TASK,
    "input": {"format": "jsonl"},
    "timestamp": {"field": "ts", "format": "epoch_ms"},
    "key": {"fields": ["k"]},
    "topic": {"name": "events", "partitions": 3, "compression.type": "zstd"},
}
_MEASURED = """
import json, re, sys
from pathlib import Path
from seglake.config import Pipeline
from seglake.errors import InputError
from tests.fuzz.bounds import limit_memory
from tests.makers.raw_events import ingest

status = Path("/proc/self/status")
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024
root, small, large, limit, settings = sys.argv[1:]
settings = json.loads(settings)
def run(path):
    tables = settings | {"root": root, "input": settings["input"] | {"paths": [path]}}
    return ingest(Pipeline.model_validate(tables), path)
run(small)
limit_memory(int(limit))
before = peak()
try:
    report = run(large)
    print(peak() - before, report.records, report.quarantined)
except InputError as error:
    print(peak() - before, -1, -1, error)
"""


class Measured(NamedTuple):
    """By how much memory grew, what came of the rows (-1: nothing), and the error, if any."""

    grown_bytes: int
    records: int
    quarantined: int
    error: str = ""


def measure(
    root: Path | str, small: Path, large: Path | str, order: str = "time", **settings: Any
) -> Measured:
    """The ingest of a large file in a process of its own, after that of a small one.

    Without `settings` of the pipeline, tasks have the bounds of TASK.
    """
    text = json.dumps({"name": "test", "order": order, **(settings or _EVENTS)})
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _MEASURED,
            str(root),
            str(small),
            str(large),
            str(LIMIT_BYTES),
            text,
        ],
        cwd=PROJECT,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *numbers, error = [*done.stdout.strip().split(" ", 3), ""][:4]
    least, most, limit = map(int, numbers)
    return Measured(least, most, limit, error)


def write_lines(path: Path, size: int) -> int:
    """A file of about `size` bytes, of late events and one hot key; how many there are.

    Most of a line is random, so that what is written of it is not much smaller.
    """
    line = '{"ts":%d,"k":"hot","p":0,"n":"%s"}\n'
    count = size // len(line % (T, "x" * 400))
    chance = random.Random(1)
    with gzip.open(path, "wt", 1) if path.suffix == ".gz" else path.open("w") as out:
        for at in range(count):
            out.write(line % (T + at - 400 * (at % 50 == 0), chance.randbytes(200).hex()))
    return count
