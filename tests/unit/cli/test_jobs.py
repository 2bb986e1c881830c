"""A job is its command under spark-submit: the same declaration, on Spark, in JSON, with a log."""

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglake import engine
from seglake.cli.app import COMMANDS
from seglake.jobs import verify
from seglake.terminal.progress import line_every
from tests.harness.flags import JOBS, load_job
from tests.makers.lakes import Event, LakeMaker, T


@pytest.fixture(autouse=True)
def sessions() -> Iterator[list[str]]:
    """The names under which jobs asked for Spark, which they do not get."""
    names = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglake.session.spark_session", lambda name, **_: names.append(name))
        yield names


@pytest.fixture
def root(tmp_path: Path) -> str:
    maker = LakeMaker(tmp_path / "lake")
    for _ in range(2):
        maker.run({0: [Event(T + n) for n in range(9)]})
    return str(maker.root)


@pytest.mark.parametrize("name", sorted({path.stem for path in JOBS.glob("*.py")}))
def test_a_job_is_a_command_of_the_program(name: str) -> None:
    (command,) = load_job(name).main.args
    assert command in COMMANDS
    assert command.__name__ == name


def test_a_job_prints_json_and_uses_the_session(
    root: str, sessions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main(["--deep", root]) == 0
    assert json.loads(capsys.readouterr().out)["segments"] == 2
    assert sessions == ["seglake verify"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "Missing argument"),
        (["lake", "lake"], "unexpected extra argument"),
        (["--topic"], "requires an argument"),
        (["--deep", "none"], "verify: "),
        (["lake", "--context", "x"], "No such option"),
    ],
)
def test_what_is_wrong_has_exit_code_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main(arguments) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert problem in errors


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_in_the_log_and_once(
    terminal: bool, root: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bar, and no log lines of a command beside those of the job."""
    monkeypatch.setattr(engine, "CORES", 1)  # threads repeat an amount when time passes
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    whole_log = logging.StreamHandler()  # as spark-submit's job has it
    with line_every(0), logged_by(whole_log):
        assert verify.main([root]) == 0
    errors = capsys.readouterr().err
    steps = re.findall(r"\S+ \S+ of \S+ \S+ of log done", errors)
    assert len(steps) == len(set(steps)) > 0
    assert "\x1b" not in errors


@contextmanager
def logged_by(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("seglake")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
