"""How many tasks there are on a cluster of a fixed size, and on one that grows with its tasks."""

import time
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import CORE_BYTES, LocalEngine, SparkEngine, share_in_order
from seglake.write.input.files import SourceFile, Split
from seglake.write.map.unit import shared_units

MIB = 2**20
ENABLED = "spark.dynamicAllocation.enabled"
LIMIT, SIZE = "spark.dynamicAllocation.maxExecutors", "spark.executor.cores"


def engine_on(running: int, master: str = "yarn", **conf: str) -> SparkEngine:
    """On a cluster with so many cores just now, and these settings."""
    told = {"spark.master": master} | conf
    context = SimpleNamespace(defaultParallelism=running, getConf=lambda: told)
    session: Any = SimpleNamespace(version=pyspark.__version__, sparkContext=context)
    return SparkEngine(session)


def split_of(number: int, size_bytes: int) -> Split:
    """A whole file of this size."""
    return Split(number, SourceFile(f"f{number}", size_bytes, 0, None), 0, size_bytes)


@given(st.lists(st.integers(0, 100)), st.integers(1, 20))
def test_shares_in_order_have_each_item_once(sizes: list[int], tasks: int) -> None:
    shares = share_in_order(sizes, tasks)
    assert sorted(chain.from_iterable(shares)) == [*range(len(sizes))]
    assert len(shares) <= tasks
    assert all(shares)


@given(st.lists(st.integers(50, 100), min_size=400), st.integers(1, 20))
def test_many_small_items_stay_in_order_and_shares_are_fair(sizes: list[int], tasks: int) -> None:
    shares = share_in_order(sizes, tasks)
    assert [*chain.from_iterable(shares)] == [*range(len(sizes))]
    loads = [sum(sizes[item] for item in share) for share in shares]
    assert max(loads) <= sum(sizes) / tasks + 100


def test_a_large_item_is_alone() -> None:
    assert sorted(share_in_order([1, 1, 90, 1], 2)) == [[0, 1, 3], [2]]


@pytest.mark.parametrize(
    ("master", "conf", "cores"),
    [
        ("yarn", {}, 2),
        ("yarn", {ENABLED: "false", LIMIT: "50", SIZE: "4"}, 2),
        ("yarn", {ENABLED: "true", LIMIT: "50", SIZE: "4"}, 200),
        ("yarn", {ENABLED: " TRUE ", LIMIT: "50"}, 50),
        ("k8s://https://host", {ENABLED: "true", SIZE: "4"}, 1000),
        ("spark://local:7077", {ENABLED: "true", LIMIT: "2147483647", SIZE: "4"}, 1000),
        ("spark://host", {ENABLED: "true", LIMIT: "1", SIZE: "1"}, 2),
        ("local-cluster[2,1,1024]", {ENABLED: "true", LIMIT: "7", SIZE: "1"}, 7),
        ("local[2]", {ENABLED: "true", LIMIT: "50", SIZE: "4"}, 2),
        ("local", {ENABLED: "true"}, 2),
    ],
)
def test_the_cores_that_a_cluster_can_have(master: str, conf: dict[str, str], cores: int) -> None:
    engine = engine_on(2, master, **conf)
    assert engine.cores == 2
    assert engine.cores_for(10**15) == cores
    assert engine.cores_for(0) == 2


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 2**45))
def test_a_core_that_is_not_there_yet_gets_enough_work(
    running: int, executors: int, size_bytes: int
) -> None:
    engine = engine_on(running, **{ENABLED: "true", LIMIT: str(executors)})
    cores = engine.cores_for(size_bytes)
    assert running <= cores <= max(running, executors)
    assert cores == running or cores * CORE_BYTES <= size_bytes
    assert cores >= executors or size_bytes < (cores + 1) * CORE_BYTES
    assert engine_on(running).cores_for(size_bytes) == running


@pytest.mark.parametrize(
    ("mebibytes", "fixed", "growing"),
    [(1, 1, 1), (100, 6, 6), (1024, 6, 48), (8 * 1024, 6, 3 * 100)],
)
def test_more_cores_make_more_and_smaller_map_tasks(
    mebibytes: int, fixed: int, growing: int
) -> None:
    splits = [split_of(number, MIB) for number in range(mebibytes)]
    grows = engine_on(2, **{ENABLED: "true", LIMIT: "25", SIZE: "4"})
    for engine, tasks in ((engine_on(2), fixed), (grows, growing)):
        shares = shared_units(splits, 16 * MIB, engine)
        assert len(shares) == tasks
        found = [split.number for share in shares for unit in share for split in unit.splits]
        assert sorted(found) == list(range(mebibytes))


@pytest.mark.parametrize("cores", [1, 3])
def test_results_are_in_order_and_few_tasks_begin_after_an_error(cores: int) -> None:
    done, begun = list[tuple[int, int]](), list[int]()

    def negated(item: int) -> int:
        time.sleep(item % 3 / 1000)
        return -item

    def failing(item: int) -> None:
        begun.append(item)
        raise ValueError

    engine = LocalEngine(cores)
    assert engine.map_many(negated, range(50), lambda *each: done.append(each)) == [
        -item for item in range(50)
    ]
    assert sorted({*done}) == [(count, 50) for count in range(51)]
    with pytest.raises(ValueError):  # noqa: PT011  # our own
        engine.map(failing, range(50))
    assert len(begun) < 3 * cores


def test_no_items_need_no_session_of_spark() -> None:
    done = list[tuple[int, int]]()
    assert SparkEngine().map_many(str, [], lambda *each: done.append(each)) == []
    assert {*done} == {(0, 0)}


def test_threads_do_not_grow() -> None:
    assert [LocalEngine(cores).cores_for(10**15) for cores in (1, 7)] == [1, 7]
