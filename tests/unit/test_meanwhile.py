"""What answers before the kernels are compiled: nobody waits, and the answers are the same."""

import fcntl
import hashlib
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.compile import fallback
from seglake.compile.fallback import BESIDE, WAITS
from seglake.datasource import SeglakeDataSource
from tests.makers.lakes import Event, LakeMaker, Shape, T

EVENTS = 600

READS = """
import hashlib, sys
import seglake
T = 1_700_000_000_000
log = seglake.open(sys.argv[1]).topic("events")
said = []
for first, last in [(T, T + 100), (T + 90, T + 300), (T, T + 10**6)] * 2:
    said.append(log.read_range(first, last).read_all().to_pylist())
    said.append(log.read_range(first, last, order="time").read_all().to_pylist())
    said.append(log.read_range(first, last, columns=["key"]).read_all().to_pylist())
    said.append(log.offsets_for_times({0: first, 1: last}))
    said.append([log.record_at(p, n) for p, n in [(0, 3), (1, 40)]])
said = repr(said)
"""
COUNTED = """
from numba.core import event
class Compiled(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].__name__)
    def on_end(self, event):
        pass
event.register("numba:compile", Compiled())
from seglake.compile import fallback
"""
PRINTED = "print(hashlib.sha256(said.encode()).hexdigest(), *sorted(Compiled.names))\n"
FIRST = """
import numpy as np
from seglake.log.fetch_kernels import covering
batches = np.arange(5), np.arange(1, 6)
print(covering(*batches, np.array([0]), np.array([3]), np.empty(5, np.int64)), *Compiled.names[:1])
"""
WORKER = """
import pickle
from pathlib import Path
class Runs:
    poll = lambda self: None
fallback.subprocess.Popen = lambda *_, **__: Runs()
reader, tasks = pickle.loads(Path(sys.argv[1]).read_bytes())
said = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
said = repr([(row["partition"], row["offset"], row["value"]) for row in said])
"""
COMES = "fallback.BESIDE.compiles = lambda: True\n"
NOTHING_BESIDE = "fallback.BESIDE.compiles = lambda: False\n"

pytestmark = [
    pytest.mark.slow,  # processes of their own, which compile
    pytest.mark.skipif(sys.platform != "linux", reason="nothing compiles beside elsewhere"),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with several codecs, headers in none."""
    maker = LakeMaker(tmp_path_factory.mktemp("fresh") / "lake", partitions=2)
    rows = [Event(T + 5 * i, b"k%d" % (i % 7), b"v" * (i % 90)) for i in range(EVENTS)]
    for number, codec in enumerate(["none", "zstd", "lz4"]):
        part = rows[number * 200 : (number + 1) * 200]
        maker.run({0: part[::2], 1: part[1::2]}, Shape(codec))
    return maker.root


def answers(lake: Path) -> str:
    """The hash of what this process says, where the kernels are compiled."""
    scope: dict[str, Any] = {}
    argv, sys.argv = sys.argv, ["", str(lake)]
    exec(READS, scope)  # the source that the other processes run
    sys.argv = argv
    return hashlib.sha256(scope["said"].encode()).hexdigest()


def fresh(tmp_path: Path, source: str, *arguments: str, **more: str) -> tuple[str, str]:
    """What a process prints, on both streams, that has no kernel."""
    environment = {**os.environ, WAITS: "", "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    environment |= {"PYTHONPATH": str(Path(seglake.__file__).parents[1]), **more}
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], env=environment, text=True, check=False,
        capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_first_reads_compile_nothing_and_say_the_same(lake: Path, tmp_path: Path) -> None:
    said, errors = fresh(tmp_path, COUNTED + COMES + READS + PRINTED, str(lake))
    assert said.split() == [answers(lake)]
    assert not errors


def test_without_a_process_beside_a_call_says_what_it_waits_for(tmp_path: Path) -> None:
    said, errors = fresh(tmp_path, COUNTED + NOTHING_BESIDE + FIRST)
    assert said == "3 covering\n"
    (line,) = errors.splitlines()
    assert "waits for the compiler" in line
    assert "a minute" in line
    assert "`seglake warm`" in line


def test_a_task_of_spark_answers_in_a_worker_without_kernels(lake: Path, tmp_path: Path) -> None:
    """A worker gets the pickled reader and its tasks; its standard error is its log."""
    source = SeglakeDataSource({"path": str(lake), "subscribe": "events"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    (tmp_path / "work").write_bytes(pickle.dumps((reader, tasks)))
    here = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    wanted = repr([(row["partition"], row["offset"], row["value"]) for row in here])
    assert len(here) == EVENTS
    said, errors = fresh(
        tmp_path, "import hashlib, sys\n" + COUNTED + WORKER + PRINTED, str(tmp_path / "work")
    )
    assert said.split() == [hashlib.sha256(wanted.encode()).hexdigest()]
    (line,) = errors.splitlines()
    assert "kernels in a background process" in line
    assert "`seglake warm`" in line


@pytest.mark.rest
def test_a_call_without_another_way_says_what_it_waits_for(tmp_path: Path) -> None:
    source = """
from seglake.format.records import Spans
from seglake.text.utf8 import invalid_utf8
print(invalid_utf8(*Spans.from_list([b"a", b"\\xff"])).tolist())
"""
    said, errors = fresh(tmp_path, source)
    assert said == "[False, True]\n"
    (line,) = errors.splitlines()
    assert "(kernel " in line
    assert "`seglake warm`" in line
    assert fresh(tmp_path, source) == ("[False, True]\n", "")  # it is there now


@pytest.mark.rest
def test_it_is_told_once_for_an_installation(tmp_path: Path) -> None:
    """Not by each process that has to wait; another place for kernels is another one."""
    _, errors = fresh(tmp_path, COUNTED + NOTHING_BESIDE + FIRST)
    assert "first use of an installation" in errors
    other = """
from seglake.format.records import Spans
from seglake.text.utf8 import invalid_utf8
print(invalid_utf8(*Spans.from_list([b"a"])).tolist(), len(Compiled.names) > 0)
"""
    assert fresh(tmp_path, COUNTED + NOTHING_BESIDE + other) == ("[False] True\n", "")
    elsewhere = {"NUMBA_CACHE_DIR": str(tmp_path / "elsewhere")}
    assert fresh(tmp_path, COUNTED + NOTHING_BESIDE + FIRST, **elsewhere)[1] == errors


def test_who_asks_to_wait_is_told_nothing(tmp_path: Path) -> None:
    assert fresh(tmp_path, COUNTED + FIRST, **{WAITS: "wait"}) == ("3 covering\n", "")


def test_what_is_no_small_work_is_compiled(tmp_path: Path) -> None:
    too_much = FIRST.replace("print", "covering._compile_for_args._seconds = 6\nprint")
    said, errors = fresh(tmp_path, COUNTED + COMES + FIRST)
    assert (said, errors) == ("3\n", "")
    said, errors = fresh(tmp_path, COUNTED + COMES + too_much)
    assert said == "3 covering\n"
    assert "(kernel covering)" in errors


def test_numbers_of_an_interpreted_kernel_are_those_of_machine_code(tmp_path: Path) -> None:
    """Rows have 64 bits and integers wrap; results are Python's numbers."""
    source = COUNTED + COMES + "import numpy as np\nfrom seglake.format.batch import TABLE\n"
    source += "from seglake.format.decode_kernels import check_positions as check\n"
    source += "table = np.zeros(2, TABLE)\ntable['size'] = 2**31 - 1\n"
    source += "table['position'] = 2**31\n"
    source += "print(check(table, 2**62), [type(n).__name__ for n in check(table, 5)])"
    assert fresh(tmp_path, source) == ("(-1, 0) ['int', 'int']\n", "")


class Process:
    """A process that lives as long as nobody ends it."""

    ended: int | None = None

    def poll(self) -> int | None:
        return self.ended


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that `BESIDE` starts, with a folder of its own for its lock."""
    commands = list[list[str]]()
    process = Process()

    def start(command: list[str], **_: Any) -> Process:
        commands.append(command)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(fallback, "own_folder", lambda: tmp_path)
    monkeypatch.setattr(BESIDE, "_process", None)
    return commands


def test_a_process_beside_starts_once(started: list[list[str]]) -> None:
    assert BESIDE.compiles()
    assert BESIDE.compiles()
    assert started == [[sys.executable, "-m", "seglake.warm", "--beside"]]
    process: Any = BESIDE._process
    process.ended = 1
    assert not BESIDE.compiles()  # it ended, and the kernel is not there: the call waits
    assert len(started) == 1


def test_one_process_compiles_for_all(started: list[list[str]], tmp_path: Path) -> None:
    with (tmp_path / f"{fallback._place()}.compiles").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert BESIDE.compiles()
    assert not started
    assert BESIDE.compiles()
    assert len(started) == 1


@pytest.mark.rest
@pytest.mark.long
def test_the_process_beside_compiles_what_reads_need(lake: Path, tmp_path: Path) -> None:
    """Its kernels are loaded by whoever began without them, and by others."""
    temporary = {"TMPDIR": str(tmp_path)}
    said, errors = fresh(tmp_path, COUNTED + READS + PRINTED, str(lake), **temporary)
    assert said.split() == [answers(lake)]
    (line,) = errors.splitlines()
    assert "a background process" in line
    assert "`seglake warm`" in line
    (lock,) = tmp_path.glob("seglake-kernels-*/*.compiles")
    wait_for(lock)
    errors = COUNTED + NOTHING_BESIDE + READS + PRINTED
    assert fresh(tmp_path, errors, str(lake), **temporary) == (said, "")


def wait_for(lock: Path) -> None:
    """Until the process that has the lock ends."""
    with lock.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.5)
            else:
                return
