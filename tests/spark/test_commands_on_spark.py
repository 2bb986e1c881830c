"""Commands that rewrite segments do on Spark what they do on threads, byte for byte."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from seglake.format.index import IndexPolicy
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.reindex import reindex
from seglake.maintain.merge import merge
from tests.harness.tiers import rest_but
from tests.judges.latest import live_rows
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import T

COMMANDS: dict[str, Callable[..., Any]] = {
    "compact": lambda root, **how: compact(root, "events", now_ms=T + 10**6, **how),
    "merge": lambda root, **how: merge(root, "events", everything=True, **how),
    "reindex": lambda root, **how: reindex(root, "events", IndexPolicy(3600), **how),
    "erase": lambda root, **how: erase(root, "events", ["3"], vacuum=True, **how),
}


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", partitions=2, settings={"cleanup.policy": "compact"})
    for run in range(4):
        rows = [Event(T + i, b"%d" % (i % (7 + run)), b"%d" % i) for i in range(100)]
        maker.run({0: rows, 1: [*rows[:50], Event(T, b"1", None)]}, Shape("lz4", 200, 900))
    return maker


def files(maker: LakeMaker) -> list[tuple[Any, ...]]:
    return [
        (row.partition, row.base_offset, (maker.root / row.key(suffix)).read_bytes())
        for row in live_rows(maker)
        for suffix in row.suffixes
    ]


@pytest.mark.parametrize("name", rest_but(COMMANDS, "compact"))
def test_spark_and_threads_write_the_same_bytes(
    spark: SparkSession, maker: LakeMaker, name: str
) -> None:
    before, seen = files(maker), list[tuple[int, int]]()
    copy = shutil.copytree(maker.root, maker.root.with_name("copy"))
    progress = {} if name == "erase" else {"progress": lambda *step: seen.append(step)}
    COMMANDS[name](str(maker.root), spark=spark, **progress)
    COMMANDS[name](str(copy))
    assert files(maker) == files(LakeMaker(copy)) != before
    assert seen == sorted(seen)
    assert all(done == total for done, total in seen[-1:])
    assert not list(maker.root.glob("attempts/*/blobs/*"))
