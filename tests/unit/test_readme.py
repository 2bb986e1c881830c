"""The README and the tour are run: pipeline, Python and shell lines, on generated events."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.cli.demo.events import generate
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests import settings_page
from tests.bench import lost_by_offsets

PROJECT = Path(__file__).parents[2]


def blocks(language: str, page: str = "docs/tour.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PROJECT / page).read_text(), re.S)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tour's events, pipeline and lake."""
    folder = tmp_path_factory.mktemp("tour")
    generate(folder / "events", events=20_000, files=4)
    (pipeline,) = blocks("toml")
    (folder / "web.toml").write_text(pipeline)
    with contextlib.chdir(folder):
        report = ingest_files(LocalEngine(), load("web.toml"), DeclaredRun("demo"))
    assert report.records == 20_000
    assert report.input_rows == report.records + report.quarantined
    return folder


def test_the_readme_takes_files_of_ones_own_to_a_window(tmp_path: Path) -> None:
    """In five lines of Python; the line of the shell does not append the same files again."""
    generate(tmp_path / "events", events=20_000, files=4)
    (shell,), (code,) = blocks("sh", "README.md"), blocks("python", "README.md")
    assert len([line for line in code.splitlines() if line]) == 5
    with contextlib.chdir(tmp_path):
        require_the_window(code)
        done = CliRunner().invoke(app, shlex.split(shell)[1:])
    assert done.exit_code == 0, done.output
    assert "nothing new" in done.stdout


def test_offsets_lose_records_of_a_window(tmp_path: Path) -> None:
    """The table of the README, on fewer events."""
    found = lost_by_offsets.windows(lost_by_offsets.lake(tmp_path, 20_000), 10_000, 200)
    assert 0 < found.missed < found.records == found.exact
    assert found.added


def test_the_python_of_the_tour_runs(lake: Path) -> None:
    (code,) = blocks("python")
    with contextlib.chdir(lake):
        require_the_window(code)


def require_the_window(code: str) -> None:
    """Run the code: its `table` has the records of the window that it names."""
    names: dict[str, object] = {}
    exec(compile(code, "page", "exec"), names)
    timestamps = names["table"]["timestamp"].cast("int64").to_pylist()  # type: ignore[index]
    assert timestamps
    assert all(1780315200000 <= each < 1780315210000 for each in timestamps)


@pytest.mark.parametrize("line", "".join(blocks("sh")).splitlines())
def test_the_shell_of_the_tour_runs(line: str, lake: Path) -> None:
    program, *arguments = shlex.split(line)
    assert program == "seglake"
    with contextlib.chdir(lake):
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()


def test_the_settings_page_is_current() -> None:
    written = (PROJECT / "docs" / "settings.md").read_text()
    assert written == settings_page.reference(written), "run `make docs`"
