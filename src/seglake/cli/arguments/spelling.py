"""What people type for an option that a command has by another name."""

from __future__ import annotations

from typing import Any

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


class Command(TyperCommand):
    """A command that says which of its options is meant, where only its name is another."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does. Raises UsageError with the option that is meant."""
        if not ctx.resilient_parsing:  # as completion parses
            self._check([word.partition("=")[0] for word in args])
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
        file = next((word for word in words if word.endswith(".toml")), None)
        if file and "--conf-file" in own and "--conf-file" not in words:
            raise UsageError(f"{file} needs its option: seglake {self.name} --conf-file {file}")
