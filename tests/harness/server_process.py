"""`seglake serve` as people start it: a process of its own, and what it takes of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seglake.serve.settings import Address
from tests.harness.ports import free_ports

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


class ServerProcess:
    """A running server; `stop` ends it as an operator does, and returns its exit code."""

    def __init__(self, process: subprocess.Popen[str], address: Address, printed: Path) -> None:
        self.process, self.address, self.printed = process, address, printed

    def __str__(self) -> str:
        return str(self.address)

    def memory_mb(self) -> float:
        """Its resident memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208  # names alone

    def stop(self) -> int:
        """SIGTERM, and wait."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@contextmanager
def server_process(root: Path | str, folder: Path, *options: str) -> Iterator[ServerProcess]:
    """A server of the lake at `root` on a free port; its log goes to a file in `folder`."""
    (port,) = free_ports(1)
    address, printed = Address("127.0.0.1", port), folder / f"serve-{port}.log"
    command = [sys.executable, "-m", "seglake", "serve", str(root), "--listen", str(address)]
    env = {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "XDG_STATE_HOME": str(folder)}
    with printed.open("w") as log:
        process = subprocess.Popen(
            [*command, *options], env=env, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        line = process.stdout.readline() if process.stdout else ""
        assert line.startswith("serving "), printed.read_text()
        yield ServerProcess(process, address, printed)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        if process.stdout:
            process.stdout.close()
