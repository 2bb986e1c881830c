"""Engines that behave as badly as a cluster may, without a JVM."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pyarrow as pa

from seglake.ingest.blob import SCHEMA
from seglake.ingest.engine import PLACE, KeptBlobs, LocalBlobs, LocalEngine, Task


class ScatteredEngine(LocalEngine):
    """Tasks run one by one in any order, each in a first attempt that dies half-way."""

    def __init__(self, cores: int, seed: int = 1) -> None:
        self.cores = cores
        self._chance = random.Random(seed)

    @contextmanager
    def map(self, task: Task, rows: pa.Table) -> Iterator[KeptBlobs]:
        yield _ScatteredBlobs(self.by_task(task, SCHEMA, rows), self)

    def run(self, task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        numbers = pa.array(range(len(rows)), pa.int32())
        return self.by_task(task, schema, rows.append_column("task", numbers))

    def by_task(self, task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """The results of rows with the same number in `task` in one call."""
        numbers = rows["task"].unique().to_pylist()
        self._chance.shuffle(numbers)
        results = []
        for number in numbers:
            mine = rows.filter(pa.compute.equal(rows["task"], number)).combine_chunks()
            size = self._chance.randint(1, len(mine))
            list(islice(task(iter(mine.to_batches(size))), self._chance.randint(0, 2)))
            results += list(task(iter(mine.to_batches(size))))
        return pa.Table.from_batches(results, schema)


class _ScatteredBlobs(LocalBlobs):
    def __init__(self, table: pa.Table, engine: ScatteredEngine) -> None:
        super().__init__(table)
        self._engine = engine

    def run_routed(self, task: Task, schema: pa.Schema, route: pa.Table) -> pa.Table:
        placed = self._table.join(route, ["partition", "unit", "sequence"], join_type="inner")
        placed = placed.sort_by([(name, "ascending") for name in PLACE])
        return self._engine.by_task(task, schema, placed)
