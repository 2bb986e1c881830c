"""A scripted history: commands one after another, and actors that stop at a named step.

    def tag_beside_erasure(s: Script) -> None:
        s.begin("tagger", Deed("tag", "a"), before="commit")
        s.run(Deed("erase", keys=KEYS, flag=True))
        s.go_on("tagger")

Nothing is drawn, so a script does not depend on how many calls a command makes. Each commit and
each end is judged as in a random history, see `history`. Afterwards the lake is judged, its vacuum
and its rebuild.
"""

import itertools
from collections.abc import Callable, Collection
from functools import partial

import seglake
from seglake.catalog.transaction import FAILURE_COST, PATIENCE
from tests.simulation import history
from tests.simulation.deeds import LAKE, Deed
from tests.simulation.history import Outcome, Play, carry_out, expires, is_done
from tests.simulation.judge import Broken, require_same
from tests.simulation.model import State
from tests.simulation.plan import Plan
from tests.simulation.world import HOUR_MS, QUIET, Halt, Process

STEPS = {  # the request to storage with which a step begins, as `SimStore` names it
    "announcement": "put .*/begun",
    "look": "put .*/clock",  # a vacuum or an erasure looks who may still run
    "input": "read files/",
    "read of a table": "read lake/tables/events/_delta_log/_last_checkpoint",
    "file of a table": "put lake/tables/events/.*parquet",
    "commit of a table": "create lake/tables/events/_delta_log/",
    "checkpoint of a table": r"(put|create) lake/tables/events/_delta_log/\d+.checkpoint.parquet",
    "claim": "create .*/fate",
    "manifest": "put .*/manifest",
    "log file": "put lake/topics/",
    "row file": "put lake/catalog/log/kind=",
    "list of rows": "list lake/catalog/log/kind=maintenance",
    "commit": "create lake/catalog/log/_delta_log/",
    "checkpoint": r"(put|create) lake/catalog/log/_delta_log/\d+[2-9].checkpoint.parquet",
    "mark": ".*/success",
    "list of rejects": "list lake/catalog/quarantine",
    "commit of rejects": "create lake/catalog/quarantine/_delta_log/",
    "deletion of rows": "delete lake/catalog/log/kind=segment",
    "deletion of logs": "delete lake/topics/",
}


class Script:
    """A lake with two runs, and what is done to it. `pool` chooses the input files."""

    def __init__(self, pool: int = 0, *, disk: bool = False, keyed: bool = False) -> None:
        plan = Plan(pool, QUIET, disk, True, (), (), keyed, extreme=True)
        self.play: Play = history.begin(plan)
        history._prepare(self.play)
        self._actors: dict[str, tuple[Process, Outcome]] = {}
        self._names = itertools.count()

    @property
    def newest(self) -> int:
        """The newest version."""
        return self.play.model.newest

    def run(self, *deeds: Deed, ends: str = "") -> None:
        """Run commands to their ends: each must be done, or `ends` with this error."""
        for deed in deeds:
            self.begin(name := f"script {next(self._names)}", deed)
            self._require_end(name, ends)

    def begin(
        self, actor: str, deed: Deed, *, before: str = "", doubled: str = "", lost: str = "",
        tries: int = PATIENCE // FAILURE_COST,
    ) -> None:  # fmt: skip
        """Start a command. It stops before the first request of a step.

        With `doubled` it stops after it, and the same request reaches storage again at `arrive`.

        With `lost`, so many `tries` of this step get no answer, by default until it gives up; they
        reach storage at `arrive`. So the command runs to its end.
        """
        outcome = Outcome(deed)
        process = Process(self.play.world, actor, lambda: None)
        if step := before or doubled or lost:
            how = "lost" if lost else "doubled" if doubled else ""
            process.halt = Halt(STEPS[step], how, tries if lost else 1)

        def do() -> None:
            self.play.rebuilding |= deed.verb == "rebuild"  # until one is done
            self.play.expiring += expires(deed)
            try:
                carry_out(self.play, process, outcome)
            finally:
                if expires(deed):
                    self.play.expiring -= 1
                    self.play.expired_before = self.newest

        process.do = do
        self._actors[actor] = process, outcome
        self.play.world.start(process)
        self.play.world.run()
        if (before or doubled) and process.ended:
            raise AssertionError(f"{deed} ended without the step {step}: {outcome.said}")
        if process.halt is not None:
            raise AssertionError(f"{deed} made no {step}, or too few")

    def go_on(self, actor: str, *, before: str = "", ends: str = "", exits: int = 0) -> None:
        """Let an actor go on to its end, or to another step."""
        process, _ = self._actors[actor]
        process.halt = Halt(STEPS[before], "", 1) if before else None
        self.play.world.later(0, process)
        self.play.world.run()
        if before and process.ended:
            raise AssertionError(f"{actor} ended without the step {before}")
        if not before:
            self._require_end(actor, ends, exits)

    def kill(self, actor: str) -> None:
        """Let an actor that has stopped die; at the end its command is run again."""
        process, outcome = self._actors[actor]
        process.dead = True
        self.play.world.later(0, process)
        self.play.world.run()
        self.play.waiting.append(outcome.deed)

    def arrive(self) -> None:
        """Let the lost requests reach storage, in their order."""
        lost, self.play.world.lost = self.play.world.lost, []
        for effect in lost:
            effect()

    def wait(self, hours: float) -> None:
        """Let time pass while nobody acts."""
        self.play.world.now_ms += hours * HOUR_MS

    def damage(self, keys: Collection[str]) -> None:
        """Change the last byte of some objects."""
        objects = self.play.bucket.objects
        for key in keys:
            data = objects[key].data
            objects[key] = objects[key]._replace(data=data[:-1] + bytes([data[-1] ^ 1]))

    def read(self, *versions: int) -> None:
        """Versions, opened by their numbers, have the records that they were made with."""
        states = self.play.model.states
        for each in versions:
            self._judge(partial(_require_version, each, states[each]))

    def end(self) -> Broken | None:
        """Judge what was left. Return what was wrong first."""
        if self.play.problem is None:
            history._finish(self.play, thorough=True)
        return self.play.problem

    def _require_end(self, actor: str, ends: str, exits: int = 0) -> None:
        process, outcome = self._actors[actor]
        right = outcome.kind == ends if ends else is_done(outcome) and outcome.kind == "done"
        if exits:
            right = outcome.exit_code == exits
        if not process.ended or not right:
            self.play.wrong(
                "script", f"{outcome.deed}: {outcome.kind} {outcome.exit_code} {outcome.said}"
            )

    def _judge(self, look: Callable[[], None]) -> None:
        history._judge(self.play, "script", look)


def _require_version(version: int, state: State) -> None:
    require_same(seglake.open(LAKE, version), state)
