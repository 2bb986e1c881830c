"""A target: something that reads bytes which anyone may have written, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOUND = Path(__file__).with_name("found")  # inputs that once crashed, in a folder for each target

Run = Callable[[bytes], None]
Seeds = Callable[[], list[bytes]]

TARGETS: dict[str, Target] = {}


@dataclass(frozen=True)
class Target:
    """`run` may end with one of `refusals`; anything else is a bug.

    `share` says how many of all inputs it gets, beside the others.
    """

    name: str
    run: Run
    refusals: tuple[type[Exception], ...]
    seeds: Seeds
    max_bytes: int
    share: int

    def __call__(self, data: bytes) -> None:
        """Try one input; raises what must not be raised."""
        with suppress(*self.refusals):
            self.run(data)

    def found(self) -> list[bytes]:
        """The inputs that it once crashed with."""
        return [path.read_bytes() for path in sorted((FOUND / self.name).glob("*"))]


def target(
    *refusals: type[Exception], seeds: Seeds, max_bytes: int = 600, share: int = 4
) -> Callable[[Run], Run]:
    """Make a function a target of its own name."""

    def register(run: Run) -> Run:
        TARGETS[run.__name__] = Target(run.__name__, run, refusals, seeds, max_bytes, share)
        return run

    return register
