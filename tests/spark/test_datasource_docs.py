"""The Python of docs/spark.md is run, from top to bottom, on a lake with events of its times.

An older Spark refuses the example of a stream.
"""

import json
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import seglake
from tests.makers.lakes import Event, LakeMaker

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
START = 1795136400000  # 2026-11-20T01:00:00Z
STREAMS = pyspark.__version__ >= "4.2"


def refused() -> AbstractContextManager[Any]:
    return pytest.raises(
        StreamingQueryException, match="a stream of the format seglake needs Spark 4"
    )


@pytest.mark.rest
@pytest.mark.long
def test_the_examples_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    rows = [Event(START + 1000 * i, b"%d" % (i % 3), b"event") for i in range(-100, 100)]
    maker.run({0: rows, 1: rows[:110]})
    page = PAGE.read_text()
    places = {"s3://bucket/lake": maker.root, "/data/": f"{tmp_path}/"}
    for named, here in places.items():
        assert named in page
        page = page.replace(named, str(here))
    names: dict[str, Any] = {"spark": spark}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        with refused() if "readStream" in code and not STREAMS else nullcontext():
            exec(compile(code, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    assert shown.count("event|") == 6  # the first three of each partition
    assert all(f"[{48 + key:x}]|" in shown.replace(" ", "") for key in range(3))
    assert "|1|10|" in shown.replace(" ", "")  # five seconds of two partitions
    if STREAMS:
        assert spark.read.parquet(str(tmp_path / "events")).count() == 310
    readings = seglake.open(str(maker.root)).topic("readings")
    assert sum(readings.end_offsets().values()) == 1000
    few = readings.read_range(START, START + 10).read_all()
    values: list[Any] = few["value"].to_pylist()
    assert {json.loads(value)["id"] for value in values} == set(range(10))
