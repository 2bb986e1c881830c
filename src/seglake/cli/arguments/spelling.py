"""Suggest the right option if a user types a wrong name, or an argument instead of an option."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from shlex import quote
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from seglake.cli.terminal.arrow import without_pandas
from seglake.cli.terminal.progress import sign_of_life
from seglake.errors import UsageError
from seglake.terminal.wording import printable

_MEANT = {
    **dict.fromkeys(("--limit", "--head", "--count", "-n"), "--max-records"),
    **dict.fromkeys(("--from", "--since", "--begin"), "--start"),
    **dict.fromkeys(("--to", "--until"), "--end"),
    **dict.fromkeys(("--conf", "--config", "--config-file", "--pipeline"), "--conf-file"),
    **dict.fromkeys(("--run", "--id"), "--run-id"),
    "-o": "--output",
}
_REFUSED: Any = BadParameter.mro()[1]  # Click's UsageError, which typer does not export


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
    """A command that suggests the right option for a common wrong name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. Raises UsageError with the right option for a common wrong name."""
        if ctx.resilient_parsing:  # completion parses the arguments
            return super().parse_args(ctx, args)
        self._check([word.partition("=")[0] for word in args])
        ctx.allow_extra_args = True  # `_refuse` refuses them with a better message
        try:
            extra = super().parse_args(ctx, args)
        except _REFUSED as error:  # an unknown option: do not suggest `--help`
            if possible := getattr(error, "possibilities", None):
                error.possibilities = [name for name in possible if name != "--help"]
            raise
        if extra:
            self._refuse(ctx, extra)
        return extra

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and show a sign of life while it prints nothing."""
        without_pandas()
        with sign_of_life(f"seglake {ctx.info_name}"):
            return super().invoke(ctx)

    def _check(self, words: list[str]) -> None:
        own = {name for parameter in self.params for name in parameter.opts}
        names = {parameter.name for parameter in self.params}
        for word in words:
            meant = _MEANT.get(word)
            if word not in own and meant in own:
                raise UsageError(f"{self.name} has no option {word}. Did you mean {meant}?")
            if word == "--topic" and word not in own and "topic" in names:
                raise UsageError(
                    f"the topic needs no option. Write: seglake {self.name} ROOT TOPIC"
                )
        file = next((word for word in words if word.endswith(".toml")), None)
        if file and "--conf-file" in own and "--conf-file" not in words:
            raise UsageError(f"a settings file needs an option. Write: --conf-file {file}")

    def _refuse(self, ctx: Any, extra: Sequence[str]) -> None:
        """Raise UsageError for surplus arguments, such as a topic that needs its option."""
        own = {name: parameter for parameter in self.params for name in parameter.opts}
        root = ctx.params.get("root")
        if root and "--topic" in own and (len(extra) == 1 or own["--topic"].multiple):
            options = " ".join(f"--topic {quote(topic)}" for topic in extra)
            raise UsageError(
                f"a topic needs an option. Write: seglake {self.name} {quote(root)} {options}"
            )
        ctx.fail(f"Got unexpected extra argument(s) ({' '.join(map(printable, extra))})")
