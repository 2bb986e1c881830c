"""The options of the program, and the modules of the jobs."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

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
    return {f"{name}{option}" for name, command in commands.items() for option in _options(command)}


def _options(command: Any) -> set[str]:
    options = [each for each in command.params if each.param_type_name == "option"]
    return {name for each in options for name in (*each.opts, *each.secondary_opts)} - {"--help"}


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
