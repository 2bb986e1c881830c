"""docs/mistakes.md is run from top to bottom: each of its answers is what is printed."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.cli.terminal.frame import remedy
from seglake.errors import SeglakeError

PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"
BLOCK = re.compile(r"^```(\w+) ?(.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FOLDER = "/data"  # of the page


def printed(line: str) -> tuple[int, str]:
    """The exit code of a line of `seglake`, and what it prints, as one line."""
    program, *arguments = shlex.split(line)
    assert program == "seglake"
    done = CliRunner().invoke(app, arguments)
    code, text, error = done.exit_code, done.output, done.exception
    if isinstance(error, SeglakeError):  # as the program tells it
        code, text = error.exit_code, f"{text}seglake: {error}{remedy(error)}"
    elif not isinstance(error, SystemExit | None):
        raise error
    return code, one_line(re.sub("[╭─╮│╰╯]", " ", text))


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_each_answer_is_what_is_printed(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    text, said, answers = PAGE.read_text(), "", 0
    with contextlib.chdir(tmp_path):
        for kind, title, block in BLOCK.findall(text):
            if kind == "sh":
                code, said = printed(block)
                assert code == int(title.removeprefix("exit ") or 0), said
            elif kind == "text":
                answer = re.escape(one_line(block)).replace("…", ".*")
                assert re.search(answer, said.replace(str(tmp_path), FOLDER)), (block, said)
                answers += 1
            elif kind == "python":
                exec(compile(block, PAGE.name, "exec"), names)
            else:
                (tmp_path / title).parent.mkdir(exist_ok=True)
                (tmp_path / title).write_text(block)
    assert answers >= 26


def test_each_of_26_mistakes_has_a_command_and_its_answer() -> None:
    begin, *entries = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)
    assert len(entries) == 26
    assert f"{len(entries)} mistakes" in begin
    for entry in entries:
        kinds = [kind for kind, _, _ in BLOCK.findall(entry) if kind in {"sh", "text"}]
        assert kinds == ["sh", "text"] * (len(kinds) // 2) != [], entry
