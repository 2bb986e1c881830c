"""What an archive makes of a broker's answers; tests/kafka/test_live_archive.py has a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

from seglake.catalog import groups
from seglake.catalog.groups import GroupInTopic, GroupOffset
from seglake.cli.terminal.output import log_lines
from seglake.errors import CorruptData, InputError, StoreError, UsageError
from seglake.layout import success_key
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.vacuum import vacuum
from seglake.write.driver.report import Report
from seglake.write.live import archive as work
from seglake.write.live.archive import Broker, LiveRecord, LiveTopic
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import T
from tests.unit.write.test_offsets_kept import Row, ingest, pipeline_of, write_parquet

ONE, TWO = "A08NuvyWRgee6k9bdjakQQ", "B08NuvyWRgee6k9bdjakQQ"  # ids of topics
OPTIONS = {"bootstrap.servers": "h:1"}


class Told:
    """A broker that has one topic; `meanwhile` happens when it has answered."""

    def __init__(self, topic: LiveTopic, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.live, self.meanwhile = topic, meanwhile
        self.groups = dict[str, dict[int, GroupOffset]]()

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def topic(self, _name: str) -> LiveTopic:
        self.meanwhile()
        return self.live

    def topic_id(self, _name: str) -> str:
        return self.live.topic_id

    def timestamp_type(self, _name: str) -> str:
        return "CreateTime"

    def committed(self, group: str, _name: str) -> dict[int, GroupOffset]:
        return self.groups.get(group, {})


def archived(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic_id: str,
    meanwhile: Callable[[], object] = lambda: None,
    **offsets: tuple[int, int],
) -> work.TopicArchive:
    """The report for a topic with these offsets, by "p0", "p1"."""
    live = LiveTopic("web", topic_id, {int(p[1:]): ends for p, ends in offsets.items()})
    monkeypatch.setattr(work, "Broker", lambda *_: Told(live, meanwhile))
    nothing: Any = object()  # a session that nothing asks
    (found,) = work.archive(str(root), ["web"], OPTIONS, spark=nothing).topics
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake whose topic "web" ends at 3 in partition 0, and at 0 in partition 1."""
    take(tmp_path / "lake", 2)
    return tmp_path / "lake"


def take(root: Path, *offsets: int) -> None:
    """What another archive does: records with these offsets come into partition 0."""
    file = root.with_name(f"{offsets[0]}.parquet")
    write_parquet(file, [Row(0, offset, T, 0, None, b"v", []) for offset in offsets])
    ingest(pipeline_of(root, file, topic={"kafka.topic.id": ONE}), str(offsets))


def test_an_archive_that_is_run_again_writes_the_mark_that_a_kill_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a rebuild of the catalog would leave the records out."""
    table = open_catalog(str(root))
    (run,) = table.runs(table.snapshot(), "web")
    table.store.delete([success_key(run.attempt_id)])
    assert archived(root, monkeypatch, ONE, p0=(1, 3), p1=(0, 0)).status == "nothing new"
    assert table.store.size(success_key(run.attempt_id)) == 0


def test_nothing_is_committed_where_nothing_is_new(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = open_catalog(str(root)).snapshot().version
    found = archived(root, monkeypatch, ONE, p0=(1, 3), p1=(0, 0))
    assert (found.status, found.exit_code, found.gaps) == ("nothing new", 0, {})
    assert found.summary == "nothing new"
    assert open_catalog(str(root)).snapshot().version == version


@pytest.mark.parametrize(
    ("topic_id", "end", "words"),
    [
        (ONE, 2, "ends at 2 on the broker, and at 3 in the lake: the broker lost records"),
        (TWO, 9, f"id {ONE}, and that topic has id {TWO} now: it was deleted and made again"),
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


def test_what_another_archive_commits_meanwhile_is_not_lost_by_the_broker(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one reads and commits records that came after this one asked the broker."""
    found = archived(root, monkeypatch, ONE, lambda: take(root, 3, 4), p0=(0, 3), p1=(0, 0))
    assert (found.status, found.exit_code, found.error) == ("nothing new", 0, None)


def test_what_another_archive_commits_meanwhile_is_no_gap(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker deletes records just after another archive has read them."""
    found = archived(root, monkeypatch, ONE, lambda: take(root, 3, 4), p0=(5, 5), p1=(0, 0))
    assert (found.status, found.exit_code, found.gaps) == ("nothing new", 0, {})


def test_an_unknown_topic_makes_no_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Told):
        def topic_id(self, name: str) -> str:
            raise InputError(f"the broker has no topic {name!r}")

    monkeypatch.setattr(work, "Broker", lambda *_: Empty(LiveTopic("web", "", {})))
    nothing: Any = object()
    assert work.archive(str(tmp_path / "lake"), ["web"], OPTIONS, spark=nothing).exit_code == 2
    assert not (tmp_path / "lake").exists()


def test_a_topic_that_loses_partitions_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = archived(root, monkeypatch, ONE, p0=(0, 9))
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


def with_groups(
    root: Path, monkeypatch: pytest.MonkeyPatch, broker: Told, *asked: str
) -> work.TopicArchive:
    monkeypatch.setattr(work, "Broker", lambda *_: broker)
    nothing: Any = object()
    (found,) = work.archive(str(root), ["web"], OPTIONS, groups=asked, spark=nothing).topics
    return found


def test_groups_are_kept_where_they_stand_but_never_above_the_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 ends at 3 in the lake: a consumer that begins at 5 would never get 3 and 4."""
    broker = Told(LiveTopic("web", ONE, {0: (0, 3), 1: (0, 0)}))
    broker.groups = {
        "ahead": {0: GroupOffset(5, "m"), 7: GroupOffset(1)},
        "slow": {0: GroupOffset(1)},
    }
    found = with_groups(root, monkeypatch, broker, "ahead", "slow", "typo")
    assert (found.status, found.exit_code) == ("nothing new", 0)
    assert found.groups == {"ahead": {0: 3}, "slow": {0: 1}, "typo": {}}
    assert "group 'typo' has committed nothing" in found.summary
    table = open_catalog(str(root))
    kept = groups.of_topic(table.store, table.lake, "web")
    assert {each.group: each.offsets for each in kept} == {
        "ahead": {0: GroupOffset(3, "m")}, "slow": {0: GroupOffset(1)},
    }  # fmt: skip


def test_a_later_archive_moves_a_group_and_forgets_none_of_its_partitions(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget what a group committed long ago; the archive does not."""
    broker = Told(LiveTopic("web", ONE, {0: (0, 3), 1: (0, 0)}))
    table = open_catalog(str(root))
    for now in (
        {0: GroupOffset(1), 1: GroupOffset(0)},
        {0: GroupOffset(2)},
        {0: GroupOffset(2)},
        {},
    ):
        broker.groups = {"g": now}
        assert with_groups(root, monkeypatch, broker, "g").error is None
    (kept,) = groups.of_group(table.store, table.lake, "g")
    assert kept.offsets == {0: GroupOffset(2), 1: GroupOffset(0)}
    assert groups.of_lake(table.store, "another lake at this root") == []
    assert not vacuum(str(root), dry_run=False, grace_hours=0).unknown
    rebuild_catalog(str(root), dry_run=False)
    table = open_catalog(str(root))
    assert groups.of_lake(table.store, table.lake) == [kept]


def test_groups_of_a_topic_that_is_made_again_are_not_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MadeAgain(Told):
        def committed(self, group: str, name: str) -> dict[int, GroupOffset]:
            self.live = self.live._replace(topic_id=TWO)
            return {0: GroupOffset(1)}

    broker = MadeAgain(LiveTopic("web", ONE, {0: (0, 3), 1: (0, 0)}))
    found = with_groups(root, monkeypatch, broker, "g")
    assert (found.status, found.exit_code) == ("failed", 2)
    assert "was made again" in str(found.error)
    table = open_catalog(str(root))
    assert groups.of_lake(table.store, table.lake) == []


def test_groups_that_the_broker_does_not_tell_fail_the_topic(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Told):
        def committed(self, group: str, name: str) -> dict[int, GroupOffset]:
            raise StoreError("GroupAuthorizationException")

    broker = Silent(LiveTopic("web", ONE, {0: (0, 3), 1: (0, 0)}))
    assert with_groups(root, monkeypatch, broker, "g").exit_code == 1


def test_a_damaged_position_of_a_group_names_its_file(root: Path) -> None:
    table = open_catalog(str(root))
    groups.keep(table.store, GroupInTopic(table.lake, "web", "größe/..", {0: GroupOffset(1)}))
    (key,) = (item.key for item in table.store.list("catalog/groups"))
    for bad in (b"{", b"[]", b'{"offsets": {"0": [1, 2, 3]}}', b'{"offsets": {"0": 1}}'):
        table.store.put(key, bad)
        with pytest.raises(CorruptData, match=key):
            groups.of_group(table.store, table.lake, "größe/..")


@pytest.mark.parametrize("names", [["g", "g"], [""]])
def test_groups_are_named_once__before_spark_starts(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seglake.session.spark_session", lambda *_, **__: pytest.fail("it starts"))
    with pytest.raises(UsageError, match="each consumer group once"):
        work.archive("lake", ["web"], OPTIONS, groups=names)


class Read:
    """A DataFrame: ranges of offsets of partition 0, and rows beside them."""

    def __init__(self, ranges: list[tuple[int, int]], rows: list[Any]) -> None:
        self.ranges, self.rows = ranges, rows

    def union(self, other: Read) -> Read:
        return Read(self.ranges + other.ranges, self.rows + other.rows)

    def createDataFrame(self, rows: list[Any], _schema: str) -> Read:  # Spark's name
        return Read([], rows)


@pytest.mark.parametrize("quarantine", [False, True])
def test_a_time_that_spark_cannot_hold_is_named_or_goes_to_the_quarantine(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, quarantine: bool
) -> None:
    far, read = 6, list[Read]()

    class WithRecords(Told):
        def record(self, _topic: str, _partition: int, _offset: int) -> LiveRecord:
            return LiveRecord(2**63 - 1, 0, b"k", b"v", [("h", None)])

    def ingested(frame: Read, *_: object) -> Report:
        if any(start <= far < end for start, end in frame.ranges):
            raise RuntimeError("java.lang.ArithmeticException: long overflow")
        read.append(frame)
        return Report("web", "archive", "1")

    live = LiveTopic("web", ONE, {0: (0, 9), 1: (0, 0)})
    monkeypatch.setattr(work, "Broker", lambda *_: WithRecords(live))
    monkeypatch.setattr(work, "_frame", lambda _setup, _topic, ranges: Read([*ranges.values()], []))
    monkeypatch.setattr(work, "_reads", lambda _s, _t, _p, start, end: not start <= far < end)
    monkeypatch.setattr(work, "ingest_frame", ingested)
    session: Any = Read([], [])
    (found,) = work.archive(
        str(root), ["web"], OPTIONS, spark=session, quarantine=quarantine
    ).topics
    if not quarantine:
        assert found.exit_code == 2
        assert "partition 0 of 'web' has a record at offset 6 whose timestamp" in str(found.error)
        return
    (frame,) = read
    assert sorted(frame.ranges) == [(3, 6), (7, 9)]
    headers = [("h", None), ("seglake.timestamp", b"9223372036854775807")]
    assert frame.rows == [(b"k", b"v", 0, 6, None, 0, headers)]


@pytest.mark.parametrize(
    ("kind", "remedy"), [("TimeoutException", True), ("TopicAuthorizationException", False)]
)
def test_a_broker_that_is_silent_is_told_at_once_and_what_to_check(
    kind: str, remedy: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """So a job in a pipe, too, is not silent while Kafka's client waits."""
    spark = MagicMock()
    cause = spark.error.getCause.return_value
    cause.getClass.return_value.getSimpleName.return_value = kind
    cause.getMessage.return_value = "no node"
    admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient.create.return_value
    admin.describeTopics.side_effect = Py4JJavaError("", spark.error)
    with log_lines(), Broker(spark, {**OPTIONS, "default.api.timeout.ms": "2500"}) as broker:
        assert "connecting to h:1, for up to 2.5 s" in capsys.readouterr().err
        with pytest.raises(StoreError, match=r"at h:1 did not answer: .*: no node") as caught:
            broker.topic_id("web")
    assert ("; check host and port, that the broker runs" in str(caught.value)) is remedy
