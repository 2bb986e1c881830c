"""What people type for an option that a command has by another name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

from seglake.cli.terminal.arrow import without_pandas
from seglake.cli.terminal.waiting import sign_of_life
from seglake.errors import UsageError

_MEANT = {
    **dict.fromkeys(("--limit", "--head", "--count", "-n"), "--max-records"),
    **dict.fromkeys(("--from", "--since", "--begin"), "--start"),
    **dict.fromkeys(("--to", "--until"), "--end"),
    **dict.fromkeys(("--conf", "--config", "--config-file", "--pipeline"), "--conf-file"),
    **dict.fromkeys(("--run", "--id"), "--run-id"),
}
_CONDITIONS = "--where", "--header"  # choose records of some commands
_KEYS = "--key", "--keys-from"  # choose records of these and of others
_REFUSED: Any = BadParameter.mro()[1]  # Click's UsageError, which typer does not name


class Command(TyperCommand):
    """A command that says which of its options is meant, where only its name is another."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does. Raises UsageError with the option that is meant."""
        if ctx.resilient_parsing:  # as completion parses
            return super().parse_args(ctx, args)
        self._check([word.partition("=")[0] for word in args])
        with _naming_options():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """As typer does."""
        without_pandas()
        with sign_of_life(f"seglake {ctx.info_name}"):
            return super().invoke(ctx)

    def _check(self, words: list[str]) -> None:
        own = {name for parameter in self.params for name in parameter.opts}
        for word in words:
            meant = _MEANT.get(word)
            if word not in own and meant in own:
                raise UsageError(f"{self.name} has no option {word}: did you mean {meant}?")
            if word in _CONDITIONS and word not in own and own.issuperset(_KEYS):
                chosen = f"{' or '.join(_KEYS)} says which records are meant"
                raise UsageError(f"{self.name} has no option {word}: {chosen}")
        file = next((word for word in words if word.endswith(".toml")), None)
        if file and "--conf-file" in own and "--conf-file" not in words:
            raise UsageError(f"{file} needs its option: seglake {self.name} --conf-file {file}")


@contextmanager
def _naming_options() -> Iterator[None]:
    """In the block, an unknown option is never answered with `--help` as the one that is meant."""
    try:
        yield
    except _REFUSED as error:
        if possible := getattr(error, "possibilities", None):
            error.possibilities = [name for name in possible if name != "--help"]
        raise
