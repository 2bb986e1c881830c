"""pyarrow as commands use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T

RUN = """
import sys
from seglake.cli import main

sys.argv = ["seglake", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    code = end.code
found = "pandas" in sys.modules
import pandas, pyarrow
assert len(pandas.DataFrame({"n": [1]})) == 1
print(code, found, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", [["history"], ["topics", "--json"], ["read", "events"]])
def test_no_command_imports_pandas(command: list[str], tmp_path: Path) -> None:
    """It is there for others."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    LakeMaker(tmp_path / "lake").run({0: [Event(T)]})
    verb, *rest = command
    program = [sys.executable, "-c", RUN, verb, str(tmp_path / "lake"), *rest]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr in ("0 False\n", "None False\n")
