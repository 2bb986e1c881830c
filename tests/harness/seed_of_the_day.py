"""A pytest plugin: the profile `quick` tries other examples each day, the same ones all day.

So a change is judged by the same examples before and after, and in a year each property has seen
hundreds of times as many. `SEGLAKE_SEED` repeats those of another day.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest

VARIABLE = "SEGLAKE_SEED"
PROFILE, SEED = "hypothesis_profile", "hypothesis_seed"  # Hypothesis's own options


def seed_of_the_day() -> int:
    """$SEGLAKE_SEED, or the date in UTC: 20261123."""
    return int(os.environ.get(VARIABLE) or f"{datetime.now(UTC):%Y%m%d}")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its options
def pytest_configure(config: pytest.Config) -> None:
    """Workers take the seed from the process that started them, at midnight too."""
    os.environ[VARIABLE] = str(seed_of_the_day())
    if config.getoption(PROFILE) == "quick" and config.getoption(SEED) is None:
        setattr(config.option, SEED, str(seed_of_the_day()))


def pytest_report_header(config: pytest.Config) -> str | None:
    """The seed, at the beginning of a run."""
    return _told(config)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """And below its failures."""
    told = _told(terminalreporter.config)
    if told and terminalreporter.stats.get("failed"):
        terminalreporter.line(told)


def _told(config: pytest.Config) -> str | None:
    if config.getoption(PROFILE) != "quick":
        return None
    seed = config.getoption(SEED)
    return f"seed of the day: {seed}; {VARIABLE}={seed} in the environment tries the same again"
