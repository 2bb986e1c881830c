"""The public names: what `seglake` exports, and that whatever users copy imports nothing else."""

import json
import re
from pathlib import Path

import pytest

import seglake

PROJECT = Path(__file__).parents[2]
PACKAGES = {
    "seglake", "seglake.config", "seglake.datasource", "seglake.airflow", "seglake.errors",
    "seglake.session",
}  # fmt: skip
FOLDERS = ("docs", "conf", "jobs", "src/seglake/jobs", "src/seglake/demo")
IMPORT = re.compile(r"^(?:>>>|\.\.\.)?\s*(?:from|import) (seglake[\w.]*)", re.MULTILINE)


def texts() -> list[tuple[str, str]]:
    """The pages, notebooks, examples, jobs and DAGs, by path."""
    paths = [PROJECT / "README.md"]
    for folder in FOLDERS:
        paths += sorted((PROJECT / folder).rglob("*"))
    return [
        (str(path.relative_to(PROJECT)), _text(path))
        for path in paths
        if path.suffix in {".md", ".py", ".ipynb"}
    ]


def _text(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text()
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])


@pytest.mark.parametrize("name", seglake.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(seglake, name) is not None


def test_the_names_are_shown() -> None:
    assert {"Lake", "errors", "ingest", "open"} <= {*seglake.__all__} <= {*dir(seglake)}


def test_whatever_is_copied_imports_public_names() -> None:
    private = [
        (path, module)
        for path, text in texts()
        if not path.startswith("src/")
        for module in IMPORT.findall(text)
        if module not in PACKAGES and not module.startswith("seglake.jobs.")
    ]
    assert private == []
