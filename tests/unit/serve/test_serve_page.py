"""docs/serve.md tells which clients are tested, and what is true of them."""

from pathlib import Path

from tests.clients.families import written

PAGE = Path(__file__).parents[3] / "docs" / "serve.md"


def test_the_table_is_that_of_today() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "make docs"
