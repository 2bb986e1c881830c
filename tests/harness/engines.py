"""An engine that behaves as badly as a cluster may, without a JVM."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from seglake.engine import Item, LocalEngine, Result, Task
from seglake.errors import StoreError
from seglake.store import local


class ScatteredEngine(LocalEngine):
    """Tasks run in any order; each dies first in the middle of a write, and may run twice."""

    def __init__(self, cores: int, seed: int = 1) -> None:
        self.cores = cores
        self._chance = random.Random(seed)

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        results: dict[int, Result] = {}
        for number in self._chance.sample(range(len(items)), len(items)):
            with dying(self._chance.randint(0, 5)), suppress(StoreError):
                task(items[number])
            for _ in range(self._chance.randint(1, 2)):
                results[number] = task(items[number])
        return [results[number] for number in range(len(items))]


@contextmanager
def dying(writes: int) -> Iterator[None]:
    """Every write to a local file fails after the first few."""
    left = iter(range(writes))
    write = local._LocalWriter.write

    def failing(self: Any, data: Any) -> None:
        if next(left, None) is None:
            raise StoreError("the disk is full, just now")
        write(self, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local._LocalWriter, "write", failing)
        yield
