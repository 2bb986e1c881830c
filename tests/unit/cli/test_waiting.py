"""A command that has nothing to say for a while shows that it lives, on a terminal alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from seglake.cli import record_output as records
from seglake.cli.app import app
from seglake.cli.arguments import spelling
from seglake.cli.terminal import waiting
from seglake.cli.terminal.progress import awaited, step_display
from seglake.cli.terminal.waiting import sign_of_life
from seglake.log.execute import ReadStats
from seglake.terminal import progress as pace
from tests.makers.lakes import Event, LakeMaker


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both streams of the program are a terminal: in the test, as pytest sets them before it."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(waiting, "_AFTER_S", 0.02)
    monkeypatch.setenv("TERM", "xterm")
    return made


def waits_for(shown: str, terminal: StringIO) -> bool:
    end = time.monotonic() + 20
    while shown not in terminal.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    return shown in terminal.getvalue()


def test_a_quiet_command_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with sign_of_life("seglake metrics"):
        assert waits_for("seglake metrics", terminal)
        print("text", end="")
        said = terminal.getvalue()
        assert said.endswith("text")
        time.sleep(0.3)
        assert terminal.getvalue() == said, "what is written ends it"
    assert sys.stdout is terminal


def test_who_speaks_soon_shows_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with sign_of_life("seglake topics"):
        print("text", file=sys.stderr)
        time.sleep(0.1)
    assert terminal.getvalue() == "text\n"


def test_a_display_of_its_own_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with sign_of_life("seglake check"):
        assert waits_for("seglake check", terminal)
        with step_display("looking at the files"):
            assert waits_for("looking at the files", terminal)
            _, _, later = terminal.getvalue().partition("looking at the files")
            assert "seglake check" not in later


def test_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)

    def fail() -> None:
        with sign_of_life("seglake check"):
            assert waits_for("seglake check", terminal)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    said = terminal.getvalue()
    time.sleep(0.2)
    assert terminal.getvalue() == said


def test_without_a_terminal_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    page = StringIO()
    monkeypatch.setattr(sys, "stderr", page)
    with sign_of_life("seglake metrics"):
        assert sys.stderr is page
        time.sleep(0.1)
    assert page.getvalue() == terminal.getvalue() == ""


def test_every_command_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(1, b"k", b"v")]})
    named = list[str]()

    @contextmanager
    def noted(what: str) -> Iterator[None]:
        named.append(what)
        yield

    monkeypatch.setattr(spelling, "sign_of_life", noted)
    for command in ("topics", "metrics"):
        assert CliRunner().invoke(app, [command, str(tmp_path)]).exit_code == 0
    assert named == ["seglake topics", "seglake metrics"]


class Slow:
    """Batches, each of them after a while in which more of the log was read."""

    def __init__(self, stats: ReadStats, seconds: float) -> None:
        self._stats, self._seconds = stats, seconds

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number in range(4):
            self._stats.bytes_fetched += 10
            time.sleep(self._seconds)
            yield pa.record_batch({"n": [number]})


@contextmanager
def into(stdout: int) -> Iterator[Terminal]:
    """In the block, standard output is a file descriptor, and standard error a terminal."""
    with pytest.MonkeyPatch.context() as patch:
        terminal = on_terminal(patch)
        with os.fdopen(stdout, "w") as page:
            patch.setattr(sys, "stdout", page)
            patch.setattr(pace, "SOON_S", 0.02)
            yield terminal


def pipe() -> int:
    """The end of a pipe that is written to, whose other end is never read."""
    return os.pipe()[1]


def read_slowly(output: Path | None) -> list[int]:
    stats = ReadStats()
    written = records._Counted(Slow(stats, 0.1))
    planned: Any = SimpleNamespace(size_bytes=40)
    with records._progress(planned, stats, written, output) as advance:
        return [batch["n"][0].as_py() for batch in advance(written)]


def search_slowly(output: Path | None) -> list[int]:
    stats = ReadStats()
    written = records._Counted(Slow(stats, 0.1))
    with records._search_progress("searching web", stats, written, output) as advance:
        return [batch["n"][0].as_py() for batch in advance(written)]


def test_records_that_another_program_reads_are_told_of_in_lines() -> None:
    """It may be one that prints, which a bar would disturb."""
    with into(pipe()) as terminal:
        assert read_slowly(None) == [0, 1, 2, 3]
    first, *_ = lines = terminal.getvalue().splitlines()
    assert first.startswith("10 B of 40 B of log done")
    assert len(lines) == 4, "only if more is done"
    with into(pipe()) as terminal:
        assert search_slowly(None) == [0, 1, 2, 3]
    assert "searching web: 2 records found so far" in terminal.getvalue().splitlines()
    assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize("path", [None, Path("records.jsonl")])
def test_records_that_go_to_a_file_have_a_display_till_the_end(path: Path | None) -> None:
    """Also to the null device."""
    for slowly, said in (read_slowly, "40/40 bytes"), (search_slowly, "4 records found so far"):
        with into(os.open(os.devnull, os.O_WRONLY)) as terminal:
            slowly(path)
        assert said in terminal.getvalue()


def test_a_search_that_shows_its_records_waits_for_the_next_ones_in_sight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = on_terminal(monkeypatch)
    stats = ReadStats()
    for _ in awaited(Slow(stats, 0.3), "searching web"):
        _, _, after = terminal.getvalue().rpartition("record\n")
        assert "searching web" in after
        print("record")
