"""Standard streams that are full, closed or not UTF-8, below commands as processes."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from seglake.read.lake import open as open_lake
from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker

FULL = Path("/dev/full")
JOB = """
import sys
from seglake.cli.submit import submit

def report(json: bool = False):
    print("{}")

sys.exit(submit(report, []))
"""
TEXTS = """
import json, sys
from seglake.cli.terminal.frame import checked_output

with checked_output():
    print(json.dumps("\\u00e9\\u2026\\U0001f44c", ensure_ascii=False))
    sys.exit()
"""
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = LakeMaker(tmp_path_factory.mktemp("full") / "lake")
    maker.run({0: [Event(1_700_000_000_000 + i, b"k", b"v" * 50) for i in range(3000)]})
    return maker.root


def told(command: list[object], output: Path | None = FULL) -> str:
    """What a command with a full standard output says; its exit code is 1."""
    with (output or Path(os.devnull)).open("wb") as stdout:
        done = subprocess.run(
            [sys.executable, *map(str, command)], stdout=stdout, stderr=subprocess.PIPE,
            text=True, check=False, timeout=90,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "options", rest_but(["--json", "--format csv", "--format parquet"], "--json")
)
def test_a_read(root: Path, options: str) -> None:
    errors = told(["-m", "seglake", "read", root, "events", *options.split()])
    assert errors.count("\n") == 1
    assert "standard output: No space left on device" in errors


def test_a_job() -> None:
    assert told(["-c", JOB]) == "report: standard output: No space left on device\n"


def run_in_shell(
    redirection: str, *command: object, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    words = shlex.join([sys.executable, "-m", "seglake", *map(str, command)])
    return subprocess.run(
        ["sh", "-c", f"exec {words} {redirection}"], check=False, timeout=90, capture_output=True,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    "redirection",
    rest_but(
        [">&-", ">/dev/full", "2>&-", "2>/dev/full", "<&- >&- 2>&-"],
        ">/dev/full", "2>/dev/full",
    ),
)  # fmt: skip
def test_output_fails_only_commands_that_did_not_commit(tmp_path: Path, redirection: str) -> None:
    is_lost = redirection.replace("2>", "").count(">") > 0
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(1_700_000_000_000, b"k", b"v")]})
    for command, code in ((["erase", "--key", "k"], 0), *[(["segments"], 1)] * is_lost):
        done = run_in_shell(redirection, command[0], maker.root, "events", *command[1:])
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr
        assert ("2>" in redirection) or done.stderr.count(b"\n") == is_lost
    assert (
        open_lake(str(maker.root)).topic("events").read_range(None, None).read_all().num_rows == 0
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp1252:surrogateescape"])
def test_characters_that_an_encoding_lacks_are_escaped(root: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    table = run_in_shell("", "segments", root, "events", PYTHONIOENCODING=encoding)
    assert (table.returncode, table.stderr, b"--" in table.stdout) == (0, b"", True)
    texts = subprocess.check_output([sys.executable, "-c", TEXTS], env=environment)
    assert json.loads(texts.decode(encoding.partition(":")[0])) == "\u00e9\u2026\U0001f44c"


def test_a_locale_of_ascii(root: Path) -> None:
    """Files of the package are read as UTF-8, whatever Python takes for text without a name."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    table = run_in_shell("", "segments", root, "events", **ascii_only)
    assert (table.returncode, table.stderr) == (0, b"")


def test_a_device_of_output(root: Path) -> None:
    read = ["-m", "seglake", "read", root, "events", "--format", "jsonl", "--output", FULL]
    errors = told(read, output=None)
    assert errors == "seglake: /dev/full cannot be written: No space left on device\n"
