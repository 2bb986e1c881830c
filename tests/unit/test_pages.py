"""Pages of the docs are run from top to bottom: their files, their commands, their answers."""

import contextlib
import datetime as dt
import doctest
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from seglake import clock, engine
from seglake.cli.app import app
from seglake.cli.terminal.frame import log_remedy
from seglake.engine import LocalEngine
from seglake.errors import SeglakeError

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
Names = dict[str, Any]


@pytest.fixture
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SparkEngine", lambda *_: LocalEngine())


def printed(line: str) -> tuple[int, str]:
    """Run a line of `seglake`: its exit code, and what it prints, as one line."""
    program, *arguments = shlex.split(line)
    assert program == "seglake"
    done = CliRunner().invoke(app, arguments)
    code, text, error = done.exit_code, done.output, done.exception
    if isinstance(error, SeglakeError):  # as the program tells it
        code, text = error.exit_code, f"{text}seglake: {error}{log_remedy(error)}"
    elif not isinstance(error, SystemExit | None):
        raise error
    return code, one_line(re.sub("[╭─╮│╰╯]", " ", text))


def one_line(text: str) -> str:
    return " ".join(text.split())


def play(
    page: str, folder: Path, place: str, after: Callable[[Names], None] = lambda _: None
) -> list[str]:
    """Run a page in a folder, which the page calls `place`. Call `after` with its Python's names.

    An answer is compared with what the command before it printed. Returns the kinds of the blocks.
    """
    names, said, kinds = Names(), "", list[str]()
    with contextlib.chdir(folder):
        for kind, title, block in BLOCK.findall((DOCS / page).read_text()):
            kinds.append(kind)
            text = block.replace(place, str(folder))
            if kind == "sh":
                for line in text.splitlines():
                    code, said = printed(line)
                    assert code == int(title.removeprefix("exit code ") or 0), (line, said)
            elif kind == "text":
                answer = re.escape(one_line(block)).replace("…", ".*")
                assert re.search(answer, said.replace(str(folder), place)), (block, said)
            elif kind == "python":
                exec(compile(text, page, "exec"), names)
                after(names)
            else:
                (folder / title).parent.mkdir(parents=True, exist_ok=True)
                (folder / title).write_text(text)
    return kinds


@pytest.mark.rest
@pytest.mark.usefixtures("_without_spark")
def test_the_recipes_run(tmp_path: Path) -> None:
    rows: list[int] = []

    def after(names: Names) -> None:
        if not rows and "around" in names:  # before the page erases a key of it
            rows.append(names["around"].read_all().num_rows)

    kinds = play("recipes.md", tmp_path, "s3://bucket", after)
    assert kinds.count("text") >= 15
    assert rows == [2]


def test_the_page_of_own_files_runs(tmp_path: Path) -> None:
    assert len(play("files.md", tmp_path, "s3://bucket")) == 10


LOOKUPS = DOCS / "lookups.md"
DAY = "2026-11-20"
FILE = re.compile(r"\| (\d\d:\d\d) \| `([^`]+)` \| (.+) \|")


def write_files(text: str, folder: Path) -> dict[str, int]:
    """Write the files that lookups.md describes; the time in ms at which each is ingested."""
    times = {}
    for at, name, events in FILE.findall(text):
        pairs = re.findall(r"(\d\d:\d\d) (\w+)", events)
        lines = [json.dumps({"ts": f"{DAY}T{time}:00Z", "user": user}) for time, user in pairs]
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        times[name] = int(dt.datetime.fromisoformat(f"{DAY}T{at}:00Z").timestamp() * 1000)
    (shop,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (folder / "shop.toml").write_text(shop)
    arrivals = shop.replace('"shop"', '"arrivals"').replace('= "CreateTime"', '= "LogAppendTime"')
    (folder / "arrivals.toml").write_text(arrivals)
    return times


@pytest.mark.usefixtures("_without_spark")
def test_the_lookups_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = LOOKUPS.read_text()
    times, names = write_files(text, tmp_path), Names()
    assert len(times) == 3
    runner, parser = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), doctest.DocTestParser()
    with contextlib.chdir(tmp_path):
        for found in BLOCK.finditer(text):
            language, _, block = found.groups()
            if language == "pycon":
                line = text[: found.start()].count("\n") + 1
                test = parser.get_doctest(block, names, LOOKUPS.name, str(LOOKUPS), line)
                runner.run(test, clear_globs=False)
                names = test.globs
            elif language == "sh":
                for command in block.replace("\\\n", "").splitlines():
                    for name in (name for name in times if f"--source {name}" in command):
                        stopped = SimpleNamespace(time_ns=lambda now=times[name]: now * 1_000_000)
                        monkeypatch.setattr(clock, "time", stopped)
                    code, said = printed(command)
                    assert code == 0, (command, said)
    assert runner.failures == 0
    assert runner.tries > 40
