"""A pytest plugin: where `SEGLAKE_REQUIRE_ALL` is set, as in `.ci/run`, a skipped test fails.

A test is skipped if a jar, Go, a data set or a right of the machine is missing. Without the
variable, pytest lists such tests at the end of a run (`-ra`).
"""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

REQUIRED = "SEGLAKE_REQUIRE_ALL"
_R = TypeVar("_R", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test. A test that is expected to fail stays as it is."""
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that skips as a whole."""
    return _required((yield))


def _required(report: _R) -> _R:
    if os.environ.get(REQUIRED) and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"left out, but {REQUIRED} is set: {report.longrepr}"
    return report
