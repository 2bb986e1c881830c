"""A command that has nothing to say for a while shows that it lives, on a terminal alone."""

import sys
import time
from io import StringIO

import pytest

from seglake.cli.terminal import progress
from seglake.cli.terminal.progress import display, sign_of_life


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both streams of the program are a terminal: in the test, as pytest sets them before it."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(progress, "_SILENCE_S", 0.02)
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


def test_a_display_of_its_own_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with sign_of_life("seglake check"):
        assert waits_for("seglake check", terminal)
        with display("looking at the files"):
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
