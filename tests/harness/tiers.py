"""What `make test` leaves to `make test-rest`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from tests.harness.seed_of_the_day import seed_of_the_day

Test = TypeVar("Test", bound=Callable[..., Any])


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


def every_other_day(turn: int) -> Callable[[Test], Test]:
    """A long test of `make test-rest` that runs on half of the days; two turns share the load.

    On the others it is marked `another_day`, and left out by that.
    """

    def marked(test: Test) -> Test:
        if (seed_of_the_day() + turn) % 2:
            test = pytest.mark.another_day(test)
        both: Test = pytest.mark.rest(test)
        return both

    return marked
