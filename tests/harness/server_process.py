"""`seglake serve` as people start it: a process of its own, to be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from seglake.serve.settings import Address
from tests.harness.ports import free_ports

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300


class ServerProcess:
    """The program on a lake, on one port for ever; `settings` are more lines of its TOML file.

    Its log and its groups are files in `folder`.
    """

    def __init__(
        self,
        root: Path | str,
        folder: Path,
        *options: str,
        settings: str = "",
        listen: str = "127.0.0.1",
    ) -> None:
        (port,) = free_ports(1)
        self.address, self._log = Address(listen, port), folder / f"serve-{port}.log"
        self._command = [sys.executable, "-m", "seglake", "serve", str(root)]
        self._command += ["--listen", str(self.address), *options]
        if "--conf-file" not in options:
            conf_file = folder / f"serve-{port}.toml"
            groups = folder / f"groups-{port}.sqlite"
            conf_file.write_text(f'[groups]\nfile = "{groups}"\n{settings}')
            self._command += ["--conf-file", str(conf_file)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def start(self) -> None:
        """Start it, and wait until it serves."""
        before = self._log.stat().st_size if self._log.exists() else 0
        env = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=env
            )
        deadline = time.monotonic() + PATIENCE_S
        while "serving " not in self.told()[before:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise AssertionError(self.told())
            time.sleep(0.05)

    def told(self) -> str:
        """What it printed and logged."""
        return self._log.read_text()

    def memory_mb(self) -> float:
        """Its resident memory now."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def threads(self) -> int:
        """Its threads."""
        return len([*Path(f"/proc/{self._pid}/task").iterdir()])

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self._pid}/fd"))  # noqa: PTH208  # names alone

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(how)
        return process.wait(PATIENCE_S)

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid
