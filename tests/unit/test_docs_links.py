"""Every link between the pages leads somewhere: to a file, and to a heading in it."""

import doctest
import inspect
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.config import load
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.read.window.reader import WindowReader
from tests.simulation.faults import SEARCHED
from tests.simulation.scripts import SCRIPTS

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted(PROJECT.glob("docs/**/*.md"))]


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_the_readme_leads_to_every_page() -> None:
    named = set(re.findall(r"\(docs/([\w]+\.md)\)", (PROJECT / "README.md").read_text()))
    assert named == {page.name for page in PROJECT.glob("docs/*.md")}


def test_code_names_pages_that_exist() -> None:
    """Messages, docstrings and settings of tools name pages by their paths."""
    folders = ("src", "jobs", "conf", "tests")
    files = [file for folder in folders for file in sorted((PROJECT / folder).rglob("*"))]
    texts = [*files, PROJECT / "Makefile", PROJECT / "pyproject.toml", PROJECT / "CONTRIBUTING.md"]
    kinds = {".py", ".toml", ".yml", ".sh", ".conf", ".md", ""}
    gone = [
        (str(file.relative_to(PROJECT)), page)
        for file in texts
        if file.is_file() and file.suffix in kinds and "__pycache__" not in file.parts
        for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(errors="replace"))
        if not (PROJECT / page).exists()
    ]
    assert gone == []


def test_the_site_leads_to_every_page() -> None:
    """`make site` is strict: it fails at a page that its menu lacks."""
    menu = (PROJECT / "conf" / "site" / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w/-]+\.md", menu)
    pages = [str(page.relative_to(PROJECT / "docs")) for page in PROJECT.glob("docs/**/*.md")]
    made = ["index.md", "api.md", "commands.md", "story.md"]  # by its hooks
    assert sorted(named) == sorted([*made, *pages])


def test_the_kernels_are_compiled_where_seglake_is_installed() -> None:
    """Whoever copies the line does not wait later."""
    others = [*PROJECT.glob("docs/*.ipynb"), *PROJECT.glob("jobs/**/*.py")]
    for page in [*PAGES, *others]:
        lines = page.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r"pip install '?seglake", line) and "needs the package" not in line:
                assert "seglake warm" in "".join(lines[number : number + 3]), (page, line)


def test_the_architecture_names_files_that_exist() -> None:
    page = prose(PROJECT / "docs" / "architecture.md")
    places = set(re.findall(r"`([\w/-]+/[\w/.-]*)`", page))
    assert len(places) > 80
    folders = (PROJECT / "src/seglake", PROJECT)
    gone = {place for place in places if not any((top / place).exists() for top in folders)}
    assert gone == {"catalog/deletions"}  # an object of a lake


def test_the_design_names_faults_and_files_that_exist() -> None:
    page = (PROJECT / "docs" / "design.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if re.match(r"\| I\d+ ", row)]
    assert len(rows) == 20
    for number, _, places, fault, found_by in rows:
        for place in re.findall(r"`([\w./]+)`", places):
            assert (PROJECT / "src/seglake" / place).exists(), (number, place)
        name = fault.strip('"')
        if name in SCRIPTS:
            assert f"`{SCRIPTS[name].script.__name__}`" in found_by, number
        else:
            assert name == "none" or name in SEARCHED, (number, fault)
    for test in re.findall(r"`(tests/[\w./]+)`", page):
        assert (PROJECT / test).exists(), test


# The examples in the docstrings of the public functions and methods, run as doctests.

NOON = 1_780_315_200_000  # 2026-06-01T12:00:00Z
PIPELINE = """
[pipeline]
root = "lake"
[input]
paths = ["raw/d1.jsonl"]
format = "jsonl"
[timestamp]
field = "ts"
format = "epoch_ms"
[key]
fields = ["user"]
[topic]
name = "web"
partitions = 2
"""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> Iterator[tuple[str, Any]]:
    """Yield each public function and method, and its name."""
    for name in seglake.__all__:
        if inspect.isfunction(value := getattr(seglake, name)):
            yield f"seglake.{name}", value
    for kind in (Lake, Log, WindowReader):
        for name, value in vars(kind).items():
            if not name.startswith("_") and (inspect.isfunction(value) or type(value) is property):
                yield f"{kind.__name__}.{name}", value


NAMED = dict(public())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "raw").mkdir()
    for name, first in (("d1", 0), ("d2", 600)):
        events = [
            {"ts": NOON + 1000 * n, "user": f"u{n % 7}", "status": 500 if n % 10 == 0 else 200}
            for n in range(first, first + 600)
        ]
        (folder / "raw" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, events)))
    (folder / "web.toml").write_text(PIPELINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, start, end in (("d1", "12:00", "12:10"), ("d2", "12:10", "12:20")):
            pipeline = load("web.toml", {"input.paths": [f"raw/{name}.jsonl"]})
            interval = (f"2026-06-01T{start}:00Z", f"2026-06-01T{end}:00Z")
            seglake.run_pipeline(pipeline, run_id=name, interval=interval, local=True)
    return folder


@pytest.mark.parametrize("name", NAMED)
def test_the_example_is_right(
    made: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    lake = seglake.open("lake")
    names = {"seglake": seglake, "lake": lake, "log": lake.topic("web")}
    found = doctest.DocTestFinder(recurse=False).find(NAMED[name], name, globs=names)
    assert any(test.examples for test in found), "the docstring has no example"
    runner, said = doctest.DocTestRunner(optionflags=FLAGS), list[str]()
    for test in found:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
