"""Lines about progress: when they are due, what they say, and that they reach log and terminal."""

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from seglake.engine import Amounts, LocalEngine, logged
from seglake.maintain.health.verify import verify
from seglake.terminal.progress import (
    EVERY_S,
    Pace,
    interval_s,
    line_every,
    periodically,
    report_wait,
)
from seglake.write.driver.report import Report, silent
from tests.harness.lake_server import until
from tests.makers.lakes import Event, LakeMaker


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
        until(lambda: len(said) >= 2)
    assert {*said[:2]} == {"Spark starts, 0 s"}


def test_only_a_long_step_has_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="seglake.write.driver.report.long_steps")
    report = Report(pipeline="p", topic="t", run_id="r", attempt_id="a")
    with report.step("plan", silent, "1 file is listed"):
        pass
    with line_every(0.01), report.step("read", silent, "1 file is read"):
        until(lambda: bool(caplog.messages))
        time.sleep(0.05)
    assert caplog.messages == ["topic t: 1 file is read"]


def test_a_function_is_called_periodically_until_the_block_ends() -> None:
    calls = list[float]()
    with line_every(0.01), periodically(lambda: calls.append(time.monotonic())):
        until(lambda: len(calls) >= 3)
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
