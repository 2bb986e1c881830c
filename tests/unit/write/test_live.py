"""What an archive makes of a broker's answers; tests/kafka/test_live_archive.py has a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog import groups
from seglake.catalog.groups import GroupInTopic, GroupOffset
from seglake.errors import CorruptData, InputError, UsageError
from seglake.layout import success_key
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.vacuum import vacuum
from seglake.write.live import archive as work
from seglake.write.live.archive import LiveTopic
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


@pytest.mark.parametrize(
    ("taken", "p0"),
    [((), (1, 3)), ((3, 4), (0, 3)), ((3, 4), (5, 5))],
    ids=[
        "nobody else archives",
        "another archive commits what came after this one asked",
        "the broker deletes what another archive has read",
    ],
)
def test_nothing_is_committed_where_nothing_is_new(
    root: Path, monkeypatch: pytest.MonkeyPatch, taken: tuple[int, ...], p0: tuple[int, int]
) -> None:
    """And what another archive commits meanwhile is neither lost by the broker nor a gap."""
    version = open_catalog(str(root)).snapshot().version
    meanwhile = (lambda: take(root, *taken)) if taken else (lambda: None)
    found = archived(root, monkeypatch, ONE, meanwhile, p0=p0, p1=(0, 0))
    assert (found.status, found.exit_code, found.gaps) == ("nothing new", 0, {})
    assert (found.summary, found.error) == ("nothing new", None)
    assert open_catalog(str(root)).snapshot().version == version + bool(taken)


@pytest.mark.parametrize(
    ("topic_id", "end", "words"),
    [
        (ONE, 2, "ends at 2 on the broker, but at 3 in the lake. The broker lost records"),
        (TWO, 9, f"id {ONE}, and that topic now has id {TWO}. It was deleted and created again"),
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


def test_an_unknown_topic_makes_no_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Told):
        def topic_id(self, name: str) -> str:
            raise InputError(f"the broker has no topic {name!r}")

    monkeypatch.setattr(work, "Broker", lambda *_: Empty(LiveTopic("web", "", {})))
    nothing: Any = object()
    assert work.archive(str(tmp_path / "lake"), ["web"], OPTIONS, spark=nothing).exit_code == 2
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("topics", [[], ["a", "a"], ["a", "b:a"]])
def test_topics_are_named_once(topics: list[str]) -> None:
    with pytest.raises(UsageError, match="once"):
        work.archive("lake", topics, OPTIONS)


def test_the_exit_code_is_that_of_the_first_error() -> None:
    topics = [work.TopicArchive("a", "a", exit_code=code) for code in (0, 4, 2, 1)]
    codes = [work.ArchiveResult(topics[:count]).exit_code for count in range(5)]
    assert codes == [0, 0, 4, 2, 2]
    assert "kafka topic" in repr(work.ArchiveResult(topics))


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
    assert "group 'typo' has no committed offsets" in found.summary
    table = open_catalog(str(root))
    kept = groups.topic_offsets(table.store, table.lake, "web")
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
    (kept,) = groups.group_offsets(table.store, table.lake, "g")
    assert kept.offsets == {0: GroupOffset(2), 1: GroupOffset(0)}
    assert groups.lake_offsets(table.store, "another lake at this root") == []
    assert not vacuum(str(root), dry_run=False, grace_hours=0).unknown
    rebuild_catalog(str(root), dry_run=False)
    table = open_catalog(str(root))
    assert groups.lake_offsets(table.store, table.lake) == [kept]


def test_a_damaged_position_of_a_group_names_its_file(root: Path) -> None:
    table = open_catalog(str(root))
    groups.store_offsets(
        table.store, GroupInTopic(table.lake, "web", "größe/..", {0: GroupOffset(1)})
    )
    (key,) = (item.key for item in table.store.list("catalog/groups"))
    for bad in (b"{", b"[]", b'{"offsets": {"0": [1, 2, 3]}}', b'{"offsets": {"0": 1}}'):
        table.store.put(key, bad)
        with pytest.raises(CorruptData, match=key):
            groups.group_offsets(table.store, table.lake, "größe/..")


@pytest.mark.parametrize("names", [["g", "g"], [""]])
def test_groups_are_named_once__before_spark_starts(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seglake.session.spark_session", lambda *_, **__: pytest.fail("it starts"))
    with pytest.raises(UsageError, match="each consumer group once"):
        work.archive("lake", ["web"], OPTIONS, groups=names)
