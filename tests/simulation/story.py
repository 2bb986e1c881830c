"""A failure made short, and told as a story: who did what, in which order, and what went wrong."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.simulation import history
from tests.simulation.history import Play
from tests.simulation.plan import Plan

Name = tuple[str, int]

_TELLING = ("begins", "ends", "***")
_WRITES = ("put ", "create ", "delete ")


class Short(NamedTuple):
    """A plan without the tasks, readers and mishaps that its failure does not need."""

    plan: Plan
    skipped: frozenset[Name]
    mended: frozenset[Name]

    def play(self, *, trace: bool = False) -> Play:
        return history.run(self.plan, self.skipped, self.mended, thorough=True, trace=trace)


def shorten(plan: Plan, kind: str, say: Callable[[str], None] = lambda _: None) -> Short:
    """Leave out whatever can be, as long as the same kind of thing goes wrong."""
    short = Short(plan, frozenset(), frozenset())
    tasks = [(part.name, n) for part in plan.parts for n in range(len(part.tasks))]
    tasks += [(reader, 0) for reader in plan.readers]
    changed = True
    while changed:
        changed = False
        for name in tasks:
            less = short._replace(skipped=short.skipped | {name})
            if name not in short.skipped and _fails(less, kind):
                short, changed = less, True
        for name in _mishaps(short):
            less = short._replace(mended=short.mended | {name})
            if _fails(less, kind):
                short, changed = less, True
    say(f"{len(tasks) - len(short.skipped)} of {len(tasks)} commands and readers are left")
    return short


def _fails(short: Short, kind: str) -> bool:
    problem = short.play().problem
    return problem is not None and problem.kind == kind


def _mishaps(short: Short) -> list[Name]:
    return [(event.process, event.call) for event in short.play().world.events]


def told(short: Short) -> Iterator[str]:
    """The story, line by line: commands, mishaps and what was written; then the problem."""
    play = short.play(trace=True)
    plan = play.plan
    where = "a disk" if plan.disk else "an object store"
    yield f"seed {plan.seed}, on {where}" + ", a lake with two runs" * plan.old
    for part in plan.parts:
        if part.skew_ms and any(
            (part.name, n) not in short.skipped for n in range(len(part.tasks))
        ):
            yield f"the clock of {part.name} is {part.skew_ms / 3_600_000:+.2f} hours off"
    begin_ms = play.world.trace[0].at_ms if play.world.trace else 0
    started = False
    for line in play.world.trace or ():
        started = started or not line.process.startswith("before")
        text = line.what
        if started and (text.startswith(_TELLING) or (text.startswith(_WRITES) and _matters(text))):
            yield f"{_clock(line.at_ms - begin_ms)}  {line.process:<14} {_short(text)}"
    yield f"wrong: {play.problem}"


def _matters(text: str) -> bool:
    parts = ("_delta_log/", "success", "fate", "manifest", "delete catalog", "delete topics",
             "delete attempts", "announce", "kind=")  # fmt: skip
    return any(part in text for part in parts)


def _clock(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    return f"{seconds // 3600:4}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:03}"


def _short(text: str) -> str:
    text = text if text.startswith(("***", "ends", "begins")) else text.partition(" = ")[0]
    return text.replace("00000000000000", "..").replace(
        "catalog/log/_delta_log/", "catalog version "
    )
