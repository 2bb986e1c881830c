"""Skipped tests are named at the end of a run, and fail where nothing may be left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.seed_of_the_day import VARIABLE
from tests.harness.tiers import waits

pytestmark = pytest.mark.slow  # processes of their own

PROJECT = Path(__file__).parents[2]
ALONE = {"PYTHONPATH": str(PROJECT), "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import pytest

@pytest.fixture
def jars():
    pytest.skip("no jars")

def test_of_jars(jars): pass
def test_of_jars_too(jars): pass
@pytest.mark.skipif(True, reason="no Linux")
def test_of_linux(): pass
@pytest.mark.xfail
def test_expected_to_fail(): assert False
def test_that_runs(): pass
"""

TODAY = ("-p", "tests.harness.tiers", "-m", "not another_day")


def outcome(folder: Path, tests: str, *options: str, **environment: str) -> tuple[int, str]:
    """The exit code of a run of these tests, and what it prints."""
    (folder / "test_some.py").write_text(tests)
    settings = {k: v for k, v in os.environ.items() if k not in ("SEGLAKE_REQUIRE_ALL", "COLUMNS")}
    command = [sys.executable, "-m", "pytest", "-p", "tests.harness.left_out", "-c", os.devnull]
    done = subprocess.run(
        [*command, *options, f"--rootdir={folder}", "test_some.py"],
        cwd=folder,
        env={**settings, **ALONE, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, TESTS)
    assert code == 0
    assert "NOT TESTED: 3 left out" in told
    assert "2 x no jars\n1 x no Linux\n" in told
    assert "1 passed, 3 skipped, 1 xfailed" in told


def test_what_is_left_out_fails_where_all_is_required(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, TESTS, SEGLAKE_REQUIRE_ALL="1")
    assert code == 1
    assert "NOT TESTED" not in told
    assert "left out, but SEGLAKE_REQUIRE_ALL is set: no jars" in told
    assert "1 passed, 1 xfailed, 3 errors" in told


MISSING = ("pytest.importorskip('no_such_library')", "pytest.skip('none', allow_module_level=True)")


@pytest.mark.parametrize("missing", MISSING)
def test_a_module_left_out_fails_too(tmp_path: Path, missing: str) -> None:
    assert outcome(tmp_path, f"import pytest\n{missing}\n")[0] == 5
    code, told = outcome(tmp_path, f"import pytest\n{missing}\n", SEGLAKE_REQUIRE_ALL="1")
    assert code == 2
    assert "left out, but SEGLAKE_REQUIRE_ALL is set" in told


def test_a_run_without_gaps_says_nothing(tmp_path: Path) -> None:
    assert "NOT TESTED" not in outcome(tmp_path, "def test_that_runs(): pass\n")[1]


def test_continuous_integration_requires_all() -> None:
    script = (PROJECT / ".ci/run").read_text()
    assert "export SEGLAKE_REQUIRE_ALL=1\nexec make test-all\n" in script


def test_each_test_is_in_one_part_of_test_all() -> None:
    """The second part has what the first leaves out, and all examples of what has some.

    Of the clients' matrix it has two checks for each client; the others are in test-clients. Long
    tests have a day of four; test-whole runs all of the second part.
    """
    targets = (PROJECT / "Makefile").read_text()
    assert targets.count('$(QUICK) -m "not rest and not clients" ') == 1
    assert targets.count("$(PYTEST) tests/clients/test_matrix.py\n") == 1
    assert targets.count('-m "(rest or hypothesis) and not another_day" ') == 1
    assert targets.count('-m "rest or hypothesis" ') == 1
    assert "\ntest-all: test ##" in targets
    assert "\n\t@$(MAKE) --no-print-directory test-rest\n" in targets


def test_what_waits_runs_on_one_day_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    tests, ran = {f"tests/test_some.py::test_{i}" for i in range(300)}, list[set[str]]()
    for day in ("20261127", "20261128", "20261129", "20261130"):
        monkeypatch.setenv(VARIABLE, day)
        ran.append({test for test in tests if not waits(test)})
    assert set.union(*ran) == tests
    assert sum(map(len, ran)) == len(tests)
    assert min(map(len, ran)) > 50


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("@pytest.mark.long\ndef test_of_a_kind()", [0, 5, 5, 5]),
        ("@given(st.none())\ndef test_of_a_kind(_)", [0, 5, 5, 5]),
        ("@pytest.mark.slow\ndef test_of_a_kind()", [0, 0, 0, 0]),
    ],
    ids=["long", "property", "slow"],
)
def test_only_what_takes_turns_waits(tmp_path: Path, kind: str, codes: list[int]) -> None:
    """Such a test is left out on three days of four, another on none."""
    tests = f"import pytest\nfrom hypothesis import given, strategies as st\n{kind}: pass\n"
    found = [outcome(tmp_path, tests, *TODAY, **{VARIABLE: day})[0] for day in "1234"]
    assert sorted(found) == codes
