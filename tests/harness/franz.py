"""A Go client, built once with franz-go from `tests/clients/franz`, as a program."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = PROJECT / "tests" / "clients" / "franz"
CACHE = PROJECT / ".franz"


class NoGoError(RuntimeError):
    """The program is not cached and cannot be built."""


class FranzRecord(NamedTuple):
    """A record as the program prints it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_topic(address: str, topic: str, count: int) -> list[FranzRecord]:
    """The records of a topic, in the order of partitions and offsets, at least `count` of them.

    More than these are there if they come in a moment. Raises NoGoError.
    """
    command = [str(_program()), address, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(
        FranzRecord(partition, offset, timestamp, _bytes(key), _bytes(value))
        for partition, offset, timestamp, key, value in found
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _program() -> Path:
    sources = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))
    program = CACHE / hashlib.sha256(sources).hexdigest()[:16]
    if not program.is_file():
        go = shutil.which("go")
        if go is None:
            raise NoGoError("the client of franz-go is built with Go, and there is no go in PATH")
        CACHE.mkdir(exist_ok=True)
        scratch = program.with_name(f"{program.name}.{os.getpid()}")
        build = [go, "build", "-o", str(scratch), "."]
        done = subprocess.run(build, cwd=SOURCES, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoGoError(f"go build: {done.stderr.strip()}")
        scratch.rename(program)
    return program
