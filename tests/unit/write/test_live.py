"""What an archive makes of a broker's answers; tests/kafka/test_live_archive.py has a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seglake.errors import UsageError
from seglake.write.live import archive as work
from seglake.write.live.broker import LiveTopic
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import T
from tests.unit.write.test_offsets_kept import Row, ingest, pipeline_of, write_parquet

OPTIONS = {"bootstrap.servers": "h:1"}


class Told:
    """A broker that has one topic."""

    def __init__(self, topic: LiveTopic) -> None:
        self.live = topic

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def topic(self, _name: str) -> LiveTopic:
        return self.live

    def timestamp_type(self, _name: str) -> str:
        return "CreateTime"


def archived(
    root: Path, monkeypatch: pytest.MonkeyPatch, topic_id: str, **offsets: tuple[int, int]
) -> work.TopicArchive:
    """The report for a topic with these offsets, by "p0", "p1"."""
    live = LiveTopic("web", topic_id, {int(p[1:]): ends for p, ends in offsets.items()})
    monkeypatch.setattr(work, "Broker", lambda *_: Told(live))
    nothing: Any = object()  # a session that nothing asks
    (found,) = work.archive(str(root), ["web"], OPTIONS, spark=nothing).topics
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake whose topic "web" ends at 3 in partition 0, and at 0 in partition 1."""
    write_parquet(tmp_path / "a.parquet", [Row(0, 2, T, 0, None, b"v", [])])
    topic = {"kafka.topic.id": "one"}
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "a.parquet", topic=topic))
    return tmp_path / "lake"


def test_nothing_is_committed_where_nothing_is_new(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = open_catalog(str(root)).snapshot().version
    found = archived(root, monkeypatch, "one", p0=(1, 3), p1=(0, 0))
    assert (found.status, found.exit_code, found.gaps) == ("nothing new", 0, {})
    assert found.summary == "nothing new"
    assert open_catalog(str(root)).snapshot().version == version


@pytest.mark.parametrize(
    ("topic_id", "end", "words"),
    [
        ("one", 2, "ends at 2 on the broker, and at 3 in the lake: the broker lost records"),
        ("two", 9, "id one, and that topic has id two now: it was deleted and made again"),
    ],
)
def test_other_records_at_these_offsets_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, topic_id: str, end: int, words: str
) -> None:
    version = open_catalog(str(root)).snapshot().version
    found = archived(root, monkeypatch, topic_id, p0=(0, end), p1=(0, 0))
    assert (found.status, found.exit_code) == ("failed", 2)
    assert words in str(found.error)
    assert words in found.summary
    assert open_catalog(str(root)).snapshot().version == version


def test_a_topic_that_loses_partitions_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = archived(root, monkeypatch, "one", p0=(0, 9))
    assert "cannot shrink to 1" in str(found.error)


@pytest.mark.parametrize("topics", [[], ["a", "a"], ["a", "b:a"]])
def test_topics_are_named_once(topics: list[str]) -> None:
    with pytest.raises(UsageError, match="each once"):
        work.archive("lake", topics, OPTIONS)


def test_the_exit_code_is_that_of_the_first_error() -> None:
    topics = [work.TopicArchive("a", "a", exit_code=code) for code in (0, 4, 2, 1)]
    codes = [work.Archive(topics[:count]).exit_code for count in range(5)]
    assert codes == [0, 0, 4, 2, 2]
    assert "kafka topic" in repr(work.Archive(topics))
