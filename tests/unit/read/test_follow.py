"""The last records of a log, and the ones that come."""

import json
import pickle
import tempfile
from collections.abc import Callable, Iterable
from itertools import islice, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.format.index import IndexPolicy
from tests.makers.gaps import Loss, lose
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.strategies import examples


def small(root: Path, count: int = 60) -> LakeMaker:
    """Two log partitions; segments of about ten records, batches of about five."""
    maker = LakeMaker(root, partitions=2)
    shape = Shape(batch_bytes=120, segment_bytes=300, policy=IndexPolicy(300))
    events = [Event(T + n, b"k", b"") for n in range(count)]
    maker.run({0: events, 1: events[: count // 2]}, shape)
    return maker


def more(maker: LakeMaker, partition: int = 0) -> None:
    maker.run({partition: [Event(T, b"new", b"")]})


def sleeping(monkeypatch: pytest.MonkeyPatch, steps: Iterable[Callable[[], Any]]) -> None:
    """A log takes a step instead of each sleep; Py4J's threads sleep as ever."""
    left = iter(steps)
    monkeypatch.setattr("seglake.read.log.time", SimpleNamespace(sleep=lambda _: next(left)()))


def places(batches: Any) -> list[tuple[int, int]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["partition"], row["offset"]) for row in rows]


@examples(20)
@given(st.integers(0, 80), st.integers(0, 9), st.booleans(), st.integers(0, 40))
def test_the_last_records_are_those_of_a_whole_read(
    count: int, seed: int, has_gaps: bool, log_start: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = small(Path(folder))
        if has_gaps:
            lose(maker, Loss(seed, 0.3, 0.3, 10, tail=0.8, joined=2, headers=0, dated=True))
        maker.delete_records(0, log_start)
        log = seglake.open(str(maker.root)).topic(maker.topic)
        for partition in log.partitions():
            start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
            whole = places(log.plan_offsets({partition: (start, end)}).execute())
            wanted = whole[max(0, len(whole) - count) :]
            assert places(log.tail(count, partitions=[partition])) == wanted


def following(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], Any], **how: Any
) -> Any:
    """The batches of `follow`; each wait for a newer version is one of the steps."""
    sleeping(monkeypatch, steps)
    return seglake.open(str(maker.root)).topic(maker.topic).follow(**how)


def test_what_comes_is_read_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = small(tmp_path)
    steps = [lambda: more(maker), lambda: None, lambda: more(maker, 1), lambda: more(maker)]
    batches = following(maker, monkeypatch, *steps)
    assert places(islice(batches, 3)) == [(0, 60), (1, 30), (0, 61)]


def test_it_begins_at_the_offsets_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = small(tmp_path)
    batches = following(maker, monkeypatch, lambda: more(maker), offsets={0: 58, 1: 0})
    found = []
    for batch in batches:
        found += places([batch])
        if found[-1] == (0, 60):
            break
    assert found == [(0, 58), (0, 59), *((1, n) for n in range(30)), (0, 60)]


def test_an_offset_that_is_still_to_come_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = small(tmp_path)
    steps = [lambda: more(maker), lambda: more(maker), lambda: more(maker)]
    batches = following(maker, monkeypatch, *steps, offsets={0: 62}, partitions=[0])
    assert places(islice(batches, 1)) == [(0, 62)]


def test_an_unpickled_log_follows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = small(tmp_path)
    sleeping(monkeypatch, repeat(lambda: more(maker)))
    log = seglake.open(str(maker.root)).topic(maker.topic)
    batches = pickle.loads(pickle.dumps(log)).follow()
    assert places(islice(batches, 2)) == [(0, 60), (0, 61)]


def test_records_that_are_deleted_meanwhile_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = small(tmp_path)

    def all_at_once() -> None:
        more(maker)
        more(maker)
        maker.delete_records(0, 61)

    assert places(islice(following(maker, monkeypatch, all_at_once), 1)) == [(0, 61)]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = small(tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    sleeping(monkeypatch, [lambda: more(maker), lambda: more(maker, 1), stop])
    read = ["read", str(maker.root), maker.topic, "--follow"]
    done = CliRunner().invoke(app, [*read, "--tail", "2", "--partition", "0"])
    assert done.exit_code == 0
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [58, 59, 60]
