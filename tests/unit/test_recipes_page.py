"""Two pages of the docs are run from top to bottom: their files, commands and Python."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglake import engine
from seglake.cli.app import app
from seglake.engine import LocalEngine
from seglake.errors import SeglakeError

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+) ?(.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_shell(line: str) -> int:
    """The exit code of a line of `seglake`."""
    program, *arguments = shlex.split(line)
    assert program == "seglake"
    try:
        app(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    except SeglakeError as error:
        return error.exit_code
    return 0


def play(page: str, folder: Path, after: Callable[[dict[str, Any]], None]) -> int:
    """Run a page in a folder, and `after` with the names of its Python; returns its blocks."""
    names: dict[str, Any] = {}
    text = (DOCS / page).read_text().replace("s3://bucket", str(folder))
    blocks = BLOCK.findall(text)
    with contextlib.chdir(folder):
        for kind, title, block in blocks:
            if kind == "sh":
                for line in block.splitlines():
                    assert run_shell(line) == int(title.removeprefix("exit ") or 0), line
            elif kind == "python":
                exec(compile(block, page, "exec"), names)
                after(names)
            else:
                (folder / title).parent.mkdir(parents=True, exist_ok=True)
                (folder / title).write_text(block)
    return len(blocks)


@pytest.mark.rest
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SparkEngine", lambda *_: LocalEngine())
    rows: list[int] = []

    def after(names: dict[str, Any]) -> None:
        if not rows and "around" in names:  # before the page erases a key of it
            rows.append(names["around"].read_all().num_rows)

    assert play("recipes.md", tmp_path, after) > 15
    assert rows == [2]


def test_the_page_of_own_files_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert play("files.md", tmp_path, lambda _: None) == 7
    told = capsys.readouterr().out
    assert "when have no zone" in told
    assert 'key.fields = ["customer"]' in told
