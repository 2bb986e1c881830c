"""What `make test` leaves to `make test-rest`, and that to another day: also a pytest plugin."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test

DAYS = 4
VARIABLE = "SEGLAKE_SEED"


def seed_of_the_day() -> int:
    """Return $SEGLAKE_SEED, which the Makefile sets, or the date in UTC, such as 20261123."""
    return int(os.environ.get(VARIABLE) or f"{datetime.now(UTC):%Y%m%d}")


def rest_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Parameters of a test; those that are not named as quick are marked `rest`."""
    values = list(values)
    if unknown := [each for each in quick if each not in values]:
        raise ValueError(f"no such parameter: {unknown}")
    return [
        each if each in quick else pytest.param(each, marks=pytest.mark.rest) for each in values
    ]


def rest_but_today(values: Iterable[Any], one_in: int = 3) -> list[Any]:
    """Parameters of a test of which every day has its own quick ones, one in so many."""
    values = list(values)
    return [
        pytest.param(each, marks=() if (i + seed_of_the_day()) % one_in == 0 else pytest.mark.rest)
        for i, each in enumerate(values)
    ]


def of_today(values: Iterable[Any], one_in: int = 3) -> list[Any]:
    """The values whose day it is, one in so many: to try all takes too long, even for the rest."""
    return [each for i, each in enumerate(values) if (i + seed_of_the_day()) % one_in == 0]


def waits(test: str) -> bool:
    """Whether the day of this test is another one: each has one in four, by its name."""
    return (crc32(test.encode()) + seed_of_the_day()) % DAYS != 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests, and properties with all their examples, run on one day of four.

    On the others they are marked `another_day`, and `make test-rest` leaves them out.
    """
    for item in items:
        if _takes_turns(item) and waits(item.nodeid):
            item.add_marker("another_day")


def _takes_turns(item: pytest.Item) -> bool:
    """Hypothesis has not marked its own tests yet."""
    test = getattr(item, "obj", None)
    return item.get_closest_marker("long") is not None or is_hypothesis_test(test)
