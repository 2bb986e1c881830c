"""All programs; and the table of them in docs/serve.md, which `make docs` writes anew."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.clients import go, java, node, pythons, rust
from tests.clients.program import Program

LANGUAGES: dict[str, list[Program]] = {
    "Python": pythons.PROGRAMS,
    "Java": java.PROGRAMS,
    "Go": go.PROGRAMS,
    "Node": node.PROGRAMS,
    "Rust": rust.PROGRAMS,
    "command": pythons.COMMANDS,
}
PROGRAMS = [program for some in LANGUAGES.values() for program in some]
BEGIN, END = "<!-- Written by `make docs`; do not edit from here. -->", "<!-- To here. -->"


def table(languages: Mapping[str, Sequence[Program]] = LANGUAGES) -> Iterable[str]:
    """A row for each family: its versions, and what to know of it."""
    yield "| | client | versions | what to know |"
    yield "|---|---|---|---|"
    for language, programs in languages.items():
        for family in dict.fromkeys(family_of(program) for program in programs):
            some = [program for program in programs if family_of(program) == family]
            versions = ", ".join(version_of(program) for program in some)
            yield f"| {language} | {family} | {versions} | {'; '.join(remarks_of(some))} |"


def family_of(program: Program) -> str:
    """The name without the version."""
    return program.name.partition(" ")[0]


def version_of(program: Program) -> str:
    """What distinguishes it from others of its family."""
    return program.name.partition(" ")[2]


def remarks_of(some: Sequence[Program]) -> Iterable[str]:
    """Each remark once, with the versions that it is about, unless these are all."""
    for remark in dict.fromkeys(each for program in some for each in program.remarks):
        about = [version_of(program) for program in some if remark in program.remarks]
        yield remark if len(about) == len(some) else f"{', '.join(about)}: {remark}"


def written(page: str) -> str:
    """The page with the table of today."""
    head, rest = page.split(BEGIN)
    lines = "\n".join(table())
    return f"{head}{BEGIN}\n\n{lines}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text()))
