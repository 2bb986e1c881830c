"""Local times around a change of clocks: the same in every input format."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seglake.advice.finding import Finding
from seglake.engine import LocalEngine
from seglake.times.instants import to_epoch_ms
from seglake.times.zones import is_near_a_change
from seglake.write.check import check
from seglake.write.driver.run import DeclaredRun, ingest_files
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


def test_a_run_and_its_check_count_both(tmp_path: Path) -> None:
    times = [TWICE, TWICE, "2026-10-25T03:30:00", SKIPPED, "2026-06-01T02:30:00", TWICE + "Z"]
    (tmp_path / "file").write_text("".join(f'{{"t": "{time}"}}\n' for time in times))
    zone = {"field": "t", "format": "iso8601", "zone": "Europe/Berlin"}
    settings = pipeline(tmp_path / "file", "jsonl", timestamp=zone)
    settings = settings.model_copy(update={"root": str(tmp_path / "lake")})
    found = check(settings, 20).findings
    assert [(each.code, each.count) for each in found] == [
        ("ambiguous-times", 2),
        ("nonexistent-times", 1),
    ]
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).findings == found
    strict = settings.timestamp.model_copy(update={"ambiguous": "reject"})
    assert check(settings.model_copy(update={"timestamp": strict}), 20).findings == found[1:]


def test_times_of_no_zone_are_told_unless_the_pipeline_says_of_which(tmp_path: Path) -> None:
    """Such as those of a service that leaves its offsets out after an update."""
    times = ["2026-11-20T10:00:00+01:00"] * 3 + ["2026-11-20T10:00:00"] * 4 + ["soon"]
    (tmp_path / "file").write_text("".join(f'{{"t": "{time}"}}\n' for time in times))
    named = {"field": "t", "format": "iso8601"}
    loose = {"root": str(tmp_path / "lake"), "max_quarantine_ratio": 0.5}
    settings = pipeline(tmp_path / "file", "jsonl", timestamp=named).model_copy(update=loose)
    found = [Finding("no-zone-in-times", count=4)]
    assert check(settings, 20).findings == found
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).findings == found
    said = pipeline(tmp_path / "file", "jsonl", timestamp={**named, "zone": "UTC"})
    assert check(said, 20).findings == []


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_a_change_of_clocks_is_near_or_not(zone: str) -> None:
    def is_near(*times: str) -> bool:
        return is_near_a_change(np.array([to_epoch_ms(time) for time in times], np.int64), zone)

    assert not is_near()
    assert not is_near("2026-06-01T00:00Z", "2026-12-24T00:00Z")
    there = {"Europe/Berlin": "2026-10-25T01:00Z", "Australia/Lord_Howe": "2026-10-03T15:30Z"}
    if zone in there:
        assert is_near("2026-06-01T00:00Z", there[zone])
