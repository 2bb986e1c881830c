"""`seglake serve` as a program of its own, which can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.ports import free_ports

PATIENCE_S = 60


class ServeProgram:
    """The program on a lake, on one port for ever, with a file of settings."""

    def __init__(self, root: Path, folder: Path, settings: str = "", listen: str = "127.0.0.1"):
        (port,) = free_ports(1)
        self.address, self._log = f"{listen}:{port}", folder / "serve.log"
        config = folder / "serve.toml"
        config.write_text(f'[groups]\nfile = "{folder / "groups.sqlite"}"\n{settings}')
        self._command = [sys.executable, "-m", "seglake", "serve", str(root), "--listen"]
        self._command += [self.address, "--conf-file", str(config)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ServeProgram:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=dict(os.environ)
            )
        deadline = time.monotonic() + PATIENCE_S
        while "serving " not in self.told()[before:]:
            assert self._process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)

    def told(self) -> str:
        """Its log."""
        return self._log.read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(how)
        return process.wait(PATIENCE_S)
