"""Define how commands show their help: options from docstrings, and commands for experts."""

from __future__ import annotations

from copy import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

from seglake.cli.terminal.arrow import without_pandas
from seglake.cli.terminal.progress import sign_of_life

EXPERT = frozenset((
    "attach", "compact", "dump", "help", "jobs", "merge", "metrics", "reindex", "retain",
    "run-status", "warm",
))  # fmt: skip


class _PlainHelp:
    """A command whose help shows no type for options without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments. Options without a value get no type in the help."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return parameters


class Program(_PlainHelp, TyperGroup):
    """The program. Its help omits the commands in `EXPERT`, but completion and docs have them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of the program without the commands in `EXPERT`."""
        shown = copy(self)
        shown.commands = {name: self.commands[name] for name in self.commands if name not in EXPERT}
        super(Program, shown).format_help(ctx, formatter)

    def show_help(self, ctx: Any, *, everything: bool) -> None:
        """Print the help of the program, with all commands if `everything`."""
        formatter = ctx.make_formatter()
        if everything:
            super().format_help(ctx, formatter)
        else:
            self.format_help(ctx, formatter)
        print(formatter.getvalue())


class Documented(_PlainHelp, TyperCommand):
    """A command whose docstring contains the help of its options under `Args:`, and examples.

    An option that is False by default has no opposite option `--no-…`.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        text, heading, examples = (self.help or "").partition("\n\nExample")
        self.help, _, lines = text.partition("\n\nArgs:\n")
        self.epilog = self.epilog or "\n\n".join(f"{heading}{examples}".split("\n")).strip()
        parts = (line.strip().partition(": ") for line in lines.splitlines())
        described = {name: description for name, _, description in parts}
        for parameter in self.params:
            option: Any = parameter
            option.help = described.get(option.name, option.help)
            if parameter.default is False:
                parameter.secondary_opts = []


class Command(Documented):
    """A command that shows a sign of life while it prints nothing."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        without_pandas()
        with sign_of_life(f"seglake {ctx.info_name}"):
            return super().invoke(ctx)
