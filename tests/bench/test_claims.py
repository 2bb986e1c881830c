"""What the documents claim of speed and size follows from the page that `make bench` wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.bench import report
from tests.bench.measure import Goal

DOCS = Path(__file__).parents[2] / "docs"

# (document, what it says, the goal on the page whose figure bears it out: part, text), least, most
CLAIMS = [
    ("faq.md", "opens in about a second", "catalog", "ms to open", 500, 1_500),
    ("faq.md", "in 75 bytes of memory each", "catalog", "bytes in memory per segment", 70, 80),
    ("compare.md", "A full scan of two columns is faster there", "scan",
     "two columns, as a multiple of Spark on Delta", 0, 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "benchmarks.json").read_text())
    return found


def goals(page: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [goal for each in page["sections"] if each["name"] == part for goal in each["goals"]]


@pytest.mark.parametrize(("document", "words", "part", "goal", "least", "most"), CLAIMS)
def test_a_claim_follows_from_the_page(
    page: dict[str, Any], document: str, words: str, part: str, goal: str, least: float, most: float
) -> None:
    text = re.sub(r"\s+", " ", (DOCS / document).read_text())
    assert words in text, "the document says something else: change the list of claims"
    (found,) = (each for each in goals(page, part) if goal in each["text"])
    assert least <= found["measured"] <= most, f"{document} claims otherwise: {words}"


def test_the_page_says_of_each_goal_whether_it_was_reached(page: dict[str, Any]) -> None:
    text = (DOCS / "benchmarks.md").read_text()
    for section in page["sections"]:
        for each in goals(page, section["name"]):
            goal = Goal(each["text"], each["measured"], each["target"], each["at_least"])
            assert goal.reached is each["reached"]
            assert report.said(goal) in text


def test_no_document_has_a_figure_of_speed_beside_the_page() -> None:
    """A ratio or a rate in another document would not be measured anew with the page."""
    figure = re.compile(r"\d(?:\.\d+)? ?(?:µs\b|MB/s|GB/s|M records)|\d times (?:as fast|faster)")
    others = [path for path in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
              if path.name != "benchmarks.md"]  # fmt: skip
    assert {path.name: figure.findall(path.read_text()) for path in others} == {
        path.name: [] for path in others
    }
