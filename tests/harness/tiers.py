"""What `make test` leaves to `make test-rest`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Parameters of a test; those that are not named as quick are marked `rest`."""
    values = list(values)
    if unknown := [each for each in quick if each not in values]:
        raise ValueError(f"no such parameter: {unknown}")
    return [
        each if each in quick else pytest.param(each, marks=pytest.mark.rest) for each in values
    ]
