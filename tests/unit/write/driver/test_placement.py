"""Runs that lose race after race: how often segments are copied, and what stays between them."""

import json
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.commits import CatalogCommits
from seglake.engine import Engine
from seglake.errors import AttemptAbandoned
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.undo import undo
from seglake.write.driver import commit as placement
from seglake.write.driver.commit import RebaseTask
from seglake.write.driver.report import Report
from tests.makers.raw_events import T, ingest, pipeline_of, read_lake, read_raw, segments_of
from tests.makers.strategies import examples

PARTITIONS = range(3)
Came = Sequence[Sequence[int]]  # other runs, each as the log partitions of its records


class Topic:
    """A topic to which a backfill and smaller runs append, each when it is told to."""

    def __init__(self, folder: Path, clock: str = "CreateTime") -> None:
        self.lake, self._folder, self._runs = folder / "lake", folder, 0
        self._topic = {
            "partition_field": "p",
            "partitions": len(PARTITIONS),
            "message.timestamp.type": clock,
        }
        self.copies: list[int] = []  # how many segments each move copied

    def run(self, partitions: Sequence[int], records: int = 0) -> Report:
        self._runs += 1
        path = self._folder / f"{self._runs}.jsonl"
        lines = [{"ts": T + at, "p": partitions[at % len(partitions)]} for at in range(records)]
        lines = lines or [{"ts": T, "p": partition} for partition in partitions]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return ingest(pipeline_of(self.lake, path, topic=self._topic), str(self._runs))

    def backfill(self, at_moves: Sequence[Came], at_commits: Sequence[Came]) -> Report:
        """A run; while it moves, and before it commits, others come."""
        commit, move = CatalogCommits.make, RebaseTask.run
        moves, commits = [*reversed(at_moves)], [*reversed(at_commits)]
        with pytest.MonkeyPatch.context() as patch:

            def others(came: list[Came]) -> None:
                with patch.context() as plain:
                    plain.setattr(CatalogCommits, "make", commit)
                    for partitions in came.pop() if came else ():
                        self.run(partitions)

            def committed(own: CatalogCommits, *given: Any, **named: Any) -> int:
                others(commits)
                return commit(own, *given, **named)

            def moved(task: RebaseTask, engine: Engine, segments: Sequence[Any]) -> list[Any]:
                self.copies.append(len(segments))
                others(moves)
                return move(task, engine, segments)

            patch.setattr(CatalogCommits, "make", committed)
            patch.setattr(RebaseTask, "run", moved)
            return self.run(PARTITIONS, 30)

    def check(self) -> None:
        """Nothing is lost or twice, no log has a hole, and a lost catalog comes back."""
        records, raw = read_lake(self.lake), read_raw(self.lake)
        assert records == raw
        assert not verify(str(self.lake), deep=True).findings
        for one, next_ in pairwise(segments_of(self.lake)):
            assert next_.partition > one.partition or next_.base_offset == one.end_offset
        shutil.rmtree(self.lake / "catalog" / "log")
        rebuild_catalog(str(self.lake), dry_run=False)
        assert read_lake(self.lake) == records

    def values(self) -> int:
        return sum(map(len, read_lake(self.lake).values()))


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path)


@pytest.fixture(autouse=True)
def any_run_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_FEW_SEGMENTS", 0)


def test_a_run_beside_steady_runs_copies_a_segment_at_most_twice(topic: Topic) -> None:
    """Two runs come during each copy, one before each of the first commits."""
    came = [[PARTITIONS] * 2] * 8, [[PARTITIONS]] * 4
    report = topic.backfill(*came)
    assert topic.copies == [len(PARTITIONS)] * 2
    assert (report.rebased, report.records) == (2, 30)
    assert (report.min_timestamp, report.max_timestamp) == (T, T + 29)
    rows = [row for row in segments_of(topic.lake) if not row.record_count]
    assert [row.end_offset - row.base_offset for row in rows] == [2, 2, 2]
    topic.check()


@pytest.mark.parametrize(("few_bytes", "dense"), [(10_000, True), (100, False)])
def test_a_run_of_few_segments_leaves_no_room(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, few_bytes: int, dense: bool
) -> None:
    monkeypatch.setattr(placement, "_FEW_SEGMENTS", 3)
    monkeypatch.setattr(placement, "_FEW_BYTES", few_bytes)
    topic.backfill([[PARTITIONS]] * 4, [[PARTITIONS]])
    assert all(row.record_count for row in segments_of(topic.lake)) is dense


def test_under_log_append_time_no_room_is_left(tmp_path: Path) -> None:
    """Else records of a later time would lie in front of those of an earlier one."""
    topic = Topic(tmp_path, "LogAppendTime")
    report = topic.backfill([[[0]]] * 3, [[[0]]])
    assert report.rebased == 4
    log = read_lake(topic.lake)[0]
    assert [record.offset for record in log] == [*range(len(log))]
    assert [record.timestamp for record in log] == sorted(record.timestamp for record in log)
    topic.check()


def test_an_undo_takes_the_room_with_the_run(topic: Topic) -> None:
    report = topic.backfill([[PARTITIONS]] * 2, [[PARTITIONS]])
    undo(str(topic.lake), "events", report.run_id)
    assert topic.values() == 3 * len(PARTITIONS)
    topic.check()


def test_a_run_that_dies_beside_its_room_leaves_no_hole(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(placement, "write_segment", _dies)
        with pytest.raises(AttemptAbandoned):
            topic.backfill([[PARTITIONS] * 2] * 2, [[PARTITIONS]] * 2)
    before = topic.values()
    topic.run(PARTITIONS)
    assert topic.values() == before + len(PARTITIONS)
    assert all(row.record_count for row in segments_of(topic.lake))
    topic.check()


def _dies(*_: Any) -> Any:
    raise AttemptAbandoned("dead")


_came = st.lists(
    st.lists(st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3), max_size=2), max_size=4
)


@examples(20)
@given(_came, _came)
def test_runs_during_a_rebase_lose_nothing(at_moves: list[Any], at_commits: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        topic = Topic(Path(folder))
        report = topic.backfill(at_moves, at_commits)
        assert report.records == 30
        topic.check()
