"""Where two things meet: short scenes of several actors, played at once with small delays.

The general search draws each command by itself, so three that must meet in a second meet seldom. A
scene says who is there, and leaves the delays, the arguments and the mishaps to the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.simulation.deeds import Deed
from tests.simulation.inputs import FILES, FOLDER, KEYS

_AT_ONCE_MS = 800  # about as long as a command takes that nothing stops
_OF_AN_ERASURE_MS = 3_000  # from its first look to its last
_AFTER_MS = (1_000, 20_000, 2 * 3_600_000)
_OLD_FILES = {"run 0": (0, 1), "run 1": (2,)}  # of the lake with runs, see `history`


class Step(NamedTuple):
    """A deed, so long after the one before it ended."""

    gap_ms: float
    deed: Deed


Scene = list[list[Step]]  # the steps of each actor


def _soon(chance: Random, deed: Deed) -> Step:
    return Step(chance.randrange(_AT_ONCE_MS), deed)


def _after(chance: Random, deed: Deed) -> Step:
    return Step(chance.choice(_AFTER_MS), deed)


def _ingest(chance: Random, run_id: str, numbers: tuple[int, ...] = ()) -> Deed:
    """An ingest of these files, or of one or two that the old lake has not."""
    chosen = numbers or chance.sample(range(3, FILES), chance.randint(1, 2))
    return Deed("ingest", run_id, tuple(f"{FOLDER}/{n}.jsonl" for n in sorted(chosen)))


def _erase(chance: Random) -> Deed:
    keys = tuple(sorted(key.encode() for key in chance.sample(KEYS, 2)))
    return Deed("erase", keys=keys, flag=chance.random() < 0.5)


def _removal(chance: Random) -> Deed:
    """A command that replaces segments."""
    verb = chance.choice(("merge", "compact", "retain", "undo", "erase", "delete-records"))
    if verb == "undo":
        return Deed(verb, chance.choice(("run 2", "run 3")), flag=True)
    return _erase(chance) if verb == "erase" else Deed(verb, number=chance.randint(1, 6))


def lost_race(chance: Random) -> Scene:
    """Two ingests at once, of which one moves its segments; then these are replaced."""
    return [
        [_soon(chance, _ingest(chance, "run 2")), _after(chance, _removal(chance))],
        [_soon(chance, _ingest(chance, "run 3")), _after(chance, _removal(chance))],
    ]


def redriven_and_gone(chance: Random) -> Scene:
    """Redrives, while their runs are undone or replaced, and the files are ingested again."""
    scene: Scene = []
    for run_id, numbers in _OLD_FILES.items():
        again = _ingest(chance, run_id, numbers)
        ways = (Deed("undo", run_id, flag=True), again._replace(verb="replace", flag=True))
        scene.append([_soon(chance, Deed("redrive", run_id, flag=True))])
        scene.append([_soon(chance, chance.choice(ways)), _soon(chance, again)])
    return scene


def two_archives(chance: Random) -> Scene:
    """Two archives of one topic, while its broker takes records."""
    return [
        [_soon(chance, Deed("archive", f"archive {n} {m}", number=chance.randint(1, 3)))
         for m in range(chance.randint(1, 3))]
        for n in range(2)
    ]  # fmt: skip


def erased_meanwhile(chance: Random) -> Scene:
    """An erasure, while attempts begin that may have its keys."""
    files = chance.sample(range(3, FILES), 4)
    halves = enumerate((tuple(files[:2]), tuple(files[2:])), 2)
    ingests = [_ingest(chance, f"run {n}", some) for n, some in halves]
    begins_ms = [chance.randrange(_OF_AN_ERASURE_MS) for _ in ingests]
    later = [[Step(*each)] for each in zip(begins_ms, ingests, strict=True)]
    return [[Step(0, _erase(chance))], *later]


def expired(chance: Random) -> Scene:
    """A topic that may hold little, while it grows; and rejects that expire."""
    alter = Deed("alter", number=chance.choice((0, 0, 1, 3)))
    growing = [_soon(chance, _ingest(chance, f"run {n}")) for n in (2, 3)]
    upkeep = Deed(chance.choice(("retain", "retain", "maintain")))
    return [growing, [_soon(chance, alter), _after(chance, upkeep), _after(chance, upkeep)]]


def undone_twice(chance: Random) -> Scene:
    """Two undoes of a run, and an ingest that may bring it again."""
    run_id, numbers = chance.choice(list(_OLD_FILES.items()))
    undo = Deed("undo", run_id, flag=True)
    more = [_soon(chance, _ingest(chance, run_id, numbers))] * (chance.random() < 0.3)
    return [[_soon(chance, undo), *more], [_soon(chance, undo)]]


def unfinished(chance: Random) -> Scene:
    """An erasure that dies between its two commits, another one, and redrives."""
    keys = [key.encode() for key in chance.sample(KEYS, 4)]
    dead = Deed("erase", keys=tuple(sorted(keys[:2])), dies="catalog/quarantine/_delta_log/")
    other = Deed("erase", keys=tuple(sorted(keys[2:])), flag=chance.random() < 0.5)
    redrives = [_soon(chance, Deed("redrive", run_id, flag=True)) for run_id in _OLD_FILES]
    return [[Step(0, dead)], [Step(2 * _OF_AN_ERASURE_MS, other), *redrives]]


SCENES: tuple[Callable[[Random], Scene], ...] = (
    lost_race, redriven_and_gone, two_archives, erased_meanwhile, expired, undone_twice, unfinished,
)  # fmt: skip
