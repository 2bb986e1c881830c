"""How people find a command: by its group in the help, or by a key in the shell."""

import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.cli.arguments.help import EXPERT

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
