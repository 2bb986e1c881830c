"""Kernels of a package that cannot be written to, for a user without a home."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seglake

USE = """
import logging, sys
logging.basicConfig(format="%(message)s")
import seglake
from seglake.format.batch import TABLE
from seglake.format.records import Spans
from seglake.text.utf8 import invalid_utf8
import seglake.text.newlines, seglake.times.kernels
assert seglake.__file__.startswith(sys.argv[1])
print(invalid_utf8(*Spans.of([b"a", b"\\xff"])).tolist())
"""
DAC_OVERRIDE, CAPBSET_DROP = 1, 24

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to obey permissions")


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A copy of the sources that nobody may write to."""
    copy = tmp_path / "package"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(seglake.__file__).parent, copy / "seglake", ignore=ignored)
    folders = [copy, *(path for path in copy.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield copy
    for folder in folders:
        folder.chmod(0o755)


def obey_permissions() -> None:
    """After the next exec, root has no right to pass them over."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(CAPBSET_DROP, DAC_OVERRIDE, 0, 0, 0) == 0


def used(package: Path, temporary: Path) -> list[str]:
    """What a process says that uses kernels; every folder of its user is `package`."""
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(package), "TMPDIR": str(temporary),
        "HOME": str(package / "none"), "XDG_CACHE_HOME": str(package / "none"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", USE, str(package)], env=environment, text=True, check=False,
        capture_output=True, preexec_fn=obey_permissions, cwd=temporary,
    )  # fmt: skip
    assert done.stdout == "[False, True]\n", done.stderr
    return done.stderr.splitlines()


def test_kernels_are_cached_in_a_temporary_folder(package: Path, tmp_path: Path) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    (said,) = used(package, temporary)
    folder = temporary / f"seglake-kernels-{os.geteuid()}"
    assert str(folder) in said
    assert folder.stat().st_mode & 0o777 == 0o700
    compiled = {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")}
    assert compiled
    assert used(package, temporary) == [said]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")} == compiled


def test_kernels_of_a_folder_that_others_can_write_to_are_not_loaded(
    package: Path, tmp_path: Path
) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    folder = temporary / f"seglake-kernels-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    (said,) = used(package, temporary)
    assert "every process compiles them again" in said
    assert not [*folder.iterdir()]
