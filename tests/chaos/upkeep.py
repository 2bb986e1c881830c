"""Kills of maintenance: index files, merge, compaction, erasure, vacuum, the catalog rebuilt.

A round takes a lake with several runs, and with what a killed run left behind. Its commands are
killed, each once or twice, and then run to their end. After each kill readers must see all that the
lake holds, with the index files of before or after. While a rebuild is under way nobody may open
the lake, and no ingest may take it for a new one. In the end nothing is damaged or left over. Then
the catalog is lost, and comes back whole: no kill took a manifest or a mark from the history.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from seglake.errors import CorruptData, SeglakeError
from seglake.layout import LOG_TABLE, QUARANTINE_TABLE
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.store import open_store
from tests.chaos.account import UPKEEP, Account, Difference, Kill
from tests.chaos.attempts import Attack, Forked, Steps, Turn
from tests.chaos.scenarios import NEXT, OTHER, RUN, Scenario, Shape
from tests.chaos.victim import Death, Upkeep
from tests.harness.observed import Observed, copy_lake, observe, remove_lake
from tests.makers.compacted import set_topic
from tests.makers.lakes import create_catalog, open_catalog

SHAPE = Shape("maintenance", other="races")
SHRINKING = ("undo", "delete-records", "retain", "compact", "erase")  # fewer records after it
CHANGING = ("reindex", "reindex again", "replace", *SHRINKING[:3], "merge", *SHRINKING[3:])
STORY = ("reindex", "repair", *CHANGING[1:], "vacuum", "rebuild")
RETENTION = {"cleanup.policy": "compact,delete", "retention.bytes": 1600}
APART = 7  # stories begin with other steps


class Maintenance:
    """Rounds of one story, drawn from a seed; lakes below the folder `place`."""

    def __init__(self, account: Account, folder: Path, place: str, attack: Attack[Upkeep]) -> None:
        self._account, self._attack, self._place = account, attack, place
        self._trace, self._last = folder / "trace", Kill("", "", None, "")  # type: ignore[arg-type]
        chance = random.Random(f"{account.seed} maintenance")
        self._begun = self._made(Scenario(SHAPE, folder / "files", place, chance))
        self._seen: dict[str, Observed] = {"": observe(self._begun)}
        self.steps: dict[str, Steps] = {}
        self._watch()

    def run(self, kills: int, told: Callable[[int], None] = lambda _kills: None) -> None:
        """Rounds until so many kills hit."""
        number, wanted = 0, len(self._account.kills) + kills
        while len(self._account.kills) < wanted:
            self.round(number)
            number += 1
            told(len(self._account.kills))

    def round(self, number: int) -> None:
        """One round; a difference is written down, and its lake stays."""
        chance = random.Random(f"{self._account.seed} maintenance {number}")
        lake = f"{self._place}/round-{number}"
        copy_lake(self._begun, lake)
        try:
            self._story(lake, number, chance)
        except (AssertionError, SeglakeError) as problem:
            line = traceback.extract_tb(problem.__traceback__)[-1]
            told = f"round {number}, maintenance: {str(problem) or line.line} ({lake})"
            print(f"\n{told}", file=sys.stderr, flush=True)
            self._account.differences.append(Difference(UPKEEP, number, told, self._last))
        else:
            remove_lake(lake)

    def _story(self, lake: str, number: int, chance: random.Random) -> None:
        before = ""
        for verb in STORY:
            after = verb if verb in CHANGING else before
            self._arrange(lake, verb)
            for attempt in range(chance.randint(1, 2)):
                turn = Turn(number + attempt * APART, by_name=not attempt)
                hit = self._attack(Upkeep(lake, verb), self._trace, self.steps[verb], turn, chance)
                if hit is None:
                    break
                seen = self._readers_see(lake, verb, before, after)
                self._last = Kill(UPKEEP, verb, hit, seen)
                self._account.kills.append(self._last)
            assert Forked(Upkeep(lake, verb), self._trace).ended() == 0
            assert observe(lake) == self._seen[after], f"{verb} left another lake"
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
        assert found in (self._seen[before], self._seen[after]), f"{verb} left another lake"
        assert not findings, f"after {verb} verify finds {findings[:3]}"
        return "new" if found == self._seen[after] != self._seen[before] else "old"

    def _half_erased(self, found: Observed, before: str, after: str) -> str:
        """The records are gone, the rejects are not yet: `verify` has said so."""
        assert found == self._seen[after]._replace(rejected=self._seen[before].rejected)
        return "new"

    def _assert_history(self, lake: str, state: str) -> None:
        """Everything is in order; and a lost catalog comes back."""
        assert Forked(Upkeep(lake, "vacuum"), self._trace).ended() == 0
        report = verify(lake, deep=True)
        assert (report.findings, report.orphans) == ([], []), f"{report.findings[:3]}"
        store = open_store(lake)
        store.delete([found.key for found in store.list(LOG_TABLE)])
        _assert_is_refused(lake)
        assert rebuild_catalog(lake, dry_run=False).untrusted == []
        assert observe(lake) == self._seen[state], "the catalog did not come back whole"

    # ------------------------------------------------------------------ the lake

    def _made(self, scenario: Scenario) -> str:
        """Several runs, and what a killed one left behind; the topic may lose records."""
        lake = f"{self._place}/to-maintain"
        copy_lake(scenario.undisturbed((OTHER, RUN)), lake)
        set_topic(open_catalog(lake), "events", RETENTION)
        job = scenario.job(lake, NEXT)
        scenario.arrange(NEXT)
        code = Forked(job, self._trace, Death("before", "commit of the catalog", 0, 0.0)).ended()
        assert code
        return lake

    def _arrange(self, lake: str, verb: str) -> None:
        """A repair needs something to do."""
        if verb == "repair":
            table = open_catalog(lake)
            row = table.segments(table.snapshot(), "events")[0]
            table.store.delete([row.key("timeindex")])

    def _watch(self) -> None:
        """Learn which steps each command takes undisturbed, and what the lake shows then."""
        for _ in range(2):  # the first process of all starts the one to fork from
            lake, state = f"{self._place}/watched", ""
            remove_lake(lake)
            copy_lake(self._begun, lake)
            for verb in STORY:
                self._arrange(lake, verb)
                begun = time.monotonic()
                assert Forked(Upkeep(lake, verb), self._trace).ended() == 0
                self.steps[verb] = Steps(self._trace, time.monotonic() - begun)
                if verb in CHANGING:
                    state = verb
                    self._seen[verb] = observe(lake)
                assert observe(lake) == self._seen[state]
        taken = Counter(what for each in self.steps.values() for what in {n for _, n in each.count})
        for each in self.steps.values():
            each.taken_by = taken
        assert self._seen.keys() == {"", *CHANGING}
        counts = [len(self._seen[state].records) for state in ("", *SHRINKING)]
        assert counts == sorted({*counts}, reverse=True), f"something removed nothing: {counts}"
        assert len(self._seen["erase"].rejected) < len(self._seen[""].rejected)


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
