"""delta-rs on the catalog: what is digested, what is refused by name, how a repair ends it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.schema import Field, PrimitiveType

from seglake.catalog.delta.actions import WrittenFile, add_action, remove_action
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.quarantine.files import FILE_SCHEMA, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.table import CONTRACT, CatalogTable
from seglake.errors import CommitConflict, CorruptData, VersionExpired
from seglake.layout import new_attempt
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.harness.foreign import (
    assert_digested,
    assert_refused,
    assert_repaired,
    commits,
    made_lake,
    table_of,
)
from tests.harness.meanwhile import before_first
from tests.makers.catalog_rows import commit_rows, run
from tests.makers.lakes import Event, LakeMaker, create_catalog, open_catalog

Change = Callable[[DeltaTable], Any]
ENGINE = r"delta-rs:py-[\d.]+"


def _rows(table: DeltaTable) -> pa.Table:
    return pa.table(table.to_pyarrow_table()).slice(0, 1)


def _set(name: str, value: str) -> Change:
    return lambda table: table.alter.set_table_properties({name: value}, raise_if_not_exists=False)


def _merge(table: DeltaTable) -> Any:
    merged = table.merge(_rows(table), "t.kind = s.kind", source_alias="s", target_alias="t")
    return merged.when_matched_delete().execute()


def test_what_changes_no_row__is_digested(tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    table = DeltaTable(table_of(maker))
    steps: list[Change] = [
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.z_order(["base_offset"]),
        lambda table: table.delete("kind = 'no such'"),
        lambda table: table.alter.add_columns([Field("note", PrimitiveType("string"))]),
        _set("delta.logRetentionDuration", "interval 40 days"),
        lambda table: table.vacuum(dry_run=False),
        lambda table: table.create_checkpoint(),
    ]
    for step in steps:
        step(table)
        table = DeltaTable(table_of(maker))
    made = table.version() - maker.versions[-1]
    assert made >= 4
    assert_digested(maker, made)
    assert "note" in [field.name for field in DeltaTable(table_of(maker)).schema().fields]


CHANGES: dict[str, Change] = {
    "DELETE": lambda table: table.delete("kind = 'source' OR base_offset = 0"),
    "UPDATE": lambda table: table.update({"codec": "'none'"}, predicate="base_offset = 0"),
    "MERGE": _merge,
    "RESTORE": lambda table: table.restore(1),
    "WRITE": lambda table: write_deltalake(table, _rows(table), mode="append"),
    "WRITE ": lambda table: write_deltalake(table, _rows(table), mode="overwrite"),
}


@pytest.mark.parametrize("operation", CHANGES)
def test_what_changes_rows__is_refused(tmp_path: Path, operation: str) -> None:
    maker = made_lake(tmp_path)
    CHANGES[operation](DeltaTable(table_of(maker)))
    named = f"commit 3, {operation.strip()} by {ENGINE}, changed rows of the catalog"
    assert_refused(maker, named)


def test_files_that_are_given_up__are_refused(tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    for path in (maker.root / "catalog/log/kind=segment").rglob("*.parquet"):
        path.unlink()
    DeltaTable(table_of(maker)).repair()
    with pytest.raises(CorruptData, match=f"commit 3, FSCK by {ENGINE}, changed rows"):
        open_catalog(str(maker.root))
    assert_repaired(maker)


REDEFINED: dict[str, tuple[Change, str]] = {
    "change data feed": (_set("delta.enableChangeDataFeed", "true"), r"writer 4|changeDataFeed"),
    "constraint": (
        lambda table: table.alter.add_constraint({"c": "kind != ''"}),
        r"writer 3|checkConstraints",
    ),
    "feature": (
        lambda table: table.alter.add_feature(
            TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
        ),
        "reader 3, writer 7 .*deletionVectors",
    ),
    "append only": (_set("delta.appendOnly", "true"), r"delta\.appendOnly"),
    "log retention": (
        _set("delta.logRetentionDuration", "interval 2 hours"),
        r"delta\.logRetentionDuration = interval 2 hours",
    ),
    "file retention": (
        _set("delta.deletedFileRetentionDuration", "interval 31 days"),
        r"delta\.deletedFileRetentionDuration = interval 31 days",
    ),
    "overwritten schema": (
        lambda table: write_deltalake(
            table,
            pa.table({"kind": ["x"], "topic": ["t"], "a": [1]}),
            mode="overwrite",
            schema_mode="overwrite",
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", REDEFINED)
def test_what_seglake_does_not_obey__is_refused(tmp_path: Path, name: str) -> None:
    maker = made_lake(tmp_path)
    change, problem = REDEFINED[name]
    change(DeltaTable(table_of(maker)))
    assert_refused(maker, f"commit 3, .* by {ENGINE}.*{problem}")


def test_a_property_that_is_set_back__is_forgotten(tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    for value in ("true", "false"):
        _set("delta.appendOnly", value)(DeltaTable(table_of(maker)))
    assert_digested(maker, 2)


def test_a_checkpoint_hides_nothing(tmp_path: Path) -> None:
    """Readers of Delta do not look at commits before a checkpoint."""
    maker = made_lake(tmp_path)
    CHANGES["DELETE"](DeltaTable(table_of(maker)))
    for _ in range(40):
        _set("a", "b")(DeltaTable(table_of(maker)))
    DeltaTable(table_of(maker)).create_checkpoint()
    assert_refused(maker, f"commit 3, DELETE by {ENGINE}, changed rows of the catalog")


def test_what_a_commit_of_ours_followed__is_found_by_verify(tmp_path: Path) -> None:
    """So did Seglake before it looked at commits of others."""
    maker = made_lake(tmp_path)
    CHANGES["DELETE"](DeltaTable(table_of(maker)))
    blind = DeltaLog(maker.store, "catalog/log", CONTRACT._replace(guards=False))
    file = WrittenFile("kind=x/y", 1, {"kind": "x", "topic": "events"}, '{"numRecords": 1}')
    blind.commit(3, [add_action(file)])
    for _ in range(2):
        _set("a", "b")(DeltaTable(table_of(maker)))
    open_catalog(str(maker.root))
    (finding,) = verify(str(maker.root)).findings
    assert "commit 3, DELETE by delta-rs" in finding.problem
    assert finding.file.endswith("_delta_log/00000000000000000003.json")
    assert_repaired(maker)


def test_a_change_while_a_commit_is_made__is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the number that ours would have had."""
    maker = made_lake(tmp_path)
    restore = partial(CHANGES["RESTORE"], DeltaTable(table_of(maker)))
    before_first(monkeypatch, maker.store, "put_if_absent", restore)
    with pytest.raises(CorruptData, match="commit 3, RESTORE by delta-rs"):
        maker.run({1: [Event(9)]})
    assert len(commits(maker)) == 4


def test_a_rearrangement_while_a_commit_is_made__is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = made_lake(tmp_path)
    compact = DeltaTable(table_of(maker)).optimize.compact
    before_first(monkeypatch, maker.store, "put_if_absent", compact)
    assert maker.run({1: [Event(9)]}) == 4
    assert_digested(maker, 0)


def test_a_table_that_is_created_anew__is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    """Its versions have other numbers, so a commit to the old one has nothing to continue."""
    maker = made_lake(tmp_path)
    old = [open_catalog(str(maker.root)) for _ in range(3)]
    for each in old:
        each.snapshot()
    base = old[0].snapshot(1)
    rebuild_catalog(str(maker.root), force=True, dry_run=False)
    attempt = new_attempt()
    row = run("late", attempt, "events")
    there = commits(maker)
    with pytest.raises((VersionExpired, CommitConflict)):
        commit_rows(old[0], [row], base=base, attempt_id=attempt)
    assert commits(maker) == there
    other = LakeMaker(maker.root, partitions=2, versions=[*maker.versions])
    for _ in range(3):  # the new table gets more commits than the old one had
        other.run({0: [Event(1)]})
    with pytest.raises(CommitConflict, match=r"version 1 of .* is too old"):
        commit_rows(old[0], [row], base=base, attempt_id=attempt)
    with pytest.raises(VersionExpired, match="Open the lake again"):
        old[0].snapshot()
    for read in (old[1].snapshot, lambda: old[2].refresh(base), old[2].newest_files):
        with pytest.raises(VersionExpired):
            read()
    assert verify(str(maker.root)).findings == []


def test_an_open__looks_at_the_commits_behind_our_last(tmp_path: Path) -> None:
    """One request where nobody else commits, however long the log is."""
    lake = made_lake(tmp_path)
    store = CountingStore(open_store(str(lake.root)))

    def requests() -> int:
        before = store.counts.requests
        CatalogTable(store)
        return store.counts.requests - before

    assert requests() == 1
    for number in range(30):
        lake.run({0: [Event(number)]})
    assert requests() == 1
    table = CatalogTable(store)
    known, before = table.snapshot(), store.counts.requests
    assert table.refresh(known) is known
    assert store.counts.requests == before + 1  # and one for a commit that is not there
    for _ in range(5):
        _set("a", "b")(DeltaTable(table_of(lake)))
    assert requests() <= 1 + 2 + 4


def test_an_open_of_a_log_without_old_commits__is_no_error(tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    DeltaTable(table_of(maker)).create_checkpoint()
    for path in (maker.root / "catalog/log/_delta_log").glob("*.json"):
        path.unlink()
    snapshot = open_catalog(str(maker.root)).snapshot()
    assert snapshot.version == maker.versions[-1]
    assert verify(str(maker.root)).findings == []


def test_commits__name_their_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = made_lake(tmp_path)
    maker.delete_records(0, 2)
    DeltaTable(table_of(maker)).optimize.compact()
    monkeypatch.setattr("seglake.catalog.delta.file_merges.FAN_IN", 2)
    for number in range(3):
        maker.run({0: [Event(number)]})
    found = [(each["operation"], each.get("engineInfo")) for each in _history(maker)]
    assert found[1:3] == [("WRITE", "Seglake")] * 2
    assert found[3] == ("REPLACE", "Seglake")
    assert set(found[5:]) == {("WRITE", "Seglake"), ("OPTIMIZE", "Seglake")}
    assert found[4][0] == "OPTIMIZE"
    assert found[4][1] != "Seglake"


def _history(maker: LakeMaker) -> list[dict[str, Any]]:
    return list(reversed(DeltaTable(table_of(maker)).history()))


def test_a_file_with_a_deletion_vector__lacks_rows(tmp_path: Path) -> None:
    """Even if the commit says that it changes nothing."""
    maker = made_lake(tmp_path)
    file = next(each for each in maker.catalog.snapshot().files if each.kind == "segment")
    written = WrittenFile(file.path, file.size_bytes, file.partition, '{"numRecords": 1}')
    added = add_action(written, changes=False)
    added["add"]["deletionVector"] = {"storageType": "u", "cardinality": 1}
    lines = [remove_action(file.path, file.size_bytes, file.partition, changes=False), added]
    path = maker.root / f"catalog/log/_delta_log/{3:020}.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(CorruptData, match=r"an unnamed operation by an unnamed program, changed"):
        maker.catalog.refresh(maker.catalog.snapshot(2))


# ------------------------------------------------------------------------------- the quarantine


def _rejects(attempt: str) -> pa.Table:
    row = {"attempt_id": attempt, "source_file": "f", "line": 1, "reason": "r", "raw": b"x",
           "ingested_at_ms": 1}  # fmt: skip
    return pa.Table.from_pylist([row] * 3, FILE_SCHEMA)


def _quarantined(folder: Path) -> tuple[QuarantineTable, str, DeltaTable]:
    store = create_catalog(str(folder)).store
    table, attempt = QuarantineTable(store), new_attempt()
    for _ in range(2):
        table.add_files([write_rejects(store, "events", attempt, _rejects(attempt))], attempt)
    return table, attempt, DeltaTable(str(folder / "catalog/quarantine"))


def test_rejects__may_be_deleted_by_others(tmp_path: Path) -> None:
    table, attempt, others = _quarantined(tmp_path)
    others.optimize.compact()
    others.alter.add_columns([Field("note", PrimitiveType("string"))])
    others.delete("line = 2")
    assert sum(map(len, table.read("events", {attempt}))) == 6
    others.delete("line = 1")
    assert sum(map(len, table.read("events", {attempt}))) == 0
    store = open_store(str(tmp_path))
    table.add_files([write_rejects(store, "events", attempt, _rejects(attempt))], attempt)
    assert sum(map(len, table.read("events", {attempt}))) == 3


def test_a_quarantine_that_seglake_does_not_obey__is_refused(tmp_path: Path) -> None:
    table, attempt, others = _quarantined(tmp_path)
    others.alter.add_feature(TableFeatures.RowTracking, allow_protocol_versions_increase=True)
    before = others.version()
    store = open_store(str(tmp_path))
    file = write_rejects(store, "events", attempt, _rejects(attempt))
    with pytest.raises(CorruptData, match=r"the quarantine has .*rowTracking.*move the folder"):
        table.add_files([file], attempt)
    with pytest.raises(CorruptData, match=r"the quarantine has .*rowTracking"):
        list(table.read("events", {attempt}))
    assert DeltaTable(others.table_uri).version() == before
    (tmp_path / "catalog/quarantine").rename(tmp_path / "aside")
    table.add_files([write_rejects(store, "events", attempt, _rejects(attempt))], attempt)
    assert sum(map(len, table.read("events", {attempt}))) == 3
