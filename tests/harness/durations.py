"""A pytest plugin: how long each test takes. A file has all of it, the end of a run the slowest.

It names and does not judge: seconds, and shares of them, depend on what else the machine does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SHOWN = 20
FILE = Path("build/durations/last.tsv")


class Duration(NamedTuple):
    """A test's seconds by phase; what several tests share is in the `setup` of the first."""

    test: str
    setup: float = 0
    call: float = 0
    teardown: float = 0

    @property
    def seconds(self) -> float:
        """All phases."""
        return self.setup + self.call + self.teardown


class Durations:
    """What the reports of a run say, workers' too."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, Duration] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A report is of one phase of one test."""
        before = self._found.get(report.nodeid, Duration(report.nodeid))
        phase: dict[str, Any] = {report.when: report.duration}
        self._found[report.nodeid] = before._replace(**phase)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        if self._found:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(as_text(slowest_first(self._found.values())))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The slowest tests."""
        found = list(self._found.values())
        if len(found) <= SHOWN:
            return
        terminalreporter.section(f"slowest {SHOWN} of {len(found)}; all are in {self._file}")
        for each in slowest_first(found)[:SHOWN]:
            terminalreporter.line(f"{each.seconds:7.1f} s  {each.test}")


def slowest_first(found: Iterable[Duration]) -> list[Duration]:
    """By the seconds of all phases."""
    return sorted(found, key=lambda each: (-each.seconds, each.test))


def as_text(found: list[Duration]) -> str:
    """A line for each test: seconds of all phases, setup, call and teardown; its id."""
    rows = [(each.seconds, each.setup, each.call, each.teardown, each.test) for each in found]
    lines = ["\t".join([*(f"{seconds:.3f}" for seconds in row[:4]), row[4]]) for row in rows]
    return "\n".join(["seconds\tsetup\tcall\tteardown\ttest", *lines, ""])


def pytest_addoption(parser: pytest.Parser) -> None:
    """The Makefile names a file for each of its runs."""
    parser.addoption(
        "--durations-file", type=Path, default=FILE, help=f"seconds of each test; default {FILE}"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Workers report to the process that started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config.getoption("--durations-file")))
