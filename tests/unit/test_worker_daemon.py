"""The daemon of Python workers: what is printed when Spark closes a worker."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pyspark
import pytest

AS_SPARK_STARTS_IT = {
    "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "true",
    "PYTHON_UNIX_DOMAIN_ENABLED": "true",
    "SPARK_REUSE_WORKER": "1",
}


@contextmanager
def daemon(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "seglake.worker_daemon", "pyspark.worker"]
    environment = {**AS_SPARK_STARTS_IT, "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder)}
    process = subprocess.Popen(
        command, env=os.environ | environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def number(file: IO[bytes]) -> int:
    return int.from_bytes(file.read(4), "big")


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise TimeoutError(f"process {pid} is still there")


@pytest.mark.skipif(
    pyspark.__version__ < "4.1", reason="before 4.1, Spark has no such sockets for its workers"
)
def test_a_worker_that_spark_closes_prints_nothing() -> None:
    with TemporaryDirectory() as folder, daemon(Path(folder)) as process:  # of a short name
        assert process.stdin
        assert process.stdout
        assert process.stderr
        path = process.stdout.read(number(process.stdout)).decode()
        with socket.socket(socket.AF_UNIX) as idle, idle.makefile("rb") as answers:
            idle.connect(path)
            worker = number(answers)
        wait_until_gone(worker)
        process.stdin.close()  # as Spark ends the daemon
        assert process.stderr.read() == b""
