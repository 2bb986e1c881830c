"""A pytest plugin: no test is left out in silence.

A test that skips, because a jar, Go, a data set or a right of the machine is missing, is named in
a section at the end of the run. Where `SEGLAKE_REQUIRE_ALL` is set, as in `.ci/run`, it fails.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

REQUIRED = "SEGLAKE_REQUIRE_ALL"
_R = TypeVar("_R", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skipped test fails where all are required; one that is expected to fail is as before."""
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips as a whole fails like a test."""
    return _required((yield))


def _required(report: _R) -> _R:
    if os.environ.get(REQUIRED) and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"left out, but {REQUIRED} is set: {_reason(report)}"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr
    reason = told[2] if isinstance(told, tuple) else str(told)
    return reason.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end what was not tested, and why."""
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if not skipped:
        return
    title = f"NOT TESTED: {skipped.total()} left out"
    terminalreporter.section(title, sep="!", red=True, bold=True)
    for reason, count in skipped.most_common():
        terminalreporter.line(f"{count} x {reason}", red=True)
    terminalreporter.line(f"With {REQUIRED}=1 in the environment these fail.")
