"""What is true of each command that changes a topic: history, races, bad input."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.errors import CommitConflict, CorruptData, StoreError, UnknownTopic, UsageError
from seglake.layout import LOG_TABLE, success_key
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.health.verify import verify
from tests.harness.meanwhile import before_first
from tests.harness.observed import observe
from tests.makers.compacted import set_topic
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, segments_of, write_file

SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": 1, "min.cleanable.dirty.ratio": 0.0}


COMMANDS: dict[str, Callable[..., Any]] = {
    "alter": lambda root, topic: seglake.alter(root, topic, {"retention.ms": 5}),
    "compact": lambda root, topic: seglake.compact(root, topic, force=True),
    "delete-records": lambda root, topic: seglake.delete_records(root, topic, {0: 7}),
    "erase": lambda root, topic: seglake.erase(root, topic, ["k1"], vacuum=True),
    "merge": lambda root, topic: seglake.merge(root, topic, everything=True),
    "reindex": seglake.reindex,
    "retain": lambda root, topic: seglake.retain(root, topic)[0],
    "undo": lambda root, topic: seglake.undo(root, topic, "1", force=True),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "maintain": seglake.maintain_lake,
    "repair": lambda root, topic: repair_indexes(root, topics=["events", topic]),
    "verify": lambda root, topic: verify(root, topics=[topic]),
}
READING_LOGS = ("compact", "erase", "reindex")  # a merge leaves out a damaged log


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A log partition of two runs, each with a reject."""
    for run in range(2):
        made = [*(Line(T + n, f"k{n % 5}") for n in range(10)), Line(0, broken='{"k":"k1"}')]
        path = write_file(tmp_path / f"{run}.jsonl", made)
        ingest(pipeline_of(tmp_path / "lake", path, topic={"partitions": 1}), str(run))
    set_topic(open_catalog(str(tmp_path / "lake")), "events", SETTINGS)
    return str(tmp_path / "lake")


@pytest.mark.parametrize("name", COMMANDS)
def test_history_has_the_command_and_a_rebuild_keeps_what_it_did(root: str, name: str) -> None:
    done = COMMANDS[name](root, "events")
    last = seglake.open(root).maintenance("events")[-1]
    assert (last.operation, last.attempt_id) == (name, done.attempt_id)
    before = observe(root)
    rebuild_catalog(root, dry_run=False, force=True)
    assert observe(root) == before


@pytest.mark.parametrize("call", [*COMMANDS.values(), *OTHERS.values()])
def test_unknown_topic_and_missing_lake_are_errors(root: str, call: Callable[..., Any]) -> None:
    version = open_catalog(root).snapshot().version
    with pytest.raises(UnknownTopic, match="'nope'"):
        call(root, "nope")
    assert open_catalog(root).snapshot().version == version
    with pytest.raises(UsageError):
        call(f"{root}-none", "events")
    assert not Path(f"{root}-none").exists()


@pytest.mark.parametrize("name", READING_LOGS)
def test_damaged_log_is_named_and_nothing_is_committed(root: str, name: str) -> None:
    key = segments_of(Path(root))[0].key("log")
    data = (Path(root) / key).read_bytes()
    (Path(root) / key).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    version = open_catalog(root).snapshot().version
    with pytest.raises(CorruptData) as caught:
        COMMANDS[name](root, "events")
    assert caught.value.file == key
    assert open_catalog(root).snapshot().version == version


@pytest.mark.parametrize("lost", [CommitConflict("lost"), StoreError("lost")])
@pytest.mark.parametrize("name", COMMANDS)
def test_lost_reply_is_not_committed_twice(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str, lost: Exception
) -> None:
    commit, replies = DeltaLog.commit, [lost]

    def lose(log: DeltaLog, *given: Any, **named: Any) -> Any:
        committed = commit(log, *given, **named)
        if log.folder == LOG_TABLE and replies:
            raise replies.pop()
        return committed

    monkeypatch.setattr(DeltaLog, "commit", lose)
    done = COMMANDS[name](root, "events")
    assert not replies
    assert (Path(root) / success_key(done.attempt_id)).exists()
    operations = [row.operation for row in seglake.open(root).maintenance("events")]
    assert operations.count(name) == 1


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "retain"])
def test_run_that_commits_first_is_kept(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write_file(Path(root).parent / "more.jsonl", [Line(T + n, f"n{n}") for n in (1, 2, 3)])
    more = partial(ingest, pipeline_of(root, path, topic={"partitions": 1}), "more")
    before_first(monkeypatch, CatalogCommits, "make", more)
    done = COMMANDS[name](root, "events")
    last = seglake.open(root).maintenance("events")[-1]
    assert (last.operation, last.attempt_id) == (name, done.attempt_id)
    assert [record.key for record in read_lake(root)[0]][-3:] == [b"n1", b"n2", b"n3"]
