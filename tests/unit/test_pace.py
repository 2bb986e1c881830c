"""Lines about progress: when they are due, what they say, and that they reach log and terminal."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from seglake.engine import Amounts, LocalEngine, SegmentTasks, SparkEngine, logged
from seglake.maintain.compaction.compact import compact_topic
from seglake.maintain.compaction.passes import CompactionOptions
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.verify import verify
from seglake.maintain.undo import undo
from seglake.terminal.progress import (
    EVERY_S,
    Pace,
    interval_s,
    line_every,
    periodically,
    report_wait,
)
from seglake.terminal.wording import short_bytes
from seglake.write.driver.report import Report, silent
from seglake.write.reduce.tasks import CountSpanningBlobs, SpanningBlob
from tests.makers.lakes import Event, LakeMaker
from tests.makers.raw_events import ingest
from tests.makers.redriven import Event as RawEvent
from tests.makers.redriven import pipeline_of, redriven, write


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_half_minute_with_rate_and_time_left() -> None:
    clock = Clock()
    pace = Pace("tasks", clock)
    said = {}
    for clock.now in range(0, 125, 5):
        if line := pace.line(int(clock.now) * 2, 1000):
            said[clock.now] = line
    assert [*said] == [30, 60, 90, 120]
    assert said[30] == "60 of 1,000 tasks done, 2/s, 8 min left"
    assert said[120] == "240 of 1,000 tasks done, 2/s, 6 min left"


def test_lines_without_a_rate_and_at_the_end() -> None:
    clock = Clock()
    pace = Pace("bytes", clock)
    clock.now = 40.0
    assert pace.line(0, 10) == "10 B to do, 40 s so far"
    clock.now = 80.0
    assert pace.line(8, 10) == "8 B of 10 B done, 0.1 B/s, 20 s left"
    clock.now = 120.0
    assert pace.line(10, 10) == "10 B of 10 B done, 0.1 B/s"
    pace = Pace("bytes of log", clock)
    clock.now = 160.0
    assert pace.line(3 * 2**20, 3 * 2**21) == ("3 MiB of 6 MiB of log done, 76.8 KiB/s, 40 s left")


def test_a_wait_tells_how_long_it_takes() -> None:
    said: list[str] = []
    with line_every(0.01), report_wait("Spark starts", said.append):
        deadline = time.monotonic() + 60
        while len(said) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert {*said[:2]} == {"Spark starts, 0 s"}


def test_only_a_long_step_has_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="seglake.write.driver.report.long_steps")
    report = Report(pipeline="p", topic="t", run_id="r", attempt_id="a")
    with report.step("plan", silent, "1 file is listed"):
        pass
    with line_every(0.01), report.step("read", silent, "1 file is read"):
        deadline = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
    assert caplog.messages == ["topic t: 1 file is read"]


def test_a_function_is_called_periodically_until_the_block_ends() -> None:
    calls = list[float]()
    with line_every(0.01), periodically(lambda: calls.append(time.monotonic())):
        deadline = time.monotonic() + 60
        while len(calls) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(calls) >= 3
    assert interval_s() == EVERY_S
    assert not [each for each in threading.enumerate() if each.name == "seglake progress"]


def test_a_function_that_raises_is_not_called_again() -> None:
    calls = list[int]()

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("the JVM is gone")

    with line_every(0.01), periodically(fail):
        time.sleep(0.1)
    assert calls == [1]


class _Halves(NamedTuple):
    """A task that says how much its items are."""

    seconds: float = 0

    def __call__(self, item: int) -> int:
        time.sleep(self.seconds)
        return item // 2

    def amounts(self, items: Sequence[int]) -> Amounts:
        return Amounts("records", items)


def test_engine_and_maintenance_log_their_progress(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="seglake")
    with line_every(0.0):
        LocalEngine().map(lambda item: item, [1, 2])
        LocalEngine().map(_Halves(), [5, 7])
    assert "1 of 2 tasks done" in caplog.text
    assert "5 of 12 records done" in caplog.text
    with line_every(0.01):
        LocalEngine(2).map(_Halves(0.1), [5, 7])
    assert caplog.text.count("12 records to do, ") > 2  # without a rate of 0 a second
    maker = LakeMaker(tmp_path)
    for _ in range(3):
        maker.run({0: [Event(5)]})
    with line_every(0.0):
        verify(str(tmp_path), deep=False)
    assert " B of log done" in caplog.text
    caplog.clear()
    verify(str(tmp_path), deep=False)
    logged("tasks")(1, 2)
    assert "done" not in caplog.text


def _said(caplog: pytest.LogCaptureFixture) -> set[str]:
    """What was counted since the last call, as "rejects" or "B of log"."""
    amounts = [re.search(r" of [\d.,]+ (.*) done, ", line) for line in caplog.messages]
    caplog.clear()
    return {amount[1] for amount in amounts if amount}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log, with a line after each task."""
    caplog.set_level(logging.INFO, logger="seglake")
    with line_every(0.0):
        yield caplog


def test_no_work_on_rejects_is_counted_in_tasks(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    root, paths = tmp_path / "lake", [tmp_path / "in" / name for name in ("1.jsonl", "2.jsonl")]
    for path in paths:
        write(path, "jsonl", [RawEvent(times) for times in "abbc"])
    ingest(pipeline_of(root, paths, "jsonl", "a"), "day")
    assert "6 of 6 rejects done" in lines.text
    assert _said(lines) == {"B", "records", "rejects"}
    redriven(pipeline_of(root, paths, "jsonl", "b"), "day")
    size = short_bytes(sum(path.stat().st_size for path in paths))
    assert f"{size} of {size} done" in lines.text  # it reads both files again
    assert _said(lines) == {"files of rejects", "B", "records", "rejects"}
    erase(str(root), "events", raw_containing=b'"c"', vacuum=True)
    assert _said(lines) == {"files of rejects", "KiB of rejects"}
    undo(str(root), "events", "day")
    assert _said(lines) == {"B of log"}


def test_a_pass_of_compaction_is_counted_in_bytes_of_log_and_keys(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    maker = LakeMaker(tmp_path, settings={"cleanup.policy": "compact"})
    for _ in range(3):
        maker.run({0: [Event(5, b"k", b"v")]})
    size = short_bytes(maker.files("log")[0].stat().st_size * 3)
    options = CompactionOptions(force=True, now_ms=10**13, progress=logged("bytes of log"))
    compact_topic(maker.catalog, "events", LocalEngine(), options)
    assert f"{size} of {size} of log in this wave done" in lines.text
    assert _said(lines) == {"B of log", "B of log in this wave", "keys in this wave"}


class _Sized(NamedTuple):
    log_bytes: int


def test_segments_that_spark_reads_are_counted_in_bytes_of_log(
    lines: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SparkEngine()
    monkeypatch.setattr(engine, "map", LocalEngine().map)
    monkeypatch.setattr(engine, "cores_for", lambda _: 1)
    tasks = SegmentTasks(LakeMaker(tmp_path).store, engine, logged("bytes of log"))
    rows = [_Sized(700), _Sized(300)]
    assert tasks.map(lambda _, row: row.log_bytes + 1, rows) == [701, 301]
    assert "700 B of 700 B of log in this wave done" in lines.text
    assert "1,000 B of 1,000 B of log done" in lines.text


def test_straddling_blobs_are_counted_in_records(tmp_path: Path) -> None:
    blobs = [
        SpanningBlob(number, {}, pa.table({"records": [count]}))
        for number, count in enumerate([5, 7, 9])
    ]
    task = CountSpanningBlobs(LakeMaker(tmp_path).store)
    records = Amounts.of(task, [blobs[:2], blobs[2:]])
    assert records == ("records of straddling blobs", [12, 9])
