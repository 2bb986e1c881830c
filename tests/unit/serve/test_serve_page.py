"""docs/serve.md tells which clients are tested, and what is true of them."""

from __future__ import annotations

from pathlib import Path

from tests.clients.families import PROGRAMS, remarks_of, table, written
from tests.clients.program import Program

PAGE = Path(__file__).parents[3] / "docs" / "serve.md"


def test_the_table_is_that_of_today() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "make docs"


def test_every_program_has_a_name_of_its_own() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)


def test_remarks_name_their_versions() -> None:
    both, one = "reads slowly", "has no groups"
    made = [
        Program("x 1", list, remarks=(both, one)), Program("x 2", list, remarks=(both,)),
        Program("y 1", list),
    ]  # fmt: skip
    assert list(remarks_of(made[:2])) == [both, f"1: {one}"]
    assert list(table({"C": made}))[2:] == [
        f"| C | x | 1, 2 | {both}; 1: {one} |",
        "| C | y | 1 |  |",
    ]
