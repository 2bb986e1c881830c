"""What a history is to be: who does what, when, and how much goes wrong, all from the seed."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from seglake.catalog.transaction import FAILURE_COST, PATIENCE
from tests.simulation.deeds import Deed
from tests.simulation.inputs import ALL_KEYS, FILES, FOLDER, KEYS, PARQUET
from tests.simulation.meetings import AFTER, AGAIN, CROWD, SCENES, STOPS, Scene, Scenes, most_keys
from tests.simulation.world import HOUR_MS, SKEWS_MS, Mishap, Odds

GAPS_MS = (0, 0, 0, 500, 20_000, HOUR_MS, 24.3 * HOUR_MS)
LONG_GAPS_MS = (0, HOUR_MS, 24.3 * HOUR_MS)
JSONL = tuple(f"{FOLDER}/{number}.jsonl" for number in range(FILES))
BINARIES = tuple(f"{FOLDER}/{FILES + number}.parquet" for number in range(PARQUET))
WRITING = ("ingest", "ingest", "ingest", "replace", "redrive", "undo", "frame", "frame", "import")
KEEPING = ("merge", "compact", "retain", "delete-records", "erase", "erase", "alter", "maintain",
           "vacuum", "vacuum", "repair", "reindex", "redrive", "undo")  # fmt: skip
_SCENES = 0.7  # of the histories of an old lake begin with a scene
# Of them, with one that has a mishap, come what may:
_STOPS, _AGAIN, _CROWD, _AFTER = 0.35, 0.1, 0.04, 0.06
_CALM = 0.7  # of these last have no mishap but that one
COMMIT = "create lake/catalog/log/_delta_log/"
LOST_REPLIES = PATIENCE // FAILURE_COST  # so many, and a command that commits gives up
_LATER_MS = 30_000  # after which those who are not in the scene begin
READING = ("hold", "follow", "stream")
TAGGED = (2, 5, 9, 14, 15, 16)  # seeds, modulo 31, with somebody who tags versions
FOLDED = (3, 4, 8, 9, 10, 12, 19)  # seeds, modulo 29, whose vacuums fold few manifests
EXTREME = (5, 12, 23, 30)  # seeds, modulo 41, with such events
REINDEXED = (3, 14, 26)  # seeds, modulo 37, with two reindexes at once
PUBLISHED = (1, 6, 8, 20, 27, 33)  # seeds, modulo 43, with a publisher
KEYED = (0, 1, 2, 4)  # seeds, modulo 23, with key indexes


class Task(NamedTuple):
    """A deed, so long after the one before it ended."""

    gap_ms: float
    deed: Deed


class Part(NamedTuple):
    """What one actor does, and how far its clock is off."""

    name: str
    skew_ms: int
    tasks: tuple[Task, ...]


class Plan(NamedTuple):
    """A history to be played. With `old` the lake has some runs at its beginning.

    In an `extreme` one some events have times at the ends of what a timestamp can be. In a `keyed`
    one the topic gets key indexes.
    """

    seed: int
    odds: Odds
    disk: bool
    old: bool
    parts: tuple[Part, ...]
    readers: tuple[str, ...]
    keyed: bool = False
    extreme: bool = False

    @property
    def folds(self) -> bool:
        """Whether a vacuum folds the manifests of a few commits, not of a thousand."""
        return self.seed % 29 in FOLDED

    @property
    def deeds(self) -> int:
        return sum(len(part.tasks) for part in self.parts)


def plan_of(seed: int) -> Plan:
    """The plan of a seed: eight to a dozen commands of three or four actors, and readers."""
    chance = Random(f"plan {seed}")
    disk = chance.random() < 0.4
    favourites = chance.sample(KEEPING, chance.choice((2, 4)))
    writers = chance.choice((1, 2, 2))
    runs = [f"run {number}" for number in range(chance.randint(1, 4))]
    parts = [
        _part(f"writer {n}", chance, WRITING, runs, chance.randint(2, 4)) for n in range(writers)
    ]
    keepers = 3 - writers + chance.choice((0, 0, 1))
    left = max(8 - sum(len(part.tasks) for part in parts), keepers)
    for n in range(keepers):
        own = left // keepers + (n < left % keepers)
        some = favourites if chance.random() < 0.7 else KEEPING
        parts.append(_part(f"keeper {n}", chance, some, runs, own))
    old = chance.random() < 0.7
    meets = old and chance.random() < _SCENES
    more = Random(f"stops {seed}")  # so that the histories without it are as they were
    scenes = _with_mishap(more, disk=disk) if old else ()
    if scenes:
        parts = _with_scene(more, parts, more.choice(scenes)(more))
    elif meets:
        parts = _with_scene(chance, parts, chance.choice(SCENES)(chance))
    if chance.random() < 0.15:
        parts.append(_janitor(chance))
    if chance.random() < 0.08:
        parts.append(Part("operator", 0, (Task(chance.choice(GAPS_MS), Deed("rebuild")),)))
    readers = tuple(kind for kind in READING if chance.random() < 0.25)
    odds = _odds(chance, disk=disk, meets=meets)
    if scenes and more.random() < _CALM:
        odds = Odds()
    plan = Plan(seed, odds, disk, old, tuple(parts), readers, extreme=seed % 41 in EXTREME)
    plan = _rebuilt_meanwhile(_with_extremes(plan) if plan.extreme else plan)
    plan = _with_keys(plan) if seed % 23 in KEYED else plan
    plan = _reindexed_at_once(plan) if plan.old and seed % 37 in REINDEXED else plan
    plan = _with_publisher(plan) if seed % 43 in PUBLISHED else plan
    return _with_tags(plan) if seed % 31 in TAGGED else plan


def _with_publisher(plan: Plan) -> Plan:
    """One who publishes now and then, or two at once."""
    chance = Random(f"publish {plan.seed}")  # so that the histories without it are as they were
    parts = [
        Part(f"publisher {n}", chance.choice(SKEWS_MS), tuple(
            Task(chance.choice(GAPS_MS), Deed("publish")) for _ in range(chance.randint(2, 5))
        ))
        for n in range(chance.choice((1, 1, 2)))
    ]  # fmt: skip
    return plan._replace(parts=(*plan.parts, *parts))


def _rebuilt_meanwhile(plan: Plan) -> Plan:
    """Of some plans with a rebuild: the commit before it comes once more, and one follows it."""
    chance = Random(f"rebuild {plan.seed}")  # so that the histories without it are as they were
    others = [part for part in plan.parts if part.name != "operator"]
    if plan.disk or len(others) == len(plan.parts) or chance.random() > 0.3:
        return plan
    again = Mishap(COMMIT, chance.uniform(5_000, 59_000), again=True)
    ingest = Deed("ingest", "before", (chance.choice(JSONL),), mishap=again)
    rebuild = Task(chance.uniform(1_500, 4_000), Deed("rebuild"))  # when a reader has begun
    scene = [Part("before", 0, (Task(0, ingest),)), Part("operator", 0, (rebuild,))]
    readers = tuple(kind for kind in READING if kind in {*plan.readers, "follow"})
    return plan._replace(odds=Odds(), parts=(*map(_later, others), *scene), readers=readers)


def _with_extremes(plan: Plan) -> Plan:
    """The plan with imports of events that have the largest timestamp, and no others."""
    chance = Random(f"extremes {plan.seed}")
    deed = Deed("import", number=chance.choice((12, 14, 15)))
    importer = Part("importer", 0, (Task(chance.choice(GAPS_MS[:5]), deed),))
    parts = [
        part._replace(tasks=tuple(task._replace(deed=_extreme(task.deed)) for task in part.tasks))
        for part in plan.parts
    ]
    return plan._replace(parts=(*parts, importer))


def _extreme(deed: Deed) -> Deed:
    return deed._replace(number=deed.number + 10) if deed.verb == "import" else deed


def _with_tags(plan: Plan) -> Plan:
    """The plan with somebody who makes and deletes tags, often a vacuum, and a reader of tags."""
    chance = Random(f"tags {plan.seed}")
    gaps_ms = chance.choice((GAPS_MS, GAPS_MS[:5]))
    deeds = [_of_tags(chance) for _ in range(chance.randint(4, 7))]
    tasks = tuple(Task(chance.choice(gaps_ms), deed) for deed in deeds)
    parts = [*plan.parts, Part("tagger", chance.choice(SKEWS_MS), tasks)]
    more = Random(f"erasures {plan.seed}")  # so that the histories without it are as they were
    if plan.old and more.random() < 0.15:
        parts = [*map(_later, plan.parts), *_given_up_with_tags(more)]
        plan = plan._replace(odds=Odds())
    elif plan.old and chance.random() < 0.4:
        parts = [*map(_later, plan.parts), *_tagged_meanwhile(chance)]
        plan = plan._replace(odds=Odds())
    elif chance.random() < 0.5:
        sweep = Deed("vacuum", flag=True, grace_hours=chance.choice((0, 1)))
        gap_ms = chance.choice((500, 2_000, 9_000))
        parts.append(Part("sweeper", 0, (Task(gap_ms, sweep),) * 4))
    return plan._replace(parts=tuple(_named_apart(parts)), readers=(*plan.readers, "tags"))


def _named_apart(parts: list[Part]) -> Iterator[Part]:
    """The parts, each with a name of its own: a process draws its ids by its name."""
    for at, part in enumerate(parts):
        same = sum(each.name == part.name for each in parts[:at])
        yield part._replace(name=f"{part.name} again") if same else part


def _tagged_meanwhile(chance: Random) -> list[Part]:
    """A version gets a tag while a vacuum deletes what names its files, or while keys leave it."""
    stop = Mishap("delete lake/catalog/log/kind=segment", chance.choice((2_000, 4_000, 8_000)))
    sweep = Deed("vacuum", flag=True, grace_hours=0, mishap=stop)
    late = Mishap("put lake/catalog/log/kind=tag", chance.choice((2_000, 8_000, 16_000)))
    tag = Deed("tag", "a", number=chance.randint(1, 3), mishap=chance.choice((None, late, late)))
    merging, other = Task(0, Deed("merge")), Part("sweeper", 0, ())
    if chance.random() < 0.5:
        other = other._replace(tasks=(merging, Task(chance.uniform(0, 500), sweep)))
        return [other, Part("tagger", 0, (Task(chance.uniform(1_500, 8_000), tag),))]
    erase = Deed("erase", keys=most_keys(chance), flag=chance.random() < 0.5, grace_hours=1)
    other = Part("eraser", 0, (Task(chance.uniform(0, 3_000), erase),))
    return [other, Part("tagger", 0, (Task(chance.uniform(0, 5_000), tag),))]


def _given_up_with_tags(chance: Random) -> list[Part]:
    """An erasure stops while it writes; another one gives it up, and ends. A tag is there."""
    files = 4 * chance.randrange(4)  # a log and its indexes are four
    stop = Mishap("put lake/topics/", chance.choice((2, 3)) * HOUR_MS, files)
    keys = most_keys(chance)
    first = Deed("erase", keys=keys[:2], mishap=stop)
    other = Deed("erase", keys=keys[2:], flag=True, grace_hours=chance.choice((0, 1)))
    tagged = [Task(0, Deed("tag", "a", number=chance.choice((1, 1, 2)))), Task(500, Deed("merge"))]
    return [
        Part("tagger", 0, tuple(tagged)),
        Part("eraser", 0, (Task(chance.uniform(4_000, 8_000), first),)),
        Part("other", 0, (Task(1.5 * HOUR_MS, other),)),
    ]


def _of_tags(chance: Random) -> Deed:
    name = chance.choice(("a", "b"))
    if chance.random() < 0.3:
        return Deed("delete-tag", name)
    return Deed("tag", name, number=chance.choice((0, 0, 1, 2, 5)))


def _with_keys(plan: Plan) -> Plan:
    """The plan with somebody who sets key indexes and uses them."""
    chance = Random(f"keys {plan.seed}")
    indexer = [Deed("index-keys", flag=True), *(_of_keys(chance, n) for n in range(4))]
    gaps_ms = chance.choice((GAPS_MS, GAPS_MS[:5]))
    tasks = tuple(Task(chance.choice(gaps_ms), deed) for deed in indexer)
    parts = [*plan.parts, Part("indexer", 0, tasks)]
    if plan.old and chance.random() < 0.3:
        parts = [*map(_later, plan.parts), *_reindexed_meanwhile(chance)]
        plan = plan._replace(odds=Odds())
    return plan._replace(parts=tuple(parts), readers=(*plan.readers, "find"), keyed=True)


def _reindexed_meanwhile(chance: Random) -> list[Part]:
    """A reindex that stops before it writes something, while an erasure ends."""
    stop = Mishap("put lake/topics/", chance.choice((2_000, 3_500, 5_000)))
    reindex = Deed("reindex", number=1, mishap=stop)
    keys = tuple(sorted(key.encode() for key in KEYS))
    erase = Deed("erase", keys=keys, flag=True, grace_hours=chance.choice((24, 1)))
    set_up = Task(0, Deed("index-keys", flag=True))
    return [
        Part("indexer", 0, (set_up, Task(chance.uniform(0, 1_500), reindex))),
        Part("eraser", 0, (Task(chance.uniform(800, 1_500), erase),)),
    ]


def _reindexed_at_once(plan: Plan) -> Plan:
    """The plan, after two reindexes at once, and an erasure that neither may block.

    One waits before its commit, so that it loses the race; or its commit comes after its end.
    """
    chance = Random(f"reindexes {plan.seed}")
    stop = Mishap(COMMIT, chance.uniform(1_000, 6_000))
    late = stop._replace(ms=chance.uniform(60_000, 300_000), cut=LOST_REPLIES)
    first = Deed("reindex", number=1, mishap=stop if plan.disk else chance.choice((stop, late)))
    erase = Deed("erase", keys=most_keys(chance), flag=chance.random() < 0.5)
    scene = [
        Part("reindexer", 0, (Task(0, first),)),
        Part("other", 0, (Task(chance.uniform(0, 900), Deed("reindex", number=2)),)),
        Part("eraser", 0, (Task(chance.uniform(15_000, 25_000), erase),)),
    ]
    later = [_begun_at(part, 400_000) for part in plan.parts]
    return plan._replace(odds=Odds(), parts=tuple(_named_apart([*scene, *later])))


def _of_keys(chance: Random, number: int) -> Deed:
    verb = chance.choice(("index-keys", "reindex", "reindex", "erase", "erase", "frame", "merge"))
    if verb == "index-keys":
        return Deed(verb, flag=chance.random() < 0.7)
    if verb == "frame":
        return Deed(verb, f"indexed {number}")
    return _deed(verb, "indexer", chance, ["run 0"])


def _with_mishap(chance: Random, *, disk: bool) -> Scenes:
    """The scenes among which one is, if one with a mishap of its own is to be at all."""
    draw = chance.random()
    if draw < _STOPS:
        return STOPS
    if draw >= 1 - _AFTER:
        return AFTER
    if 0 <= draw - _STOPS - _AGAIN < _CROWD:
        return CROWD
    return AGAIN if draw < _STOPS + _AGAIN and not disk else ()


def _with_scene(chance: Random, parts: list[Part], scene: Scene) -> list[Part]:
    """The parts with a scene at the beginning of some, and what they do otherwise after it."""
    extra = [Part(f"actor {n}", 0, ()) for n in range(len(scene) - len(parts))]
    every = [*parts, *extra]
    chance.shuffle(every)
    own = [tuple(Task(*step) for step in steps) for steps in scene]
    first = [
        part._replace(skew_ms=0, tasks=(*tasks, *part.tasks[len(tasks) :]))
        for part, tasks in zip(every[: len(own)], own, strict=True)
    ]
    return [*first, *map(_later, every[len(first) :])]


def _later(part: Part) -> Part:
    """A part that begins after those who are in a scene."""
    return _begun_at(part, _LATER_MS)


def _begun_at(part: Part, ms: int) -> Part:
    return part._replace(tasks=(part.tasks[0]._replace(gap_ms=ms), *part.tasks[1:]))


def _odds(chance: Random, *, disk: bool, meets: bool) -> Odds:
    """Some histories are calm, so that only the order matters; in others much goes wrong."""
    return Odds(
        crash=chance.choice((0, 0.002, 0.006)),
        error=chance.choice((0, 0, 0.002)),
        lost=0.0 if disk else chance.choice((0, 0.003)),
        late=0.0 if disk else chance.choice((0, 0, 0.004)),
        pause=chance.choice((0, 0.003, 0.01)),
        hold=chance.choice((0, 0.1, 0.25) if meets else (0, 0.03, 0.1)),
    )


def _janitor(chance: Random) -> Part:
    """Somebody who vacuums again and again, and spares little."""
    tasks = [Deed("vacuum", grace_hours=chance.choice((0, 0, 1))) for _ in range(4)]
    return Part(
        "janitor", 0, tuple(Task(chance.choice((2_000, 9_000, 2 * HOUR_MS)), t) for t in tasks)
    )


def _part(
    name: str, chance: Random, verbs: tuple[str, ...] | list[str], runs: list[str], count: int
) -> Part:
    gaps_ms = chance.choice((GAPS_MS, GAPS_MS[:5], LONG_GAPS_MS))
    tasks = tuple(
        Task(chance.choice(gaps_ms), _deed(chance.choice(verbs), f"{name} {n}", chance, runs))
        for n in range(count)
    )
    return Part(name, chance.choice(SKEWS_MS), tasks)


def _deed(verb: str, own: str, chance: Random, runs: list[str]) -> Deed:
    run_id, flag = chance.choice(runs), chance.random() < 0.5
    if verb in ("ingest", "replace"):
        some = BINARIES if chance.random() < 0.15 else JSONL
        paths = tuple(sorted(chance.sample(some, chance.randint(1, 2))))
        named = f"{run_id} bin" if some is BINARIES else run_id
        return Deed(verb, named, paths, flag=flag)
    if verb == "redrive":
        form = chance.random() < 0.85
        return Deed(verb, run_id if form else f"{run_id} bin", flag=form)
    if verb == "undo":
        return Deed(verb, run_id, flag=flag)
    if verb == "frame":
        return Deed(verb, own, number=chance.randint(0, 3))
    if verb == "import":
        return Deed(verb, number=chance.choice((2, 4, 5)))
    if verb == "erase":
        keys = tuple(sorted(chance.sample(ALL_KEYS, chance.randint(1, 2))))
        waits = int(chance.random() < 0.2)
        grace = 1 if waits else chance.choice((24, 24, 1, 0))
        return Deed(verb, keys=keys, flag=flag, number=waits, grace_hours=grace)
    if verb in ("vacuum", "maintain"):
        grace = chance.choice((24, 24, 1, 0))
        return Deed(verb, flag=verb == "vacuum" and chance.random() < 0.3, grace_hours=grace)
    return Deed(verb, number=chance.randint(1, 6), flag=flag)
