"""The notebook runs, cell by cell, in a kernel of its own, and shows what is stored in it.

`python -m tests.spark.test_story` runs it and stores what its cells show.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

STORY = Path(__file__).parents[2] / "docs" / "story.ipynb"
CELLS = 10
DIFFERS = re.compile(r"'[^']*story/lake'|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DROPPED = {"image/png", "text/html"}  # pictures differ in bytes; the text of a table says the same


def run(book: Any, folder: str) -> list[Any]:
    """Run a notebook in a folder; its cells of code."""
    where = {"metadata": {"path": folder}}
    NotebookClient(book, timeout=300, kernel_name="python3", resources=where).execute()
    return code_of(book)


def code_of(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def shown(cell: Any) -> Iterator[str]:
    """What a cell shows, as text, but for what differs from run to run."""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield DIFFERS.sub("…", output.text)
        for kind, text in sorted(output.get("data", {}).items()):
            yield kind if kind in DROPPED else DIFFERS.sub("…", text)


@pytest.mark.spark
@pytest.mark.rest
@pytest.mark.long
def test_every_cell_of_the_story_shows_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    book: Any = nbformat.read(STORY, 4)  # type: ignore[no-untyped-call]  # so it is exported
    stored = [[*shown(cell)] for cell in code_of(book)]
    cells = run(book, str(tmp_path))
    assert len(cells) == CELLS
    assert "already done" in "".join(shown(cells[2]))  # the second run of one id
    assert [*shown(cells[-1])] == ["True"]
    assert [[*shown(cell)] for cell in cells] == stored


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        notebook: Any = nbformat.read(STORY, 4)  # type: ignore[no-untyped-call]
        for each in run(notebook, place):
            each.metadata.pop("execution", None)  # the times of the run
            each.outputs = [one for one in each.outputs if one.get("name") != "stderr"]
        notebook.metadata.language_info = {"name": "python"}
        told: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
        STORY.write_text(told.replace(f"{place}/", "") + "\n")
