"""Kill ingests anywhere, run them again, and compare: python -m tests.chaos.kill --kills 1000

A round tells one story (`scenarios`) in a lake of its own. Each of its two runs is attempted up to
three times and killed, then run to its end, then once more, which must do nothing. The first kill
comes at a step chosen by its name, so that every step has its turn; the others come at any moment.
After each kill readers must see exactly what an undisturbed lake shows that has the same runs: the
old version or the new one, and `verify` finds no damage. So it is after the last one, and after
`vacuum` has removed what the killed attempts left behind. Rounds of maintenance: see `upkeep`.

Exits 1 if there was a difference. `--seed S --round N` tells that story again: the same files and
steps in the same order, though a kill at any moment comes when the machine lets it.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.chaos.account import LOCAL, S3, SPARK, UPKEEP, UPKEEP_S3, Account
from tests.chaos.attempts import Attack, Forked, Steps, Turn, kill_forked
from tests.chaos.campaign import Campaign
from tests.chaos.clustered import SETTINGS, OnSpark
from tests.chaos.scenarios import NEXT, SHAPES, Scenario
from tests.chaos.upkeep import Maintenance
from tests.chaos.verbs import RUN
from tests.chaos.victim import Job
from tests.harness.cluster import standalone_cluster
from tests.harness.observed import remove_lake
from tests.harness.s3_server import BUCKET, environment, s3_server

ATTEMPTS = 3  # at most, of a run in a round
APART = 31  # stories begin with other steps, so that all of them together reach every step


class Ingests(Campaign[Job]):
    """Rounds over all shapes."""

    def __init__(
        self, account: Account, where: str, folder: Path, place: str, attack: Attack[Job]
    ) -> None:
        super().__init__(account, where, folder, place, attack)
        self._scenarios: dict[int, Scenario] = {}
        self.steps: dict[tuple[str, str], Steps] = {}  # of a shape and a run

    def story_name(self, number: int) -> str:
        return SHAPES[number % len(SHAPES)].name

    def story(self, lake: str, number: int, chance: random.Random) -> None:
        """Kill attempts at both runs, then run them to their ends."""
        turn, shape = divmod(number, len(SHAPES))
        scenario = self._scenario(shape)
        scenario.begin(lake)
        for run in (RUN, NEXT):
            self._kill(scenario, run, lake, turn + APART * shape, chance)
            self._end(scenario, run, lake, late=chance.random() < 0.5)
        if self._where != SPARK:  # where something of a killed attempt may still go on
            scenario.assert_swept(lake)

    def _scenario(self, number: int) -> Scenario:
        """The scenario of one shape, made and watched when it is wanted first."""
        if number not in self._scenarios:
            chance = random.Random(f"{self._account.seed} {SHAPES[number].name}")
            folder, place = self._folder / str(number), f"{self._place}/{number}"
            made = Scenario(SHAPES[number], folder, place, chance)
            self._watch(made, f"{place}/watched")
            self._scenarios[number] = made
        return self._scenarios[number]

    def _watch(self, scenario: Scenario, lake: str) -> None:
        """Learn which steps undisturbed runs take, and how long they take."""
        # The first process of all starts the one to fork from, so its times are not those of a run.
        for _ in range(1 if self.steps else 2):
            remove_lake(lake)
            scenario.begin(lake)
            for run in (RUN, NEXT):
                scenario.arrange(run)
                begun = time.monotonic()
                code = Forked(scenario.job(lake, run), self._trace).ended()
                assert code == 0
                steps = Steps(self._trace, time.monotonic() - begun)
                self.steps[scenario.shape.name, run] = steps
                scenario.seen(lake)
        assert scenario.seen(lake) == (scenario.committed | {NEXT}) - {scenario.beside} | {RUN}

    def _kill(
        self, scenario: Scenario, run: str, lake: str, turn: int, chance: random.Random
    ) -> None:
        """Up to three attempts at a run, each killed: the first one at a step with a name."""
        attempts = chance.randint(1 if run == RUN else 0, ATTEMPTS)
        comes = chance.randint(1, 2 * ATTEMPTS)  # the late file, before this attempt or after all
        for attempt in range(attempts):
            scenario.arrange(run, late=attempt >= comes)
            with self._beside(scenario, lake, racing=run == RUN and not attempt):
                job, steps = scenario.job(lake, run), self.steps[scenario.shape.name, run]
                mine = Turn(turn + attempt, by_name=not attempt)
                seen = partial(_version_seen, scenario, run, lake)
                hit = self.kill(scenario.shape.name, job, steps, mine, chance, seen)
            if not hit or not hit.code:
                assert run in scenario.seen(lake), "a run ended well, and readers do not see it"
                return

    @contextmanager
    def _beside(self, scenario: Scenario, lake: str, *, racing: bool) -> Iterator[None]:
        """With another process going on meanwhile, if the story has one; it must end well."""
        if not (racing and scenario.beside):
            yield
            return
        other = Forked(scenario.job(lake, scenario.beside), self._folder / "other-trace")
        try:
            yield
        finally:
            code = other.ended()
        assert code == 0
        assert scenario.beside in scenario.seen(lake)

    def _end(self, scenario: Scenario, run: str, lake: str, *, late: bool) -> None:
        """The same run id once more, nobody disturbs it; and again, when there is nothing to do.

        The late file may be there by now, or not.
        """
        scenario.arrange(run, late=late)
        # the engine has no part in what comes out, so the quick one ends every run
        assert Forked(scenario.job(lake, run), self._trace).ended() == 0
        assert scenario.seen(lake) == scenario.committed | {run}, (
            "the run did not end after it was killed"
        )
        scenario.assert_marked(lake)
        scenario.assert_same_again(lake, run)


def _version_seen(scenario: Scenario, run: str, lake: str) -> str:
    return "new" if run in scenario.seen(lake) else "old"


def main(arguments: list[str]) -> int:
    """Run a campaign; prints the seed first and the tables last."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of runs on a local disk")
    parser.add_argument("--upkeep", type=int, default=0, help="kills of maintenance")
    parser.add_argument("--s3", type=int, default=0, help="kills of runs on an S3 server")
    parser.add_argument("--s3-upkeep", type=int, default=0, help="kills of maintenance there")
    parser.add_argument("--spark", type=int, default=0, help="kills of runs on a Spark cluster")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--round", type=int, help="this round alone")
    parser.add_argument("--document", type=Path, help="where to write the tables")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    account = Account.begun(given.seed, " ".join(["python -m tests.chaos.kill", *arguments]))
    wanted = {
        LOCAL: given.kills, UPKEEP: given.upkeep, S3: given.s3, UPKEEP_S3: given.s3_upkeep,
        SPARK: given.spark,
    }  # fmt: skip
    for where, kills in wanted.items():
        if kills:
            with _campaign(account, where) as campaign:
                if given.round is None:
                    campaign.run(kills, _tell)
                else:
                    campaign.round(given.round)
            if given.document:
                account.document(given.document)
    print(account.tables())
    return bool(account.differences)


@contextmanager
def _campaign(account: Account, where: str) -> Iterator[Ingests | Maintenance]:
    """A campaign with what it needs running; its folder stays if it finds a difference."""
    folder = Path(tempfile.mkdtemp(prefix="seglake-chaos-"))
    with ExitStack() as stack:
        place = str(folder / "lakes")
        attack: Attack[Job] = kill_forked
        if where in (S3, UPKEEP_S3):
            os.environ |= environment(stack.enter_context(s3_server(folder)))
            place = f"s3://{BUCKET}"
        if where == SPARK:
            (folder / "cluster").mkdir()
            master = stack.enter_context(standalone_cluster(folder / "cluster"))
            attack = on_spark = OnSpark({**SETTINGS, "spark.master": master}, folder / "notes")
            stack.callback(on_spark.end)
        if where in (UPKEEP, UPKEEP_S3):
            yield Maintenance(account, where, folder, place, kill_forked)
        else:
            yield Ingests(account, where, folder, place, attack)
    if not any(found.where == where for found in account.differences):
        shutil.rmtree(folder)


def _tell(count: int) -> None:
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{count} kills", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
