"""The options of the program and of the jobs, and how both are run in this process."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from seglake.cli.app import app

JOBS = Path(__file__).parents[2] / "jobs"


def load_job(name: str) -> ModuleType:
    """The module of a job, as its file in jobs/ has it."""
    (JOBS / f"{name}.py").read_text().index(f"from seglake.jobs.{name} import main")
    return importlib.import_module(f"seglake.jobs.{name}")


def options_of_the_program() -> set[str]:
    """As "read --offset"; those of the program itself as "--version"."""
    group: Any = typer.main.get_command(app)
    commands = {"": group, **{f"{name} ": command for name, command in group.commands.items()}}
    return {
        f"{name}{spelling}"
        for name, command in commands.items()
        for option in command.params
        if option.param_type_name == "option"
        for spelling in (*option.opts, *option.secondary_opts)
    } - {"--help"}


def options_of_job(name: str) -> set[str]:
    """As "jobs/ingest --root"."""
    module, found = load_job(name), set[str]()

    class Stop(Exception):
        pass

    def look(parser: argparse.ArgumentParser, _arguments: object = None) -> None:
        found.update(parser._option_string_actions)
        raise Stop

    with pytest.MonkeyPatch.context() as patch, suppress(Stop):
        patch.setattr(argparse.ArgumentParser, "parse_args", look)
        module.main([])
    assert found
    return {f"jobs/{name} {option}" for option in found - {"-h", "--help"}}


Check = Callable[..., None]


class Table(dict[str, Check]):
    """For each option what shows that it acts."""

    def shows(self, *options: str) -> Callable[[Check], Check]:
        """Make a function the check of some options."""

        def register(check: Check) -> Check:
            assert self.keys().isdisjoint(options)
            self.update(dict.fromkeys(options, check))
            return check

        return register
