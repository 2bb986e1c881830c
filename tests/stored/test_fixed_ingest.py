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


@pytest.mark.parametrize("part", ["records", "gzip", "objects"])
def test_every_part_is_what_it_was(found: dict[str, Any], part: str) -> None:
    assert list(found[part]) == list(WANTED[part])
    assert {k: each for k, each in found[part].items() if each != WANTED[part][k]} == {}


@pytest.mark.parametrize("kind", WANTED["catalog"])
def test_every_row_is_what_it_was(found: dict[str, Any], kind: str) -> None:
    assert found["catalog"][kind] == WANTED["catalog"][kind]


def test_no_blob_is_left(found: dict[str, Any]) -> None:
    assert [key for key in found["objects"] if "/blobs" in key] == []
