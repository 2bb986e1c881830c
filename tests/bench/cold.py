"""A cold start: a fresh process imports Seglake, looks a time up, reads a window."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import seglake
from tests.bench.measure import Goal, Section, Table
from tests.bench.workbench import TOPIC, Workbench

GOAL_S = 1.0
STEPS = ("import", "first lookup", "first window")
SOURCES = Path(seglake.__file__).parents[1]

_PROGRAM = """
import json, sys, time
begun = time.perf_counter()
import seglake
seglake.open
imported = time.perf_counter()
log = seglake.open(sys.argv[1]).topic(sys.argv[2])
log.offsets_for_times({0: int(sys.argv[3])})
looked_up = time.perf_counter()
records = log.read_range(int(sys.argv[3]), int(sys.argv[3]) + 10_000).read_all().num_rows
read = time.perf_counter()
print(json.dumps([imported - begun, looked_up - imported, read - looked_up, records]))
"""

_TEXT = """\
A process of its own, {runs} times, and once for *nothing compiled*; the median is given. *import*
is `import seglake` and the modules of `seglake.open`; *first lookup* opens the lake and asks for
the first record at a time in one partition; *first window* reads 10 s. *Compiled before* is the
state after `seglake warm`, or after anything else has run once; *nothing compiled* is a place where
no kernel was kept.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    root, events = bench.lake("time"), bench.events
    middle = (events.start_ms + events.end_ms) // 2
    empty, compiled = bench.scratch("no-kernels"), bench.scratch("kernels")
    _seconds(root, middle, compiled)
    found: dict[str, list[list[float]]] = {"nothing compiled": [], "compiled before": []}
    for number in range(bench.sizes.runs):
        if not number:  # it takes a minute
            found["nothing compiled"].append(_seconds(root, middle, empty))
        found["compiled before"].append(_seconds(root, middle, compiled))
    rows = [
        [name, *map(statistics.median, zip(*each, strict=True))] for name, each in found.items()
    ]
    lookups = [seconds[0] + seconds[1] for seconds in found["compiled before"]]
    return Section(
        "cold", "Cold start", _TEXT.format(runs=bench.sizes.runs),
        [Table("Seconds in a fresh process", ["kernels", *STEPS], rows)],
        [Goal("Seconds until the first lookup has its answer, kernels compiled",
              statistics.median(lookups), GOAL_S, at_least=False)],
    )  # fmt: skip


def _seconds(root: str, time_ms: int, kernels: Path) -> list[float]:
    """Seconds of each step in a new process that keeps kernels in a folder."""
    paths = {"PYTHONPATH": str(SOURCES), "NUMBA_CACHE_DIR": str(kernels)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, root, TOPIC, str(time_ms)],
        env=os.environ | paths, capture_output=True, text=True, check=True,
    )  # fmt: skip
    *seconds, records = json.loads(done.stdout)
    assert records > 0
    return [float(each) for each in seconds]
