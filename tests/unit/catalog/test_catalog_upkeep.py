"""What the catalog does to itself, and what removes records, disturbs no ingest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog.delta import file_merges
from seglake.catalog.schema import PartitionRow
from seglake.catalog.table import CatalogTable
from seglake.layout import new_attempt
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    read_lake,
    write_file,
)


def test_a_merge_during_a_run__moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another topic's commits merge all files of the version that a run continues."""
    lake = tmp_path / "lake"
    paths = [write_file(tmp_path / f"{n}.jsonl", [Line(T + n, "k")] * 5) for n in range(5)]
    settings = [pipeline_of(lake, path) for path in paths[:3]]
    aside = [pipeline_of(lake, path, topic={"name": "aside"}, name="b") for path in paths[3:]]
    for number in range(2):
        ingest(settings[number], str(number))
    base = open_catalog(str(lake)).snapshot()
    real, calls = CatalogTable.commit, []

    def overtaken(table: CatalogTable, *given: Any, **named: Any) -> int:
        calls.append(named["topic"])
        if len(calls) == 1:
            monkeypatch.setattr(file_merges, "FAN_IN", 2)
            for number, other in enumerate(aside):
                ingest(other, str(number))
        return real(table, *given, **named)

    monkeypatch.setattr(CatalogTable, "commit", overtaken)
    report = ingest(settings[2], "2")
    assert (report.rebased, report.records) == (0, 5)
    assert calls == ["events", "aside", "aside"]
    newest = open_catalog(str(lake)).snapshot()
    left = {file for file in base.files if file.topic == "events" and file.kind != "topic"}
    assert not left & newest.files
    assert_holds(read_lake(lake), settings[0], [[path] for path in paths[:3]])


def test_append_time__is_not_forgotten_with_the_last_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, now = tmp_path / "lake", time.time_ns()
    topic = {"message.timestamp.type": "LogAppendTime", "partitions": 2}

    def run(number: int, step_s: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: now + step_s * 10**9)
        path = write_file(tmp_path / f"{number}.jsonl", [Line(T, key) for key in "abcdef"])
        ingest(pipeline_of(lake, path, topic=topic), str(number))

    def remove_all() -> None:
        catalog = open_catalog(str(lake))
        base = catalog.snapshot()
        views = base.partitions("events")
        rows = [
            PartitionRow(
                topic="events",
                partition=view.partition,
                sequence=view.sequence + 1,
                log_start_offset=view.end_offset,
                next_offset=view.end_offset,
            )
            for view in views
        ]
        gone = [(v.partition, base) for v in views for base in v.segments.base_offsets.tolist()]
        catalog.commit(rows, topic="events", base=base, attempt_id=new_attempt(), replaced=gone)

    run(1, 60)
    remove_all()
    run(2, -3600)
    times = {record.timestamp for log in read_lake(lake).values() for record in log}
    assert times == {now // 10**6 + 60_000}
    remove_all()
    remove_all()
    run(3, 59)
    times = {record.timestamp for log in read_lake(lake).values() for record in log}
    assert times == {now // 10**6 + 60_000}
