"""docs/recipes.md is run from top to bottom: its files, its commands, its Python."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from seglake import engine
from seglake.cli.app import app
from seglake.engine import LocalEngine
from seglake.errors import SeglakeError

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
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


@pytest.mark.rest
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SparkEngine", lambda *_: LocalEngine())
    text = PAGE.read_text().replace("s3://bucket", str(tmp_path))
    names: dict[str, Any] = {}
    kinds, around = [], None
    with contextlib.chdir(tmp_path):
        for kind, title, block in BLOCK.findall(text):
            kinds.append(kind)
            if kind == "sh":
                for line in block.splitlines():
                    assert run_shell(line) == int(title.removeprefix("exit ") or 0), line
            elif kind == "python":
                exec(compile(block, PAGE.name, "exec"), names)
                if around is None and "around" in names:
                    around = names["around"].read_all()  # before the page erases a key of it
            else:
                (tmp_path / title).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / title).write_text(block)
    assert len(kinds) > 15
    assert around is not None
    assert around.num_rows == 2
