"""Environments with other versions of Python's packages, built once below `.clients`."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".clients"


class NoEnvironmentError(RuntimeError):
    """The packages cannot be fetched, or are none for this Python."""


def python_with(requirements: Sequence[str]) -> Path:
    """A Python with nothing but these packages and what they need. Raises NoEnvironmentError."""
    made_of = "\n".join([sys.version, *requirements])
    folder = CACHE / f"python-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        _build(folder, requirements)
    return folder / "bin" / "python"


def _build(folder: Path, requirements: Sequence[str]) -> None:
    CACHE.mkdir(exist_ok=True)
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    pip = [sys.executable, "-m", "pip", "--python", str(scratch / "bin" / "python")]
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", str(scratch)])
        _run([*pip, "install", "--quiet", "--only-binary", ":all:", *requirements])
        if not folder.is_dir():
            scratch.rename(folder)  # whole or absent
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEnvironmentError(f"{' '.join(command)}: {done.stderr.strip()}")
