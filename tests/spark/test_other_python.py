"""A user's own session, whose workers run a Python that has no Seglake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import seglake

SOURCES = Path(seglake.__file__).parents[1]

PROGRAM = """
import json
from pyspark.sql import SparkSession
from seglake.datasource import register
from seglake.engine import SparkEngine
from seglake.errors import ConfigError

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def refused(work):
    try:
        work()
    except ConfigError as error:
        return [str(error), error.__cause__ is None]

print(json.dumps([refused(lambda: register(spark)),
                  refused(lambda: SparkEngine(spark).map(str.upper, ["a"])),
                  refused(lambda: SparkEngine(spark).map(json.dumps, ["a"]))]))
spark.stop()
"""

WITHOUT_SEGLAKE = """#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -vx '{sources}' | paste -sd:) \\
exec {python} "$@"
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The same Python, without any package."""
    script = tmp_path / "other-python"
    python = Path(sys.base_prefix, "bin", "python3")
    script.write_text(WITHOUT_SEGLAKE.format(sources=SOURCES, python=python))
    script.chmod(0o755)
    return script


@pytest.mark.rest
@pytest.mark.long
def test_one_sentence_names_the_setting(tmp_path: Path, other: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    chosen = {"PYSPARK_PYTHON": str(other), "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env=os.environ | chosen, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for said in json.loads(done.stdout.splitlines()[-1]):
        text, alone = said
        assert alone
        assert f"Set PYSPARK_PYTHON, here to {sys.executable}" in text
        assert "\n" not in text
