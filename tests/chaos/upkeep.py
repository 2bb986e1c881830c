"""Kills of maintenance: every command that changes a lake (`verbs`), on a local disk and on S3.

A round takes a lake with several runs, and with what a killed run left behind. Its commands are
killed, each once or twice, and then run to their end. After each kill readers must see exactly what
the lake shows before or after the command; of `maintain`, after one of its parts. While a rebuild
is under way nobody may open the lake, and no ingest may take it for a new one. In the end nothing
is damaged or left over. Then the catalog is lost, and comes back whole: no kill took a manifest or
a mark from the history.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from seglake.catalog.delta import commit_log, file_merges
from seglake.catalog.quarantine import table
from seglake.errors import CorruptData
from seglake.layout import LOG_TABLE, QUARANTINE_TABLE
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.store import open_store
from tests.chaos.account import Account
from tests.chaos.attempts import Attack, Forked, Steps, Turn
from tests.chaos.campaign import Campaign
from tests.chaos.scenarios import NEXT, Scenario, Shape
from tests.chaos.verbs import OTHER, RUN, VERBS
from tests.chaos.victim import Death, Upkeep
from tests.harness.observed import Observed, copy_lake, observe, remove_lake
from tests.makers.compacted import set_topic
from tests.makers.lakes import create_catalog, open_catalog
from tests.makers.published import require_equal

SHAPE = Shape("maintenance", other="races")
SHRINKING = ("undo", "delete-records", "retain", "compact", "erase")  # fewer records after it
STORY = (
    "reindex", "repair", "reindex again", "publish", "replace", *SHRINKING[:3], "merge",
    "publish again", *SHRINKING[3:], "redrive", "alter", "import", "maintain", "vacuum", "rebuild",
)  # fmt: skip
PUBLISHING = ("publish", "publish again", "maintain")
UNCHANGING = ("repair", "publish", "publish again", "vacuum", "rebuild")
CHANGING = tuple(verb for verb in STORY if verb not in UNCHANGING)
PARTS = 4  # of `maintain`, each with a commit of its own: retention, compaction, merge, expiry
RETENTION = {"cleanup.policy": "compact,delete", "retention.bytes": 1600}
ASIDE_RUNS = 7  # into the other topic, so that `maintain` has something to merge
APART = 7  # stories begin with other steps


def begin(lake: str, folder: Path, place: str, seed: int, aside_runs: int = ASIDE_RUNS) -> Scenario:
    """Make a lake with several runs whose topics may lose records; its files are below `folder`."""
    scenario = Scenario(SHAPE, folder, place, random.Random(f"{seed} maintenance"))
    copy_lake(scenario.undisturbed((OTHER, RUN)), lake)
    set_topic(open_catalog(lake), "events", RETENTION)
    for number in range(aside_runs):
        scenario.run_aside(lake, f"aside {number}")
    return scenario


def arrange(lake: str, verb: str) -> None:
    """Let there be something to do: a repair needs a file that is lost."""
    if verb == "repair":
        table = open_catalog(lake)
        row = table.rows.segments(table.snapshot(), "events")[0]
        table.store.delete([row.key("timeindex")])


class Maintenance(Campaign[Upkeep]):
    """Rounds of one story: some commands, one after another, each killed once or twice."""

    def __init__(
        self,
        account: Account,
        where: str,
        folder: Path,
        place: str,
        attack: Attack[Upkeep],
        told: Sequence[str] = STORY,
    ) -> None:
        super().__init__(account, where, folder, place, attack)
        self._told = told
        self._begun = f"{place}/to-maintain"
        aside_runs = ASIDE_RUNS if "maintain" in told else 0
        scenario = begin(self._begun, folder / "files", place, account.seed, aside_runs)
        self._leave_a_dead_attempt(scenario)
        self._seen: dict[str, Observed] = {"": observe(self._begun)}
        self._between: list[Observed] = []  # what `maintain` lets readers see
        self.steps: dict[str, Steps] = {}
        self._watch()

    def story_name(self, _number: int) -> str:
        return SHAPE.name

    def story(self, lake: str, number: int, chance: random.Random) -> None:
        """Kill each command once or twice, then run it to its end."""
        copy_lake(self._begun, lake)
        before = ""
        for verb in self._told:
            after = verb if verb in CHANGING else before
            arrange(lake, verb)
            for attempt in range(chance.randint(1, 2)):
                turn = Turn(number + attempt * APART, by_name=not attempt)
                seen = partial(self._readers_see, lake, verb, before, after)
                job, steps = Upkeep(lake, verb), self.steps[verb]
                if self.kill(verb, job, steps, turn, chance, seen) is None:
                    break
            _carry_out(verb, lake)
            found, told = observe(lake), [self._seen[after]]
            assert found == told[0], f"{verb} came to another end: {differing(found, told)}"
            if verb in (*PUBLISHING, "erase", "vacuum", "rebuild"):
                _assert_table(lake, newest=True)
            before = after
        self._assert_history(lake, before)

    def _readers_see(self, lake: str, verb: str, before: str, after: str) -> str:
        """Which version readers see: "old" or "new"; neither during a rebuild."""
        try:
            found = observe(lake)
        except CorruptData:
            assert verb == "rebuild", f"after {verb} nobody can open the lake"
            _assert_is_refused(lake)
            return "old"
        findings = [
            each for each in verify(lake, deep=True).findings if not _is_expected(each.file)
        ]
        if verb == "erase" and any(each.file == QUARANTINE_TABLE for each in findings):
            return self._half_erased(found, before, after)
        between = self._between if verb == "maintain" else []
        allowed = (self._seen[before], *between, self._seen[after])
        assert found in allowed, f"{verb} left another lake: {differing(found, allowed)}"
        assert not findings, f"after {verb} verify finds {findings[:3]}"
        if verb in PUBLISHING:
            _assert_table(lake, newest=False)
        return "old" if found == self._seen[before] else "new"

    def _half_erased(self, found: Observed, before: str, after: str) -> str:
        """The records are gone, the rejects are not yet: `verify` has said so."""
        assert found == self._seen[after]._replace(rejected=self._seen[before].rejected)
        return "new"

    def _assert_history(self, lake: str, state: str) -> None:
        """A lost catalog comes back; everything is in order; and so again after a vacuum."""
        before = f"{self._place}/before-the-vacuum"
        copy_lake(lake, before)
        self._assert_comes_back(before, state)
        remove_lake(before)
        _carry_out("vacuum", lake)
        report = verify(lake, deep=True)
        assert (report.findings, report.orphans) == ([], []), f"{report.findings[:3]}"
        assert self._assert_comes_back(lake, state) == []

    def _assert_comes_back(self, lake: str, state: str) -> list[str]:
        """The lake is the same after its catalog was lost; the attempts that were not trusted."""
        store = open_store(lake)
        store.delete([found.key for found in store.list(LOG_TABLE)])
        _assert_is_refused(lake)
        untrusted = rebuild_catalog(lake, dry_run=False).untrusted
        assert observe(lake) == self._seen[state], "the catalog did not come back whole"
        if "publish" in self._told:
            VERBS["publish"](lake)
        _assert_table(lake, newest=True)
        return untrusted

    # ------------------------------------------------------------------ the lake

    def _leave_a_dead_attempt(self, scenario: Scenario) -> None:
        """What a run leaves that is killed just before its commit."""
        scenario.arrange(NEXT)
        death = Death("before", "commit of the catalog", 0, 0.0)
        assert Forked(scenario.job(self._begun, NEXT), self._trace, death).ended()

    def _watch(self) -> None:
        """Learn which steps each command takes undisturbed, and what the lake shows then."""
        lake, state = f"{self._place}/watched", ""
        copy_lake(self._begun, lake)
        for verb in self._told:
            if verb == "maintain":
                self._watch_parts(lake)
            arrange(lake, verb)
            begun = time.monotonic()
            assert Forked(Upkeep(lake, verb), self._trace).ended() == 0
            self.steps[verb] = Steps(self._trace, time.monotonic() - begun)
            found = observe(lake)
            if verb in CHANGING:
                state = verb
                self._seen[verb] = found
            assert found == self._seen[state], f"{verb} changed what it must not"
        taken = Counter(what for each in self.steps.values() for what in {n for _, n in each.count})
        for each in self.steps.values():
            each.taken_by = taken
        if self._told == STORY:
            self._assert_story()

    def _watch_parts(self, lake: str) -> None:
        """Learn what readers see after each part of `maintain`."""
        copy = f"{lake}-parts"
        copy_lake(lake, copy)
        VERBS["maintain"](copy, progress=lambda _part: self._between.append(observe(copy)))

    def _assert_story(self) -> None:
        """Every command has something to do."""
        seen = self._seen
        assert seen.keys() == {"", *CHANGING}
        assert all(seen[one] != seen[next_] for one, next_ in pairwise(("", *CHANGING)))
        counts = [len(seen[state].records) for state in ("", *SHRINKING)]
        assert counts == sorted({*counts}, reverse=True), f"something removed nothing: {counts}"
        rejects = [len(seen[state].rejected) for state in ("", "erase", "redrive", "maintain")]
        assert rejects == sorted({*rejects}, reverse=True), f"no reject left: {rejects}"
        changes = sum(one != next_ for one, next_ in pairwise(self._between))
        assert changes == PARTS, f"of `maintain` {changes} parts do something"
        assert self._between[-1] == seen["maintain"]


def _carry_out(verb: str, lake: str) -> None:
    """Do it here, where nobody is killed; the catalog is tidied as often as in victims."""
    interval = (commit_log, "CHECKPOINT_INTERVAL", 2)
    fan_ins = [(each, "FAN_IN", 2) for each in (file_merges, table)]
    with patch.object(*interval), patch.object(*fan_ins[0]), patch.object(*fan_ins[1]):
        VERBS[verb](lake)


def _assert_table(lake: str, *, newest: bool) -> None:
    """The published table, if there is one, has the records of the version that it names."""
    store = open_store(lake)
    if any(found.key.endswith(".json") for found in store.list("tables/events/_delta_log")):
        require_equal(lake, "events", newest=newest)


def _is_expected(file: str) -> bool:
    """A mark that a killed command did not come to, or the file that is to be repaired."""
    return file.endswith((".timeindex", "/success"))


def _assert_is_refused(lake: str) -> None:
    """An ingest does not take it for a new lake."""
    try:
        create_catalog(lake)
    except CorruptData:
        return
    raise AssertionError("an ingest would begin a new catalog")


def differing(found: Observed, allowed: Sequence[Observed]) -> list[str]:
    """What is not as in any of the lakes that it may be like."""
    pairs = (list(zip(Observed._fields, found, each, strict=True)) for each in allowed)
    told = ([name for name, mine, theirs in each if mine != theirs] for each in pairs)
    return min(told, key=len)
