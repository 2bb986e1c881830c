"""Ctrl-C ends the program with one line and exit code 130, whenever it comes."""

import signal
import subprocess
import sys
import time

import pytest

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
