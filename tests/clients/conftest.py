"""A table behind the tests of test_matrix.py: which client passed which check."""

from collections.abc import Iterable
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.clients.matrix")

SHOWN = {"passed": "ok", "failed": "FAILED", "error": "FAILED", "skipped": "left out"}
NOT_ASKED = "-"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table, where any of these tests ran."""
    found = dict[tuple[str, str], str]()
    for outcome, shown in SHOWN.items():
        for report in terminalreporter.stats.get(outcome, ()):
            told = dict(report.user_properties)
            if "client" in told:
                found[told["client"], told["check"]] = shown
    if found:
        terminalreporter.section("clients of seglake serve")
        for line in table(found):
            terminalreporter.line(line)


def table(found: dict[tuple[str, str], str]) -> Iterable[str]:
    """Lines of a row for each client that was asked, and a column for each check."""
    from tests.clients.families import PROGRAMS  # noqa: PLC0415  # only where it is wanted
    from tests.clients.matrix import CHECKS  # noqa: PLC0415

    asked = {name for name, _ in found}
    names = [program.name for program in PROGRAMS if program.name in asked]
    cells = [["client", *(check.name for check in CHECKS)]]
    cells += [
        [name, *(found.get((name, check.name), NOT_ASKED) for check in CHECKS)] for name in names
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
