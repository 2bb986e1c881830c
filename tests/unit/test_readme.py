"""The README is run: its pipeline, its Python and its shell lines, on generated events."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.cli.demo.events import generate
from seglake.config import load, reference
from seglake.engine import LocalEngine
from seglake.write.driver.run import DeclaredRun, ingest_files

PROJECT = Path(__file__).parents[2]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PROJECT / "README.md").read_text(), re.S)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's events, pipeline and lake."""
    folder = tmp_path_factory.mktemp("readme")
    generate(folder / "events", events=20_000, files=4)
    (pipeline,) = blocks("toml")
    (folder / "web.toml").write_text(pipeline)
    with contextlib.chdir(folder):
        report = ingest_files(LocalEngine(), load("web.toml"), DeclaredRun("2026-11-20T01"))
    assert report.records == 20_000
    assert report.input_rows == report.records + report.quarantined
    return folder


def test_the_python_of_the_readme_runs(lake: Path) -> None:
    (code,) = blocks("python")
    names: dict[str, object] = {}
    with contextlib.chdir(lake):
        exec(compile(code, "README.md", "exec"), names)
    timestamps = names["table"]["timestamp"].cast("int64").to_pylist()  # type: ignore[index]
    assert timestamps
    assert all(1780315200000 <= each < 1780315210000 for each in timestamps)


@pytest.mark.parametrize("line", "".join(blocks("sh")).splitlines())
def test_the_shell_of_the_readme_runs(line: str, lake: Path) -> None:
    program, *arguments = shlex.split(line)
    assert program == "seglake"
    with contextlib.chdir(lake):
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()


def of_find() -> tuple[list[str], str]:
    """The first two blocks of docs/find.md: lines of the shell, and Python."""
    page = (PROJECT / "docs" / "find.md").read_text()
    shell, code, *_ = re.findall(r"```\n(.*?)```", page, re.S)
    return shell.splitlines(), code


@pytest.mark.parametrize("line", of_find()[0])
def test_the_shell_of_the_page_on_find_runs(line: str, lake: Path) -> None:
    _, *arguments = shlex.split(line, comments=True)
    with contextlib.chdir(lake):
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output


def test_the_python_of_the_page_on_find_runs(lake: Path) -> None:
    with contextlib.chdir(lake):
        exec(compile(of_find()[1], "find.md", "exec"), {"seglake": seglake})


def test_the_settings_page_is_current() -> None:
    written = (PROJECT / "docs" / "settings.md").read_text()
    assert written == reference(), "run `make docs`"
