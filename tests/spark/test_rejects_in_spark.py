"""Spark and delta-rs read the rejects of merged files, which have more than the table's columns."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from seglake.catalog.quarantine import table as quarantines
from seglake.catalog.quarantine.files import is_merged
from seglake.layout import QUARANTINE_TABLE
from seglake.store import open_store
from tests.unit.catalog.test_quarantine_merges import FILES, Quarantine


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
