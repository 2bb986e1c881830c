"""The results: raw as JSON, with all their tables, and as the page that a full run writes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from seglake.session import find_java
from tests.bench.measure import Cell, Goal, Section, Table
from tests.bench.why import WHY
from tests.judges.kafka_jars import KAFKA_VERSION

PACKAGES = (
    "seglake", "pyspark", "delta-spark", "deltalake", "pyarrow", "duckdb", "polars", "numpy",
    "numba", "zstandard", "kafka-python", "confluent-kafka", "pylance", "vortex-data",
    "obstore",
)  # fmt: skip

BEFORE: dict[str, str] = json.loads(Path(__file__).with_name("before.json").read_text())

_INTRODUCTION = """\
# Benchmarks

<!-- Written by `make bench`. Do not edit: change tests/bench and run it again. -->

Every comparison ran side by side in one run, on the same events: contenders take turns in random
order, round after round, after a warm-up that does not count. The page cache has the files that a
run reads: each is read once more just before. Ratios are taken between the runs of the same round.
What Seglake has opened and keeps in memory, others have too. Compare figures of one run only;
another machine has others, and the ratios are what carries over.
"""

_OF_THE_PAGE = """\
Times, rates and ratios are medians where something ran several times. `make bench` prints all
tables with what each part does, and writes them to `build/benchmarks.md`; the raw figures go to
`build/benchmarks.json`.

In the table *before* has the figure of a page of 2026-11-26 and, before a semicolon, of one of
2026-11-23, where the part ran again; in brackets is what another harness measured before. *Line*
means that the value of a record is the whole line of the input. *Time* and *arrival* are orders of
a topic; a topic has zstd unless a codec is named. *New* is what a process reads for the first time,
*again* what it has read before, and *with other work* the caller writes some MiB of other memory
before each call. *Lean* is `offset_for_time`, which answers one time of one partition. *Vortex*,
*Lance* and *Parquet* are files of the same events, sorted by time. A *padded* read ends late enough
for every late record. *Deep* is how many requests wait for each other. *Amplification* is bytes
fetched per byte of the batches that have a record of the window.
"""


def environment(settings: dict[str, Any]) -> dict[str, Any]:
    """What the figures depend on."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load at the start": round(os.getloadavg()[0], 2),
        "commit": _commit(),
        "versions": {
            "python": platform.python_version(), "java": _java(), **versions, "kafka": KAFKA_VERSION
        },
        "settings": settings,
    }  # fmt: skip


def as_json(about: dict[str, Any], sections: list[Section]) -> dict[str, Any]:
    """All results as plain values."""
    results = []
    for section in sections:
        plain = dataclasses.asdict(section)
        plain["goals"] = [{**goal._asdict(), "reached": goal.reached} for goal in section.goals]
        results.append(plain)
    return {"environment": about, "sections": results}


def as_page(about: dict[str, Any], sections: list[Section]) -> str:
    """The page of the documents: every goal in one table, and why some were not reached."""
    goals = [goal for section in sections for goal in section.goals]
    rows = [_row(section, goal) for section in sections for goal in section.goals]
    title = f"Goals: {sum(goal.reached for goal in goals)} of {len(goals)} reached"
    table = _table(Table(title, ["part", "what", "before", "measured", "goal", "reached"], rows))
    parts = [_INTRODUCTION, _OF_THE_PAGE, _about(about), table.replace("###", "##", 1)]
    return "\n".join([*parts, *_misses(sections)])


def _row(section: Section, goal: Goal) -> list[Cell]:
    reached = "yes" if goal.reached else "**no**"
    before = BEFORE.get(goal.text, "")
    return [section.title, goal.text, before, goal.measured, _target(goal), reached]


def _misses(sections: list[Section]) -> list[str]:
    """What did not come out as it was to, by part, and the reasons that profiles give."""
    lines = []
    for section in sections:
        missed = sum(not goal.reached for goal in section.goals)
        if section.failure:
            lines.append(f"**{section.title}** failed, and has no figures: {section.failure}\n")
        elif missed:
            why = WHY.get(section.name, "The reason is not known yet.")
            lines.append(f"**{section.title}: {missed} of {len(section.goals)}.**\n{why}\n")
    return ["## Not reached, and why, by profiles\n", *lines] if lines else []


def as_markdown(about: dict[str, Any], sections: list[Section]) -> str:
    """All tables, with what each part does."""
    return "\n".join([_INTRODUCTION, _about(about), _overview(sections), *map(_section, sections)])


def _overview(sections: list[Section]) -> str:
    """Every part in a line: its seconds, and how many of its goals it reached."""
    goals = [goal for section in sections for goal in section.goals]
    reached = sum(goal.reached for goal in goals)
    rows = [
        [
            f"[{each.title}](#{_anchor(each.title)})",
            each.seconds,
            sum(goal.reached for goal in each.goals),
            sum(not goal.reached for goal in each.goals),
            "failed" if each.failure else "whole",
        ]
        for each in sections
    ]
    rows.append(["all", sum(each.seconds for each in sections), reached, len(goals) - reached, ""])
    columns = ["part", "s", "goals reached", "not reached", "state"]
    title = f"Goals: {reached} of {len(goals)} reached"
    return _table(Table(title, columns, rows)).replace("###", "##", 1)


def _anchor(title: str) -> str:
    """The name that a page gives to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _about(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    settings = ", ".join(f"{name} {_cell(value)}" for name, value in about["settings"].items())
    return (
        f"Run on {about['date']}: {about['machine']}, load {about['load at the start']} before it"
        f" began; commit {about['commit']}.\n\nSizes: {settings}.\n\nVersions: {versions}.\n"
    )


def _section(section: Section) -> str:
    parts = [f"## {section.title}\n", section.text]
    if section.failure:
        parts.append(f"**This part failed, and has no figures**: {section.failure}\n")
    parts += [_table(table) for table in section.tables]
    if section.goals:
        parts.append("\n".join(map(_said, section.goals)) + "\n")
    if section.name in WHY and not all(goal.reached for goal in section.goals):
        parts.append(f"**Why not, by profiles**: {WHY[section.name]}\n")
    return "\n".join(parts + [f"{note}\n" for note in section.notes])


def _table(table: Table) -> str:
    numeric = [any(not isinstance(row[i], str) for row in table.rows) for i in range(_width(table))]
    lines = [f"### {table.title}\n", _line(table.columns)]
    lines.append(_line(["---:" if right else "---" for right in numeric]))
    lines += [_line([_cell(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, "", *(f"{note}\n" for note in table.notes)])


def _width(table: Table) -> int:
    return len(table.columns)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _said(goal: Goal) -> str:
    """A goal in words."""
    outcome = "reached" if goal.reached else "**not reached**"
    return f"- {goal.text}: {_cell(goal.measured)}. Goal: {_target(goal)}; {outcome}."


def _target(goal: Goal) -> str:
    return f"at {'least' if goal.at_least else 'most'} {_cell(goal.target)}"


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "from its sources" if package == "seglake" else "not installed"


def _commit() -> str:
    """The commit of the sources, and whether they were changed since."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def _java() -> str:
    printed = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return printed.stderr.split('"')[1]
