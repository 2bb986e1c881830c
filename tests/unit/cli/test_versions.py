"""`--version` of every command that reads: a number, or the name of a tag."""

import inspect
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.cli.arguments.options import Version, parse_version
from seglake.maintain.tagging import tag
from tests.makers.lakes import Event, LakeMaker

T = 1_700_000_000_000
COMMANDS: dict[str, list[str]] = {
    "topics": ["--json"],
    "segments": ["events", "--json"],
    "offsets": ["events", "--time", "latest", "--json"],
    "read": ["events"],
    "find": ["events", "--key", "k"],
    "export": ["events", "--json"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose first version has a tag."""
    maker = LakeMaker(tmp_path_factory.mktemp("versions") / "lake")
    first = maker.run({0: [Event(T, b"k", b"{}")]})
    tag(str(maker.root), "q3", first)
    maker.run({0: [Event(T + 1, b"k", b"{}")] * 3})
    return maker.root


def told(command: str, root: Path, folder: Path, *version: str) -> str:
    """What a command prints; each export has a folder of its own."""
    dest = folder / f"to{'-'.join(version)}"
    there = [str(dest)] if command == "export" else []
    topic, *rest = COMMANDS[command]
    done = CliRunner().invoke(app, [command, str(root), topic, *there, *rest, *version])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout.replace(str(dest), "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tag_is_as_good_as_its_number(command: str, root: Path, tmp_path: Path) -> None:
    by_name = told(command, root, tmp_path, "--version", "q3")
    assert by_name == told(command, root, tmp_path, "--version", "1")
    assert by_name != told(command, root, tmp_path)


def test_every_command_takes_it_alike() -> None:
    """But for `tag`, which gives a name to a number. `replay` needs a broker."""
    commands = {(each.name or each.callback.__name__): each.callback  # type: ignore[union-attr]
                for each in app.registered_commands}  # fmt: skip
    declared = {
        name: inspect.signature(command, eval_str=True).parameters["version"].annotation
        for name, command in commands.items()
        if command is not None and "version" in inspect.signature(command).parameters
    }
    assert declared.keys() == COMMANDS.keys() | {"replay", "tag"}
    assert {name for name, annotation in declared.items() if annotation != Version} == {"tag"}


@pytest.mark.parametrize(("text", "version"), [("12", 12), ("q3", "q3"), ("²", "²"), ("-1", "-1")])
def test_what_is_a_number(text: str, version: int | str) -> None:
    assert parse_version(text) == version
