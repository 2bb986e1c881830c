"""The loop of all kills: rounds that are drawn from a seed, and what is written down of each."""

import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Generic

from seglake.errors import SeglakeError
from tests.chaos.account import Account, Difference, Kill
from tests.chaos.attempts import Attack, Hit, JobT, Steps, Turn
from tests.harness.observed import remove_lake


class Campaign(Generic[JobT]):
    """Rounds that kill commands on the storage `where`; their lakes are below the URI `place`.

    A subclass has a shape for each round (its folder of lakes and its name), and the story.
    """

    def __init__(
        self, account: Account, where: str, folder: Path, place: str, attack: Attack[JobT]
    ) -> None:
        self._account, self._where, self._attack = account, where, attack
        self._folder, self._place, self._trace = folder, place, folder / "trace"
        self._last: Kill | None = None

    def run(
        self, kills: int, told: Callable[[int], None] = lambda _kills: None, first: int = 0
    ) -> None:
        """Play rounds, from the one of this number on, until this many more kills have hit."""
        number, wanted = first, len(self._account.kills) + kills
        while len(self._account.kills) < wanted:
            self.round(number)
            number += 1
            told(len(self._account.kills))

    def round(self, number: int) -> None:
        """Play one round. Write down a difference, and keep its lake."""
        name = self.story_name(number)
        chance = random.Random(f"{self._account.seed} {name} {number}")
        self._last, lake = None, f"{self._place}/{name.replace(' ', '-')}/round-{number}"
        try:
            self.story(lake, number, chance)
        except (AssertionError, SeglakeError) as problem:
            line = traceback.extract_tb(problem.__traceback__)[-1]
            told = f"round {number}, {name}: {str(problem) or line.line} ({lake})"
            print(f"\n{told}", file=sys.stderr, flush=True)
            self._account.differences.append(Difference(self._where, number, told, self._last))
        else:
            remove_lake(lake)

    def story_name(self, number: int) -> str:
        """Return the name of a round's story."""
        raise NotImplementedError

    def story(self, lake: str, number: int, chance: random.Random) -> None:
        """Play the story of a round. Raises AssertionError if something is not as it must be."""
        raise NotImplementedError

    def kill(
        self,
        shape: str,
        job: JobT,
        steps: Steps,
        turn: Turn,
        chance: random.Random,
        seen: Callable[[], str],
    ) -> Hit | None:
        """Make one attempt and kill it. Write down what readers see: "old" or "new"."""
        hit = self._attack(job, self._trace, steps, turn, chance)
        version = seen()
        if hit:
            self._last = Kill(self._where, shape, hit, version)
            self._account.kills.append(self._last)
        return hit
