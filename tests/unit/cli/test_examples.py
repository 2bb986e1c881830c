"""The examples in the help of commands: each is accepted as it stands, and stands in one line."""

import shlex
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from seglake.cli.app import app

PROGRAM: Any = typer.main.get_command(app)
EXAMPLES = {
    name: [line.strip() for line in command.epilog.splitlines()[1:] if line]
    for name, command in PROGRAM.commands.items()
}
LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def test_every_command_has_examples() -> None:
    assert all(1 <= len(lines) <= 3 for lines in EXAMPLES.values())


@pytest.mark.parametrize(("name", "line"), LINES)
def test_an_example_is_accepted(name: str, line: str) -> None:
    program, command, *arguments = shlex.split(line.partition(" > ")[0])
    assert (program, command) == ("seglake", name)
    given = PROGRAM.commands[name].make_context(name, arguments)  # raises what the parser raises
    assert given.command.name == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_stands_in_one_line_of_the_help(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    shown = [line.strip() for line in done.stdout.splitlines()]
    assert all(line in shown for line in EXAMPLES[name])
