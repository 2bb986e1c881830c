"""Print the size of this repository next to its budgets: `make size`.

A line of code is not blank, is no comment and belongs to no docstring. Lowering a budget is always
welcome. Raising one needs a commit that names what was removed in exchange.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

import typer.main

from seglake.cli.app import app
from seglake.cli.arguments.help import EXPERT

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
PROJECT = Path(__file__).parents[1]
BUDGETS = {  # what is counted: (budget, goal)
    "lines of code in src": (42_479, 42_500),
    "modules in src": (274, 330),
    "lines of code in tests": (61_925, 62_000),
    "settings": (77, 79),
    "commands in --help": (29, 30),
}


def sizes() -> dict[str, int]:
    """Return today's number for each budget."""
    settings = (PROJECT / "docs/settings.md").read_text().splitlines()
    commands = typer.main.get_group(app).commands.keys() - EXPERT
    modules = [path for path in PROJECT.glob("src/**/*.py") if path.name != "__init__.py"]
    counts = (
        sum(map(code_lines, PROJECT.glob("src/**/*.py"))),
        len(modules),
        sum(map(code_lines, PROJECT.glob("tests/**/*.py"))),
        sum(line.startswith("| `") for line in settings),
        len(commands),
    )
    return dict(zip(BUDGETS, counts, strict=True))


def code_lines(path: Path) -> int:
    """Count the lines of code in a Python file."""
    text = path.read_text()
    docstrings = set(docstring_lines(ast.parse(text)))
    return sum(
        number not in docstrings and not line.lstrip().startswith("#") and line.strip() != ""
        for number, line in enumerate(text.splitlines(), 1)
    )


def docstring_lines(tree: ast.Module) -> Iterable[int]:
    """Return the numbers of the lines that docstrings take."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


if __name__ == "__main__":
    print(f"{'':24}{'now':>8}{'budget':>8}{'goal':>8}")
    for counted, number in sizes().items():
        budget, goal = BUDGETS[counted]
        print(f"{counted:24}{number:8,}{budget:8,}{goal:8,}")
