"""Local times around a change of clocks: the same in every input format."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seglake.write.rows.rows import Reason
from tests.makers.files import pipeline, read

TWICE, SKIPPED = "2026-10-25T02:30:00", "2026-03-29T02:30:00"
FIRST, AFTER_GAP = 1_792_888_200_000, 1_774_746_000_000
HOUR = 3_600_000


@pytest.mark.parametrize("form", ["jsonl", "csv", "text", "parquet"])
@pytest.mark.parametrize(
    ("choice", "twice", "skipped"),
    [
        ({}, FIRST, AFTER_GAP),
        ({"ambiguous": "latest", "nonexistent": "earliest"}, FIRST + HOUR, AFTER_GAP - 1),
        ({"ambiguous": "reject", "nonexistent": "reject"}, None, None),
    ],
)
def test_both_settings_hold_in_every_format(
    tmp_path: Path, form: str, choice: dict[str, str], twice: int | None, skipped: int | None
) -> None:
    path, times = tmp_path / "file", [TWICE, SKIPPED]
    if form == "parquet":
        column = pa.array([datetime.fromisoformat(each) for each in times], pa.timestamp("us"))
        pq.write_table(pa.table({"t": column}), path)
    else:
        row = {"jsonl": '{"t": "%s"}\n', "text": "%s \n"}.get(form, "%s\n")
        path.write_text(("t\n" if form == "csv" else "") + "".join(row % each for each in times))
    tables: dict[str, Any] = {
        "timestamp": {"field": "t", "format": "iso8601", "zone": "Europe/Berlin", **choice},
        "input": {"pattern": r"(?P<t>\S+) "} if form == "text" else {},
    }
    found = read(pipeline(path, form, **tables))
    wanted = [each for each in (twice, skipped) if each is not None]
    assert [row.timestamp for row in found.rows] == wanted
    reasons = [Reason.TIMESTAMP_AMBIGUOUS.text, Reason.TIMESTAMP_NONEXISTENT.text]
    assert [reject.reason for reject in found.rejects] == ([] if wanted else reasons)
