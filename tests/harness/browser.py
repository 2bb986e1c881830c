"""A headless Chromium for looking at pages: that of the machine, or Debian's, fetched once.

Debian's packages are unpacked into `.browser/` under the project root; nothing is installed. Only
`apt-get update`, where the machine has no lists of packages, needs the rights of root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CACHE = Path(__file__).resolve().parents[2] / ".browser"
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
NAMES = ("chromium", "chromium-headless-shell", "google-chrome")


class NoBrowserError(RuntimeError):
    """There is no browser, and none can be fetched."""


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser. Raises NoBrowserError."""
    program, environment = _program()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, env={**environment}, args=["--no-sandbox"]
        )
        try:
            yield running
        finally:
            running.close()


def _program() -> tuple[str, dict[str, str]]:
    """The program, and the environment in which it runs."""
    for found in filter(None, map(shutil.which, NAMES)):
        return found, dict(os.environ)
    if not CACHE.is_dir():
        _fetch(CACHE)
    (program,) = CACHE.glob("usr/lib/chromium/chromium-headless-shell")
    folders = {str(library.parent) for library in CACHE.glob("usr/lib/*-linux-gnu/**/*.so*")}
    return str(program), {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(sorted(folders))}


def _fetch(folder: Path) -> None:
    if not shutil.which("apt-get"):
        raise NoBrowserError("no Chromium in PATH, and no apt-get that fetches one: install it")
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir()
    try:
        try:
            _download(scratch)
        except NoBrowserError:  # the lists of packages are missing, or old
            _run(["apt-get", "update"], scratch)
            _download(scratch)
        for package in scratch.glob("*.deb"):
            _run(["dpkg", "-x", str(package), "."], scratch)
            package.unlink()
        if not folder.is_dir():
            scratch.rename(folder)  # whole or absent
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(scratch: Path) -> None:
    """Download the packages, and those that they need and the machine lacks."""
    plan = _run(["apt-get", "install", "-s", "--no-install-recommends", *PACKAGES], scratch)
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _run(["apt-get", "download", *names], scratch)


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoBrowserError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
