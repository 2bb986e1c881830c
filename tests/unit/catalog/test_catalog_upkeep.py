"""What the catalog does to itself, and what removes records, disturbs no ingest."""

import time
from pathlib import Path

import pytest

from seglake.catalog.schema import PartitionRow
from seglake.layout import new_attempt
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file


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
