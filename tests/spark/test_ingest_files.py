"""Ingest on Spark: the bytes that the same run gives without a JVM, whatever tasks do."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from seglake.catalog.delta import commit_log, file_merges
from seglake.catalog.schema import Kind
from seglake.config import Pipeline
from seglake.engine import Item, Result, SparkEngine, Task
from seglake.errors import CorruptData
from seglake.layout import SUFFIXES
from seglake.write.api import run_pipeline
from seglake.write.driver.report import Report
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.tiers import rest_but
from tests.harness.unruly import unruly
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    TINY,
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    quarantined,
    read_back,
    read_lake,
    segments_of,
    write_files,
)

TOPIC = {"batch.size": 700, "segment.bytes": 6000}
TASK = {name: 10 * size for name, size in TINY.items()}  # fewer blobs: each costs Spark something


def bytes_of(lake: str) -> dict[tuple[int, int, str], bytes]:
    """Every live segment file, by partition, base offset and suffix."""
    return {
        (row.partition, row.base_offset, suffix): Path(lake, row.key(suffix)).read_bytes()
        for row in segments_of(lake)
        for suffix in SUFFIXES
    }


OWN = {"attempt_id", "index_attempt_id", "created_at_ms", "started_at_ms", "finished_at_ms"}


def rows_of(lake: str) -> dict[Kind, list[str]]:
    """The catalog's rows, without what each attempt at a run has of its own: its id and clock."""
    catalog = open_catalog(lake)
    kinds: tuple[Kind, ...] = ("run", "segment", "source", "topic", "partition")
    found = {kind: catalog.rows.all(catalog.snapshot(), kind, "events") for kind in kinds}
    return {kind: sorted(_shared(table)) for kind, table in found.items()}


def _shared(rows: pa.Table) -> Iterator[str]:
    for row in rows.drop_columns([*OWN & {*rows.column_names}]).to_pylist():
        if "report" in row:
            report = json.loads(row["report"])
            row["report"] = {k: v for k, v in report.items() if k not in {"attempt_id", "seconds"}}
        yield json.dumps(row)


def some_lines(count: int, seed: int = 1) -> list[Line]:
    chance = random.Random(seed)
    keys = ["hot"] * 6 + ["a", "b", None]
    return [
        Line(T + at * 20 - chance.choice((0, 0, 900)), chance.choice(keys),
             broken="{" if chance.random() < 0.02 else None)
        for at in range(count)
    ]  # fmt: skip


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    write_files(
        tmp_path / "in", [(some_lines(200, seed), "" if seed % 2 else ".gz") for seed in range(5)]
    )
    return tmp_path / "in"


def elsewhere(pipeline: Pipeline) -> Pipeline:
    """The same pipeline into another lake."""
    return pipeline.model_copy(update={"root": f"{pipeline.root}-elsewhere"})


def on_spark(spark: SparkSession, pipeline: Pipeline, run_id: str = "1") -> Report:
    return run_pipeline(pipeline, run_id=run_id, spark=spark)


@pytest.mark.parametrize("order", rest_but(["time", "arrival"], "time"))
def test_an_ingest_on_spark(spark: SparkSession, tmp_path: Path, inbox: Path, order: str) -> None:
    settings = pipeline_of(tmp_path / "lake", inbox, order=order, topic=TOPIC, task=TASK)
    report = on_spark(spark, settings)
    paths = sorted(inbox.iterdir())
    good, bad = read_back(paths)
    assert (report.records, report.quarantined) == (len(good), len(bad))
    assert_holds(read_lake(settings.root), settings, [paths])
    assert quarantined(settings.root) == sorted(bad)
    again = elsewhere(settings)
    ingest(again)
    assert bytes_of(settings.root) == bytes_of(again.root)
    by_spark, by_threads = rows_of(settings.root), rows_of(again.root)
    assert (len(by_spark["run"]), len(by_spark["source"])) == (1, len(paths))
    assert by_spark == by_threads
    assert on_spark(spark, settings).status == "already done"


class FailingEngine(SparkEngine):
    """Every task fails once, when its work is done."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark)
        self.folder = folder

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        plan = [("fails", "after")] * len(items)
        return super().map(unruly(task, plan, 0, str(self.folder)), items)


@pytest.mark.parametrize("order", rest_but(["time", "arrival"]))
@pytest.mark.long
def test_tasks_that_fail_at_first_change_nothing(
    spark: SparkSession, tmp_path: Path, inbox: Path, order: str
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    some = sorted(inbox.iterdir())[:2]  # each failure costs the start of a Python worker
    settings = pipeline_of(tmp_path / "lake", some, order=order, topic=TOPIC, task=TASK)
    ingest_files(FailingEngine(spark, notes), settings, DeclaredRun("1"))
    assert (
        len({note.name.split("-")[0] for note in notes.glob("* fails")}) >= 3
    )  # stages that failed
    again = elsewhere(settings)
    ingest(again)
    assert bytes_of(settings.root) == bytes_of(again.root)
    assert quarantined(settings.root) == quarantined(again.root)


def test_damage_that_a_task_finds_keeps_its_place(spark: SparkSession) -> None:
    def find(damage: CorruptData) -> None:
        raise damage

    for file in ("topics/a b/1.log", ""):
        with pytest.raises(CorruptData, match=r"at byte 7: no .* at byte 3: x") as raised:
            SparkEngine(spark).map(
                find, [CorruptData("no batch at byte 3: x", file=file, position=7)]
            )
        assert (raised.value.file, raised.value.position) == (file, 7)
        assert raised.value.what == "no batch at byte 3: x"


def in_order(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, zip(*table.to_pydict().values(), strict=True)), key=repr)


@pytest.mark.parametrize("runs", rest_but([1, 5], 1))
@pytest.mark.long
def test_spark_delta_rs_and_duckdb_read_the_same_catalog(
    spark: SparkSession, tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """Also after commits whose files were merged, and checkpoints."""
    settings = pipeline_of(tmp_path / "lake", inbox, topic=TOPIC, task=TASK)
    on_spark(spark, settings)
    monkeypatch.setattr(file_merges, "FAN_IN", 2)
    monkeypatch.setattr(commit_log, "CHECKPOINT_INTERVAL", 2)
    for number in range(1, runs):
        write_files(tmp_path / f"{number}", [(some_lines(20, number), "")])
        ingest(pipeline_of(tmp_path / "lake", tmp_path / f"{number}", topic=TOPIC), f"r{number}")
    uri = f"{settings.root}/catalog/log"
    assert bool(list(Path(uri, "_delta_log").glob("*.checkpoint.parquet"))) == (runs > 1)
    by_spark = spark.read.format("delta").load(uri)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").collect()
    assert len(history) == DeltaTable(uri).version() + 1
    uris = DeltaTable(uri).file_uris()
    names = ["topic", "partition", "base_offset", "end_offset", "max_timestamp"]
    query = "SELECT {} FROM read_parquet({}, hive_partitioning = true, union_by_name = true)"
    query = query.format(", ".join(["kind", *names]), uris)
    by_duckdb: Any = duckdb.connect().execute(query).to_arrow_table()
    delta_rs = DeltaTable(uri).to_pyarrow_table(columns=["kind", *names])
    expected = by_spark.select("kind", *names).toArrow()
    for found in (by_duckdb, delta_rs):
        assert in_order(found.cast(pa.schema(expected.schema))) == in_order(expected)
    rows = by_spark.where("kind = 'segment'").select("partition", "base_offset").collect()
    assert sorted(map(tuple, rows)) == [
        (r.partition, r.base_offset) for r in segments_of(settings.root)
    ]


def test_csv_that_spark_writes_or_reads_has_the_same_fields(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark escapes quotes by a backslash, only inside quotes, and escapes the backslash there."""
    draw = random.Random(7)
    letters = [*"ab,\"\\\n\r '", "é"]
    cells = [
        ["".join(draw.choices(letters, k=draw.randrange(7))) for _ in "xy"] for _ in range(800)
    ]
    schema = "n string, x string, y string"
    frame = spark.createDataFrame([(f"{n}", *row) for n, row in enumerate(cells)], schema)
    how = {"header": True, "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}
    frame.coalesce(1).write.options(**how).csv(str(tmp_path / "csv"))
    by_hand = tmp_path / "csv" / "part-by-hand.csv"
    texts = [
        "a\\b",
        r'"a\b"',
        r'"a\\"',
        r"a\"b",
        r'"\\\""',
        r'"a\,b"',
        r"a\\b",
        r"\N",
        r'"\N"',
        "a\\",
    ]
    by_hand.write_text("n,x,y\n" + "".join(f"h{n},{text},\n" for n, text in enumerate(texts)))
    read = spark.read.options(header=True, multiLine=True).schema(schema).csv(str(tmp_path / "csv"))
    expected = sorted([row.n, row.x or None, row.y or None] for row in read.collect())
    written = [[f"{n}", x or None, y or None] for n, (x, y) in enumerate(cells)]
    assert [row for row in expected if row[0][0] != "h"] == sorted(written)
    text = {"format": "csv", "escape": "\\"}
    stamped = {"message.timestamp.type": "LogAppendTime", "name": "events"}
    pipeline = pipeline_of(
        tmp_path / "lake", tmp_path / "csv", input=text, key={"fields": ["n"]}, order="arrival",
        timestamp={"field": None, "format": None, "allow_1970": False},
        value={"from": "columns"}, topic=stamped,
    )  # fmt: skip
    assert ingest(pipeline).quarantined == 0
    records = [each for part in read_lake(tmp_path / "lake").values() for each in part]
    rows = [[*json.loads(record.value or b"{}").values()] for record in records]
    assert sorted(rows) == expected
