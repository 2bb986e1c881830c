"""What the documents claim of speed and size follows from the page that `make bench` wrote."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bench.__main__ import PARTS
from tests.bench.why import WHY

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "benchmarks.md").read_text()

# (document, what it says, the goal on the page whose figure bears it out: part, text), least, most
CLAIMS = [
    ("README.md", "A full scan of two columns is faster there", "Full scans",
     "two columns, relative to Spark on Delta", 0, 1),
]  # fmt: skip


class Line(NamedTuple):
    """One line of the page's table."""

    part: str
    text: str
    measured: float
    goal: str
    reached: bool


def lines() -> list[Line]:
    number_, verdict = r"([\d.,]+)", r"(yes|\*\*no\*\*)"
    row = rf"^\| (.+) \| (.+) \| {number_} \| (.+) \| {verdict} \|$"
    rows = re.findall(row, PAGE, re.M)
    return [Line(row[0], row[1], number(row[2]), row[3], row[4] == "yes") for row in rows]


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(("document", "words", "part", "goal", "least", "most"), CLAIMS)
def test_a_claim_follows_from_the_page(
    document: str, words: str, part: str, goal: str, least: float, most: float
) -> None:
    text = re.sub(r"\s+", " ", (PROJECT / document).read_text())
    assert words in text, "the document says something else: change the list of claims"
    (line,) = (line for line in lines() if line.part == part and goal in line.text)
    assert least <= line.measured <= most, f"{document} claims otherwise: {words}"


def test_the_page_says_of_each_goal_whether_it_was_reached() -> None:
    assert len(lines()) <= 30
    for line in lines():
        ((word, target),) = re.findall(r"^at (least|most) ([\d.,]+)$", line.goal)
        if line.measured != number(target):  # else they differ in digits that the page leaves out
            assert line.reached is ((line.measured > number(target)) == (word == "least")), line


def test_the_page_counts_its_goals() -> None:
    reached = sum(line.reached for line in lines())
    assert f"\n## Goals: {reached} of {len(lines())} reached\n" in PAGE


def test_the_page_says_why_goals_were_missed() -> None:
    """The reasons are those of `why.py`: after a change there, change the page."""
    missed = {line.part for line in lines() if not line.reached}
    reasons = PAGE.partition("\n## What is slower than others, and why\n")[2]
    assert set(re.findall(r"^\*\*(.+)\.\*\*", reasons, re.M)) == missed
    assert set(WHY) <= set(PARTS)
    assert all(text in WHY.values() for text in re.split(r"\n(?=\*\*)", reasons.strip()))


def test_no_document_has_a_figure_of_speed_beside_the_page() -> None:
    """A ratio or a rate in another document would not be measured anew with the page."""
    figure = re.compile(r"\d(?:\.\d+)? ?(?:µs\b|MB/s|GB/s|M records)|\d times (?:as fast|faster)")
    others = [path for path in [*PROJECT.glob("docs/*.md"), PROJECT / "README.md"]
              if path.name != "benchmarks.md"]  # fmt: skip
    assert {path.name: figure.findall(path.read_text()) for path in others} == {
        path.name: [] for path in others
    }
