"""A fixed ingest writes the same bytes as ever; fixed_ingest.py says what is compared, and how."""

import json
from typing import Any

import pytest

from tests.stored.fixed_ingest import EXPECTED, pinned

WANTED: dict[str, Any] = json.loads(EXPECTED.read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(pinned()))
    return told


def test_the_libraries_are_those_that_the_bytes_come_from(found: dict[str, Any]) -> None:
    """With others the bytes may differ: write them anew, and say so in fixed_ingest.py."""
    assert found["libraries"] == WANTED["libraries"]


@pytest.mark.parametrize("part", ["records", "gzip", "segments"])
def test_every_part_is_what_it_was(found: dict[str, Any], part: str) -> None:
    assert found[part].keys() == WANTED[part].keys()
    assert {k: each for k, each in found[part].items() if each != WANTED[part][k]} == {}
