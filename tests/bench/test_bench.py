"""The benchmark still runs: what needs a JVM, small, as a user starts it. Nothing is said of times.

A third of the parts runs each day. The other parts run in test_bench_parts.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seglake.errors import SeglakeError
from tests.harness.tiers import of_today
from tests.judges.kafka_jars import kafka_jars

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.rest]

SMALL = {"events": 18_000, "files": 2, "runs": 1, "lookups": 20, "windows": 1}
TABLES = {"ingest": 1, "lookup": 1, "window": 3, "scan": 1, "compaction": 1}
PARTS = of_today(TABLES, 3)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a small run found; it checks every answer itself and fails at a wrong one."""
    try:
        kafka_jars()
    except SeglakeError as reason:
        pytest.skip(f"nothing to compare with: {reason}")
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "tests.bench", "--folder", str(folder)]
    command += [
        word for name, size in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(size))
    ]
    command += ["--json", str(folder / "out.json"), "--only", ",".join(PARTS)]
    path = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
    done = subprocess.run(
        command, cwd=PROJECT, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("\n## ") == 1 + len(PARTS)  # the goals come first
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


@pytest.mark.long
def test_all_parts_are_there(results: dict[str, Any]) -> None:
    assert [section["name"] for section in results["sections"]] == PARTS
    assert results["environment"]["settings"]["events"] == SMALL["events"]


def test_no_table_has_a_hole(results: dict[str, Any]) -> None:
    tables = [table for section in results["sections"] for table in section["tables"]]
    assert len(tables) == sum(TABLES[part] for part in PARTS)
    for table in tables:
        assert table["rows"], table["title"]
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}, table["title"]
        assert all(cell is not None for row in table["rows"] for cell in row), table["title"]
