"""docs/lookups.md is run from top to bottom: its files, its pipeline, its commands, its answers."""

from __future__ import annotations

import contextlib
import datetime as dt
import doctest
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from seglake import clock, engine
from seglake.cli.app import app
from seglake.engine import LocalEngine

PAGE = Path(__file__).parents[2] / "docs" / "lookups.md"
TEXT = PAGE.read_text()
DAY = "2026-11-20"
BLOCK = re.compile(r"```(sh|pycon)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"\| (\d\d:\d\d) \| `([^`]+)` \| (.+) \|")


def written(folder: Path) -> dict[str, int]:
    """Write the files that the page describes; the time in ms at which each is ingested."""
    times = {}
    for at, name, events in FILE.findall(TEXT):
        pairs = re.findall(r"(\d\d:\d\d) (\w+)", events)
        lines = [json.dumps({"ts": f"{DAY}T{time}:00Z", "user": user}) for time, user in pairs]
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        times[name] = int(dt.datetime.fromisoformat(f"{DAY}T{at}:00Z").timestamp() * 1000)
    (shop,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (folder / "shop.toml").write_text(shop)
    arrivals = shop.replace('"shop"', '"arrivals"').replace('= "CreateTime"', '= "LogAppendTime"')
    (folder / "arrivals.toml").write_text(arrivals)
    return times


def run_shell(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "seglake"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = written(tmp_path)
    assert len(times) == 6
    monkeypatch.setattr(engine, "SparkEngine", lambda *_: LocalEngine())
    names: dict[str, object] = {}
    runner, parser = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), doctest.DocTestParser()
    with contextlib.chdir(tmp_path):
        for found in BLOCK.finditer(TEXT):
            language, block = found.groups()
            if language == "pycon":
                line = TEXT[: found.start()].count("\n") + 1
                test = parser.get_doctest(block, names, PAGE.name, str(PAGE), line)
                runner.run(test, clear_globs=False)
                names = test.globs
                continue
            for command in block.replace("\\\n", "").splitlines():
                (name,) = (name for name in times if f"--source {name}" in command)
                stopped = SimpleNamespace(time_ns=lambda now=times[name]: now * 1_000_000)
                monkeypatch.setattr(clock, "time", stopped)
                run_shell(command)
    assert runner.failures == 0
    assert runner.tries > 40
