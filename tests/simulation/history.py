"""One history: a plan is played, everything that anybody sees is judged, and the end as well."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import seglake
from seglake.catalog.table import CatalogTable
from seglake.errors import CorruptData, SeglakeError, StoreError, UsageError, VersionExpired
from seglake.layout import CHRONICLES, TOMBSTONES
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.health.verify import only_tagged, verify
from seglake.maintain.vacuum import vacuum
from seglake.read.lake import Lake
from seglake.read.log import Log
from tests.simulation import inputs, stage
from tests.simulation.deeds import LAKE, VERBS, Deed, Ground, meant
from tests.simulation.judge import (
    COLUMNS,
    Broken,
    old_key_indexes,
    records_of,
    require_all,
    require_found,
    require_same,
)
from tests.simulation.model import EVENTS, Model, Record, State, Wrong
from tests.simulation.plan import Part, Plan, Task
from tests.simulation.storage import Bucket, Object
from tests.simulation.tables import COMMITS as TABLE_COMMITS
from tests.simulation.tables import TableJudge, keys_in
from tests.simulation.world import HOUR_MS, QUIET, Process, TooLong, World

COMMITS, REJECTS = "lake/catalog/log/_delta_log/", "lake/catalog/quarantine/_delta_log/"
_TAILED = (4, 5, 9)  # seeds, modulo 13, whose `follow` is `Log.follow`
_TRIES = 3  # of a command that died or lost


_OF_THE_INSIDE = ("has no segment at", "is not newer", "does not follow", "rows of this topic")


@dataclass
class Outcome:
    """How a command ended: "done", "died", or the name of an error; and what was said."""

    deed: Deed
    kind: str = "died"
    said: str = ""
    began_ms: float = 0
    ended_ms: float = 0
    exit_code: int = 0
    version: int = -1
    erased_ms: float | None = None  # when its first commit of an erasure took effect


class Tagged(NamedTuple):
    """A tag: the version that it names, and what that must hold."""

    version: int
    state: State


@dataclass
class Play:
    """A history while it is played."""

    plan: Plan
    world: World
    bucket: Bucket
    model: Model
    ground: Ground
    outcomes: list[Outcome] = field(default_factory=list)
    waiting: list[Deed] = field(default_factory=list)  # to be run again at the end
    met: Counter[str] = field(default_factory=Counter)
    expired_before: int = 0  # versions below it may be gone
    expiring: int = 0  # commands under way that may expire versions
    busy: int = 0  # commands under way
    rebuilt: int = 0  # the version that the last rebuild made
    closed: bool = False  # for a rebuild of the catalog, which nobody may be beside
    rebuilding: bool = False  # from its begin until one is done
    tags: dict[str, Tagged] = field(default_factory=dict)  # those that there are now
    table: TableJudge = field(default_factory=TableJudge)
    problem: Broken | None = None

    def wrong(self, kind: str, what: str) -> None:
        """Note the first thing that is wrong; the world then comes to its end."""
        if self.problem is None:
            self.problem = Broken(kind, what)


# ------------------------------------------------------------------ the players


class Actor:
    """Does its tasks one after another; whatever dies or loses is done again, now or at the end."""

    def __init__(self, play: Play, part: Part, skipped: frozenset[tuple[str, int]]) -> None:
        self._play, self._part = play, part
        self._tasks = [(n, t) for n, t in enumerate(part.tasks) if (part.name, n) not in skipped]
        self._tries = 0

    def go_on(self) -> None:
        """Start the next task, if one is left and nothing is wrong yet."""
        if self._tasks and self._play.problem is None:
            number, task = self._tasks[0]
            name = f"{self._part.name}.{number}" + f" again {self._tries}" * bool(self._tries)
            self._begin(name, task)

    def _begin(self, name: str, task: Task) -> None:
        play, outcome = self._play, Outcome(task.deed)
        process = Process(play.world, name, lambda: None, self._part.skew_ms, play.plan.odds)
        if not self._tries:
            process.doomed, process.mishap = task.deed.dies, task.deed.mishap

        def do() -> None:
            enter(play, process, alone=task.deed.verb == "rebuild")
            play.expiring += expires(task.deed)
            try:
                carry_out(play, process, outcome)
            finally:
                play.busy -= 1
                if expires(task.deed):
                    play.expiring -= 1
                    play.expired_before = play.model.newest
                self._ended(process, outcome)

        process.do = do
        gap_ms = task.gap_ms if not self._tries else 1000 * process.chance.choice((0, 1, 90_000))
        play.world.start(process, gap_ms)

    def _ended(self, process: Process, outcome: Outcome) -> None:
        if process.dead:
            outcome.kind = "died"
        self._tries += 1
        if is_done(outcome):
            self._tasks.pop(0)
            self._tries = 0
        elif outcome.deed.verb == "rebuild":  # until it is done: the lake is closed
            if self._tries > 50 * _TRIES:
                self._play.wrong("rerun of rebuild fails", f"{outcome.kind} {outcome.said}")
        elif self._tries >= _TRIES or process.chance.random() < 0.4:
            self._play.waiting.append(outcome.deed)
            self._tasks.pop(0)
            self._tries = 0
        self.go_on()


def enter(play: Play, process: Process, *, alone: bool) -> None:
    """Wait while a rebuild is under way, or, to be alone, until nobody else acts.

    A rebuild may take weeks. So each look is a tenth of the time that has passed after the last.
    """
    since_ms = play.world.now_ms
    while play.closed and not alone and play.problem is None:
        process.wait(max(60_000, (play.world.now_ms - since_ms) / 10))
    while alone and play.busy:
        play.closed = True
        process.wait(1_000)
    play.closed = play.rebuilding = alone
    play.busy += 1


def carry_out(play: Play, process: Process, outcome: Outcome) -> None:
    """Run a command in a process, and note how it ended."""
    deed = outcome.deed
    outcome.began_ms = play.world.now_ms
    play.outcomes.append(outcome)
    process.about = {"deed": deed, "outcome": outcome, "listed_ms": None}
    play.world.tell(process, f"begins: {deed}")
    try:
        report = VERBS[deed.verb](deed, play.ground)
        outcome.exit_code = _exit_code(report)
        outcome.kind, outcome.said = "done", _summary(report)
        outcome.version = int(getattr(report, "version", -1))
        _meet_run(play, outcome, int(getattr(report, "rebased", 0)))
    except SeglakeError as error:
        outcome.kind, outcome.said = type(error).__name__, str(error)
        outcome.exit_code = error.exit_code
        if outcome.kind == "CorruptData":
            play.wrong("corrupt data", f"{deed}: {error}")
    except Wrong as error:
        play.wrong("model", f"{deed}: {error}")
    except Exception as error:  # whatever it is, it must not be
        play.wrong(f"{type(error).__name__} in {deed.verb}", f"{deed}: {error!r}")
    outcome.ended_ms = play.world.now_ms
    play.world.tell(process, f"ends: {outcome.kind} {outcome.exit_code} {outcome.said[:150]}")
    if not process.dead:
        _after(play, outcome)


def _meet_run(play: Play, outcome: Outcome, rebased: int) -> None:
    if rebased:
        play.met["re-base"] += 1
        erased = [each.erased_ms for each in play.outcomes if each.erased_ms is not None]
        if any(outcome.began_ms < at_ms < play.world.now_ms for at_ms in erased):
            play.met["re-base after an erase"] += 1
    if outcome.deed.verb == "redrive" and outcome.said == "committed":
        play.met["redrive committed"] += 1


def _exit_code(report: Any) -> int:
    reports = report if isinstance(report, list) else [report]
    return max((int(getattr(each, "exit_code", 0)) for each in reports), default=0)


def _summary(report: Any) -> str:
    return str(getattr(report, "status", "")) or type(report).__name__


def is_done(outcome: Outcome) -> bool:
    """Whether nothing has to be done again."""
    if outcome.kind == "done":
        return outcome.exit_code in (0, 4)
    if outcome.kind == "QuarantineLimit":
        return True
    if outcome.deed.verb == "tag" and outcome.kind == "VersionExpired":
        return True
    return outcome.kind in (
        "UsageError",
        "InputError",
        "ConfigError",
        "UnknownTopic",
        "PolicyViolation",
        "OffsetOutOfRange",
    ) and not ("may still run" in outcome.said or "cannot be read" in outcome.said)


def expires(deed: Deed) -> bool:
    """Whether versions may be gone after a command."""
    return deed.verb == "rebuild" or (deed.flag and deed.verb in ("vacuum", "erase"))


def _after(play: Play, outcome: Outcome) -> None:
    """What must hold when a command has ended by itself."""
    deed = outcome.deed
    _require_taken_back(play, outcome)
    if deed.verb == "rebuild" and is_done(outcome):
        play.closed = play.rebuilding = False
    if deed.verb == "rebuild" and outcome.kind == "done":
        play.model.same_again(max(outcome.version, play.model.newest))
        play.expired_before = play.rebuilt = play.model.newest
        play.met["rebuild"] += 1
    if deed.verb == "erase" and "may still run" in outcome.said and _is_alone(play, outcome):
        play.wrong("blocked", f"{deed} is refused, and nobody acts: {outcome.said}")
    if deed.verb == "tag" and not deed.number and "before an erasure" in outcome.said:
        play.wrong("tag is refused", f"{deed} named no version: {outcome.said}")
    if outcome.kind == "UsageError" and any(each in outcome.said for each in _OF_THE_INSIDE):
        play.wrong(f"{deed.verb} is refused", f"{deed}: {outcome.said}")
    if deed.verb == "undo" and "already undone" in outcome.said:
        play.wrong(f"{deed.verb} is refused", f"{deed}: {outcome.said}")
    if deed.verb == "erase" and outcome.kind == "done":
        if deed.flag and outcome.exit_code == 0:
            _require_gone(play, deed.keys, outcome)
            _require_no_hash(play, outcome)
        _require_none_tagged(play, outcome)
        play.met["erase done" if outcome.exit_code == 0 else "erase refused"] += 1


def _is_alone(play: Play, outcome: Outcome) -> bool:
    """Whether every other command had ended by itself, and with storage at its service."""
    others = [each for each in play.outcomes if each is not outcome]
    # After a rebuild the catalog does not know all ids that committed, and spares them for a day.
    return (
        not play.waiting
        and not play.rebuilt
        and all(
            each.kind not in ("died", "StoreError", "AttemptAbandoned")
            and 0 < each.ended_ms < outcome.began_ms
            for each in others
        )
    )


def _require_gone(play: Play, keys: Iterable[bytes], outcome: Outcome) -> None:
    """No object of the lake has a spelling of a key, but those of attempts that began later.

    No erasure can see what an attempt that it gave up writes after its last look: for that, see
    `_require_taken_back`.
    """
    back = _held(play.model.state)  # by right: somebody brought them later
    keys = deed_keys = {*keys}
    spelled = [(key, each) for key in keys for each in inputs.spellings(key)]
    for key, found in play.bucket.objects.items():
        if not key.startswith("lake/") or _is_other(key, found.owner, outcome):
            continue
        spared = back if _rewrites(found.owner, outcome) else ()
        if (held := keys_in(key, found.data)) is not None:
            if not held.isdisjoint(deed_keys - back) and not _is_at_work(found.owner):
                play.wrong("erased key left", f"{key} has one of {deed_keys} after {outcome.deed}")
            continue
        if any(each in found.data for one, each in spelled if one not in spared):
            if _is_at_work(found.owner) and _is_given_up(play, key, found.owner):
                continue
            play.wrong("erased key left", f"{key} still has one of {spelled} after {outcome.deed}")
            return


def _is_at_work(owner: Process | None) -> bool:
    return owner is not None and not owner.dead and not owner.about["outcome"].ended_ms


def _is_given_up(play: Play, key: str, owner: Process | None) -> bool:
    """Whether another process gave an attempt up; its own does so before it plans again."""
    attempts = re.findall("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", key)
    fates = (play.bucket.objects.get(f"lake/attempts/{attempt}/fate") for attempt in attempts)
    return any(fate is not None and b"abandoned" in fate.data and fate.owner is not owner
               for fate in fates)  # fmt: skip


def _require_taken_back(play: Play, outcome: Outcome) -> None:
    """A command that was given up has left nothing with a key that was erased meanwhile."""
    erasures = [each for each in play.outcomes if each.deed.verb == "erase" and each.deed.flag
                and (each.kind, each.exit_code) == ("done", 0)
                and outcome.began_ms < each.ended_ms < play.world.now_ms]  # fmt: skip
    own = [(key, found) for key, found in play.bucket.objects.items() if erasures
           and found.owner and found.owner.about["outcome"] is outcome
           and key.startswith("lake/") and _is_given_up(play, key, found.owner)]  # fmt: skip
    for erasure in erasures:
        spelled = [each for key in erasure.deed.keys for each in inputs.spellings(key)]
        for key, found in own:
            play.met["look at what a given up attempt left"] += 1
            if not _is_other(key, found.owner, erasure) and any(e in found.data for e in spelled):
                play.wrong("erased key left", f"{key} was not taken back after {erasure.deed}")


def _require_none_tagged(play: Play, erased: Outcome) -> None:
    """No tag names a version from before an erasure that holds one of its keys."""
    for name, tagged in play.tags.items():
        records = tagged.state.records.get(EVENTS, {}).values()
        if tagged.version < erased.version and {each.key for each in records} & {*erased.deed.keys}:
            play.wrong("erased key in a tag", f"{name} has a key of {erased.deed}")


def _without(state: State, keys: Collection[bytes | None]) -> State:
    """A state after an erasure of some keys."""
    left = {place: record for place, record in state.records.get(EVENTS, {}).items()
            if record.key not in keys}  # fmt: skip
    return replace(state, records={**state.records, EVENTS: left})


def _require_no_hash(play: Play, outcome: Outcome) -> None:
    """No key index is left of a log that an erasure replaced: it has hashes of the keys."""
    if not play.plan.keyed:
        return
    old = old_key_indexes(play.bucket.objects)
    since_ms = outcome.began_ms if outcome.erased_ms is None else outcome.erased_ms
    for key in old:
        owner = play.bucket.objects[key].owner
        begun_ms = owner.about.get("begun_ms", -1) if owner else -1
        if not _is_other(key, owner, outcome) and begun_ms < since_ms:
            play.wrong("hash of an erased key left", f"{key} after {outcome.deed}")


def _held(state: State) -> set[bytes | None]:
    """The keys of all records and rejects."""
    rejects = (line.key for run in state.runs.values() for line in run.rejects)
    return {*rejects, *(record.key for record in state.records.get(EVENTS, {}).values())}


def _rewrites(owner: Process | None, outcome: Outcome) -> bool:
    """Whether a process lists no input, and writes again what others brought."""
    about = owner.about if owner else {"outcome": outcome}
    return about["outcome"] is not outcome and about["listed_ms"] is None


def _is_other(key: str, owner: Process | None, outcome: Outcome) -> bool:
    """Whether an object is another topic's, or that of an attempt that began later."""
    if "imported" in key or owner is None:
        return True
    if owner.about.get("outcome") is outcome:
        return False
    if owner.about["deed"].verb == "import":
        return True
    listed_ms = owner.about.get("listed_ms")
    return listed_ms is not None and listed_ms >= outcome.began_ms


# ------------------------------------------------------------------ what is told of commits


class Witness:
    """Tells the model of each commit at the moment of its effect."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.erased: list[tuple[Outcome, frozenset[bytes]]] = []

    def __call__(self, key: str, data: bytes, owner: Process | None) -> None:
        """An object of a Delta log was written."""
        if key.startswith(TABLE_COMMITS):
            self._judge_table(key, data)
        if key.startswith(REJECTS) and key.endswith(".json"):
            self._require_files(key, data, owner)
        if not key.startswith(COMMITS) or not key.endswith(".json"):
            return
        play, version = self._play, int(key[-25:-5])
        late = version <= play.model.newest and play.rebuilt
        if late or play.rebuilding:  # that of a rebuild, or one to a catalog that is rebuilt
            return
        deed: Deed | None = owner.about.get("deed") if owner else None
        try:
            rows = self._rows(data)
        except KeyError as error:
            play.wrong("a commit names a missing file", f"{deed}, version {version}: {error}")
            return
        try:
            if deed is None or not rows:
                play.model.same_again(version)
                return
            play.model.commit(version, rows, meant(deed, play.ground))
        except Wrong as error:
            play.wrong("model", f"{deed}, version {version}: {error}")
            play.model.same_again(version)
        self._tag(rows.get("tag", ()), deed)
        self._meet(rows, owner)

    def _judge_table(self, key: str, data: bytes) -> None:
        play = self._play
        erasures = (each for each in play.outcomes if each.deed.verb == "erase")
        ended = [each.version for each in erasures if (each.kind, each.exit_code) == ("done", 0)]
        try:
            objects, states = play.bucket.objects, play.model.states
            done = play.table.commit(key, data, objects, states, max(ended, default=-1))
            play.met["commit of a table"] += done
        except Broken as error:
            play.wrong(error.kind, str(error))

    def _tag(self, rows: Iterable[Mapping[str, Any]], deed: Deed | None) -> None:
        """What must hold of a tag is what the model has of its version, from now on.

        An erasure takes its keys out of that.
        """
        play = self._play
        for row in rows:
            before = play.tags.pop(row["name"], None)
            if row["state"] != "tagged":
                continue
            states = play.model.states
            held = max(version for version in states if version <= row["version"])
            same = [each for each in play.tags.values() if each.version == row["version"]]
            state = (before or (same or [Tagged(held, states[held])])[0]).state
            if deed and deed.verb == "erase":
                state = _without(state, deed.keys)
                play.met["tag lost records"] += 1
            play.tags[row["name"]] = Tagged(row["version"], state)
        for each in play.outcomes if rows else ():
            if each.deed.verb == "erase" and each.kind == "done":
                _require_none_tagged(play, each)

    def _require_files(self, key: str, data: bytes, owner: Process | None) -> None:
        """A commit to the quarantine names files that are there: SQL reads all of them."""
        folder, deed = key.partition("_delta_log/")[0], owner.about.get("deed") if owner else None
        lines = list(map(json.loads, data.splitlines()))
        keys = [folder + line["add"]["path"] for line in lines if "add" in line]
        if lines[0]["commitInfo"]["operation"] == "OPTIMIZE":
            self._play.met["rejects merged"] += 1
        elif deed and deed.verb in ("vacuum", "maintain") and keys:
            self._play.met["merged rejects dropped"] += 1
        if gone := [each for each in keys if each not in self._play.bucket.objects]:
            self._play.wrong("a commit names a missing file", f"{deed}, {key}: {gone}")

    def _rows(self, data: bytes) -> dict[str, list[dict[str, Any]]]:
        """The new rows of some kinds in the files that a commit adds."""
        found: dict[str, list[dict[str, Any]]] = {}
        for line in data.splitlines():
            added = json.loads(line).get("add")
            if added is None or not added["dataChange"]:
                continue
            kind = added["partitionValues"]["kind"]
            if kind in ("run", "maintenance", "partition", "tag"):
                rows = self._parquet(f"lake/catalog/log/{added['path']}")
                topic = added["partitionValues"]["topic"]
                found.setdefault(kind, []).extend({**row, "topic": topic} for row in rows)
        return found

    def _parquet(self, key: str) -> list[dict[str, Any]]:
        return stage.parsed(self._play.bucket.objects[key].data).to_pylist()

    def _meet(self, rows: Mapping[str, Any], owner: Process | None) -> None:
        play = self._play
        for row in rows.get("maintenance", ()):
            play.met[f"commit of {row['operation']}"] += 1
            if row["operation"] == "erase" and owner:
                self._meet_erasure(owner)
        for row in rows.get("run", ()):
            play.met["commit of a run"] += 1
            ranges = chain.from_iterable(json.loads(row["offset_ranges"]).values())
            covered = row["topic"] == EVENTS and sum(end - start for start, end in ranges)
            play.met["room covered"] += covered > row["records"]
        if owner is None:
            return
        own: Outcome = owner.about["outcome"]
        for other in play.outcomes:
            if other is own or other.kind != "done" or other.ended_ms < own.began_ms:
                continue
            if other.deed.verb in ("vacuum", "maintain", "erase"):
                play.met[f"{other.deed.verb} between plan and commit"] += 1
            if other.deed.verb == "erase" and other.exit_code == 0 and rows.get("run"):
                self._require_not_back(owner, other)

    def _meet_erasure(self, owner: Process) -> None:
        play, own = self._play, owner.about["outcome"]
        if own.erased_ms is None:
            own.erased_ms = play.world.now_ms
        lists = (each for key, each in play.bucket.objects.items() if "/rejects" in key)
        if any(each.owner and each.owner.dead for each in lists):
            play.met["erase after one that died"] += 1

    def _require_not_back(self, owner: Process, erased: Outcome) -> None:
        """An attempt that had listed its input before an erasure's commit brings no key back."""
        play, listed_ms = self._play, owner.about["listed_ms"]
        before_ms = erased.began_ms if erased.erased_ms is None else erased.erased_ms
        if listed_ms is None or listed_ms >= before_ms:
            return
        before = play.model.states[sorted(play.model.states)[-2]].records.get(EVENTS, {})
        after = play.model.state.records[EVENTS]
        back = {r.key for place, r in after.items() if place not in before}
        if not back.isdisjoint(erased.deed.keys):
            play.wrong("erased key back", f"{owner.name} brings back what {erased.deed} erased")


# ------------------------------------------------------------------ readers


class ReaderActor:
    """Looks on: `hold` keeps a version open, `follow` refreshes, `stream` takes micro-batches.

    `find` refreshes and asks for keys, `tags` opens the tags that there are.

    In some histories `follow` is `Log.follow`. Those of `FOUND` are not among them.
    """

    def __init__(self, play: Play, kind: str) -> None:
        self._play, self._kind = play, kind
        self._is_tail = kind == "follow" and play.plan.seed % 13 in _TAILED
        self._process = Process(play.world, f"reader {kind}", self._read, 0, QUIET)
        self._process.about = {
            "deed": Deed("read"),
            "outcome": Outcome(Deed("read")),
            "listed_ms": None,
        }

    def start(self) -> None:
        self._play.world.start(self._process, 300)

    def _read(self) -> None:
        try:
            if self._kind == "tags":
                self._look_at_tags()
            else:
                self._tail() if self._is_tail else self._look()
        except Broken as error:
            self._play.wrong(f"reader: {error.kind}", str(error))
        except (CorruptData, StoreError) as error:
            if not self._play.closed:  # else nobody can open the lake
                self._play.wrong(f"reader: {type(error).__name__}", f"{self._kind}: {error}")
        except Exception as error:  # whatever it is, it must not be
            self._play.wrong(f"reader: {type(error).__name__}", f"{self._kind}: {error}")

    def _look(self) -> None:
        lake: Lake | None = None
        for gap_ms in (1_000, 60_000, HOUR_MS, 25 * HOUR_MS, HOUR_MS):
            self._process.wait(gap_ms)
            try:
                if lake is None:
                    lake = seglake.open(LAKE)
                elif self._kind in ("follow", "find"):
                    lake.refresh()
                self._require(lake)
                self._play.met[f"{self._kind} read"] += 1
            except VersionExpired:
                play = self._play
                unsettled = play.expiring or play.closed
                if lake and lake.version >= play.expired_before and not unsettled:
                    raise
                self._play.met[f"{self._kind} expired"] += 1
                if (
                    lake is not None
                    and self._play.met["rebuild"]
                    and lake.version < self._play.rebuilt
                ):
                    self._play.met["reader across a rebuild"] += 1
                lake = None
            except UsageError:
                if lake is not None:
                    raise

    def _look_at_tags(self) -> None:
        for gap_ms in (1_000, 10_000, 60_000, HOUR_MS, 25 * HOUR_MS, HOUR_MS):
            self._process.wait(gap_ms)
            for name, tagged in [*self._play.tags.items()]:
                self._require_tag(name, tagged)

    def _require_tag(self, name: str, tagged: Tagged) -> None:
        """A tag answers as long as it is there; once it is deleted, it may be gone."""
        play = self._play
        try:
            require_tag(name, tagged)
            play.met["tag read"] += 1
        except (Broken, UsageError, VersionExpired, StoreError, CorruptData):
            if play.tags.get(name) == tagged and not play.closed:
                raise
            play.met["tag gone"] += 1

    def _require(self, lake: Lake) -> None:
        play, state = self._play, self._play.model.states[lake.version]
        if self._kind != "find":
            self._require_same(lake, state)
            return
        keys = self._process.chance.sample(inputs.ALL_KEYS, 3)
        play.met["segment found by index"] += require_found(lake, state, keys)

    def _require_same(self, lake: Lake, state: State) -> None:
        """The version, or what a tag holds of it: a reader goes over when a version expires."""
        play = self._play
        try:
            require_same(lake, state)
        except Broken:
            expired = lake.version < play.expired_before or play.expiring
            held = [each.state for each in play.tags.values() if each.version == lake.version]
            if not (expired and held):
                raise
            require_same(lake, held[0])
            play.met["reader went over to a tag"] += 1

    def _tail(self) -> None:
        lake: Lake | None = None
        for _ in range(6):
            self._process.wait(HOUR_MS)
            with contextlib.suppress(UsageError, VersionExpired):
                lake = lake or seglake.open(LAKE)
                for topic in lake.refresh().topics()[:1]:
                    Tail(self._play, lake.topic(topic)).read(self._process)
                    return


class _Enough(Exception):  # not an error
    """A tail has looked often enough."""


class Tail:
    """What `Log.follow` gives: each record once, in order, and none that stays is missing."""

    def __init__(self, play: Play, log: Log) -> None:
        self._play, self._log, self._looks = play, log, 0
        self._next = log.end_offsets()
        self._records: dict[tuple[int, int], Record] = {}
        self._read_to = log.version

    def read(self, process: Process) -> None:
        """Follow the log for five polls of ten hours. Raises Broken."""
        process.about["asleep"] = self._check
        try:
            for batch in self._log.follow(columns=COLUMNS, poll_s=36_000):
                self._take(batch)
        except _Enough:
            self._play.met["tail read"] += 1
        except VersionExpired:
            self._play.met["tail expired"] += 1
        finally:
            del process.about["asleep"]

    def _take(self, batch: pa.RecordBatch) -> None:
        for place, record in records_of(batch):
            partition, offset = place
            if offset < self._next.get(partition, 0):
                raise Broken("tail", f"{self._log.topic} {place} comes late, or twice")
            self._next[partition], self._records[place] = offset + 1, record

    def _check(self) -> None:
        """After each look: what stayed since the look before has been read."""
        model, topic, first = self._play.model, self._log.topic, self._log.end_offsets()
        since = [model.states[v] for v in sorted(model.states) if v >= self._read_to]
        for place, record in since[0].records[topic].items():
            stayed = all(state.records[topic].get(place) == record for state in since)
            if stayed and place[1] >= first.get(place[0], 0):
                if self._records.get(place) != record:
                    read = self._records.get(place)
                    raise Broken("tail", f"{topic} {place} is {read}, not {record}")
                self._play.met["tailed record"] += 1
        self._read_to, self._looks = max(model.newest, self._read_to), self._looks + 1
        if self._looks == 5:
            raise _Enough


# ------------------------------------------------------------------ the whole


def begin(plan: Plan, mended: frozenset[tuple[str, int]] = frozenset()) -> Play:
    """The world of a plan, with its inputs, before anybody acts."""
    world = World(plan.seed, plan.odds, mended)
    bucket = Bucket(world)
    given = inputs.given(plan.seed % inputs.POOLS)
    for path, data in given.data.items():
        bucket.put(path.removeprefix("sim://"), data, None)
    for steps in (2, 4, 5, *(12, 14, 15) * plan.extreme):
        for key, data in inputs.stopped(steps).data.items():
            bucket.put(key, data, None)
    ground = Ground(plan.seed, lambda: _note_listing(world.running), {})
    play = Play(plan, world, bucket, Model(given.lines), ground)
    bucket.told = Witness(play)
    bucket.listed = _note_listing
    stage.play(bucket, on_disk=plan.disk, folds=plan.folds)
    return play


def _note_listing(process: Process | None) -> None:
    if process is not None and process.about.get("listed_ms", 0) is None:
        process.about["listed_ms"] = process.world.now_ms


def run(
    plan: Plan,
    skipped: frozenset[tuple[str, int]] = frozenset(),
    mended: frozenset[tuple[str, int]] = frozenset(),
    *,
    thorough: bool | None = None,
    trace: bool = False,
) -> Play:
    """Play a plan to its end; `problem` says what was wrong. `skipped` are (actor, task)."""
    play = begin(plan, mended)
    play.world.trace = [] if trace else None
    if plan.old:
        _prepare(play)
    for part in plan.parts:
        Actor(play, part, skipped).go_on()
    for kind in plan.readers:
        if (kind, 0) not in skipped:
            ReaderActor(play, kind).start()
    try:
        play.world.run()
    except TooLong as error:
        play.wrong("too long", str(error))
    play.met.update(_mishap(event.what) for event in play.world.events)
    play.met["run again"] += len(play.waiting)
    if play.problem is None:
        _finish(play, thorough=plan.seed % 10 == 0 if thorough is None else thorough)
    stage.play(None)
    return play


def _mishap(what: str) -> str:
    """The name of a mishap, without its place."""
    return "died" if what.startswith("dies") else re.split(r":| before (?!a )| instead", what)[0]


_OLD = (
    Deed("ingest", "run 0", ("sim://files/0.jsonl", "sim://files/1.jsonl")),
    Deed("ingest", "run 1", ("sim://files/2.jsonl",)),
    Deed("alter", number=1),
)


def _prepare(play: Play) -> None:
    """Some runs, undisturbed: the same for all histories over the same files."""
    plan = play.plan
    objects, model, play.world.now_ms = _old_lake(plan.seed % inputs.POOLS, plan.disk)
    play.bucket.objects, play.model = play.bucket.objects | objects, model.copy()
    stage.play(play.bucket, on_disk=play.plan.disk, folds=play.plan.folds)


@cache
def _old_lake(pool: int, disk: bool) -> tuple[dict[str, Object], Model, float]:
    """The objects of a lake with some runs, its model, and the time at which it was left."""
    before = stage.bucket
    play = begin(Plan(pool, QUIET, disk, True, (), ()))
    for number, deed in enumerate(_OLD):
        _do_quietly(play, deed, f"before {number}")
    stage.play(before, on_disk=disk)
    return play.bucket.objects, play.model, play.world.now_ms + HOUR_MS


def _do_quietly(play: Play, deed: Deed, name: str) -> Outcome:
    outcome = Outcome(deed)
    process = Process(play.world, name, lambda: None)
    process.do = lambda: carry_out(play, process, outcome)
    play.world.start(process)
    play.world.run()
    if expires(deed):
        play.expired_before = play.model.newest
    return outcome


def _finish(play: Play, *, thorough: bool) -> None:
    """When all is quiet, whatever died is done again; then the lake is what it must be."""
    _do_again(play)
    if play.problem:
        return
    _require_undone(play)
    _judge(play, "at the end", lambda: _require_end(play))
    if play.problem is None and play.table.version >= 0:
        _judge(play, "at the end", lambda: _require_table(play))
    rebuilds = thorough or play.met["re-base"] or _left_no_mark(play)  # a vacuum would write it
    if play.problem is None and rebuilds:
        _judge(play, "rebuild", lambda: _rebuild(play))
    if play.problem is None and play.tags:
        _judge(play, "repair", lambda: _repair(play))
    if play.problem is None:
        _judge(play, "upkeep", lambda: _upkeep(play, deep=thorough))
    if play.problem is None and rebuilds:
        _judge(play, "rebuild from chronicles", lambda: _rebuild_folded(play))


def _do_again(play: Play) -> None:
    """Run again what died or lost, in rounds: a redrive may have to wait for an erasure's end."""
    waiting, failures = list(enumerate(play.waiting)), dict[int, Outcome]()
    for again in range(_TRIES):
        for number, deed in waiting:
            play.world.now_ms += 26 * HOUR_MS  # nobody takes what is there for a running attempt
            outcome = failures[number] = _do_quietly(play, deed, f"end {number} {again}")
            if is_done(outcome):
                del failures[number]
            if play.problem:
                return
        waiting = [each for each in waiting if each[0] in failures]
    for number, deed in waiting:
        outcome = failures[number]
        play.wrong(f"rerun of {deed.verb} fails", f"{deed}: {outcome.kind} {outcome.said}")


def _require_undone(play: Play) -> None:
    """Each undo that was done can be asked for again, with success."""
    runs = play.model.state.runs
    for number, (name, verb) in enumerate(sorted(play.model.left.items())):
        if play.problem is None and verb == "undo" and name not in runs:
            deed = Deed("undo", name[1], flag=True)
            outcome = _do_quietly(play, deed, f"undo again {number}")
            if not is_done(outcome) or outcome.said != "already done":
                play.wrong("rerun of undo fails", f"{deed}: {outcome.kind} {outcome.said}")


def _judge(play: Play, when: str, look: Callable[[], None]) -> None:
    try:
        look()
    except Broken as error:
        play.wrong(f"{when}: {error.kind}", str(error))
    except Exception as error:  # whatever it is, it must not be
        play.wrong(f"{when}: {type(error).__name__}", f"{error}")


def _require_end(play: Play) -> None:
    """All is as the model has it; by key, too."""
    if any(play.model.state.ends.values()):
        require_all(play.model.state)
    _require_tags(play)
    for tagged in play.tags.values():
        _require_number(play, tagged)
    if not play.plan.keyed:
        return
    if any(play.model.state.ends.values()):
        found = require_found(seglake.open(LAKE), play.model.state, inputs.ALL_KEYS)
        play.met["segment found by index"] += found


def _require_table(play: Play) -> None:
    """Another publish gives the table the records of the newest version, and leaves no file."""
    outcome = _do_quietly(play, Deed("publish"), "publish at the end")
    if outcome.kind != "done":
        raise Broken("table", f"publish: {outcome.kind} {outcome.said}")
    play.table.require(play.bucket.objects, play.model.state)
    play.met["table at the end"] += 1


def _require_tags(play: Play) -> None:
    """Each tag that there is answers with its records, and there is no other."""
    if not any(play.model.state.ends.values()):
        return
    if (names := [each.name for each in seglake.open(LAKE).tags()]) != sorted(play.tags):
        raise Broken("tags", f"{names} in the lake, {sorted(play.tags)} by right")
    for name, tagged in play.tags.items():
        require_tag(name, tagged)
        play.met["tag at the end"] += 1


def _require_number(play: Play, tagged: Tagged) -> None:
    """The number of a tag's version reads that version, or the tag's if it may have expired."""
    lake = seglake.open(LAKE, tagged.version)
    states = play.model.states
    own = states[max(version for version in states if version <= tagged.version)]
    try:
        require_same(lake, own)
    except Broken:
        if tagged.version >= play.expired_before:
            raise
        require_same(lake, tagged.state)


def require_tag(name: str, tagged: Tagged) -> None:
    """Raise Broken unless a tag names its version, and that holds its records."""
    lake = seglake.open(LAKE, name)
    if lake.version != tagged.version:
        raise Broken("tag", f"{name} names version {lake.version}, not {tagged.version}")
    require_same(lake, tagged.state)


def _repair(play: Play) -> None:
    """Index files that only a tag names are lost or damaged, and a repair mends them."""
    table = CatalogTable.open(stage.open_store(LAKE))
    rows = [
        row
        for lists in only_tagged(table, table.snapshot(), play.model.state.ends)
        for some in lists
        for row in some
    ]
    keys = sorted(row.key(suffix) for row in rows for suffix in row.suffixes[1:])
    chance = Random(f"damage {play.plan.seed}")
    for key in chance.sample(keys, min(2, len(keys))):
        if chance.random() < 0.5:
            play.bucket.delete(f"lake/{key}")
        else:
            play.bucket.put(f"lake/{key}", b"damaged", None)
        play.met["damage of a tag's file"] += 1
    if keys:
        repair_indexes(LAKE)
        if findings := verify(LAKE).findings:
            raise Broken("finding", f"{findings[:2]} after a repair")


def _upkeep(play: Play, *, deep: bool) -> None:
    """A vacuum leaves what is named, and nothing is found."""
    if not any(play.model.state.ends.values()):
        return
    vacuum(LAKE, dry_run=False, grace_hours=0, retention_hours=0)
    _require_tags(play)
    report = verify(LAKE, deep=deep)
    if report.findings:
        raise Broken("finding", f"{report.findings[:2]}")
    if report.orphans:
        raise Broken("orphan", f"{report.orphans[:3]}")
    if deep:
        require_same(seglake.open(LAKE), play.model.state)


def _rebuild(play: Play) -> None:
    """A copy of the lake that lost its catalog comes back the same."""
    if not any(play.model.state.ends.values()):
        return
    bucket, model, told = play.bucket, play.model, play.bucket.told
    settings = _settings()
    whole, play.model, bucket.told = dict(bucket.objects), model.copy(), lambda *_: None
    for key in bucket.keys("lake/catalog/log/"):
        bucket.delete(key)
    try:
        rebuilt = rebuild_catalog(LAKE, dry_run=False)
        play.met["rebuilds"] += 1
        if rebuilt.version <= play.table.shows:
            raise Broken(
                "table", f"a rebuild begins at {rebuilt.version}, below {play.table.shows}"
            )
        if not (rebuilt.untrusted and _was_told(play)):
            play.model.same_again(rebuilt.version)
            require_all(play.model.state)
            _require_tags(play)
            if play.plan.keyed:
                require_found(seglake.open(LAKE), play.model.state, inputs.ALL_KEYS)
            if _settings() != settings:
                raise Broken("settings", f"{_settings()}, not {settings}")
    finally:
        bucket.objects, play.model, bucket.told = whole, model, told


def _rebuild_folded(play: Play) -> None:
    """The same, when no manifest is left that a chronicle tells."""
    keys = play.bucket.keys(f"lake/{CHRONICLES}/")
    play.met["tombstones kept"] += f"lake/{TOMBSTONES}" in keys
    if any(play.model.state.ends.values()) and {*keys} - {f"lake/{TOMBSTONES}"}:
        vacuum(LAKE, dry_run=False, grace_hours=0)
        _rebuild(play)
        play.met["rebuild from a chronicle"] += 1


def _settings() -> list[Any]:
    """The topics of the lake, with their settings."""
    return list(CatalogTable.open(stage.open_store(LAKE)).snapshot().topics())


def _left_no_mark(play: Play) -> bool:
    """Whether a process died between its commit and its mark."""
    told = (each.what for each in play.world.events if each.what.startswith("dies"))
    return any(
        ("after create" in each and "_delta_log" in each)
        or ("before" in each and "/success" in each)
        for each in told
    )


def _was_told(play: Play) -> bool:
    """Whether a mark could not be written: then a warning said so, and the rebuild says which."""
    return any("/success" in each.what and "die" not in each.what for each in play.world.events)
