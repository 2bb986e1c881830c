"""Spark on the catalog: what is digested, what is refused by name, how a repair ends it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import seglake
from seglake.catalog.quarantine import table as quarantines
from seglake.catalog.quarantine.files import is_merged
from seglake.errors import CorruptData, VersionExpired
from seglake.layout import QUARANTINE_TABLE
from seglake.store import open_store
from tests.harness.foreign import (
    assert_digested,
    assert_refused,
    assert_repaired,
    commits,
    made_lake,
    table_of,
)
from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker, Shape, open_catalog
from tests.makers.published import log_rows, require_equal
from tests.spark.jobs import run_job
from tests.unit.catalog.test_quarantine import FILES, Quarantine

ENGINE = r"Apache-Spark/[\d.]+ Delta-Lake/[\d.]+"
Spark = Callable[..., None]


@pytest.fixture
def run(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Runs statements, in which {t} is the catalog's table and {root} the lake's folder."""
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")

    def run(maker: LakeMaker, *statements: str) -> None:
        for statement in statements:
            spark.sql(statement.format(t=f"delta.`{table_of(maker)}`", root=maker.root))

    yield run
    spark.conf.unset("spark.databricks.delta.snapshotPartitions")


@pytest.mark.rest
@pytest.mark.long
def test_what_changes_no_row__is_digested(run: Spark, spark: SparkSession, tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    run(
        maker,
        "OPTIMIZE {t}",
        "OPTIMIZE {t} ZORDER BY (base_offset, partition)",
        "DELETE FROM {t} WHERE kind = 'segment' AND base_offset = 77",
        "ALTER TABLE {t} ADD COLUMN (note STRING)",
        "ALTER TABLE {t} CHANGE COLUMN codec COMMENT 'of the log'",
        "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b', 'delta.checkpointInterval' = '2')",
        "OPTIMIZE {t}",
        "VACUUM {t}",
        "REORG TABLE {t} APPLY (PURGE)",
        "CREATE TABLE delta.`{root}/../copy` SHALLOW CLONE {t}",
    )
    made = len(commits(maker)) - 1 - maker.versions[-1]
    assert made >= 7
    assert_digested(maker, made)
    frame = spark.read.format("delta").load(table_of(maker))
    assert frame.where("kind = 'run'").count() == len(maker.versions)
    assert frame.where("note IS NOT NULL").count() == 0
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table_of(maker)}`").orderBy("version")
    made_by = [tuple(row) for row in history.select("operation", "engineInfo").collect()]
    assert made_by[1:4:2] == [("WRITE", "Seglake"), ("OPTIMIZE", made_by[3][1])]
    assert made_by[-1] == ("REPLACE", "Seglake")


CHANGES = {
    "DELETE": ["DELETE FROM {t} WHERE kind = 'source' OR base_offset = 0"],
    "DELETE with deletion vectors": [
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {t} WHERE kind = 'segment' AND base_offset = 0 AND partition = 0",
    ],
    "DELETE under a checkpoint": [
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')",
        "DELETE FROM {t} WHERE kind = 'run'",
        "OPTIMIZE {t}",
    ],
    "UPDATE": ["UPDATE {t} SET codec = 'none' WHERE kind = 'segment'"],
    "MERGE": ["MERGE INTO {t} a USING (SELECT 'run' k) b ON a.kind = b.k WHEN MATCHED THEN DELETE"],
    "RESTORE": ["RESTORE {t} TO VERSION AS OF 1"],
    "WRITE": ["INSERT INTO {t} SELECT * FROM {t} WHERE kind = 'run'"],
}


@pytest.mark.parametrize("name", rest_but(CHANGES))
def test_what_changes_rows__is_refused(run: Spark, tmp_path: Path, name: str) -> None:
    maker = made_lake(tmp_path)
    run(maker, *CHANGES[name])
    if "checkpoint" in name:
        last = (maker.root / "catalog/log/_delta_log/_last_checkpoint").read_text()
        assert json.loads(last)["version"] == 5
    operation = name.split(maxsplit=1)[0]
    assert_refused(maker, rf"commit \d, {operation} by {ENGINE}, changed rows of the catalog")


def _set(**properties: str) -> str:
    given = ", ".join(f"'delta.{n.replace('_', '.')}' = '{v}'" for n, v in properties.items())
    return "ALTER TABLE {t} SET TBLPROPERTIES (" + given + ")"


REDEFINED = {
    "in-commit timestamps": (_set(enableInCommitTimestamps="true"), "inCommitTimestamp"),
    "row tracking": (_set(enableRowTracking="true"), "rowTracking"),
    "column mapping": (_set(columnMapping_mode="name"), "columnMapping"),
    "change data feed": (_set(enableChangeDataFeed="true"), "changeDataFeed"),
    "checkpoints of version 2": (_set(checkpointPolicy="v2"), "v2Checkpoint"),
    "protocol": (_set(minWriterVersion="4"), "writer 4"),
    "append only": (_set(appendOnly="true"), r"delta\.appendOnly"),
    "log retention": (
        _set(
            logRetentionDuration="interval 2 hours", deletedFileRetentionDuration="interval 1 hour"
        ),
        r"delta\.logRetentionDuration = interval 2 hours",
    ),
    "no retention": (
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.deletedFileRetentionDuration')",
        r"delta\.deletedFileRetentionDuration = None",
    ),
}


@pytest.mark.parametrize("name", rest_but(REDEFINED))
def test_what_seglake_does_not_obey__is_refused(run: Spark, tmp_path: Path, name: str) -> None:
    maker = made_lake(tmp_path)
    statement, problem = REDEFINED[name]
    run(maker, statement)
    assert_refused(maker, f"after commit [345], .* by {ENGINE}: the catalog has .*{problem}")


@pytest.mark.rest
def test_a_table_of_spark_in_place_of_ours__is_refused(run: Spark, tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    run(maker, "CREATE TABLE delta.`{root}/../copy` SHALLOW CLONE {t}")
    shutil.rmtree(table_of(maker))
    run(maker, "CREATE TABLE {t} SHALLOW CLONE delta.`{root}/../copy`")
    for _ in range(2):
        with pytest.raises(CorruptData, match=f"commit 0, CLONE by {ENGINE}, changed rows"):
            open_catalog(str(maker.root))
    with pytest.raises(VersionExpired):
        maker.run({0: [Event(1)]})
    assert_repaired(maker)


@pytest.mark.rest
def test_a_replaced_table__is_refused(run: Spark, spark: SparkSession, tmp_path: Path) -> None:
    maker = made_lake(tmp_path)
    frame = spark.read.format("delta").load(table_of(maker)).where("kind = 'topic'")
    frame = spark.createDataFrame(frame.collect(), frame.schema)
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        table_of(maker)
    )
    assert_refused(maker, rf"commit 3, .* by {ENGINE}")


# Spark and delta-rs read the rejects of merged files, which have more than the table's columns.


@pytest.mark.rest
def test_merged_rejects__are_rows_of_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantines, "FAN_IN", 2)
    made = Quarantine(open_store(str(tmp_path)))
    wanted = sorted((made.run([f"{n}"], FILES[n % 2]), f"{n}") for n in range(5))
    assert sum(map(is_merged, made.files())) == 1
    uri = f"{tmp_path}/{QUARANTINE_TABLE}"
    frame = spark.read.format("delta").load(uri)
    table = DeltaTable(uri).to_pyarrow_table()
    assert frame.columns == table.column_names
    rows = frame.selectExpr("attempt_id", "string(raw)").collect()
    assert sorted(map(tuple, rows)) == wanted
    columns: list[Any] = [table[name].to_pylist() for name in ("attempt_id", "raw")]
    assert sorted((each, raw.decode()) for each, raw in zip(*columns, strict=True)) == wanted
    spark.sql(f"OPTIMIZE delta.`{uri}`")
    assert made.raw(*(each for each, _ in wanted)).total() == 5


# Spark decodes the segments of a published table, and reads the rows that other readers read.


def test_spark_publishes_and_reads_the_rows_of_the_log(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "lake")
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    events = [
        Event(n - 1, b"k%d" % (n % 3), b'{"n": %d, "user": "u%d"}' % (n, n % 5)) for n in range(90)
    ]
    maker.run({0: events, 1: events[:30]}, Shape("zstd", segment_bytes=900))
    fields = "n:int64,of=user:string"
    assert run_job("publish", root, "events", "--fields", fields) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["rows"], report["added"]) == (120, len(maker.files("log")))
    require_equal(root, "events")
    maker.delete_records(0, 5)
    assert seglake.publish(root, "events", spark=spark).added == 1
    require_equal(root, "events")
    table = spark.read.format("delta").load(f"{root}/tables/events")
    found = {
        (row["partition"], row["offset"], row["key"] and bytes(row["key"]), row["n"], row["of"])
        for row in table.collect()
    }
    rows = log_rows(root, "events")
    assert found == {(p, offset, key, n, of) for p, offset, _, key, _, n, of in rows}
    assert table.filter("n >= 80").count() == sum(row[5] >= 80 for row in rows)
    assert table.filter("timestamp IS NULL").count() == sum(row[2] is None for row in rows)
    spark.sql(f"OPTIMIZE delta.`{root}/tables/events`")
    assert any("OPTIMIZE" in each for each in seglake.publish(root, "events").mended)
    require_equal(root, "events")
    spark.sql(f"DELETE FROM delta.`{root}/tables/events` WHERE n = 50")
    assert any("DELETE" in each for each in seglake.publish(root, "events").mended)
    require_equal(root, "events")
