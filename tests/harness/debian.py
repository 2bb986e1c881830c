"""Programs out of Debian's packages, unpacked below the project root; nothing is installed.

Only `apt-get update`, where the machine has no lists of packages, needs the rights of root.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


class NoPackageError(RuntimeError):
    """The packages are not there, and cannot be fetched."""


def unpacked(folder: Path, packages: Sequence[str]) -> dict[str, str]:
    """The environment in which programs below `folder` run; it is filled first if it is not there.

    Raises NoPackageError.
    """
    if not folder.is_dir():
        _fetch(folder, packages)
    libraries = {str(library.parent) for library in folder.glob("usr/lib/*-linux-gnu/**/*.so*")}
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries))}


def _fetch(folder: Path, packages: Sequence[str]) -> None:
    if not shutil.which("apt-get"):
        raise NoPackageError(f"no {packages[0]} in PATH, and no apt-get that fetches one")
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir()
    try:
        try:
            _download(scratch, packages)
        except NoPackageError:  # the lists of packages are missing, or old
            _run(["apt-get", "update"], scratch)
            _download(scratch, packages)
        for package in scratch.glob("*.deb"):
            _run(["dpkg", "-x", str(package), "."], scratch)
            package.unlink()
        if not folder.is_dir():
            scratch.rename(folder)  # whole or absent
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(scratch: Path, packages: Sequence[str]) -> None:
    """Download the packages, and those that they need and the machine lacks."""
    plan = _run(["apt-get", "install", "-s", "--no-install-recommends", *packages], scratch)
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _run(["apt-get", "download", *names], scratch)


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoPackageError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
