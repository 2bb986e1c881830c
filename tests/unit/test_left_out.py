"""Skipped tests fail where nothing may be left out, and each test of a day runs on one of four."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.tiers import VARIABLE, waits

pytest_plugins = ["pytester"]
PROJECT = Path(__file__).parents[2]
TESTS = """
import pytest
def test_without_jars(): pytest.skip("no jars")
@pytest.mark.xfail
def test_expected_to_fail(): assert False
def test_that_runs(): pass
"""


@pytest.mark.parametrize("required", [False, True])
def test_skipped_test_fails_where_all_are_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    monkeypatch.delenv("SEGLAKE_REQUIRE_ALL", raising=False)
    if required:
        monkeypatch.setenv("SEGLAKE_REQUIRE_ALL", "1")
    pytester.makepyfile(TESTS)
    pytester.makepyfile(test_module="import pytest\npytest.importorskip('no_such_library')")
    found = pytester.inline_run("-p", "tests.harness.left_out", "--continue-on-collection-errors")
    passed, skipped, failed = map(len, found.listoutcomes())
    assert (passed, skipped, failed) == ((1, 1, 2) if required else (1, 3, 0))


def test_continuous_integration_requires_all() -> None:
    script = (PROJECT / ".ci/run").read_text()
    assert "export SEGLAKE_REQUIRE_ALL=1\nexec make test-all\n" in script


def test_long_test_runs_on_one_day_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    tests, ran = {f"tests/test_some.py::test_{i}" for i in range(300)}, list[set[str]]()
    for day in ("20261127", "20261128", "20261129", "20261130"):
        monkeypatch.setenv(VARIABLE, day)
        ran.append({test for test in tests if not waits(test)})
    assert set.union(*ran) == tests
    assert sum(map(len, ran)) == len(tests)
