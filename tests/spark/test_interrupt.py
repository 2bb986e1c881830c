"""Ctrl-C stops an ingest with one sentence, and leaves no JVM."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.makers.raw_events import write_settings

pytestmark = [pytest.mark.spark, pytest.mark.rest]


def pipeline(folder: Path) -> Path:
    lines = (json.dumps({"ts": 1_700_000_000_000 + n, "user": f"u{n % 9}"}) for n in range(20_000))
    (folder / "in.jsonl").write_text("\n".join(lines))
    return write_settings(folder / "web.toml", folder / "lake", folder / "in.jsonl", "web")


def jvms(session: int) -> list[str]:
    """The processes of Java in a session of processes."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:  # it ended meanwhile
            continue
        name, _, fields = rest.rpartition(") ")
        if name == "java" and fields.split()[3] == str(session):
            found.append(pid)
    return found


_FRAMES = r'(  File "[^"]*/pyspark/daemon\.py".*\n)+'
OF_THE_DAEMON = rf"Traceback \(most recent call last\):\n{_FRAMES}BrokenPipeError.*"


def until(done: bool, session: int) -> bool:
    """Whether, within a minute, there is a JVM, or none any more."""
    for _ in range(600):
        if bool(jvms(session)) != done:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("after_s", [0.0, 4.0, 7.0])
def test_no_jvm_is_left_and_the_next_run_does_all(tmp_path: Path, after_s: float) -> None:
    command = [sys.executable, "-m", "seglake", "ingest", "--conf-file", str(pipeline(tmp_path)),
               "--run-id", "1"]  # fmt: skip
    with (tmp_path / "errors").open("w") as errors:
        run = subprocess.Popen(command, stderr=errors, stdout=errors, start_new_session=True)
    assert until(False, run.pid)
    time.sleep(after_s)
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(120) in {0, 130}
    assert until(True, run.pid)
    told = (tmp_path / "errors").read_text()
    assert ("stopped. Nothing is half done" in told) == (run.returncode == 130)
    # Spark may kill one of its Python workers while that begins to say why it ends: one such line.
    # Its daemon may write to the JVM when that has ended.
    told = re.sub(OF_THE_DAEMON, "", told)
    assert "Traceback (most recent call last):\n  File" not in told
    again = subprocess.run([*command, "--local", "--json"], capture_output=True, check=True)
    assert json.loads(again.stdout)["records"] == 20_000
