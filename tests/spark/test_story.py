"""The notebook runs, cell by cell, in a kernel of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

STORY = Path(__file__).parents[2] / "docs" / "story.ipynb"
CELLS = 10


@pytest.mark.spark
@pytest.mark.rest
def test_every_cell_of_the_story_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    book: Any = nbformat.read(STORY, 4)  # type: ignore[no-untyped-call]  # so it is exported
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=300, kernel_name="python3", resources=where).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert len(cells) == CELLS
    said = "".join(output["text"] for output in cells[2].outputs)
    assert "already" in said  # the second run of one id
    assert [cells[-1].outputs[-1]["data"]["text/plain"], len(cells[-2].outputs)] == ["True", 3]
