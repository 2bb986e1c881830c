"""What an ingest must come to, whatever befalls the storage meanwhile."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from seglake.config import Pipeline
from seglake.errors import CorruptData, InputError, StoreError, UsageError
from seglake.maintain.health.verify import verify
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, assert_holds, ingest, read_lake, write_file

LINES, BROKEN = 40, 9  # of each of two files: lines, and which of them are broken
RECORDS = 2 * (LINES - len(range(0, LINES, BROKEN)))


def two_files(folder: Path) -> list[Path]:
    """Input with some broken lines, one of the files packed."""
    made = [
        Line(T + 1000 * n, "abc"[n % 3], broken=None if n % BROKEN else "{") for n in range(LINES)
    ]
    return [write_file(folder / name, made) for name in ("a.jsonl", "b.jsonl.gz")]


def visible(root: Path | str) -> int:
    """How many records a reader finds; none where there is no lake yet, or no such topic."""
    try:
        return sum(map(len, read_lake(root).values()))
    except UsageError:
        return 0


def assert_survives(
    settings: Pipeline, paths: Sequence[Path], fault: AbstractContextManager[Any], named: str
) -> str:
    """Ingest two files under a fault, and again without; returns how the first try ended.

    It ends well, or with an error of ours on one line that names a file, as `named` has it; readers
    see all of the run or nothing; and the second try makes it what it would have been.
    """
    try:
        with fault:
            outcome: str = ingest(settings).status
    except (StoreError, InputError, CorruptData) as error:
        outcome = str(error)
    if outcome != "committed":  # not by finding that a planned-again run was done before, either
        assert re.search(named, outcome), outcome
        assert "\n" not in outcome
    assert visible(settings.root) in ({RECORDS} if outcome == "committed" else {0, RECORDS})
    ingest(settings)
    assert_holds(read_lake(settings.root), settings, [paths])
    assert verify(settings.root, deep=True).findings == []
    table = open_catalog(settings.root)
    assert len(table.rows.runs(table.snapshot(), "events")) == 1
    return outcome
