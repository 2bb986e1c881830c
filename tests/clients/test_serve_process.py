"""The server as a process: its command line and its end."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.lake_server import Wire
from tests.harness.server_process import PROJECT, ServerProcess
from tests.makers.fetches import LATEST, Wanted, fetch_request, offset_at
from tests.makers.lakes import Event, LakeMaker, T


def seglake(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seglake", *arguments], capture_output=True, text=True, timeout=300,
        check=False, env={"PYTHONPATH": str(PROJECT / "src"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def test_sigterm_ends_it_and_a_new_one_goes_on(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T + i) for i in range(50)]})
    with ServerProcess(maker.root, tmp_path) as server:
        wire = Wire(server.address)
        wire.send(fetch_request("events", [Wanted(0, 50)], max_wait_ms=60_000), 12)
        time.sleep(1)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 30
        assert wire.receive() is not None  # the poll is answered
        assert wire.receive() is None
        wire.close()
        assert "stopping" in server.told()
    with ServerProcess(maker.root, tmp_path) as server, Wire(server.address) as wire:
        assert offset_at(wire, "events", 0, LATEST) == (0, 50, -1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "nowhere"], "server.listen: 'nowhere' is not an address. Write HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "has a port above 65535"),
        (["--conf-file", "missing.toml"], "missing.toml cannot be read"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    LakeMaker(tmp_path).run({0: [Event(T)]})
    done = seglake("serve", str(tmp_path), *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_settings_name_the_key(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('[server]\nlisten = 9092\nlisen = "x"\n[sever]\n')
    done = seglake("serve", str(tmp_path), "--conf-file", str(config))
    assert done.returncode == 2
    for key in ("server.listen", "lisen", "[sever] is an unknown table"):
        assert key in done.stderr


@pytest.mark.rest
def test_an_address_that_is_taken(tmp_path: Path) -> None:
    LakeMaker(tmp_path / "lake").run({0: [Event(T)]})
    with ServerProcess(tmp_path / "lake", tmp_path) as server:
        done = seglake("serve", str(tmp_path / "lake"), "--listen", str(server.address))
    assert done.returncode == 1
    assert f"cannot listen at {server.address}" in done.stderr
