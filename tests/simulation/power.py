"""Cut the power anywhere, and look at the lake: python -m tests.simulation.power --minutes 5

A story of commands is recorded (`power_story`), each with all that it does to the disk. Then states
are drawn that a disk may legally be left in by a cut at any event of a command (`power_disk` has
the models), also of one that was killed before and run again. In each of them

* readers find the lake as it is before or after the command; after its end, only the latter, and
  what it removed for good does not come back;
* `verify` finds nothing, but for a mark of success that the command did not come to;
* the command run again succeeds, and then the lake is as after it, and `verify` finds nothing;
* a rebuild of the catalog on a copy without a catalog gives the same lake.

Exits 1 if a state is another. `--seed S --cut N` builds and judges that one state again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from seglake.errors import CorruptData, UsageError
from seglake.layout import LOG_TABLE, QUARANTINE_TABLE
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from tests.harness.observed import copy_lake, observe
from tests.simulation.power_disk import MODELS, Disk, Event, Left, Model, build, is_unread
from tests.simulation.power_story import REMOVING, STORY, Recorded, Story, often_tidied

KILLED_SHARE = 0.25  # of the cuts come after a kill
REBUILT_SHARE = 0.3  # of the states also lose their catalog


class Broken(NamedTuple):
    """A state in which the lake is not as it must be; `str` tells it as a story."""

    seed: int
    number: int
    cut: Cut
    left: Left
    problem: str
    place: Path

    def __str__(self) -> str:
        recorded, events = self.cut.recorded, self.cut.events
        how = f"model {self.cut.model!r}, {len(events)} of {len(recorded.recorder.events)} events"
        if recorded.killed_at:
            how += f", killed before event {recorded.killed_at} and run again"
        told = "".join(f"  {event.what}\n" for event in events[-8:])
        return (
            f"--seed {self.seed} --cut {self.number}: {recorded.name}, {how}:\n{told}"
            f"lost: {', '.join(self.left.lost) or 'nothing'}\n{self.problem} ({self.place})"
        )


class Cut(NamedTuple):
    """A cut after `at` events of a command, and the model that says what is left."""

    recorded: Recorded
    at: int
    model: Model

    @property
    def events(self) -> list[Event]:
        """What happened before the cut."""
        return self.recorded.recorder.events[: self.at]

    @property
    def is_over(self) -> bool:
        """Whether the command had come to its end."""
        return self.at == len(self.recorded.recorder.events)


class Search:
    """Cuts of one seed; what they need is below `folder`."""

    def __init__(self, folder: Path, seed: int, only: Collection[str] = STORY) -> None:
        self._folder, self.seed = folder, seed
        self.story = Story(folder, seed)
        last = max(STORY.index(name) for name in only)
        told = islice(self.story.told(), last + 1)
        self.recorded = [each for each in told if each.name in only]
        self.judged: Counter[str] = Counter()  # states, by command
        self.same = 0  # states that were judged before
        self._seen = set[tuple[str, int, bool]]()

    def cut(self, number: int) -> Broken | None:
        """Draw the cut of this number, build the state, and judge it unless it was before."""
        chance = random.Random(f"{self.seed} cut {number}")
        cut = self._drawn(number, chance)
        left = Disk(cut.recorded.recorder, cut.at).left(cut.model, chance)
        mine = (cut.recorded.name, left.signature, cut.is_over)
        if mine in self._seen:
            self.same += 1
            return None
        self._seen.add(mine)
        self.judged[cut.recorded.name] += 1
        place = self._folder / f"cut-{number}"
        try:
            judge(cut, left, place, rebuilds=chance.random() < REBUILT_SHARE)
        except Exception as problem:  # whatever is raised, the state is broken
            line = traceback.extract_tb(problem.__traceback__)[-1]
            told = f"{type(problem).__name__}: {problem or line.line}"
            return Broken(self.seed, number, cut, left, told, place)
        shutil.rmtree(place)
        return None

    def _drawn(self, number: int, chance: random.Random) -> Cut:
        recorded = self.recorded[number % len(self.recorded)]
        first = 0
        if chance.random() < KILLED_SHARE:
            first = chance.randrange(1, len(recorded.recorder.events))
            place = self._folder / f"killed-{number}"
            recorded = self.story.killed(recorded, place, first, chance)
            shutil.rmtree(place)
        counts = range(first, len(recorded.recorder.events) + 1)
        way = chance.randrange(3)
        if way == 0:
            return Cut(recorded, counts[-1], chance.choice(MODELS))
        chosen = [chance.choice(counts) for _ in range(12)]
        waiting = [_readable(Disk(recorded.recorder, each).waiting) for each in chosen]
        best = max(range(12), key=lambda at: waiting[at]) if way == 1 else 0
        return Cut(recorded, chosen[best], chance.choice(MODELS))


def _readable(waiting: list[tuple[int, Event]]) -> int:
    """How many of the changes are of what is read."""
    return sum(not is_unread(event.what) for _, event in waiting)


# ---------------------------------------------------------------------- the judge


def judge(cut: Cut, left: Left, place: Path, *, rebuilds: bool) -> None:
    """Raise AssertionError or what the lake raises, unless the state is as it must be."""
    recorded, lake = cut.recorded, str(build(left, place / "left"))
    if recorded.name in REMOVING and cut.is_over and not recorded.killed_at:
        _assert_gone(recorded, left)
    _assert_seen(cut, lake)
    with often_tidied():
        recorded.do(lake)
    assert observe(lake) == recorded.after, "run again, the command came to another end"
    found = verify(lake, deep=True).findings
    assert not found, f"run again, verify finds {found[:3]}"
    if rebuilds:
        _assert_rebuilt(recorded, lake, str(place / "copy"))


def _assert_gone(recorded: Recorded, left: Left) -> None:
    """Nothing that the command deleted came back."""
    names = Disk(recorded.recorder, len(recorded.recorder.events))
    whole = names.left("names", random.Random(0)).files
    back = [key for key in left.files.keys() - whole.keys() if not is_unread(key)]
    assert not back, f"came back after the end: {sorted(back)[:3]}"


def _assert_seen(cut: Cut, lake: str) -> None:
    """What readers and `verify` find before anything is run again."""
    recorded = cut.recorded
    try:
        seen = observe(lake)
    except CorruptData:
        if recorded.name == "rebuild" and not cut.is_over:
            return  # it has to be run again
        raise
    if cut.is_over:
        assert seen == recorded.after, "what the command did is not there after its end"
    assert recorded.told(seen), "readers see neither the lake before nor the one after"
    try:
        found = verify(lake, deep=True).findings
    except UsageError:
        return  # there is no lake yet
    half = seen != recorded.after and recorded.name == "erase"
    odd = [
        each
        for each in found
        if not each.file.endswith("/success")
        and not (recorded.name == "repair" and each.file.endswith(".timeindex"))
        and not (half and each.file == QUARANTINE_TABLE)
    ]
    wrong = found if cut.is_over else odd
    assert not wrong, f"verify finds {wrong[:3]}"


def _assert_rebuilt(recorded: Recorded, lake: str, copy: str) -> None:
    """Without its catalog the lake comes back as it is."""
    copy_lake(lake, copy)
    shutil.rmtree(Path(copy, LOG_TABLE))
    with often_tidied():
        rebuild_catalog(copy, dry_run=False)
    assert observe(copy) == recorded.after, "a rebuild of the catalog gives another lake"


# ---------------------------------------------------------------------- the command line


def search(
    folder: Path, seed: int, is_enough: Callable[[int], bool], only: Collection[str] = STORY
) -> Iterator[Broken | Search]:
    """What is broken, as it is found; the search itself comes last."""
    with patch.object(os, "fsync", lambda _fd: None):  # nothing here has to survive
        mine, number = Search(folder, seed, only), 0
        while not is_enough(number):
            if (broken := mine.cut(number)) is not None:
                yield broken
            number += 1
        yield mine


def main(arguments: list[str]) -> int:
    """Search for so many minutes, in stories of other seeds, or build one state again."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--cut", type=int, help="only the cut of this number")
    given = parser.parse_args(arguments)
    ends, broken, judged = time.monotonic() + 60 * given.minutes, 0, Counter[str]()
    print(f"seed {given.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="power-"))
    for found in search(folder, given.seed, lambda _n: time.monotonic() > ends):
        if isinstance(found, Broken):
            broken += 1
            print(found, flush=True)
        else:
            judged += found.judged
    print(f"{judged.total()} states judged, {broken} broken: {dict(judged)}")
    if not broken:
        shutil.rmtree(folder)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
