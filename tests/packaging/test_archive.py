"""The packed environment as a stranger runs it: no rights, no home, nothing that can be written.

The file system is read-only, temporary files included, and the user has no name. It needs root to
make such a place.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makers.lakes import Event, LakeMaker, T

STRANGER = "2000"
IN_A_READ_ONLY_PLACE = """
mount -o remount,ro,bind / || exit 9
cd / && exec env -i PATH=/usr/bin:/bin \\
  setpriv --reuid {user} --regid {user} --clear-groups "$@"
"""
READ = """
import os, pathlib, sys, tempfile
assert os.getuid() == {user} and "HOME" not in os.environ
for folder in ("/", "/tmp", "/var/tmp", sys.prefix):
    try:
        pathlib.Path(folder, "written").touch()
    except OSError:
        continue
    raise AssertionError(folder)
import seglake
assert seglake.__file__.startswith(sys.prefix)
log = seglake.open(sys.argv[1]).topic("events")
assert log.offsets_for_times({{0: {time}}})[0].offset == 50
assert log.read_range({time}, {time} + 10).read_all().num_rows == 10
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, with the environment and a lake."""
    folder = Path(tempfile.mkdtemp(prefix="seglake-stranger-"))
    folder.chmod(0o755)
    (folder / "env").mkdir()
    archive = os.environ["SEGLAKE_ARCHIVE"]
    subprocess.run(["tar", "-C", folder / "env", "-xzf", archive], check=True)
    maker = LakeMaker(folder / "lake")
    maker.run({0: [Event(T + i, b"k", b"v") for i in range(100)]})
    yield folder
    shutil.rmtree(folder)


def stranger(*command: str | Path) -> subprocess.CompletedProcess[str]:
    script = IN_A_READ_ONLY_PLACE.format(user=STRANGER)
    whole = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False)


def test_a_stranger_reads(place: Path) -> None:
    program = READ.format(user=STRANGER, time=T + 50)
    done = stranger(place / "env" / "bin" / "python", "-c", program, place / "lake")
    assert (done.returncode, done.stderr) == (0, "")  # nor was a kernel compiled


def test_the_program_of_the_archive(place: Path) -> None:
    python = place / "env" / "bin" / "python"
    done = stranger(python, "-m", "seglake", "read", place / "lake", "events", "--max-records", "3")
    assert len(done.stdout.splitlines()) == 3, done.stderr


def test_the_archive_has_no_spark(place: Path) -> None:
    """Spark brings its own, and half a gigabyte more would travel with every run."""
    done = stranger(place / "env" / "bin" / "python", "-c", "import pyspark")
    assert "No module named 'pyspark'" in done.stderr
