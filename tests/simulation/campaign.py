"""Many histories: how many, what they cost, what they met, and which of them fail."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation import faults, history, stage
from tests.simulation.plan import plan_of

MUST_MEET = (
    "commit of a run", "commit of merge", "commit of compact", "commit of retain",
    "commit of erase", "commit of undo", "commit of alter", "commit of delete-records",
    "commit of reindex", "commit of import", "commit of expire-rejects", "redrive committed",
    "re-base", "re-base after an erase", "vacuum between plan and commit",
    "erase between plan and commit", "maintain between plan and commit", "hold expired",
    "reader across a rebuild", "rebuild", "rebuilds", "died", "run again", "lost reply", "late",
    "doubled", "pause before a commit", "pause before a call", "erase refused",
    "erase after one that died", "tail read", "tailed record",
    "find read", "segment found by index", "commit of tag", "commit of delete-tag",
    "rebuild from a chronicle", "tag read", "tag gone", "tag at the end", "tag lost records",
    "tombstones kept", "rejects merged", "merged rejects dropped",
)  # fmt: skip


@dataclass
class Account:
    """What some histories came to; `failed` has the first seed of each kind of problem."""

    histories: int = 0
    commands: int = 0
    cpu_s: float = 0.0
    met: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failed: dict[str, int] = field(default_factory=dict)

    def add(self, other: Account) -> None:
        self.histories += other.histories
        self.commands += other.commands
        self.cpu_s += other.cpu_s
        self.met += other.met
        self.kinds += other.kinds
        for kind, seed in other.failed.items():
            self.failed[kind] = min(seed, self.failed.get(kind, seed))

    @property
    def never_met(self) -> list[str]:
        return [what for what in MUST_MEET if not self.met[what]]

    def lines(self) -> Iterator[str]:
        """The account, line by line."""
        each_ms = 1000 * self.cpu_s / max(self.histories, 1)
        yield f"{self.histories:,} histories, {self.commands:,} commands, {each_ms:.0f} ms each"
        for what, count in sorted(self.met.items()):
            yield f"  {count:8,}  {what}"
        for kind, count in self.kinds.most_common():
            yield f"  {count} failed: {kind}, first with seed {self.failed[kind]}"


def play(seed: int, *, until: float = float("inf"), step: int = 1, most: int = 10**9) -> Account:
    """Histories from a seed on, each `step`-th, until a time or until there are enough."""
    stage.install()
    logging.disable(logging.CRITICAL)
    account, begun = Account(), time.process_time()
    while account.histories < most and time.time() < until:
        done = history.run(plan_of(seed))
        account.histories += 1
        account.commands += len(done.outcomes)
        account.met += done.met
        if done.problem is not None:
            account.kinds[done.problem.kind] += 1
            account.failed.setdefault(done.problem.kind, seed)
        seed += step
    account.cpu_s = time.process_time() - begun
    return account


def differing(seed: int, count: int = 1) -> list[str]:
    """Where histories that are played twice are not the same call for call."""
    found = []
    for each in range(seed, seed + count):
        one, two = (history.run(plan_of(each), trace=True).world.trace or [] for _ in range(2))
        if one != two:
            at = next(n for n, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1])
            found.append(f"{each} is played in two ways: {one[at]} and {two[at]}")
    return found


def play_at_once(seed: int, minutes: float, workers: int) -> Account:
    """Histories on several cores, for so long."""
    until, total = time.time() + 60 * minutes, Account()
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        running = [
            pool.apply_async(play, (seed + n,), {"until": until, "step": workers})
            for n in range(workers)
        ]
        for each in running:
            total.add(each.get())
    return total


def hunt(fault: str, seed: int, *, until: float) -> tuple[int | None, int]:
    """The first seed that finds a fault that was put back, and how many histories that took."""
    stage.install()
    logging.disable(logging.CRITICAL)
    tried = 0
    while time.time() < until:
        tried += 1
        with faults.put_back(fault):
            problem = history.run(plan_of(seed)).problem
        if problem is not None and history.run(plan_of(seed)).problem is None:
            return seed, tried
        seed += 1
    return None, tried
