"""Where two things meet: short scenes of several actors, played at once with small delays.

The general search draws each command by itself, so three that must meet in a second meet seldom. A
scene says who is there, and leaves the delays, the arguments and the mishaps to the seed. In the
last ones something goes wrong at a certain call: what must come between two calls comes often.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from tests.simulation.deeds import Deed
from tests.simulation.inputs import FILES, FOLDER, KEYS
from tests.simulation.world import HOLDS_MS, HOUR_MS, LATE_MS, Mishap

_AT_ONCE_MS = 800  # about as long as a command takes that nothing stops
_OF_AN_ERASURE_MS = 3_000  # from its first look to its last
_AFTER_MS = (1_000, 20_000, 2 * 3_600_000)
_OLD_FILES = {"run 0": (0, 1), "run 1": (2,)}  # of the lake with runs, see `history`


class Step(NamedTuple):
    """A deed, so long after the one before it ended."""

    gap_ms: float
    deed: Deed


Scene = list[list[Step]]  # the steps of each actor
Scenes = tuple[Callable[[Random], Scene], ...]


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


def two_frames(chance: Random) -> Scene:
    """Ingests of DataFrames at once."""
    return [
        [_soon(chance, Deed("frame", f"frame {n} {m}", number=chance.randint(1, 3)))
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


SCENES: Scenes = (
    lost_race, redriven_and_gone, two_frames, erased_meanwhile, expired, undone_twice, unfinished,
)  # fmt: skip


# ------------------------------------------------------------------ a mishap at a certain call

_LOG, _QUARANTINE = "lake/catalog/log/", "lake/catalog/quarantine/"
_COMMIT, _NAMES_REJECTS = f"create {_LOG}_delta_log/", f"create {_QUARANTINE}_delta_log/"
_READS_REJECTS = f"read {_QUARANTINE}_delta_log/_last"
_OF_A_RUN = ("/blobs/", _READS_REJECTS, _NAMES_REJECTS, _NAMES_REJECTS, "/manifest", _COMMIT)
_LISTS_REJECTS = f"list {_QUARANTINE[:-1]}"
_OF_A_VACUUM = (  # and how many such calls it makes
    (_READS_REJECTS, 7), (_READS_REJECTS, 7), (_LISTS_REJECTS, 3), ("delete lake/", 2),
)  # fmt: skip
_FIRST_WRITES = ("/blobs/", "/blobs/", _COMMIT)
_WRITES = (*("/manifest",) * 4, "/begun", "/fate", "/success", f"put {_LOG}kind=")


def _actors(steps: Iterable[Step]) -> Scene:
    """A scene in which each actor has one of the steps."""
    return [[step] for step in steps]


def _of_three_files(chance: Random, run_id: str, mishap: Mishap | None = None) -> Deed:
    """An ingest that most often has rejects."""
    numbers = tuple(chance.sample(range(3, FILES), 3))
    return _ingest(chance, run_id, numbers)._replace(mishap=mishap)


def most_keys(chance: Random) -> tuple[bytes, ...]:
    return tuple(sorted(key.encode() for key in chance.sample(KEYS, 4)))


def given_up(chance: Random) -> Scene:
    """A run that stops for so long that a vacuum gives it up."""
    hold_ms = chance.choice(HOLDS_MS)
    hours = chance.choice([hours for hours in (0, 1, 24) if hours * HOUR_MS < hold_ms])
    ingest = _of_three_files(chance, "run 2", Mishap(chance.choice(_OF_A_RUN), hold_ms))
    later_ms = _AT_ONCE_MS + chance.uniform(hours * HOUR_MS, hold_ms)
    return _actors([_soon(chance, ingest), Step(later_ms, Deed("vacuum", grace_hours=hours))])


def erased_in_silence(chance: Random) -> Scene:
    """Runs that read their input, and stop before they write something, while an erasure comes."""
    hold_ms = chance.choice(HOLDS_MS)
    runs = [_of_three_files(chance, run_id) for run_id in ("run 2", "run 3")]
    runs.append(Deed("redrive", chance.choice(list(_OLD_FILES)), flag=True))
    stopped = [run._replace(mishap=Mishap(chance.choice(_FIRST_WRITES), hold_ms)) for run in runs]
    erase = _erase(chance)._replace(grace_hours=chance.choice((24, 1, 0)))
    later_ms = chance.uniform(_AT_ONCE_MS, hold_ms)
    return _actors([*(_soon(chance, run) for run in stopped), Step(later_ms, erase)])


def rejects_meanwhile(chance: Random) -> Scene:
    """A vacuum that stops between two looks, while runs with rejects come."""
    at, calls = chance.choice(_OF_A_VACUUM)
    stop = Mishap(at, chance.choice((5_000, 20_000)), chance.randrange(calls))
    vacuum = Deed("vacuum", grace_hours=chance.choice((24, 1, 0)), mishap=stop)
    begins_ms = {f"run {n}": chance.randrange(_OF_AN_ERASURE_MS) for n in (2, 3)}
    ingests = [Step(ms, _of_three_files(chance, run_id)) for run_id, ms in begins_ms.items()]
    return _actors([_soon(chance, vacuum), *ingests])


def overruled(chance: Random) -> Scene:
    """A run that stops before its commit, a vacuum that gives it up and dies, and an erasure.

    The same was erased before the run, so the erasure has nothing to commit. It deletes no logs:
    else it would make a commit for tags, which the run meets.
    """
    erase = Deed("erase", keys=most_keys(chance), grace_hours=0)
    frame = Deed("frame", "frame", mishap=Mishap(_COMMIT, chance.choice(HOLDS_MS)))
    vacuum = Deed("vacuum", grace_hours=0, dies="catalog/log/_delta_log/")
    given_up_ms = 2 * _OF_AN_ERASURE_MS + 1_000
    erases_ms = given_up_ms + 4_000 + chance.randrange(8_000)
    first = [Step(0, erase), Step(2_000, frame)]
    return [first, [Step(given_up_ms, vacuum)], [Step(erases_ms, erase)]]


def rows_meanwhile(chance: Random) -> Scene:
    """An erasure that stops while it looks who runs, and runs that stop before their commits."""
    stop = Mishap(f"list {_LOG}kind=maintenance", 4_000, chance.randrange(3, 7))  # its later looks
    erase = Deed("erase", keys=most_keys(chance), flag=True, mishap=stop)
    begins_ms = {f"run {n}": chance.randrange(_AT_ONCE_MS, 2 * _OF_AN_ERASURE_MS) for n in (2, 3)}
    stops = {run_id: Mishap(_COMMIT, chance.choice(HOLDS_MS)) for run_id in begins_ms}
    ingests = {run_id: _of_three_files(chance, run_id, stops[run_id]) for run_id in begins_ms}
    return _actors([Step(0, erase), *(Step(begins_ms[name], ingests[name]) for name in ingests)])


def comes_again(chance: Random) -> Scene:
    """Two runs at once, of which each makes a request that comes again, and what replaces them."""
    at = chance.choice(_WRITES)
    again = [Mishap(at, chance.choice(LATE_MS), again=True) for _ in range(2)]
    runs = [_ingest(chance, f"run {n}")._replace(mishap=each) for n, each in enumerate(again, 2)]
    return [[Step(chance.randrange(300), run), _after(chance, _removal(chance))] for run in runs]


def rejects_after(chance: Random) -> Scene:
    """An erasure that stops between its commit and the rejects, while runs with rejects end."""
    stop = Mishap("/success", chance.choice((8_000, 20_000)))
    erase = Deed("erase", keys=most_keys(chance), flag=chance.random() < 0.5, mishap=stop)
    begins_ms = {f"run {n}": chance.randrange(_AT_ONCE_MS, _OF_AN_ERASURE_MS) for n in (2, 3)}
    ingests = [Step(ms, _of_three_files(chance, run_id)) for run_id, ms in begins_ms.items()]
    return _actors([Step(0, erase), *ingests])


def overtaken(chance: Random) -> Scene:
    """A run that stops before its commit and copies its segments again and again, beside others."""
    stop_ms = chance.choice((500, 2_000))
    begins_ms = [0, *(chance.uniform(0, stop_ms + _AT_ONCE_MS) for _ in range(FILES - 4))]
    runs = [_ingest(chance, f"run {n}", (n + 1,)) for n in range(2, FILES - 1)]
    runs[0] = runs[0]._replace(mishap=Mishap(_COMMIT, stop_ms))
    later = [_after(chance, _removal(chance)) for _ in range(2)]
    steps = [[Step(*each)] for each in zip(begins_ms, runs, strict=True)]
    return [[*steps[0], later[0]], [*steps[1], later[1]], *steps[2:]]


STOPS: Scenes = (
    given_up, erased_in_silence, rejects_meanwhile, overruled, rows_meanwhile,
)  # fmt: skip
AFTER: Scenes = (rejects_after,)
AGAIN: Scenes = (comes_again,)  # on an object store
CROWD: Scenes = (overtaken,)
