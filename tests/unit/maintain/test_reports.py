"""Rows of maintenance: what every reader of the catalog reads, and what only the caller gets."""

import json

import pytest

from seglake.kafka.importing import ImportResult
from seglake.maintain.commit import TopicReport
from seglake.maintain.health.reindex import HealthFinding, ReindexResult
from seglake.maintain.merge import DamagedFile, MergeResult

MANY = 1000
FILES = [f"topics/events-0/{number:020}.log" for number in range(MANY)]
REPORTS: list[tuple[TopicReport, str]] = [
    (MergeResult("t", damaged=[DamagedFile(file, 0, "bad") for file in FILES]), "damaged"),
    (
        ReindexResult("t", damaged=[HealthFinding("t", 0, 0, file, 0, "bad") for file in FILES]),
        "damaged",
    ),
    (ImportResult("t", notes=[f"{file} is left out" for file in FILES]), "notes"),
]


@pytest.mark.parametrize(("report", "name"), REPORTS)
def test_a_row_does_not_grow_with_the_files_of_a_report(report: TopicReport, name: str) -> None:
    told = json.loads(report.row("x").report)
    assert (told[name], told[f"{name}_more"]) == (report.as_dict()[name][:10], MANY - 10)
    assert len(report.row("x").report) < 3000
    assert len(json.loads(report.as_json())[name]) == MANY
