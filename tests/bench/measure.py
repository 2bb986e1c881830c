"""Measuring side by side: rounds in which each contender has its turn, and what is said of them."""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.bench.page_cache import hold

Cell = str | int | float | None


class Contender(NamedTuple):
    """One side of a comparison: `run` is timed, and what it returns is checked by `check`.

    A run that times itself, in another process for instance, returns `Timed`.
    """

    name: str
    run: Callable[[], Any]
    check: Callable[[Any], None] = lambda _result: None
    prepare: Callable[[], None] = lambda: None
    warm_up: Callable[[], Any] | None = None  # instead of one more run
    reads: Sequence[str | Path] = ()  # files and folders, which the page cache has before a run


class Timed(NamedTuple):
    """A result, and the seconds it took where it was made."""

    seconds: float
    result: Any


class Samples(NamedTuple):
    """Seconds of the runs of one contender."""

    name: str
    seconds: list[float]

    def spread(self, factor: float = 1.0) -> list[float]:
        """[min, median, max] of the seconds times `factor`."""
        chosen = min(self.seconds), statistics.median(self.seconds), max(self.seconds)
        return [factor * value for value in chosen]

    def p99(self, factor: float = 1.0) -> float:
        """What 99 of 100 runs take at most, in seconds times `factor`."""
        return factor * float(np.percentile(self.seconds, 99))

    def times_as_fast_as(self, other: Samples) -> list[float]:
        """[min, median, max] of the other's seconds by these, run by run of the same round."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        ratios = [theirs / ours for ours, theirs in pairs]
        return [min(ratios), statistics.median(ratios), max(ratios)]


@dataclass
class Table:
    """A table of figures. Cells are names, numbers or None."""

    title: str
    columns: list[str]
    rows: list[list[Any]]  # of Cell


class Goal(NamedTuple):
    """What was aimed at: `measured` is to be at least, or at most, `target`."""

    text: str
    measured: float
    target: float
    at_least: bool = True

    @property
    def reached(self) -> bool:
        """Whether it was."""
        return (self.measured >= self.target) == self.at_least or self.measured == self.target


@dataclass
class Section:
    """The results of one part of the benchmark: its seconds, and why it failed, if it did."""

    name: str
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""


def say(message: str) -> None:
    """Progress, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


def timed(run: Callable[[], Any]) -> Timed:
    """The result of a call and the seconds it took."""
    begun = time.perf_counter()
    result = run()
    spent = time.perf_counter() - begun
    return result if isinstance(result, Timed) else Timed(spent, result)


OTHER_BYTES = 4 * 2**20  # of memory that a caller uses between two calls


def other_work() -> Callable[[], None]:
    """What a caller does between calls: it reads and writes some MB of other memory each time.

    So a call finds the processor's nearest caches full of what is not its own.
    """
    other = np.zeros(OTHER_BYTES // 8, np.int64)

    def touch() -> None:
        np.add(other, 1, out=other)

    return touch


SETTLE_S = 1.0
_chance = random.Random()


def choose_order(seed: int) -> None:
    """From now on, `in_turns` draws its orders from this seed."""
    _chance.seed(seed)


def in_turns(count: int) -> list[int]:
    """The numbers below `count` in a random order."""
    return _chance.sample(range(count), count)


def _settle(spent: float) -> None:
    """Let the one before, which took so many seconds, end what it left to the disk and to threads.

    Whoever syncs its own files would wait for those of others, too.
    """
    os.sync()
    time.sleep(min(spent, SETTLE_S))


def race(contenders: Sequence[Contender], rounds: int, *, aloud: bool = False) -> list[Samples]:
    """Times every contender once a round, in random order, after a warm-up of each."""
    samples = [Samples(contender.name, []) for contender in contenders]
    for contender in contenders:
        contender.prepare()
        (contender.warm_up or contender.run)()
    spent = 0.0
    for number in range(rounds):
        for turn in in_turns(len(contenders)):
            contender = contenders[turn]
            contender.prepare()
            hold(contender.reads)
            gc.collect()  # what others left behind is not for this one to clear away
            _settle(spent)
            found = timed(contender.run)
            spent = found.seconds
            contender.check(found.result)
            samples[turn].seconds.append(found.seconds)
            if aloud:
                say(f"  round {number + 1}: {contender.name}: {found.seconds:.2f} s")
    return samples
