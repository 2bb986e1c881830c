"""Bad disks: a call of the system fails, now and then or for good; an ingest survives it."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog import transaction
from tests.harness.survival import assert_survives, two_files
from tests.harness.tiers import rest_but_today
from tests.makers.raw_events import ingest, pipeline_of

PROJECT = Path(__file__).parents[3]
CALLS = ("open", "pread", "preadv", "link", "replace", "scandir", "unlink")  # those of the system
PLACES = 6  # in an ingest at which each fault is tried

Fault = Callable[..., Any]


def refused(code: int) -> Fault:
    def fault(_real: Any, *given: Any, **_named: Any) -> Any:
        raise OSError(
            code, os.strerror(code), *(each for each in given[:1] if str(each)[:1] == "/")
        )

    return fault


def lost(real: Any, *given: Any, **named: Any) -> Any:
    """It was done, but says that it was not."""
    done = real(*given, **named)
    if isinstance(done, int) and real.__name__ == "open":
        os.close(done)
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def short(real: Any, *given: Any, **named: Any) -> Any:
    """A read gives some of the bytes, as it may."""
    if real.__name__ == "pread":
        fd, size, position = given
        return real(fd, max(1, size // 2), position)
    if real.__name__ == "preadv":
        fd, (buffer,), position = given
        return real(fd, [memoryview(buffer)[: max(1, len(buffer) // 2)]], position)
    return real(*given, **named)


FAULTS = {
    "EIO": refused(errno.EIO),
    "ENOSPC": refused(errno.ENOSPC),
    "EACCES": refused(errno.EACCES),
    "ETIMEDOUT": refused(errno.ETIMEDOUT),
    "lost": lost,
    "short": short,
}


@contextmanager
def disk(fault: Fault, first: int, last: int | None = None) -> Iterator[list[str]]:
    """From its `first` call to its `last`, counted from 0, the system does what `fault` does."""
    calls: list[str] = []

    def instead(real: Any, *given: Any, **named: Any) -> Any:
        calls.append(real.__name__)
        struck = first < len(calls) and (last is None or len(calls) <= last)
        return fault(real, *given, **named) if struck else real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "PAUSE_S", 0.0)
        for name in CALLS:
            real = getattr(os, name)
            patch.setattr(os, name, lambda *a, real=real, **n: instead(real, *a, **n))
        yield calls


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return two_files(tmp_path / "in")


def survive(lake: Path, paths: list[Path], fault: AbstractContextManager[Any]) -> str:
    named = f"{lake.parent}|topics/"
    return assert_survives(pipeline_of(lake, paths), paths, fault, named)


@pytest.fixture
def count(tmp_path: Path, paths: list[Path]) -> int:
    """How many calls an ingest makes."""
    with disk(short, 10**9) as calls:
        ingest(pipeline_of(tmp_path / "first", paths))
    assert set(calls) >= {"open", "pread", "preadv", "link", "replace"}
    return len(calls)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_but_today(FAULTS, 2))
def test_one_fault_anywhere(tmp_path: Path, paths: list[Path], count: int, name: str) -> None:
    start = 1 + list(FAULTS).index(name)
    ended = [
        survive(tmp_path / str(at), paths, disk(FAULTS[name], at, at + 1))
        for at in range(start, count, count // PLACES)
    ]
    assert name != "short" or set(ended) == {"committed"}


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_but_today(["EIO", "ENOSPC", "EACCES"]))
def test_a_disk_that_fails_from_some_moment_on(
    tmp_path: Path, paths: list[Path], count: int, name: str
) -> None:
    reason = os.strerror(getattr(errno, name))
    ended = [
        survive(tmp_path / str(at), paths, disk(FAULTS[name], at))
        for at in range(0, count, count // PLACES)
    ]
    assert all(reason in each for each in ended if each != "committed")
    assert sum(reason in each for each in ended) > PLACES // 2  # only cleaning up may fail unseen


def test_short_reads_all_the_time(tmp_path: Path, paths: list[Path]) -> None:
    assert survive(tmp_path / "lake", paths, disk(short, 0)) == "committed"


# ------------------------------------------------------------------ real disks

PROGRAM = """
import os, sys
from pathlib import Path
from seglake.errors import SeglakeError
from tests.makers.raw_events import Line, T, assert_holds, ingest, pipeline_of, read_lake
from tests.makers.raw_events import write_file
from tests.harness.survival import visible

def limit_space(size):
    ballast.unlink(missing_ok=True)
    if size is not None:
        free = os.statvfs(folder)
        ballast.write_bytes(bytes(max(free.f_bavail * free.f_frsize - size, 0)))

folder, inputs = Path(sys.argv[1]), Path(sys.argv[2])
ballast = folder / "ballast"
path = write_file(inputs / "a.jsonl", [Line(T + n, "abc"[n % 3]) for n in range(300)])
ended = []
for size in map(int, sys.argv[3:]):
    settings = pipeline_of(folder / str(size), path)
    limit_space(size)
    try:
        ended.append(ingest(settings).status)
    except SeglakeError as error:
        ended.append(f"{type(error).__name__}: {error}")
        assert str(folder) in ended[-1] and "\\n" not in ended[-1], ended
    limit_space(None)
    assert visible(settings.root) in ([300] if ended[-1] == "committed" else [0, 300])
    ingest(settings)
    assert_holds(read_lake(settings.root), settings, [[path]])
print(*ended, sep="\\n")
"""


def run(program: str, *arguments: str, inside: Sequence[str] = ()) -> list[str]:
    """What a program prints that runs in a process of its own, `inside` which it is started."""
    command = [*inside, sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def only_where(command: Sequence[str]) -> None:
    """Skip the test unless this may be done."""
    if not shutil.which(command[0]) or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip(f"{command[0]} needs more rights")


@pytest.mark.rest
@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """A small file system of its own, in a mount namespace that ends with the process."""
    small = tmp_path / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=4m none {small} && exec "$@"'
    inside = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    only_where(inside)
    sizes = ["0", "4096", "16384", "30000", "50000", "70000", "100000", "2000000"]
    ended = run(PROGRAM, str(small), str(tmp_path / "in"), *sizes, inside=inside)
    assert ended.pop() == "committed"
    failed = [each for each in ended if each != "committed"]
    assert len(failed) > 2
    assert all("No space left" in each for each in failed)


FORBIDDEN = """
import sys
from pathlib import Path
import seglake
from seglake.errors import InputError, SeglakeError, StoreError
from seglake.maintain.health.verify import verify
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

folder = Path(sys.argv[1])
one, two = (write_file(folder / "in" / name, [Line(T)]) for name in ("a.jsonl", "b.jsonl"))
lake = folder / "lake"
ingest(pipeline_of(lake, one))
log = next(lake.glob("topics/*/*/*.log"))

def told(kind, path, act, mode=0):
    # what is said when a file or folder may not be read, or not be written to
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        found = str(act())
    except kind as error:
        found = str(error)
    finally:
        path.chmod(before)
    assert "ermission denied" in found, (path, found)
    assert str(path.relative_to(folder)).removesuffix("/_delta_log") in found, (path, found)

def problems():
    return [f"{each.file} {each.problem}" for each in verify(str(lake)).findings]

told(InputError, two, lambda: ingest(pipeline_of(lake, two), "2"))
told(StoreError, log, lambda: read_lake(lake))
told(StoreError, lake / "catalog/log/_delta_log", lambda: seglake.open(str(lake)))
for part in (log.parent.parent, lake / "attempts", lake / "catalog/log/_delta_log"):
    told(StoreError, part, lambda: ingest(pipeline_of(lake, two), "2"), mode=0o500)
folder = lake
told(StoreError, log, problems)
assert sum(map(len, read_lake(lake).values())) == 1
ingest(pipeline_of(lake, two), "2")
assert sum(map(len, read_lake(lake).values())) == 2
"""


@pytest.mark.rest
@pytest.mark.slow
def test_files_without_the_right_to_them(tmp_path: Path) -> None:
    """The root user has every right, unless it gives up those two."""
    rights = "-dac_override,-dac_read_search"
    inside = ["setpriv", "--inh-caps", rights, "--bounding-set", rights] if not os.getuid() else []
    if inside:
        only_where(inside)
    assert run(FORBIDDEN, str(tmp_path), inside=inside) == []
