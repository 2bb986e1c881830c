"""The explorer: its steps follow from a seed, findings are printed with their commands."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests import explore
from tests.explore import PARTS, Step, run, steps


def some(seed: int, *parts: str) -> list[Step]:
    return list(islice(steps(seed, parts or PARTS, ["a.py::one", "a.py::two"]), 14))


def test_steps_follow_from_the_seed() -> None:
    assert some(1) == some(1) != some(2)
    assert {step.part for step in some(1)} == set(PARTS)
    assert {step.part for step in some(1, "fuzz")} == {"fuzz"}
    assert {step.arguments[-1] for step in some(1, "examples")} == {"a.py::one", "a.py::two"}
    assert len({step.arguments for step in some(1, "kills")}) == 14


def test_a_step_ends_in_time() -> None:
    outcome = run(
        Step("fuzz", ("-c", "import time; print('begun', flush=True); time.sleep(60)")), 1
    )
    assert outcome.word == "cut short"
    assert outcome.output.startswith("begun\n")
    assert "KeyboardInterrupt" in outcome.output  # it tells where it was
    assert outcome.seconds < 30


@pytest.mark.rest
def test_a_step_that_does_not_listen_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "LAST_WORDS_S", 1)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(1, flush=True)"
    outcome = run(Step("fuzz", ("-c", f"{deaf}; time.sleep(60)")), 1)
    assert (outcome.word, outcome.output) == ("cut short", "1\n")
    assert outcome.seconds < 30


def test_the_output_of_a_step_that_is_cut_short_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    step = Step(
        "kills", ("-c", "import time; print('a kill lost a row', flush=True); time.sleep(60)")
    )
    monkeypatch.setattr(explore, "steps", lambda *_: iter([step]))
    options = ["--minutes", "1", "--step-seconds", "1", "--outputs", str(tmp_path / "new"), "kills"]
    assert explore.main(options) == 0
    [file] = (tmp_path / "new").iterdir()
    assert file.read_text().startswith(f"{step}\ncut short after ")
    assert "a kill lost a row\n" in file.read_text()
    assert f"all output: {file}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "told"), [(0, "0 found"), (3, "1 found")])
def test_a_finding_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, code: int,
    told: str,
) -> None:  # fmt: skip
    program = f"import sys; print('Falsifying example'); sys.exit({code})"
    step = Step("kills", ("-c", program))
    monkeypatch.setattr(explore, "steps", lambda *_: iter([step]))
    options = ["--minutes", "1", "--seed", "7", "--outputs", str(tmp_path), "kills"]
    assert explore.main(options) == bool(code)
    out = capsys.readouterr().out
    assert "seed 7, 1 minutes" in out
    assert f"{told}\n" in out
    assert ("Falsifying example\n" in out) == bool(code)
    assert out.count(str(step)) == 1 + bool(code)


@pytest.mark.rest
def test_the_tests_with_new_examples_exist() -> None:
    found = explore.hypothesis_tests()
    assert "tests/unit/read/test_oracle.py::test_windows" in found
    assert not any(each.startswith("tests/kafka") for each in found)
