"""An ingest on a Spark cluster that shares nothing but S3, while machines die: what it takes.

A master and four workers run as processes of this machine, with the S3 server of the tests. One
worker dies in the middle of the map side, with its executor, and another one in the middle of the
reduce side. A third is slow from the beginning: it stands still for half of the time. Told are
the records, the largest memory of driver and executors, and the requests to storage.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from seglake.read.lake import Lake
from seglake.store import open_store
from tests.harness.cluster import standalone_cluster
from tests.harness.s3_server import BUCKET, environment, s3_server

_PROJECT = Path(__file__).parents[2]
_STAGES = {"read and sort": 0, "write segments": 1}  # and the worker that dies in each
_SLOW, _WORKERS = 3, 4
_FILE_BYTES = 200_000_000
_HOUR = "2026-11-01T00"
_PIPELINE = """
[pipeline]
root = "s3://{bucket}/lake"
[input]
paths = ["s3://{bucket}/in"]
format = "jsonl"
[timestamp]
field = "ts"
format = "iso8601"
[key]
fields = ["user"]
[topic]
name = "events"
partitions = {partitions}
"""


class Setup(NamedTuple):
    """How much is ingested; a worker dies `after_s` after the beginning of each stage."""

    gigabytes: float
    partitions: int
    after_s: float
    file_bytes: int = _FILE_BYTES


@dataclass
class Outcome:
    """What came of it: MB of memory at most, requests by what they are for."""

    report: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    input_bytes: int = 0
    took_s: float = 0.0
    killed: list[str] = field(default_factory=list)
    peak_mb: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)


def write_events(folder: Path, setup: Setup) -> int:
    """Files of an hour each, one after another; returns how many events they have."""
    folder.mkdir(parents=True)
    count = setup.file_bytes // 190
    lines = (
        f'{{"ts":"{_HOUR}:{at * 60 // count:02}:{at * 3600 // count % 60:02}.{at % 1000:03}Z",'
        f'"user":"user-{at * 7919 % 100_003}","path":"/shop/{at % 977}","status":{200 + at % 5},'
        f'"agent":"Mozilla/5.0 (X11; Linux) {at * 2_654_435_761 % 2**32:x}","bytes":{at * 31}}}'
        for at in range(count)
    )
    text = "\n".join(lines).encode() + b"\n"
    files = max(1, round(setup.gigabytes * 1e9 / len(text)))
    for number in range(files):
        hour = f"2026-{11 + number // 720:02}-{1 + number // 24 % 30:02}T{number % 24:02}"
        (folder / f"{number:05}.jsonl").write_bytes(text.replace(_HOUR.encode(), hour.encode()))
    return files * count


class _Processes:
    """The processes of this machine, by what they do in the cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_worker(self, number: int) -> list[int]:
        """A worker, its executor, and the executor's Python processes."""
        place = str(self._folder / f"worker-{number}")
        return [
            pid
            for pid, command, where in self._all()
            if where.startswith(f"{place}/") or f" -d {place} " in command
        ]

    def sizes_mb(self) -> Iterator[tuple[str, int]]:
        """What each process is, and the most memory that it has had."""
        for pid, command, where in self._all():
            with suppress(OSError, ValueError):  # it ended meanwhile
                (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
                if where.startswith(f"{self._folder}/worker-"):
                    yield ("executor's JVM" if "java" in command else "task"), int(line) // 1000
                elif "ingest.py" in command:
                    yield ("driver's JVM" if "java" in command else "driver"), int(line) // 1000

    def _all(self) -> Iterator[tuple[int, str, str]]:
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                with suppress(OSError):
                    command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    yield int(each.name), command, str((each / "cwd").readlink())


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


@contextmanager
def _beside(act: Any, *given: Any) -> Iterator[None]:
    """Call `act(over, …)` in a thread until the block ends, when the event `over` is set."""
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over, *given))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _measure(over: threading.Event, processes: _Processes, outcome: Outcome) -> None:
    while not over.wait(0.5):
        for name, size_mb in processes.sizes_mb():
            outcome.peak_mb[name] = max(outcome.peak_mb[name], size_mb)


def _stand_still(over: threading.Event, processes: _Processes) -> None:
    while not over.wait(1):
        pids = processes.of_worker(_SLOW)
        _signal(pids, signal.SIGSTOP)
        over.wait(1)
        _signal(pids, signal.SIGCONT)


def _kill(
    over: threading.Event, log: Path, processes: _Processes, setup: Setup, outcome: Outcome
) -> None:
    """Kill a worker in each stage, some time after the log says that the stage began."""
    for stage, number in _STAGES.items():
        while not (log.exists() and stage in log.read_text()):
            if over.wait(0.2):
                return
        if over.wait(setup.after_s):
            return
        _signal(processes.of_worker(number), signal.SIGKILL)
        outcome.killed.append(f"worker {number} in {stage!r}")


def played(root: Path, setup: Setup) -> Outcome:
    """Ingest on a cluster. Raises AssertionError if something is missing or twice."""
    outcome, access = Outcome(), root / "access.log"
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(root, access))
        outcome.events = write_events(server.folder / BUCKET / "in", setup)
        outcome.input_bytes = sum(
            p.stat().st_size for p in (server.folder / BUCKET / "in").iterdir()
        )
        place = {**os.environ, **environment(server), "PYTHONPATH": str(_PROJECT / "src"),
                 "PYSPARK_PYTHON": sys.executable}  # fmt: skip
        cluster = root / "cluster"
        cluster.mkdir()
        master = stack.enter_context(
            standalone_cluster(cluster, workers=_WORKERS, environment=place)
        )
        processes, log = _Processes(cluster), root / "job.log"
        for act in ((_measure, processes, outcome), (_stand_still, processes),
                    (_kill, log, processes, setup, outcome)):  # fmt: skip
            stack.enter_context(_beside(*act))
        begun = time.monotonic()
        outcome.report = _submitted(root, setup, master, log, place)
        outcome.took_s = time.monotonic() - begun
        _require_all(outcome, environment(server))
    for line in access.read_text().splitlines():
        _count(line, outcome)
    return outcome


def _submitted(
    root: Path, setup: Setup, master: str, log: Path, place: dict[str, str]
) -> dict[str, Any]:
    conf = root / "events.toml"
    conf.write_text(_PIPELINE.format(bucket=BUCKET, partitions=setup.partitions))
    command: list[str | Path] = [
        Path(sys.executable).parent / "spark-submit", "--master", master,
        "--conf=spark.ui.enabled=false", "--conf=spark.executor.memory=512m",
        "--conf=spark.driver.host=127.0.0.1", _PROJECT / "jobs" / "ingest.py",
        "--conf-file", conf, "--run-id", "first",
    ]  # fmt: skip
    with log.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False, env=place)
    told = log.read_text()
    if done.returncode:
        raise AssertionError(f"exit code {done.returncode}:\n{told[-5000:]}")
    report: dict[str, Any] = json.loads(next(x for x in told.splitlines() if x.startswith("{")))
    return report


def _require_all(outcome: Outcome, place: dict[str, str]) -> None:
    options = {name.lower(): value for name, value in place.items()}
    log = Lake(open_store(f"s3://{BUCKET}/lake", options)).topic("events")
    starts, ends = log.beginning_offsets(), log.end_offsets()
    held = sum(ends[partition] - starts[partition] for partition in ends)
    if not outcome.events == outcome.report["records"] == held:
        raise AssertionError(f"{outcome.events} events, {held} records: {outcome.report}")


_REQUEST = re.compile(r" s3_(?P<kind>\w+) (?P<key>\S+) (?P<path>\S+) \d+ ")
_AREAS = {"in/": "input", "in%2F": "input", "blobs": "spool", "topics": "segments",
          "catalog": "catalog"}  # fmt: skip


def _count(line: str, outcome: Outcome) -> None:
    if request := _REQUEST.search(line):
        areas = (area for part, area in _AREAS.items() if part in request["path"])
        outcome.requests[f"{request['kind']}, {next(areas, 'other')}"] += 1
