"""How people find a command: by its group in the help, or by a key in the shell."""

import re
import shlex
import signal
import subprocess
import sys
import time
from io import StringIO
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.cli.arguments.help import EXPERT
from seglake.cli.terminal import progress
from seglake.cli.terminal.progress import display, sign_of_life
from tests.harness.lake_server import until

GROUPS = {
    "Begin": "demo init check warm help",
    "Ingest": "append ingest redrive undo jobs run-status quarantine",
    "Inspect and read": "topics segments offsets read find dump history report metrics",
    "Lifecycle of a topic": "describe alter maintain retain compact delete-records erase merge "
    "publish",
    "Maintenance of a lake": "tag verify repair reindex vacuum",
    "Kafka": "serve import attach export replay",
}
LINE = "seglake war"  # a command that only `help --all` shows
SHELLS = {  # what the script of a shell gives the program, and what it gets
    "bash": ({"COMP_WORDS": LINE, "COMP_CWORD": "1"}, r"warm\n"),
    "zsh": ({"_TYPER_COMPLETE_ARGS": LINE}, r"""_arguments '\*: :\(\("warm":"[^"]+"\)\)'\n"""),
    "fish": (
        {"_TYPER_COMPLETE_ARGS": LINE, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        r"warm\t[^\n]+\n",
    ),
}


@pytest.mark.parametrize("hidden", [EXPERT, frozenset[str]()])
def test_every_command_is_in_its_group_of_the_help(hidden: frozenset[str]) -> None:
    asked = ["--help"] if hidden else ["help", "--all"]
    told = CliRunner().invoke(app, asked, env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    panels = re.findall(r"╭─ (.+?) ─+╮\n(.*?)╰", told, re.DOTALL)
    named = {title: re.findall(r"^│ ([a-z][\w-]*)", lines, re.M) for title, lines in panels}
    assert named.pop("Options") == []
    groups = {title: names.split() for title, names in GROUPS.items()}
    assert named == {
        title: [name for name in names if name not in hidden] for title, names in groups.items()
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_a_command(shell: str) -> None:
    given, expected = SHELLS[shell]
    asked = [{"_SEGLAKE_COMPLETE": f"{what}_{shell}"} | given for what in ("source", "complete")]
    script, found = (CliRunner().invoke(app, prog_name="seglake", env=env).stdout for env in asked)
    assert re.fullmatch(expected, found)
    assert all(f"{name}=" in script for name in asked[1])  # the script asks in this way
    assert f"_SEGLAKE_COMPLETE=complete_{shell}" in script


def test_an_option_without_a_value_has_no_type_in_the_help() -> None:
    for command in ([], ["read"], ["maintain"]):
        help_ = CliRunner().invoke(app, [*command, "--help"]).output
        assert "--help" in help_
        assert "bool" not in help_


# Ctrl-C ends the program with one line and exit code 130, whenever it comes.

PROGRAM = """
import signal, sys, time, types
import typer
from seglake.cli import main
from seglake.cli.terminal.frame import print_stopped

class InFinalizer:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        sum(range(9))  # here the exception comes, and Python swallows it

class InImport(types.ModuleType):
    @property
    def app(self):
        raise KeyboardInterrupt

def finalized():
    instance = InFinalizer()
    del instance
    time.sleep(60)

def told():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        print_stopped("run it again")
        raise

module = types.ModuleType("seglake.cli.app")
if sys.argv[1] == "imported":
    module = InImport("seglake.cli.app")
else:
    module.app = typer.Typer(pretty_exceptions_enable=False)
    module.app.command()({"finalized": finalized, "told": told}[sys.argv.pop(1)])
sys.modules["seglake.cli.app"] = module
main()
"""


@pytest.mark.parametrize(
    ("moment", "line"),
    [
        ("finalized", "seglake: stopped"),
        ("imported", "seglake: stopped"),
        ("told", "seglake: stopped. run it again"),
    ],
)
def test_any_moment_ends_it_with_one_line(moment: str, line: str) -> None:
    command = [sys.executable, "-c", PROGRAM, moment]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == (130, f"{line}\n")


def test_while_the_commands_are_imported() -> None:
    """From the moment on at which the program has control, there is no traceback."""
    program = "import seglake.cli; print(flush=True); seglake.cli.main()"
    run = subprocess.Popen(
        [sys.executable, "-c", program, "topics", "/dev/zero"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    run.stdout.readline()
    time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=50)
    assert errors == "seglake: stopped\n"
    # Python ends by the signal, which shells call 130, if the exception passed an exec of a text.
    assert run.returncode in {130, -signal.SIGINT}


# The examples in the help of commands: each is accepted as it stands, and stands in one line.


COMMANDS: Any = typer.main.get_command(app)
EXAMPLES = {
    name: [line.strip() for line in command.epilog.splitlines()[1:] if line]
    for name, command in COMMANDS.commands.items()
}
LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def test_every_command_has_examples() -> None:
    assert all(1 <= len(lines) <= 3 for lines in EXAMPLES.values())


@pytest.mark.parametrize(("name", "line"), LINES)
def test_an_example_is_accepted(name: str, line: str) -> None:
    program, command, *arguments = shlex.split(line.partition(" > ")[0])
    assert (program, command) == ("seglake", name)
    given = COMMANDS.commands[name].make_context(name, arguments)  # raises what the parser raises
    assert given.command.name == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_stands_in_one_line_of_the_help(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    shown = [line.strip() for line in done.stdout.splitlines()]
    assert all(line in shown for line in EXAMPLES[name])


# A command that has nothing to say for a while shows that it lives, on a terminal alone.


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


def test_a_quiet_command_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with sign_of_life("seglake metrics"):
        until(lambda: "seglake metrics" in terminal.getvalue())
        print("text", end="")
        said = terminal.getvalue()
        assert said.endswith("text")
        time.sleep(0.3)
        assert terminal.getvalue() == said, "what is written ends it"
    assert sys.stdout is terminal


def test_a_display_of_its_own_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with sign_of_life("seglake check"):
        until(lambda: "seglake check" in terminal.getvalue())
        with display("looking at the files"):
            until(lambda: "looking at the files" in terminal.getvalue())
            _, _, later = terminal.getvalue().partition("looking at the files")
            assert "seglake check" not in later


def test_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)

    def fail() -> None:
        with sign_of_life("seglake check"):
            until(lambda: "seglake check" in terminal.getvalue())
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
