"""A published table has exactly the records of the version of the lake that it names."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.config import Input
from seglake.errors import ConfigError, CorruptData, UsageError
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.publish.columns import TableColumns
from seglake.write.input.content import InputStore
from seglake.write.input.listing import find_inputs
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.lives import ACTS, PARTITIONS, TOPICS, Life
from tests.makers.published import FIELDS, log_rows, require_equal, table_rows
from tests.makers.tiered_bucket import tier

SMALL = Shape(batch_bytes=100, segment_bytes=400)


def event(number: int, key: bytes = b"k", **more: Any) -> Event:
    value = {"n": number, "user": f"u{number % 7}", **more}
    return Event(1_000_000 + number, key, json.dumps(value).encode(), (("h", b"x"),))


def make(root: Path, runs: int = 2, **settings: object) -> LakeMaker:
    maker = LakeMaker(root, partitions=2, settings=settings)
    for run in range(runs):
        first = run * 40
        maker.run(
            {p: [event(first + n, b"k%d" % (n % 5)) for n in range(40)] for p in (0, 1)}, SMALL
        )
    return maker


def publish(root: Path | str, **options: Any) -> Any:
    return seglake.publish(str(root), "events", **{"fields": FIELDS, **options})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    make(tmp_path / "lake")
    publish(tmp_path / "lake")
    return tmp_path / "lake"


# ---------------- the whole life of a lake


@given(seed=st.integers(0, 2**32), acts=st.integers(2, 12))
def test_table_equals_the_log_through_every_lifecycle(
    tmp_path_factory: pytest.TempPathFactory, seed: int, acts: int
) -> None:
    chance, root = random.Random(seed), tmp_path_factory.mktemp("life") / "lake"
    life = Life(LakeMaker(root, TOPICS[0], PARTITIONS))
    ACTS[0](life, chance)
    shown = -1
    for _ in range(acts):
        chance.choice(ACTS)(life, chance)
        life.maker.topic = TOPICS[0]
        if chance.random() < 0.6:
            seglake.publish(life.root, TOPICS[0], fields=FIELDS, value=False)
            require_equal(life.root, TOPICS[0])
            status = seglake.open(life.root).table(TOPICS[0])
            assert (status.segments_behind, status.files_ahead) == (0, 0)
            assert status.lake_version >= shown
            shown = status.lake_version


def test_only_new_segments_are_decoded(lake: Path, tmp_path: Path) -> None:
    assert publish(lake).status == "already done"
    LakeMaker(lake, partitions=2).run({0: [event(900)]})
    done = publish(lake)
    assert (done.added, done.removed, done.rows, done.data_change) == (1, 0, 1, True)
    require_equal(str(lake), "events")


def test_merge_changes_no_data_and_reindex_changes_nothing(lake: Path) -> None:
    seglake.reindex(str(lake), "events")
    assert publish(lake).status == "already done"
    seglake.merge(str(lake), "events", everything=True)
    done = publish(lake)
    assert (done.added, done.data_change) == (2, False)
    require_equal(str(lake), "events")
    newest = sorted((lake / "tables/events/_delta_log").glob("*.json"))[-1].read_text()
    assert '"dataChange": true' not in newest


def test_merge_after_an_undo_changes_no_data(lake: Path) -> None:
    seglake.undo(str(lake), "events", "run 1", force=True)
    publish(lake)
    seglake.merge(str(lake), "events", everything=True)
    done = publish(lake)
    assert (done.added, done.data_change) == (2, False)
    LakeMaker(lake, partitions=2).run({0: [event(n) for n in range(3)]})
    seglake.erase(str(lake), "events", ["k3"])
    seglake.merge(str(lake), "events", everything=True)
    assert publish(lake).data_change
    require_equal(str(lake), "events")


def test_log_start_in_a_segment_replaces_its_file(lake: Path) -> None:
    LakeMaker(lake, topic="events", partitions=2).delete_records(0, 3)
    done = publish(lake)
    assert (done.added, done.removed, done.data_change) == (1, 1, True)
    require_equal(str(lake), "events")


def test_segment_without_a_visible_record_has_no_file(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [event(0), event(1), event(2)._replace(gap=10)]})
    seglake.erase(str(tmp_path / "lake"), "events", ["k"])
    maker.run({0: [event(3, b"other")._replace(gap=0)]})
    assert publish(tmp_path / "lake").added == 1
    maker.run({0: [event(4, b"gone"), event(5, b"kept"), event(6, b"gone")]})
    seglake.erase(str(tmp_path / "lake"), "events", ["gone"])
    maker.delete_records(0, 16)  # after the last record of a segment that has records
    assert publish(tmp_path / "lake").removed == 1
    require_equal(str(tmp_path / "lake"), "events")
    assert publish(tmp_path / "lake").status == "already done"
    assert seglake.open(str(tmp_path / "lake")).table("events").segments_behind == 0


def test_a_run_that_was_undone_or_erased_leaves_the_table(lake: Path) -> None:
    seglake.undo(str(lake), "events", "run 1", force=True)
    publish(lake)
    require_equal(str(lake), "events")
    seglake.erase(str(lake), "events", ["k3"])
    publish(lake)
    table = require_equal(str(lake), "events")
    assert b"k3" not in {*table.to_pyarrow_table()["key"].to_pylist()}


def test_segments_that_only_a_tag_holds_are_not_published(lake: Path) -> None:
    seglake.tag(str(lake), "before")
    held = len(log_rows(str(lake), "events"))
    seglake.undo(str(lake), "events", "run 1", force=True)
    assert publish(lake).removed
    assert publish(lake, replace=True).rows == held // 2
    require_equal(str(lake), "events")


def test_rebuilt_lake_continues_above_what_tables_show(lake: Path) -> None:
    for _ in range(3):  # versions without a manifest
        seglake.open(str(lake))._origin._catalog.commits.fence()
    LakeMaker(lake, partitions=2).run({0: [event(900)]})
    publish(lake)
    shown = seglake.open(str(lake)).table("events").lake_version
    shutil.rmtree(lake / "catalog/log")
    done = rebuild_catalog(str(lake), dry_run=False)
    assert done.version > shown
    assert seglake.publish(str(lake), "events").status == "already done"
    LakeMaker(lake, partitions=2).run({1: [event(901)]})
    assert seglake.publish(str(lake), "events").added == 1
    require_equal(str(lake), "events")


def test_spark_free_readers_read_the_same_rows(lake: Path) -> None:
    uri, count = f"{lake}/tables/events", len(log_rows(str(lake), "events"))
    assert len(table_rows(uri)[0]) == count
    frame = pl.read_delta(uri).sort("partition", "offset")
    assert frame["n"].to_list() == [row[5] for row in log_rows(str(lake), "events")]
    files = DeltaTable(uri).file_uris()
    found: Any = duckdb.sql(f"SELECT count(*), sum(n) FROM read_parquet({files!r})")
    assert found.fetchall()[0] == (count, sum(each[5] for each in log_rows(str(lake), "events")))


# ---------------- columns


def test_values_that_do_not_fit_are_null_and_counted(tmp_path: Path) -> None:
    maker, most = LakeMaker(tmp_path / "lake"), (2**63 - 1) // 1000
    maker.run({0: [
        Event(-1, b"a", b'{"n": 1}'), Event(most, None, b'{"n": "x"}'),
        Event(most + 1, b"\xff", b"no json"), Event(5, "ä".encode(), None),
    ]})  # fmt: skip
    done = publish(tmp_path / "lake", key="string", timestamp_ms=True, value=True)
    assert done.misfits == {"timestamp": 1, "key": 1, "n": 2, "of": 1}
    (file,) = (tmp_path / "lake/tables/events").glob("*.parquet")
    rows = pq.read_table(file)
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [None, most * 1000, None, 5000]
    assert rows["timestamp_ms"].to_pylist() == [None, most, most + 1, 5]
    assert rows["key"].to_pylist() == ["a", None, None, "ä"]
    assert rows["n"].to_pylist() == [1, None, None, None]
    assert rows["value"].to_pylist()[3] is None
    with pytest.raises(UsageError, match="partition 0, offset 2"):
        publish(tmp_path / "lake", fields={}, key="string", strict=True)


@pytest.mark.parametrize(
    "fields",
    [{"Offset": "int64"}, {"a": "string", "A": "string"}, {"a b": "string"}, {"": "string"},
     {"value": "string"}, {"a": ("x", "string"), "b": ("x", "int8")}, {"a": "decimal"}],
)  # fmt: skip
def test_impossible_columns_are_refused_before_anything_is_written(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    make(tmp_path / "lake", 1)
    with pytest.raises(UsageError):
        publish(tmp_path / "lake", fields=fields)
    assert not (tmp_path / "lake/tables").exists()
    assert not seglake.open(str(tmp_path / "lake")).maintenance("events")


def test_fields_of_a_command_line_have_types_and_names() -> None:
    asked = TableColumns.parse("user, status:int32,at=created at:timestamp,a.b=a.b")
    assert asked == {
        "user": ("user", "string"), "status": ("status", "int32"),
        "at": ("created at", "timestamp"), "a.b": ("a.b", "string"),
    }  # fmt: skip


def test_other_columns_are_a_new_publish(lake: Path) -> None:
    before = {*(path.name for path in (lake / "tables/events").glob("*.parquet"))}
    done = seglake.publish(str(lake), "events", fields=["user"], value=True)
    assert done.added == done.removed == len(before)
    names = DeltaTable(f"{lake}/tables/events").schema().to_arrow().names
    assert (names[-2:], publish(lake, fields=None).status) == (["user", "value"], "already done")


def test_narrowed_type_is_null_where_it_does_not_fit(lake: Path) -> None:
    LakeMaker(lake, partitions=2).run({0: [event(2**40)]})
    assert publish(lake, fields={"n": "int32"}).misfits == {"n": 1}
    assert DeltaTable(f"{lake}/tables/events").to_pyarrow_table()["n"].null_count == 1


# ---------------- other writers, other lakes


def _append(uri: str) -> None:
    rows = DeltaTable(uri).to_pyarrow_table().slice(0, 3)
    write_deltalake(uri, rows, mode="append")


def _optimize(uri: str) -> None:
    DeltaTable(uri).optimize.compact()


def _delete(uri: str) -> None:
    DeltaTable(uri).delete("n % 2 = 0")


def _restore(uri: str) -> None:
    DeltaTable(uri).restore(0)


@pytest.mark.parametrize("change", [_append, _optimize, _delete, _restore])
def test_what_other_programs_changed_is_named_and_mended(
    lake: Path, change: Callable[[str], None]
) -> None:
    change(f"{lake}/tables/events")
    done = publish(lake)
    assert done.mended
    assert done.status == "committed"
    require_equal(str(lake), "events")
    assert publish(lake).status == "already done"


def test_changes_before_a_fence_are_named(lake: Path) -> None:
    for change in (_append, _optimize):
        change(f"{lake}/tables/events")
        seglake.erase(str(lake), "events", ["nobody"])  # commits a fence to the table
    named = [each for each in publish(lake).mended if each.startswith("commit ")]
    assert len(named) == 2
    require_equal(str(lake), "events")


def test_incomplete_checkpoint_of_another_program_is_ignored(lake: Path) -> None:
    part = f"{1:020}.checkpoint.{1:010}.{2:010}.parquet"
    (lake / "tables/events/_delta_log" / part).write_bytes(b"half")
    assert publish(lake).status == "already done"


def test_vacuum_of_the_table_keeps_it(lake: Path) -> None:
    seglake.undo(str(lake), "events", "run 1", force=True)
    publish(lake)
    table = DeltaTable(f"{lake}/tables/events")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    require_equal(str(lake), "events")
    assert publish(lake).status == "already done"


def test_raised_protocol_is_refused_until_the_table_is_deleted(lake: Path) -> None:
    log = lake / "tables/events/_delta_log"
    number = len([*log.glob("*.json")])
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                           "readerFeatures": ["deletionVectors"],
                           "writerFeatures": ["deletionVectors"]}}  # fmt: skip
    (log / f"{number:020}.json").write_text(json.dumps(action))
    for replace in (False, True):
        with pytest.raises(CorruptData, match="deletionVectors"):
            publish(lake, replace=replace)
    shutil.rmtree(lake / "tables/events")
    assert len(publish(lake).mended) == 1
    require_equal(str(lake), "events")


def test_table_that_seglake_did_not_create_is_refused(lake: Path, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "other"), pa.table({"a": [1]}))
    with pytest.raises(CorruptData, match="Seglake did not create it"):
        publish(lake, table=str(tmp_path / "other"), replace=True)
    assert DeltaTable(str(tmp_path / "other")).version() == 0


def test_table_of_another_lake_is_refused_until_it_is_replaced(lake: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", 1)
    (lake / "tables").rename(tmp_path / "other/tables")
    with pytest.raises(UsageError, match="table of topic events of lake"):
        publish(tmp_path / "other")
    publish(tmp_path / "other", replace=True)
    require_equal(str(tmp_path / "other"), "events")


def test_table_that_shows_more_than_the_lake_has_is_refused(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / "catalog", tmp_path / "old")
    LakeMaker(lake, partitions=2).run({0: [event(900)]})
    publish(lake)
    shutil.rmtree(lake / "catalog")
    (tmp_path / "old").rename(lake / "catalog")
    with pytest.raises(UsageError, match="copy was restored"):
        publish(lake)
    publish(lake, replace=True)
    require_equal(str(lake), "events")


def test_two_topics_cannot_share_a_table(lake: Path) -> None:
    maker = LakeMaker(lake, topic="other")
    maker.run({0: [event(1)]})
    with pytest.raises(UsageError, match="topic events"):
        seglake.publish(str(lake), "other", f"{lake}/tables/events")
    with pytest.raises(ConfigError, match="credentials"):
        seglake.publish(str(lake), "other", "s3://user:secret@bucket/table")
    for place in ("catalog/t", "web", ""):
        with pytest.raises(UsageError, match="or outside the lake"):
            seglake.publish(str(lake), "other", f"{lake}/{place}")


def test_table_outside_the_lake_is_known_by_its_uri(lake: Path, tmp_path: Path) -> None:
    outside = str(tmp_path / "outside")
    seglake.publish(str(lake), "events", outside, fields=FIELDS)
    assert table_rows(outside)[0] == log_rows(str(lake), "events")
    assert seglake.open(str(lake)).table("events", outside).segments_behind == 0
    assert len(seglake.maintain_lake(str(lake)).parts) == 4  # merge, two tables, vacuum
    seglake.publish(str(lake), "events", outside, forget=True)
    with pytest.raises(UsageError, match="no table"):
        seglake.open(str(lake)).table("events", outside)
    assert table_rows(outside)[0]


def test_maintain_publishes_and_other_commands_leave_tables_alone(lake: Path) -> None:
    LakeMaker(lake, partitions=2).run({0: [event(900)]})
    dry = seglake.maintain_lake(str(lake), dry_run=True)
    assert [part.error for part in dry.parts if part.error] == []
    done = seglake.maintain_lake(str(lake), grace_hours=0)
    assert [part.operation for part in done.parts] == ["merge", "publish", "vacuum"]
    require_equal(str(lake), "events")
    named = [*seglake.vacuum(str(lake), dry_run=True).unknown,
             *(each.file for each in seglake.verify(str(lake)).findings)]  # fmt: skip
    assert not [key for key in named if key.startswith("tables/")]
    (mine := lake.parent / "mine.parquet").touch()
    settings = Input(format="parquet", paths=(str(lake.parent),))
    files = find_inputs(settings, InputStore({}), str(lake)).files
    assert [each.path for each in files] == [str(mine)]


def test_imported_and_attached_logs_are_published(lake: Path, tmp_path: Path) -> None:
    seglake.export_logs(str(lake), "events", str(tmp_path / "broker"))
    seglake.import_logs(str(tmp_path / "imported"), [str(tmp_path / "broker")])
    tier(tmp_path / "broker" / "events-0", tmp_path / "bucket")
    seglake.attach_logs(str(tmp_path / "attached"), [str(tmp_path / "bucket")])
    for name in ("imported", "attached"):
        assert publish(tmp_path / name).rows > 0
        require_equal(str(tmp_path / name), "events")


def test_control_batches_and_aborted_records_are_no_rows(tmp_path: Path) -> None:
    kept = Step(-1, (event(1), event(2)))
    steps = [kept, Step(1, (event(3),)), Step(1, commits=False), Step(2, (event(4),)), Step(2)]
    BrokerLog(steps).write(tmp_path / "events-0", epoch=1)
    seglake.import_logs(str(tmp_path / "lake"), [str(tmp_path / "events-0")])
    assert publish(tmp_path / "lake").rows == 3
    require_equal(str(tmp_path / "lake"), "events")


def test_text_values_are_published_and_a_new_format_publishes_again(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    LakeMaker(root).run({0: [Event(5, b"k", b"7,ann"), Event(6, b"k", b"x")]})
    assert publish(root).misfits == {"n": 2, "of": 2}
    seglake.alter(str(root), "events", {"value.format": "csv", "value.columns": ["n", "user"]})
    done = publish(root)
    assert (done.added, done.removed, done.misfits["n"]) == (1, 1, 1)
    require_equal(str(root), "events")


def test_row_groups_bound_the_memory(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    events = [event(n, pad="x" * 1000) for n in range(300)]
    LakeMaker(root).run({0: events}, Shape(batch_bytes=4000))
    assert publish(root, value=True, memory_bytes=100_000).rows == 300
    (file,) = (root / "tables/events").glob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups > 5
    assert pq.read_table(file)["offset"].to_pylist() == [*range(300)]
