"""A run with very many segments beside a small run a second: copies, lost races, who waits.

    python -m tests.scale.backfill --segments 10000 --partitions 200 --copy-s 60

The runs are real, in two processes on a local disk that nothing waits for. Each segment is small,
so the backfill sleeps as long as copies of large ones would take.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seglake.catalog.schema import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.write.driver.rebase import Move
from tests.makers.raw_events import T, ingest, pipeline_of, read_lake, segments_of
from tests.scale.catalog_reads import not_durable

_SEGMENT_BYTES = 1536  # for one record of `_VALUE_BYTES`
_VALUE_BYTES = 1024


class Setup(NamedTuple):
    """`segments` of a backfill in all of the log `partitions`, whose copies take `copy_s`.

    A small run every `every_s` appends to `hit` log partitions.
    """

    segments: int
    partitions: int
    copy_s: float
    every_s: float
    hit: int


@dataclass
class Outcome:
    """What came of it; `copied` counts the log partitions by copies of each segment.

    `small_s` has the seconds that each small run took beside it, `alone_s` those after it.
    """

    copied: Counter[int] = field(default_factory=Counter)
    moves: int = 0
    took_s: float = 0.0
    try_s: list[float] = field(default_factory=list)
    alone_s: list[float] = field(default_factory=list)
    small_s: list[float] = field(default_factory=list)
    free_offsets: int = 0
    records: int = 0

    def lines(self) -> list[str]:
        """The outcome, line by line."""
        copied = ", ".join(f"{n} in {count} logs" for n, count in sorted(self.copied.items()))
        tries = f"{len(self.try_s)} tries of {_median(self.try_s):.2f} s"
        small = f"median {_median(self.small_s):.2f}, longest {max(self.small_s):.2f} s"
        return [
            f"backfill: {self.took_s:.0f} s, {self.moves} moves, {tries}; copies: {copied}",
            f"small runs: {len(self.small_s)}, {small}; alone: {_median(self.alone_s):.2f} s",
            f"{self.records:,} records; {self.free_offsets:,} offsets are left free",
        ]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _pipeline(root: Path, name: str, setup: Setup, lines: list[dict[str, Any]]) -> Pipeline:
    path = root / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    topic = {
        "partitions": setup.partitions,
        "partition_field": "p",
        "segment.bytes": _SEGMENT_BYTES,
        "batch.size": _VALUE_BYTES,
        "compression.type": "none",
    }
    return pipeline_of(root / "lake", path, topic=topic)


def _small_runs(root: Path, setup: Setup, began: Any, stop: Any, told: Any) -> None:
    """Small runs until `stop`; tells when each began and ended."""
    times: list[tuple[float, float]] = []
    with not_durable():
        for number in range(1_000_000):
            first = number * setup.hit
            hit = [(first + at) % setup.partitions for at in range(setup.hit)]
            pipeline = _pipeline(root, f"small-{number}", setup, [{"ts": T, "p": p} for p in hit])
            start = time.monotonic()
            ingest(pipeline, f"small {number}")
            times.append((start, time.monotonic()))
            began.set()
            if stop.wait(max(0.0, start + setup.every_s - time.monotonic())):
                break
    told.put(times)


class _Backfill:
    """The large run, with what it does counted."""

    def __init__(self, setup: Setup) -> None:
        self._setup, self.outcome = setup, Outcome()
        self._copies = Counter[int]()  # of the segments in each log partition

    def run(self, root: Path) -> tuple[float, float]:
        """Ingest; returns when it began and ended."""
        setup = self._setup
        text = "x" * _VALUE_BYTES
        lines = [{"ts": T, "p": at % setup.partitions, "v": text} for at in range(setup.segments)]
        pipeline = _pipeline(root, "backfill", setup, lines)
        with pytest.MonkeyPatch.context() as patch, not_durable():
            patch.setattr(CatalogTable, "commit", self._counted(CatalogTable.commit))
            patch.setattr(Move, "run", self._slowed(Move.run))
            start = time.monotonic()
            report = ingest(pipeline, "backfill")
        self.outcome.moves = report.rebased
        self.outcome.took_s = time.monotonic() - start
        self.outcome.copied = Counter(self._copies[p] for p in range(setup.partitions))
        return start, start + self.outcome.took_s

    def _counted(self, commit: Callable[..., int]) -> Callable[..., int]:
        def counted(*given: Any, **named: Any) -> int:
            start = time.monotonic()
            try:
                return commit(*given, **named)
            finally:
                self.outcome.try_s.append(time.monotonic() - start)

        return counted

    def _slowed(self, run: Callable[..., list[SegmentRow]]) -> Callable[..., list[SegmentRow]]:
        def slowed(move: Move, engine: Engine, rows: Sequence[SegmentRow]) -> list[SegmentRow]:
            time.sleep(self._setup.copy_s * len(rows) / self._setup.segments)
            for partition in {row.partition for row in rows}:
                self._copies[partition] += 1  # of each of its segments
            return run(move, engine, rows)

        return slowed


def played(root: Path, setup: Setup) -> Outcome:
    """Let the backfill and the small runs meet. Raises AssertionError if a record is missing."""
    context = multiprocessing.get_context("spawn")
    began, stop, told = context.Event(), context.Event(), context.Queue()
    other = context.Process(target=_small_runs, args=(root, setup, began, stop, told))
    other.start()
    try:
        began.wait(120)
        backfill = _Backfill(setup)
        start, end = backfill.run(root)
        time.sleep(3 * setup.every_s)
    finally:
        stop.set()
        times = told.get(timeout=120)
        other.join()
    outcome = backfill.outcome
    outcome.small_s = [done - begun for begun, done in times if done > start and begun < end]
    outcome.alone_s = [done - begun for begun, done in times if begun > end]
    rows = segments_of(root / "lake")
    outcome.free_offsets = sum(r.end_offset - r.base_offset for r in rows if not r.record_count)
    outcome.records = sum(map(len, read_lake(root / "lake").values()))
    wanted = setup.segments + setup.hit * len(times)
    if outcome.records != wanted:
        raise AssertionError(f"{outcome.records} of {wanted} records")
    return outcome


def main() -> None:
    """Play it once, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("segments", 10_000), ("partitions", 200), ("copy-s", 60.0),
                          ("every-s", 1.0), ("hit", 20)):  # fmt: skip
        parser.add_argument(f"--{name}", type=type(default), default=default)
    setup = Setup(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder:
        print(setup, *played(Path(folder), setup).lines(), sep="\n")


if __name__ == "__main__":
    main()
