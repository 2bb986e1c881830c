"""Commits are atomic, exclusive per topic, and readable as ordinary Delta."""

import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import seglake
from seglake.catalog import table as catalog_table
from seglake.catalog.attempts import Manifest, read_manifest
from seglake.catalog.delta import commit_log, delta_rs, file_merges
from seglake.catalog.delta.actions import WrittenFile, add_action
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.retention import UnreferencedFiles, expired_files, retained_rows
from seglake.catalog.schema import PartitionRow, Row, SegmentId, SegmentRow
from seglake.catalog.table import CONTRACT, CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import EMPTY, Snapshot
from seglake.errors import (
    CommitConflict,
    CorruptData,
    SeglakeError,
    StoreError,
    UsageError,
    VersionExpired,
)
from seglake.layout import success_key
from seglake.maintain.health.repair import rebuild_catalog
from seglake.store import Listed, open_store
from tests.harness.meanwhile import before_first
from tests.makers.catalog_rows import append, commit_rows, new_attempt, run, segment, source, topic
from tests.makers.lakes import Event, LakeMaker, T, create_catalog, open_catalog


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _merge(catalog: CatalogTable, fan_in: int = 2) -> int:
    """What commits do by themselves once there are enough files; returns how many went."""
    snapshot = catalog.snapshot()
    groups = file_merges.groups_to_merge(snapshot.files, fan_in)
    file_merges.merge_groups(
        DeltaLog(catalog.store, "catalog/log", CONTRACT), snapshot.version, groups
    )
    return sum(map(len, groups))


def _expired(
    catalog: CatalogTable, hours: int | None = None, before_ms: float = math.inf
) -> list[Listed]:
    return expired_files(
        catalog, UnreferencedFiles.from_table(catalog, hours, now_ms=_now_ms()), before_ms
    )


def _vacuum(catalog: CatalogTable) -> int:
    """Expire every version but the newest; returns how many data files went."""
    keys = [found.key for found in _expired(catalog, 0)]
    catalog.store.delete(keys)
    return len(keys)


def _listed(snapshot: Snapshot) -> list[object]:
    return [
        (
            *(view.topic, view.partition, view.log_start_offset, view.end_offset, view.sequence),
            *(view.segment(n) for n in range(len(view))),
        )
        for row in snapshot.topics()
        for view in snapshot.partitions(row.topic)
    ]


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogTable:
    return create_catalog(str(tmp_path / "lake"))


def test_open__without_a_lake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Check the path. An ingest creates a lake"):
        open_catalog(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_create__lists_three_empty_folders_of_a_new_lake_and_none_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    real = type(open_store(str(tmp_path))).list

    def listing(store: Any, prefix: str = "") -> Any:
        listed.append(prefix)
        return real(store, prefix)

    monkeypatch.setattr(type(open_store(str(tmp_path))), "list", listing)
    catalog = create_catalog(str(tmp_path))
    assert listed == ["attempts", "chronicles", "catalog/log/_delta_log"]
    listed.clear()
    append(catalog, catalog.snapshot(), 5)
    create_catalog(str(tmp_path))
    open_catalog(str(tmp_path))
    assert listed == []


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("left", ["nothing", "temporary"])
def test_a_catalog_that_is_gone__is_not_taken_for_a_new_one(
    catalog: CatalogTable, marked: bool, left: str
) -> None:
    root = Path(catalog.store.uri)
    _, attempt = append(catalog, catalog.snapshot(), 5)
    if not marked:
        (root / success_key(attempt)).unlink()
    shutil.rmtree(root / "catalog/log")
    if left == "temporary":
        (root / "catalog/log/_delta_log").mkdir(parents=True)
        (root / f"catalog/log/_delta_log/{0:020}.json.{'a' * 32}.tmp").write_bytes(b"")
    for begin in (create_catalog, open_catalog):
        with pytest.raises(CorruptData, match=f"is missing.* repair {root} --catalog"):
            begin(str(root))
    assert not list(root.glob("catalog/log/_delta_log/*.json"))


def test_a_catalog_that_another_process_creates_meanwhile__is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def created() -> None:
        other = create_catalog(str(tmp_path))
        append(other, other.snapshot(), 5)

    before_first(monkeypatch, catalog_table, "_was_used", created)
    catalog = create_catalog(str(tmp_path))
    assert catalog.snapshot().partition("orders", 0).end_offset == 5


def test_create__twice_is_one_lake_at_the_level_of_every_reader(tmp_path: Path) -> None:
    first = create_catalog(str(tmp_path))
    append(first, first.snapshot(), 5)
    assert create_catalog(str(tmp_path)).snapshot().partition("orders", 0).end_offset == 5
    table = DeltaTable(str(tmp_path / "catalog/log"))
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features
    assert table.metadata().partition_columns == ["kind", "topic"]
    assert table.metadata().configuration["seglake.format"] == "6"
    assert all("timestamp" not in str(field.type) for field in table.schema().fields)


def test_open__refuses_another_format(tmp_path: Path) -> None:
    create_catalog(str(tmp_path))
    table = DeltaTable(str(tmp_path / "catalog/log"))
    table.alter.set_table_properties({"seglake.format": "5"}, raise_if_not_exists=False)
    with pytest.raises(UsageError, match=r"seglake\.format = 5"):
        open_catalog(str(tmp_path))


def test_commit__makes_all_rows_visible_at_one_version(catalog: CatalogTable) -> None:
    empty = catalog.snapshot()
    version, attempt = append(catalog, empty, 5)
    snapshot = catalog.snapshot()
    assert snapshot.version == version == empty.version + 1
    assert snapshot.partition("orders", 0).segment(0).attempt_id == attempt
    assert catalog.rows.runs(empty, "orders") == []
    assert catalog.rows.run(snapshot, "orders", "daily", f"run {attempt}") == run(
        f"run {attempt}", attempt
    )
    assert catalog.rows.run(snapshot, "orders", "daily", "another") is None
    assert [row.attempt_id for row in catalog.rows.runs(snapshot, "orders")] == [attempt]
    assert catalog.rows.all(snapshot, "source", "orders")["path"].to_pylist() == [f"in/{attempt}"]
    assert catalog.rows.segments(snapshot, "orders") == [segment(0, 5, attempt_id=attempt)]


def test_commit__that_lost_a_race_is_refused_and_changes_nothing(catalog: CatalogTable) -> None:
    append(catalog, catalog.snapshot(), 5)
    base = catalog.snapshot()
    append(catalog, base, 5)
    won = catalog.snapshot()
    with pytest.raises(CommitConflict, match="came first"):
        append(catalog, base, 7)
    assert _listed(catalog.snapshot()) == _listed(won)
    append(catalog, catalog.snapshot(), 7)
    assert catalog.snapshot().partition("orders", 0).end_offset == 17


def test_commit__after_a_lost_reply_is_found(
    catalog: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(catalog, catalog.snapshot(), 5)
    base = catalog.snapshot()
    real = catalog.store.put_if_absent

    def lose_the_reply(key: str, data: Any) -> bool:
        if real(key, data) and "/_delta_log/" not in key:
            return True
        raise StoreError("connection reset")

    attempt = new_attempt()
    rows: list[Row] = [segment(5, 9, attempt_id=attempt), run("r", attempt)]
    with monkeypatch.context() as patch:
        patch.setattr(catalog.store, "put_if_absent", lose_the_reply)
        with pytest.raises(StoreError, match="reset"):
            commit_rows(catalog, rows, base=base, attempt_id=attempt)
    after = catalog.refresh(base)
    assert attempt in [row.attempt_id for row in catalog.rows.runs(after, "orders")]
    with pytest.raises(CommitConflict):  # trying again without looking is caught as well
        commit_rows(catalog, rows, base=base, attempt_id=attempt)
    assert after.partition("orders", 0).end_offset == 9


BAD: list[tuple[Sequence[Row], type[Exception], str]] = [
    ([], UsageError, "rows of this topic only"),
    ([segment(5, 9, topic="other")], UsageError, "this topic only"),
    ([segment(6, 9)], CorruptData, "no segment covers offsets 5 to 6"),
    ([segment(4, 9)], CorruptData, "two segments cover offsets 4 to 5"),
    ([segment(5, 7), segment(8, 9)], CorruptData, "offsets 7 to 8"),
    ([segment(0, 9, partition=2)], CorruptData, "partitions 0 to 1"),
    ([segment(5, 9, attempt_id="../x")], UsageError, "UUID"),
    ([topic(sequence=1)], UsageError, "not newer"),
    ([topic(sequence=2, partitions=1)], UsageError, "cannot be lowered"),
    (
        [PartitionRow(topic="orders", partition=0, sequence=1, log_start_offset=0, next_offset=4)],
        UsageError,
        "a step back",
    ),
    (
        [PartitionRow(topic="orders", partition=0, sequence=1, log_start_offset=0, next_offset=6)],
        CorruptData,
        "offsets 5 to 6",
    ),
]


@pytest.mark.parametrize(("rows", "error", "message"), BAD)
def test_commit__refuses_what_would_break_the_log(
    catalog: CatalogTable, rows: Sequence[Row], error: type[Exception], message: str
) -> None:
    append(catalog, catalog.snapshot(), 5)
    base = catalog.snapshot()
    with pytest.raises(error, match=message):
        catalog.commits.make(Change(rows), topic="orders", base=base, attempt_id=new_attempt())
    assert catalog.refresh(base) is base


def test_replacing_a_segment_that_is_not_there__is_refused(catalog: CatalogTable) -> None:
    append(catalog, catalog.snapshot(), 5)
    base, attempt = catalog.snapshot(), new_attempt()
    merged = segment(0, 5, attempt_id=attempt)
    with pytest.raises(UsageError, match="has no segment at one"):
        commit_rows(catalog, [merged], base=base, attempt_id=attempt, replaced=[(0, 3)])


def test_replacing_commits__pass_other_topics_and_no_merge_of_their_own(
    catalog: CatalogTable,
) -> None:
    for _ in range(2):
        append(catalog, catalog.snapshot(), 5)
    base = catalog.snapshot()
    attempt = new_attempt()
    merged = [segment(0, 10, attempt_id=attempt)]
    change: Any = {"attempt_id": attempt, "replaced": [(0, 0), (0, 5)]}
    append(catalog, base, 5, "another")
    _merge(catalog)
    with pytest.raises(CommitConflict):
        commit_rows(catalog, merged, base=base, **change)
    base = catalog.snapshot()
    assert base.partition("orders", 0).segments.base_offsets.tolist() == [0, 5]
    append(catalog, base, 5, "another")
    assert commit_rows(catalog, merged, base=base, **change) == base.version + 2
    assert catalog.snapshot().partition("orders", 0).segments.base_offsets.tolist() == [0]


def test_merge__fails_once_a_commit_replaced_what_it_read(catalog: CatalogTable) -> None:
    for _ in range(2):
        append(catalog, catalog.snapshot(), 5)
    base, attempt = catalog.snapshot(), new_attempt()
    merged = [segment(0, 10, attempt_id=attempt)]
    commit_rows(catalog, merged, base=base, attempt_id=attempt, replaced=[(0, 0), (0, 5)])
    log = DeltaLog(catalog.store, "catalog/log", CONTRACT)
    with pytest.raises(CommitConflict):
        file_merges.merge_groups(log, base.version, file_merges.groups_to_merge(base.files, 2))
    assert catalog.snapshot().partition("orders", 0).segments.base_offsets.tolist() == [0]


def test_merge__changes_no_row_and_fails_no_running_ingest(catalog: CatalogTable) -> None:
    for number in range(6):
        append(catalog, catalog.snapshot(), 5, f"topic-{number % 2}")
    base = catalog.snapshot()
    before = _listed(base)
    assert _merge(catalog, 4) == 0
    assert _merge(catalog, 3) == 18
    assert _merge(catalog, 2) == 0
    merged = catalog.refresh(base)
    assert len(merged.files) == 8
    assert _listed(merged) == before
    assert len(catalog.rows.runs(merged, "topic-1")) == 3
    append(catalog, base, 5, "topic-0")
    assert catalog.snapshot().partition("topic-0", 0).end_offset == 20


def test_commit__is_made_though_its_files_cannot_be_merged(
    catalog: CatalogTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_merges, "FAN_IN", 2)
    base = catalog.snapshot()
    append(catalog, base, 5)
    (path,) = (file.path for file in catalog.snapshot().files if file.kind == "source")
    (Path(catalog.store.uri) / "catalog/log" / path).write_bytes(b"damaged")
    append(catalog, catalog.snapshot(), 5)
    assert path in caplog.text
    assert catalog.snapshot().partition("orders", 0).end_offset == 10
    assert catalog.snapshot().version == base.version + 2


def test_vacuumed_version__has_expired(catalog: CatalogTable) -> None:
    for _ in range(3):
        append(catalog, catalog.snapshot(), 5)
    old = catalog.snapshot()
    _merge(catalog)
    assert _vacuum(catalog) >= 9
    with pytest.raises(VersionExpired, match="version 3"):
        catalog.snapshot(old.version)
    assert _listed(catalog.snapshot()) == _listed(old)


def test_newest_version__that_is_vacuumed_while_it_is_read(
    catalog: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one behind it is read."""
    for _ in range(3):
        append(catalog, catalog.snapshot(), 5)
    wanted = _listed(catalog.snapshot())

    def vacuumed() -> None:
        _merge(catalog)
        _vacuum(catalog)

    before_first(monkeypatch, snapshot_files, "load", vacuumed)
    assert _listed(CatalogTable.open(catalog.store).snapshot()) == wanted


def test_newest_version__whose_files_are_lost(catalog: CatalogTable) -> None:
    append(catalog, catalog.snapshot(), 5)
    for file in Path(catalog.store.uri, "catalog/log").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(VersionExpired, match="does not exist"):
        CatalogTable.open(catalog.store).snapshot()


def test_commit__is_written_down_before_and_marked_after(
    catalog: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(catalog.store.uri)
    _, first = append(catalog, catalog.snapshot(), 5)
    base, attempt = catalog.snapshot(), new_attempt()
    bounds = PartitionRow(
        topic="orders", partition=0, sequence=1, log_start_offset=5, next_offset=5
    )
    rows: list[Row] = [bounds, run("r", attempt), source("in/a", attempt)]
    change: Any = {"attempt_id": attempt, "replaced": [(0, 0)]}

    real = catalog.store.put_if_absent

    def fail(key: str, data: bytes) -> bool:
        if "/_delta_log/" in key:
            raise StoreError("no answer")
        return real(key, data)

    with monkeypatch.context() as patch:
        patch.setattr(catalog.store, "put_if_absent", fail)
        with pytest.raises(StoreError):
            commit_rows(catalog, rows, base=base, **change)
    assert not list(store.list(f"attempts/{attempt}/success"))
    gone = SegmentId("orders", 0, 0, first, first)
    assert read_manifest(store, attempt) == Manifest(
        attempt, rows, [gone], [], base.version + 1, catalog.lake
    )
    commit_rows(catalog, rows, base=base, **change)
    assert store.size(success_key(attempt)) == 0
    kinds = [row.KIND for row in read_manifest(store, first).rows]
    assert sorted(kinds) == ["run", "segment", "source", "topic"]
    assert read_manifest(store, first).replaced == []


def test_rebuilt__whatever_reaches_the_old_table_late(
    catalog: CatalogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit to the table that is gone does not count, before the renumbering or after it."""
    attempt = new_attempt()
    rows: list[Row] = [topic(), segment(0, 5, attempt_id=attempt), run("r", attempt)]
    stray = json.dumps({"add": {"path": "gone.parquet"}}).encode()
    store, real = open_store(f"{catalog.store.uri}-anew"), delta_rs.renumber

    def late(*asked: Any) -> None:
        store.put_if_absent(f"catalog/log/_delta_log/{2:020}.json", stray)
        real(*asked)
        store.put_if_absent(f"catalog/log/_delta_log/{1:020}.json", stray)

    monkeypatch.setattr(delta_rs, "renumber", late)
    assert CatalogTable.create_from_rows(store, {"orders": rows}, 7, "") == 7
    found = CatalogTable.open(store).snapshot()
    assert (found.version, found.partition("orders", 0).end_offset) == (7, 5)


def test_retained__has_the_rows_of_every_version_that_can_be_read(catalog: CatalogTable) -> None:
    def bases(hours: int | None = None) -> list[int]:
        expired = {item.key for item in _expired(catalog, hours)}
        tables = [each.rows for each in retained_rows(catalog, "segment", expired)]
        found: list[Any] = [base for table in tables for base in table["base_offset"].to_pylist()]
        return sorted(set(found))

    for _ in range(3):
        append(catalog, catalog.snapshot(), 5)
    _merge(catalog)
    end = PartitionRow(topic="orders", partition=0, sequence=1, log_start_offset=5, next_offset=15)
    commit_rows(catalog, [end], replaced=[(0, 0)])
    assert bases() == [0, 5, 10]
    assert bases(0) == [5, 10]
    _vacuum(catalog)
    assert bases() == [5, 10]


def test_expired__leaves_out_what_a_commit_may_be_about_to_name(catalog: CatalogTable) -> None:
    append(catalog, catalog.snapshot(), 5)
    named = {file.path for file in catalog.snapshot().files}
    old, new = (catalog.store.uri + f"/catalog/log/kind=run/topic=orders/{n}" for n in "ab")
    for path, time_s in ((old, 1000), (new, 2000)):
        Path(path).write_bytes(b"x")
        os.utime(path, (time_s, time_s))
    found = _expired(catalog, 0, 1_999_999)
    assert [Path(catalog.store.uri, each.key) for each in found] == [Path(old)]
    assert {file.path for file in catalog.snapshot().files} == named
    assert _expired(catalog, before_ms=0) == []


def test_version_whose_log_is_gone__has_expired(catalog: CatalogTable, tmp_path: Path) -> None:
    for _ in range(3):
        append(catalog, catalog.snapshot(), 5)
    log = tmp_path / "lake/catalog/log"
    DeltaTable(str(log)).create_checkpoint()
    for version in range(3):
        (log / f"_delta_log/{version:020d}.json").unlink()
    with pytest.raises(VersionExpired, match="version 1"):
        catalog.snapshot(1)
    assert open_catalog(str(tmp_path / "lake")).snapshot().version == 3


def _way_ahead(catalog: CatalogTable, _: pytest.MonkeyPatch) -> None:
    """So many commits that all that there is is read instead."""
    for _number in range(4):
        append(catalog, catalog.snapshot(), 5)


def _cleaned_up(catalog: CatalogTable, patch: pytest.MonkeyPatch) -> None:
    """What followed is gone from the log, as after a month."""
    patch.setattr(commit_log, "CHECKPOINT_INTERVAL", 2)
    long_ago = time.time() - 40 * 86_400
    log = Path(catalog.store.uri) / "catalog/log/_delta_log"
    for _number in range(3):
        for path in log.iterdir():
            os.utime(path, (long_ago, long_ago))
        append(catalog, catalog.snapshot(), 5)
    assert not (log / f"{1:020}.json").exists()


def _vacuumed(catalog: CatalogTable, _: pytest.MonkeyPatch) -> None:
    """What was added since is merged, and deleted."""
    append(catalog, catalog.snapshot(), 5)
    _merge(catalog)
    _vacuum(catalog)


@pytest.mark.parametrize("happened", [_way_ahead, _cleaned_up, _vacuumed])
def test_refresh__that_cannot_go_on_loads_everything(
    catalog: CatalogTable, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    monkeypatch.setattr(catalog_table, "_REFRESH_COMMITS", 3)
    append(catalog, catalog.snapshot(), 5)
    old = catalog.snapshot()
    happened(catalog, monkeypatch)
    assert _listed(catalog.refresh(old)) == _listed(catalog.snapshot()) != _listed(old)
    assert catalog.refresh(old).version == catalog.snapshot().version


def test_refresh__refuses_another_format(catalog: CatalogTable) -> None:
    old = catalog.snapshot()
    native = DeltaTable(f"{catalog.store.uri}/catalog/log")
    native.alter.set_table_properties({"seglake.format": "5"}, raise_if_not_exists=False)
    with pytest.raises(UsageError, match=r"seglake\.format = 5"):
        catalog.refresh(old)


FORGED: dict[str, Any] = {
    "path up": {"path": "../../../outside.parquet"},
    "path of the system": {"path": "/etc/hostname"},
    "no topic": {"partitionValues": {"kind": "segment"}},
    "topic up": {"partitionValues": {"kind": "topic", "topic": "../../x"}},
    "no partition": {"partitionValues": 3},
    "no numbers": {"stats": "[]"},
}


@pytest.mark.parametrize("name", FORGED)
def test_refresh__reads_no_forged_commit(catalog: CatalogTable, name: str) -> None:
    old = catalog.snapshot()
    append(catalog, old, 5)
    path = Path(catalog.store.uri, f"catalog/log/_delta_log/{1:020}.json")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"] |= FORGED[name]
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(SeglakeError):
        catalog.refresh(old)


def test_rows_of_a_kind_that_is_not_known__are_left_alone(catalog: CatalogTable) -> None:
    old = catalog.snapshot()
    unknown = add_action(
        WrittenFile("kind=x/y", 1, {"kind": "x", "topic": "orders"}, '{"numRecords": 1}')
    )
    DeltaLog(catalog.store, "catalog/log", CONTRACT).commit(0, [unknown])
    append(catalog, old, 5)
    assert _listed(catalog.refresh(old)) == _listed(catalog.snapshot())
    assert catalog.refresh(old).files == catalog.snapshot().files


def test_segments__of_an_unknown_topic_are_none(catalog: CatalogTable) -> None:
    assert catalog.rows.segments(catalog.snapshot(), "none") == []
    assert catalog.rows.all(EMPTY, "source", "none").column_names[:2] == ["path", "size_bytes"]
    assert SegmentRow.KIND == "segment"


# The identity of a lake: given once, kept by everything that keeps the lake.


def made(root: Path, runs: int) -> LakeMaker:
    maker = LakeMaker(root)
    for _ in range(runs):
        maker.run({0: [Event(T)]})
    return maker


def identity(root: Path) -> str:
    return seglake.open(str(root)).identity


@pytest.mark.parametrize("lost", [False, True])
def test_an_identity_stays(lost: bool, tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    opened = seglake.open(str(tmp_path))
    maker.run({0: [Event(T)]})
    first = identity(tmp_path)
    assert opened.refresh().identity == first
    maker.run({0: [Event(T)]})
    if lost:
        shutil.rmtree(tmp_path / "catalog/log")
    rebuild_catalog(str(tmp_path), force=True, dry_run=False)
    assert identity(tmp_path) == first
    assert uuid.UUID(first).version == 4
    LakeMaker(tmp_path).run({0: [Event(T)]})
    assert identity(tmp_path) == first


def test_two_lakes_have_two(tmp_path: Path) -> None:
    for name in "ab":
        LakeMaker(tmp_path / name).run({0: [Event(T)]})
    assert identity(tmp_path / "a") != identity(tmp_path / "b")


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 3), (1, 30), (3, 30)])
def test_an_open_lake_never_becomes_another_one(tmp_path: Path, before: int, after: int) -> None:
    """With a checkpoint (thirty versions), delta-rs goes on with the table that is there."""
    root = tmp_path / "lake"
    made(root, before)
    lake = seglake.open(str(root))
    log, identity = lake.topic("events"), lake.identity
    shutil.rmtree(root)
    made(root, after)
    for _ in range(2):
        for act in (lake.refresh, lake.reopen):
            with pytest.raises(VersionExpired):
                act()
        for version in {*range(1, after + 1)} - {before}:
            with pytest.raises((VersionExpired, UsageError)):
                log.at(version)
        assert lake.identity == identity


def test_an_open_catalog_never_becomes_the_rebuilt_one(tmp_path: Path) -> None:
    catalog = made(tmp_path, 1).catalog
    rebuild_catalog(str(tmp_path), dry_run=False, force=True)
    newest = seglake.open(str(tmp_path)).version
    for version in (None, newest, None, newest):
        with pytest.raises(VersionExpired):
            catalog.snapshot(version)
