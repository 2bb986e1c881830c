"""What the linters do not measure: sizes, names, and calls that the project does without."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.size import BUDGETS, sizes

PROJECT = Path(__file__).parents[1]
SOURCES = sorted(PROJECT.glob("src/**/*.py"))
PROGRAMS = sorted(PROJECT.glob("jobs/*.py"))
TESTS = sorted(PROJECT.glob("tests/**/*.py"))
PRODUCT = SOURCES + PROGRAMS
EVERYTHING = PRODUCT + TESTS

LINE, FUNCTION, KERNEL, MODULE = 100, 60, 150, 900
VAGUE_NAMES = {"base", "common", "helpers", "manager", "misc", "utils"}
BANNED = {
    "_jsc": "private: what only the JVM knows is passed in as a setting",
    "_jvm": "private: what only the JVM knows is passed in as a setting",
    "eval": "settings and data are never code",
    "exec": "settings and data are never code",
    "pickle": "blobs and files have formats of their own",
}
ALLOWED: dict[tuple[str, str], str] = {  # (file, name): why there is no other way
    ("src/seglake/engine.py", "pickle"): "an RDD pickles results; a query of Connect does not"
}
RIDDLES = re.compile(  # what a reader of docstrings had to decode
    r"\bis none\b|\bare no\b|\bso many\b|what is (?:said|told|meant)|\bbehind\b|\bthose of\b"
    r"|\balone\b|^The same\b|\bwhoever\b|\bas it comes\b|\banew\b",
    re.MULTILINE,
)
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "XX" + "X")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """What is asked of a file of the product, so that it is parsed once and its tree is let go."""

    too_long: dict[str, int]  # functions
    names: set[str]


@functools.cache
def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@functools.cache
def source(path: Path) -> Source:
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return Source(
        {f.name: size for f in functions if (size := body_lines(f)) > limit(f)},
        set(names_used(tree)),
    )


def documented(path: Path) -> bool:
    """Whether a file begins with a docstring, or is empty; no code stands before one."""
    first = next((line for line in lines_of(path) if line and not line.startswith("#")), None)
    return first is None or first.startswith(('"""', 'r"""'))


def name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def body_lines(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def limit(function: Function) -> int:
    decorators = " ".join(map(ast.unparse, function.decorator_list))
    return KERNEL if "njit" in decorators else FUNCTION


def names_used(tree: ast.AST) -> Iterator[str]:
    """Attributes, plain calls and imported packages."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=used) | ast.Call(func=ast.Name(id=used)):
                yield used
            case ast.Import(names=aliases):
                yield from (alias.name.split(".")[0] for alias in aliases)
            case ast.ImportFrom(module=str(module)):
                yield module.split(".")[0]


def test_lines_are_short_and_finished() -> None:
    lines = [(path, *line) for path in EVERYTHING for line in enumerate(lines_of(path), 1)]
    assert [(name(path), number) for path, number, line in lines if len(line) > LINE] == []
    unfinished = [each for each in lines if any(word in each[2] for word in UNFINISHED)]
    assert [(name(path), number) for path, number, _ in unfinished] == []


def test_test_modules_have_names_of_their_own() -> None:
    """Pytest imports each by its name alone, whatever its folder."""
    names = Counter(path.name for path in TESTS if path.name.startswith("test_"))
    assert [each for each, count in names.items() if count > 1] == []


def test_functions_are_short() -> None:
    assert {name(path): long for path in PRODUCT if (long := source(path).too_long)} == {}


def test_modules_are_short_and_named() -> None:
    assert [name(path) for path in SOURCES if len(lines_of(path)) > MODULE] == []
    parts = {name(path): path.relative_to(PROJECT).with_suffix("").parts for path in SOURCES}
    assert [path for path in parts if not VAGUE_NAMES.isdisjoint(parts[path])] == []


def test_sizes_are_within_budget() -> None:
    """See `tests/size.py`: raising a budget needs a commit that names what was removed."""
    counted = sizes()
    assert {what: n for what, n in counted.items() if n > BUDGETS[what][0]} == {}


def test_modules_say_what_they_are_for() -> None:
    assert [name(path) for path in EVERYTHING if not documented(path)] == []


def test_docstrings_have_no_riddles() -> None:
    found = [
        (name(path), node.name if isinstance(node, Function | ast.ClassDef) else "", match[0])
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        for match in RIDDLES.finditer(ast.get_docstring(node) or "")
    ]
    assert found == []


def test_no_banned_calls() -> None:
    calls = {(name(path), used) for path in PRODUCT for used in source(path).names & BANNED.keys()}
    assert calls == set(ALLOWED), BANNED


def test_examples_are_counted_by_the_profile() -> None:
    """`examples` of makers/strategies.py scales a number; one in `settings` would hold in each."""
    counting = {name(p) for p in TESTS if any("max_" + "examples" in t for t in lines_of(p))}
    assert counting == {"tests/conftest.py", "tests/makers/strategies.py"}
