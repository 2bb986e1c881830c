"""Tags: the version that one names answers with its records, whatever became of the lake."""

import math
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.schema import TagRow
from seglake.clock import now_ms
from seglake.errors import CorruptData, UsageError, VersionExpired
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.layout import LOG_TABLE, success_key, tag_key
from seglake.maintain import commit
from seglake.maintain import vacuum as vacuums
from seglake.maintain.erasure import rewrites as erased_logs
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.reindex import rebuild_index_files
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.health.verify import verify
from seglake.maintain.tagging import tag, tag_usage
from seglake.maintain.vacuum import VacuumResult, vacuum
from tests.harness.meanwhile import before_first
from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker, Shape, T, open_catalog
from tests.makers.strategies import examples

A_DAY_MS = 86_400_000
EVERYTHING = (0, 2**62)
Seen = list[tuple[str, int, int, int, bytes | None, bytes | None]]

COMPACTED = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.0}


def seen(lake: seglake.Lake) -> Seen:
    """Every record of a lake, as its readers find them."""
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    found: Seen = []
    for name in lake.topics():
        table = lake.topic(name).read_range(*EVERYTHING, columns=columns).read_all()
        times = table["timestamp"].cast(pa.int64())
        rows = table.set_column(3, "timestamp", times).to_pylist()
        found += [tuple(row[column] for column in columns) for row in rows]
    return found


def written(maker: LakeMaker) -> Seen:
    """The records by the maker's own list."""
    return [
        (topic, each.partition, each.offset, each.timestamp, each.key, each.value)
        for topic in sorted(maker.written)
        for each in maker.records(topic=topic)
    ]


def sweep(root: Path, **how: Any) -> VacuumResult:
    """A vacuum that spares nothing but the newest version and tags."""
    return vacuum(str(root), **{"dry_run": False, "grace_hours": 0, "retention_hours": 0, **how})


def logs(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.glob("topics/**/*.log")}


def newest_logs(root: str) -> set[str]:
    table = open_catalog(root)
    return {row.key("log") for row in table.rows.segments(table.snapshot(), "events")}


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """A lake of two topics; three runs came to the first."""
    maker = LakeMaker(tmp_path / "lake", partitions=2, settings=COMPACTED)
    for run in range(3):
        events = [Event(T + 10 * run + n, b"k%d" % (n % 3), b"%d" % n) for n in range(6)]
        maker.run({0: events, 1: events[:2]})
    maker.topic, maker.settings = "other", {}
    maker.run({0: [Event(T + 7, None, b"stays")]})
    maker.topic = "events"
    return maker


# ------------------------------------------------------------------ what happens to a lake


def _compact(maker: LakeMaker) -> None:
    seglake.compact(str(maker.root), "events", force=True)


def _merge(maker: LakeMaker) -> None:
    seglake.merge(str(maker.root), "events", everything=True)


def _undo(maker: LakeMaker, run: int = 1) -> None:
    seglake.undo(str(maker.root), "events", f"run {run}", force=True)


def _retain(maker: LakeMaker) -> None:
    seglake.alter(str(maker.root), "events", {"retention.bytes": 1})
    seglake.retain(str(maker.root), "events")


def _ingest(maker: LakeMaker) -> None:
    maker.run({1: [Event(T + 99, b"k1", b"new")]})


def _reindex(maker: LakeMaker) -> None:
    seglake.reindex(str(maker.root), "events")


def _sweep(maker: LakeMaker) -> None:
    sweep(maker.root)


def _vacuum_of_delta(maker: LakeMaker) -> None:
    """Another engine's, which spares no file of an older version."""
    table = DeltaTable(str(maker.root / "catalog/log"))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


def _lose_the_old_log(maker: LakeMaker) -> None:
    """The commits before the last checkpoint are deleted, as when they expire."""
    table = DeltaTable(str(maker.root / "catalog/log"))
    table.create_checkpoint()
    for path in (maker.root / "catalog/log/_delta_log").glob("*.json"):
        if path.stem.isdigit() and int(path.stem) < table.version():
            path.unlink()


def _lose_the_catalog(maker: LakeMaker) -> None:
    shutil.rmtree(maker.root / "catalog/log")
    rebuild_catalog(str(maker.root), dry_run=False)
    maker.catalog = open_catalog(str(maker.root))


DEEDS: tuple[Callable[[LakeMaker], None], ...] = (
    _compact, _merge, _undo, _retain, _ingest, _reindex, _sweep, _vacuum_of_delta,
    _lose_the_old_log, _lose_the_catalog,
)  # fmt: skip


def require_as_it_was(maker: LakeMaker, wanted: Seen, version: int) -> None:
    """By its name and its number, also in another process."""
    for asked in ("q3", version):
        lake = seglake.open(str(maker.root), asked)
        assert (lake.version, seen(lake)) == (version, wanted)
        assert seen(pickle.loads(pickle.dumps(lake))) == wanted
        log = pickle.loads(pickle.dumps(lake.topic("events")))
        assert len(log.read_range(*EVERYTHING).read_all()) == len(
            [1 for row in wanted if row[0] == "events"]
        )


@examples(8)
@given(deeds=st.lists(st.sampled_from(DEEDS), max_size=6), when=st.integers(0, 6))
def test_a_tagged_version_stays_as_it_was_whatever_comes_after(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[Callable[[LakeMaker], None]], when: int
) -> None:
    maker = LakeMaker(tmp_path_factory.mktemp("any") / "lake", partitions=2, settings=COMPACTED)
    for run in range(3):
        maker.run({0: [Event(T + run, b"k", b"%d" % run)], 1: [Event(T, b"%d" % run)]})
    wanted, root, version = seen(seglake.open(str(maker.root))), str(maker.root), -1
    for number, deed in enumerate([*deeds, _sweep]):
        if number == min(when, len(deeds)):
            wanted, version = seen(seglake.open(root)), tag(root, "q3").tagged
        deed(maker)
    _sweep(maker)
    require_as_it_was(maker, wanted, version)
    require_files(maker)
    checked = verify(root, deep=True)
    assert (checked.findings, checked.orphans) == ([], [])


def test_an_older_version__can_be_tagged_while_it_is_retained(maker: LakeMaker) -> None:
    root, wanted, version = str(maker.root), written(maker), maker.versions[-1]
    _merge(maker)
    _retain(maker)
    assert tag(root, "q3", version).tagged == version
    sweep(maker.root)
    require_as_it_was(maker, wanted, version)
    with pytest.raises(VersionExpired):
        tag(root, "older", version - 1)
    assert [each.name for each in seglake.open(root).tags()] == ["q3"]


def test_a_deleted_tag__frees_its_files_at_the_next_vacuum(maker: LakeMaker) -> None:
    root = str(maker.root)
    tag(root, "q3")
    tag(root, "same")
    _merge(maker)
    before = logs(maker.root)
    (first, second) = sweep(maker.root).tags
    assert (first["held_segments"], second["held_segments"]) == (6, 6)
    names = {path.removesuffix("log") for path in before - newest_logs(root)}
    held = [path for path in maker.root.glob("topics/events*/**/*.*")
            if f"{path.relative_to(root).with_suffix('')}." in names]  # fmt: skip
    assert first["held_bytes"] == sum(path.stat().st_size for path in held)
    tag(root, "q3", delete=True)
    assert tag(root, "q3", delete=True).status == "already done"
    assert sweep(maker.root).tags == [second]
    assert logs(maker.root) == before
    tag(root, "same", delete=True)
    planned = sweep(maker.root, dry_run=True)
    assert logs(maker.root) == before
    swept = sweep(maker.root)
    assert (planned.deleted, planned.deleted_bytes) == (swept.deleted, swept.deleted_bytes)
    assert len(before - logs(maker.root)) == 6
    assert not list(maker.root.glob("catalog/tags/**/*.*"))
    with pytest.raises(UsageError, match="there is no tag 'same'"):
        seglake.open(root, "same")


def test_what_a_tag_holds_of_a_topic(maker: LakeMaker) -> None:
    """The topics of a tag add up to the tag; a tag without the topic says nothing of it."""
    root = str(maker.root)
    tag(root, "q3")
    maker.topic = "late"
    maker.run({0: [Event(T, b"k9", b"new")]})
    maker.topic = "events"
    tag(root, "q4")
    _merge(maker)
    erase(root, "events", [b"k1"])
    whole = {hold.name: hold for hold in tag_usage(maker.catalog)}
    parts = {name: tag_usage(maker.catalog, topic=name) for name in ("events", "late", "other")}
    assert [hold.name for hold in parts["late"]] == ["q4"]
    assert [hold.held_bytes for hold in parts["late"] + parts["other"]] == [0, 0, 0]
    assert [hold.erased for hold in parts["other"]] == [[], []]
    for name, hold in whole.items():
        mine = [each for part in parts.values() for each in part if each.name == name]
        for field in ("segments", "held_segments", "held_bytes", "erased_records"):
            assert getattr(hold, field) == sum(getattr(each, field) for each in mine)
    assert whole["q3"].held_bytes
    assert whole["q3"].erased_records
    assert [hold.name for hold in tag_usage(maker.catalog, ["q3"], "events")] == ["q4"]


def test_the_same_again__changes_nothing(maker: LakeMaker) -> None:
    root = str(maker.root)
    first = tag(root, "q3")
    assert (first.status, first.version) == ("committed", first.tagged + 1)
    again = tag(root, "q3")
    assert (again.status, again.version, again.tagged) == ("already done", -1, first.tagged)
    assert tag(root, "q3", first.tagged).status == "already done"
    with pytest.raises(UsageError, match=f"version {first.tagged}.* tag {maker.root} q3 --delete"):
        tag(root, "q3", 1)
    tag(root, "q3", delete=True)
    assert tag(root, "q3", 1).tagged == 1
    (row,) = seglake.open(root).tags()
    assert (row.name, row.version, row.sequence) == ("q3", 1, 2)
    operations = [each.operation for each in seglake.open(root).maintenance()]
    assert operations == ["tag", "delete-tag", "tag"]


def test_what_is_no_name(maker: LakeMaker) -> None:
    for name in ("", "Q3", "3q", "a" * 65, "v7", "x10", "key", "key64", "a b", "a.b", "ä", "q3\n"):
        for call in (tag, seglake.open):
            with pytest.raises(UsageError, match="must have 1 to 64 characters from a-z 0-9 _ -"):
                call(str(maker.root), name)
    assert not (maker.root / "catalog/tags").exists()


def test_what_is_a_name(maker: LakeMaker) -> None:
    for name in ("q", "v7a", "x", "keys", "key-64", "a" * 64, "q3_train-2"):
        version = tag(str(maker.root), name).tagged
        assert seglake.open(str(maker.root), name).version == version


def test_what_is_refused(maker: LakeMaker) -> None:
    root = str(maker.root)
    newest = seglake.open(root).version
    with pytest.raises(UsageError, match=r"is no version .* yet"):
        tag(root, "q3", newest + 50)
    with pytest.raises(UsageError, match=f"there is no tag 'q3'. `seglake tag {root}`"):
        tag(root, "q3", delete=True)
    with pytest.raises(UsageError, match="--delete contradicts"):
        tag(root, "q3", delete=True, until="2099-01-01")
    with pytest.raises(UsageError, match="is in the past"):
        tag(root, "q3", until="2020-01-01")
    with pytest.raises(UsageError, match="zone"):
        tag(root, "q3", until="2099-01-01T12:00")
    tag(root, "q3-train")
    with pytest.raises(UsageError, match="Did you mean 'q3-train'"):
        seglake.open(root, "q3-trai")


@pytest.mark.parametrize("damage", ["object", "size", "missing", "rows"])
def test_a_damaged_object__is_named_and_nothing_is_deleted(maker: LakeMaker, damage: str) -> None:
    root = str(maker.root)
    tag(root, "q3")
    _merge(maker)
    before = logs(maker.root)
    (row,) = seglake.open(root).tags()
    path = maker.root / tag_key(row.attempt_id)
    if damage == "rows":
        path = next(path.parent.glob("kind=segment/topic=events/*"))
    content = path.read_bytes()
    changed = {"missing": b"", "size": content + b" "}.get(damage, content.swapcase())
    path.write_bytes(changed) if changed else path.unlink()
    with pytest.raises(CorruptData):
        seglake.open(root, "q3").topic("events")
    with pytest.raises(CorruptData):
        sweep(maker.root)
    assert logs(maker.root) == before


@pytest.mark.parametrize("damage", ["log", "rows", "mark"])
def test_verify__finds_what_is_wrong_with_a_tag(maker: LakeMaker, damage: str) -> None:
    root = str(maker.root)
    attempt_id = tag(root, "q3").attempt_id
    _merge(maker)
    (path, *_) = {
        "log": [maker.root / key for key in sorted(logs(maker.root) - newest_logs(root))],
        "rows": [*maker.root.glob("catalog/tags/*/kind=segment/topic=events/*")],
        "mark": [maker.root / success_key(attempt_id)],
    }[damage]
    assert verify(root).findings == []
    path.unlink()
    (finding,) = verify(root).findings
    assert path.name in f"{finding.file} {finding.problem}"


@pytest.mark.parametrize("suffix", rest_but(["index", "timeindex", "zonemap", "keyindex"], "index"))
def test_repair_writes_index_files_that_only_a_tag_names(maker: LakeMaker, suffix: str) -> None:
    root = str(maker.root)
    maker.run({0: [Event(T, b"k1", b"y")]}, Shape(policy=IndexPolicy(200, (RECORD_KEYS,))))
    tag(root, "q3")
    tag(root, "same")
    _merge(maker)
    gone = sorted(logs(maker.root) - newest_logs(root))
    held = [maker.root / key for key in gone if key.startswith("topics/events-")]
    paths = [path for log in held for path in log.parent.glob(f"{log.stem}.{suffix}")]
    wanted = seen(seglake.open(root, "q3"))
    assert paths
    for number, path in enumerate(paths):
        path.unlink() if number % 2 else path.write_bytes(b"damaged")
    assert len(verify(root).findings) == len(paths)
    version = open_catalog(root).snapshot().version
    (planned,) = repair_indexes(root, dry_run=True)
    assert len(verify(root).findings) == len(paths)
    assert open_catalog(root).snapshot().version == version
    (report,) = repair_indexes(root)
    assert (report.segments, report.damaged) == (planned.segments, []) == (len(paths), [])
    assert verify(root, deep=True).findings == []
    sweep(maker.root)
    assert verify(root, deep=True).findings == []
    for name in ("q3", "same"):
        assert seen(seglake.open(root, name)) == wanted
    assert repair_indexes(root) == []


def test_a_repair_does_not_bring_back_an_index_file_that_an_erasure_deleted(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(maker.root)
    keyed = Shape(policy=IndexPolicy(200, (RECORD_KEYS,)))
    maker.run({0: [Event(T, b"k1", b"y"), Event(T, b"secret", b"x")]}, keyed)
    tag(root, "q3")
    _merge(maker)
    gone = sorted(logs(maker.root) - newest_logs(root))
    (path, *_) = [path for key in gone for path in (maker.root / key).parent.glob("*.keyindex")]
    path.unlink()
    build = rebuild_index_files

    def then_erase(*of: Any) -> Any:
        files = build(*of)
        with pytest.raises(UsageError, match="may still run"):
            erase(root, "events", ["secret"])
        erase(root, "events", ["secret"], vacuum=True, grace_hours=0)
        return files

    monkeypatch.setattr("seglake.maintain.health.reindex.rebuild_index_files", then_erase)
    (report,) = repair_indexes(root)
    assert (report.segments, report.skipped) == (0, 1)
    assert not path.exists()
    assert verify(root).findings == []


# ------------------------------------------------------------------ until


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets the clocks of this machine and of storage, days ahead."""
    now, storage = now_ms, commit.storage_time_ms

    def move(own: int, stored: int) -> None:
        for module in (commit, vacuums):
            monkeypatch.setattr(module, "now_ms", lambda: now() + own * A_DAY_MS)
            monkeypatch.setattr(module, "storage_time_ms", lambda s: storage(s) + stored * A_DAY_MS)

    return move


def test_a_tag_ends__by_the_earlier_clock(maker: LakeMaker, at: Callable[[int, int], None]) -> None:
    root = str(maker.root)
    until = now_ms() + 10 * A_DAY_MS
    tag(root, "q3", until=until)
    assert tag(root, "q3").until_ms == until
    _merge(maker)
    before = logs(maker.root)
    for ahead in ((9, 9), (11, 0), (0, 11)):
        at(*ahead)
        assert sweep(maker.root).ended_tags == []
        assert logs(maker.root) == before
    at(11, 11)
    assert seglake.open(root, "q3").tags()[0].until_ms == until
    planned = sweep(maker.root, dry_run=True)
    assert (planned.ended_tags, logs(maker.root)) == (["q3"], before)
    swept = sweep(maker.root)
    assert (swept.ended_tags, swept.tags, swept.deleted) == (["q3"], [], planned.deleted)
    assert len(before - logs(maker.root)) == 6
    assert seglake.open(root).tags() == []


def test_until_can_be_given_again(maker: LakeMaker) -> None:
    root = str(maker.root)
    tag(root, "q3", until="2099-01-01")
    (row,) = seglake.open(root).tags()
    assert seglake.format_ms(row.until_ms or 0) == "2099-01-01T00:00:00.000Z"
    changed = tag(root, "q3", until="2098-01-01T12:00:00+01:00")
    assert (changed.status, changed.tagged) == ("committed", row.version)
    (later,) = seglake.open(root).tags()
    assert seglake.format_ms(later.until_ms or 0) == "2098-01-01T11:00:00.000Z"
    assert (later.attempt_id, later.sequence) == (row.attempt_id, 1)


# ------------------------------------------------------------------ erasure


def spelled(root: Path, key: bytes) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and key in path.read_bytes()]


@pytest.mark.parametrize(
    "newest", rest_but(["has it", "lacks it", "has merged it"], "has merged it")
)
def test_an_erasure_goes_through_tags(maker: LakeMaker, newest: str) -> None:
    root, before = str(maker.root), now_ms()
    maker.run({0: [Event(T, b"k1", b"y"), Event(T, b"secret", b"x"), Event(T, b"secret", b"z")]})
    versions = [tag(root, name).tagged for name in ("q3", "same")]
    maker.run({0: [Event(T + 1, b"secret", b"later")]})
    tag(root, "without", maker.versions[0])
    kept, wanted = seen(seglake.open(root, "without")), seen(seglake.open(root, "q3"))
    if newest == "lacks it":
        _undo(maker, 4)
    elif newest == "has merged it":
        _merge(maker)
    planned = erase(root, "events", ["secret"], grace_hours=0, dry_run=True)
    assert seen(seglake.open(root, "q3")) == wanted
    report = erase(root, "events", ["secret"], vacuum=True, grace_hours=0)
    assert report.tags == planned.tags == {"q3": 2, "same": 2}
    assert spelled(maker.root / "topics", b"secret") == []
    for name, version in zip(("q3", "same"), versions, strict=True):
        lake = seglake.open(root, name)
        assert (lake.version, seen(lake)) == (version, [r for r in wanted if r[4] != b"secret"])
    assert seen(seglake.open(root, "without")) == kept
    (q3, same, without) = tag_usage(open_catalog(root))
    (erased,) = q3.erased
    assert before <= erased.pop("erased_at_ms") <= now_ms()
    assert erased == {
        "topic": "events", "partition": 0, "first_offset": 19, "last_offset": 20, "records": 2,
    }  # fmt: skip
    assert (same.erased_records, without.erased) == (2, [])
    require_files(maker)
    sweep(maker.root)
    assert seen(seglake.open(root, "q3")) == [r for r in wanted if r[4] != b"secret"]
    assert verify(root, deep=True).findings == []
    assert verify(root).orphans == []
    assert erase(root, "events", ["secret"], vacuum=True, grace_hours=0).version == -1


def test_erasures_of_a_tag_add_up__and_outlive_the_catalog(maker: LakeMaker) -> None:
    root = str(maker.root)
    tag(root, "q3")
    _merge(maker)
    for key in ("k0", "k1"):
        erase(root, "events", [key], vacuum=True, grace_hours=0)
        tag(root, "q3", until="2099-01-01" if key == "k0" else "2098-01-01")
    left = [row for row in written(maker) if row[4] not in (b"k0", b"k1")]
    for _ in range(2):
        assert seen(seglake.open(root, "q3")) == left
        (hold,) = tag_usage(open_catalog(root))
        assert hold.erased_records == len(written(maker)) - len(left)
        assert [each["first_offset"] for each in hold.erased if each["partition"]] == [
            0, 2, 4, 1, 3, 5,
        ]  # fmt: skip
        assert verify(root, deep=True).findings == []
        _lose_the_catalog(maker)


def test_logs_outside_the_lake_that_a_tag_names__stop_an_erasure(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(maker.root)
    tag(root, "q3")
    real, count = erased_logs.require_own, iter(range(9))

    def outside(snapshot: Any, topic: str) -> None:
        real(snapshot, topic)
        if next(count) == 0:
            raise UsageError("1 segments of events are attached")

    monkeypatch.setattr(erased_logs, "require_own", outside)
    with pytest.raises(UsageError, match="are attached"):
        erase(root, "events", ["k1"], grace_hours=0)
    assert seen(seglake.open(root)) == seen(seglake.open(root, "q3")) == written(maker)


@pytest.mark.parametrize("place", rest_but(["before", "after"], "after"))
def test_an_erasure_that_dies_at_its_commit__leaves_the_key_in_both_or_none(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    root = str(maker.root)
    tag(root, "q3")
    with monkeypatch.context() as patch:
        real = DeltaLog.commit

        def commit(*given: Any, **named: Any) -> Any:
            if place == "after":
                real(*given, **named)
            raise KeyboardInterrupt

        patch.setattr(DeltaLog, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            erase(root, "events", ["k1"], grace_hours=0)
    has = [b"k1" in {row[4] for row in seen(seglake.open(root, name))} for name in (None, "q3")]
    assert has == [place == "before"] * 2
    erase(root, "events", ["k1"], vacuum=True, grace_hours=0)
    assert seen(seglake.open(root, "q3")) == [r for r in written(maker) if r[4] != b"k1"]
    assert spelled(maker.root / "topics/events", b"k1") == []
    assert verify(root, deep=True).findings == []


def test_an_erasure_of_another_key__leaves_what_a_tag_names(tmp_path: Path) -> None:
    """Old key indexes among it, although one of another tag might have the hash."""
    maker = LakeMaker(tmp_path / "lake", settings={"index.keys": True})
    keyed = Shape(policy=IndexPolicy(200, (RECORD_KEYS,)))
    maker.run({0: [Event(T, b"k1"), Event(T, b"k2")]}, keyed)
    root, wanted = str(maker.root), written(maker)
    tag(root, "q3")
    maker.run({0: [Event(T, b"secret", b"x"), Event(T, b"k1", b"y")]}, keyed)
    seglake.reindex(root, "events", IndexPolicy(0))
    erase(root, "events", ["secret"], vacuum=True, grace_hours=0)
    assert spelled(maker.root / "topics", b"secret") == []
    lake = seglake.open(root, "q3")
    assert seen(lake) == wanted
    log = lake.topic("events")
    assert log.plan_find("k2").by_index == 1
    assert len(log.find("k2").read_all()) == 1
    require_files(maker)


def require_files(maker: LakeMaker) -> None:
    """Whatever a tag names is there, byte for byte."""
    table = open_catalog(str(maker.root))
    for each in table.tags.live():
        snapshot = table.tags.snapshot(each)
        for topic in snapshot.topics():
            for row in table.rows.segments(snapshot, topic.topic):
                for suffix in row.suffixes:
                    content = (maker.root / row.key(suffix)).read_bytes()
                    assert crc32c.crc32c(content) == getattr(row, f"{suffix}_crc32c")


def test_a_lake_that_was_opened_by_a_tag__can_move_on(maker: LakeMaker) -> None:
    root = str(maker.root)
    tag(root, "q3")
    lake = seglake.open(root, "q3")
    _ingest(maker)
    _compact(maker)
    assert seen(lake.refresh()) == seen(seglake.open(root))
    assert lake.version == seglake.open(root).version
    assert seen(seglake.open(root, "q3").reopen()) == seen(lake)


# ------------------------------------------------------------------ what shows tags


def test_tags_are_shown(maker: LakeMaker) -> None:
    root = str(maker.root)
    tag(root, "q3")
    tag(root, "a", 1, until="2099-01-01")
    tags = seglake.open(root).tags()
    assert [(each.name, each.version) for each in tags] == [("a", 1), ("q3", tags[1].version)]
    assert tags.to_arrow()["name"].to_pylist() == ["a", "q3"]
    assert "2099-01-01T00:00:00Z" in str(tags)
    assert all(isinstance(each, TagRow) for each in tags)
    (first, second) = tag_usage(open_catalog(root))
    assert (first.segments, first.held_bytes) == (2, 0)
    assert (second.segments, second.held_segments) == (7, 0)


def test_a_version_whose_rows_of_maintenance_a_vacuum_deleted_is_expired(tmp_path: Path) -> None:
    """Simulation, seed 390001126: no such object, where the version is what is gone."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T)]})
    seglake.alter(str(tmp_path), "events", {"retention.ms": 1})
    table = open_catalog(str(tmp_path))
    old = table.snapshot()
    for number in range(8):
        seglake.alter(str(tmp_path), "events", {"retention.ms": 2 + number})
    gone = {file.path for file in old.files if file.kind == "maintenance"}
    assert gone
    assert not gone & {file.path for file in open_catalog(str(tmp_path)).newest_files()}
    for path in gone:
        (tmp_path / LOG_TABLE / path).unlink()
    with pytest.raises(VersionExpired, match=f"deleted files of version {old.version}"):
        tag(str(tmp_path), "a", old.version)
    assert seglake.open(str(tmp_path)).tags() == []


@pytest.mark.parametrize("tagged", [True, False])
def test_a_log_that_is_missing_sends_the_next_read_to_the_tag(
    maker: LakeMaker, *, tagged: bool
) -> None:
    """A reader that has read nothing yet need not wait until it looks for deletions again."""
    root = str(maker.root)
    version = maker.run({0: [Event(T, b"k1", b"y"), Event(T, b"secret", b"x")]})
    if tagged:
        tag(root, "q3", version)
    log = seglake.open(root, version).topic("events")
    log._origin.deletions._due = math.inf
    erase(root, "events", ["secret"], vacuum=True, grace_hours=0)
    with pytest.raises(VersionExpired):
        log.read_range(None, None).read_all()
    if tagged:
        left = [row for row in seen(seglake.open(root, "q3")) if row[0] == "events"]
        assert log.read_range(None, None).read_all().num_rows == len(left)
    else:
        with pytest.raises(VersionExpired):
            log.read_range(None, None).read_all()


@pytest.mark.parametrize("with_erasure", rest_but([False, True], True))
def test_a_version_that_only_a_tag_holds_can_be_renamed(
    maker: LakeMaker, *, with_erasure: bool
) -> None:
    root = str(maker.root)
    version = maker.run({0: [Event(T, b"secret", b"x"), Event(T, b"k1", b"y")]})
    tag(root, "old", version)
    if with_erasure:
        erase(root, "events", ["secret"], vacuum=True, grace_hours=0)
    _merge(maker)
    sweep(maker.root)
    wanted = seen(seglake.open(root, "old"))
    assert tag(root, "new", version).tagged == version
    new, old = tag_usage(open_catalog(root))
    assert new.erased == old.erased
    assert len(new.erased) == with_erasure
    tag(root, "old", delete=True)
    sweep(maker.root)
    assert seen(seglake.open(root, "new")) == seen(seglake.open(root, version)) == wanted
    assert verify(root).findings == []


def test_renaming_a_tag_that_is_deleted_meanwhile_makes_no_tag(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(maker.root)
    version = tag(root, "old", maker.versions[0]).tagged
    _merge(maker)
    sweep(maker.root)

    delete = partial(tag, root, "old", delete=True)
    before_first(monkeypatch, CatalogCommits, "make", delete)
    with pytest.raises(VersionExpired):
        tag(root, "new", version)
    assert open_catalog(root).tags.live() == []
