"""The results: raw as JSON, with all their tables, and as the page that a full run writes."""

import dataclasses
import datetime as dt
import importlib.metadata
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

_INTRODUCTION = """\
# Benchmarks

<!-- Written by `make bench`. Do not edit: change tests/bench and run it again. -->

For engineers who ask whether Seglake is fast enough for their work, and what is faster. Example: a
speed of 5, relative to Spark writing Delta, means that Seglake took a fifth of the time that Spark
took for the same events.

All programs of a comparison ran in turns, in random order, on the same events, after a warm-up.
Their files were in the page cache. A ratio is the median of the ratios of all turns. On another
machine, ratios are similar, but times and rates are not.
"""

_OF_THE_PAGE = """\
`make bench` prints all tables, writes them to `build/benchmarks.md`, and writes the raw figures
to `build/benchmarks.json`.

*Time* and *arrival* are the orders of a topic. Topics use zstd. *New times* were not looked up
before. *With other work*, the caller writes some MiB of other data before each call. The files of
Vortex, Lance and Parquet have the same events, sorted by time. A *padded read* has a later end, so
that it contains late records. The bytes *needed* are all bytes of batches with requested records.
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
    """Return the page of the docs: every goal in one table, and what is slower than others."""
    goals = [goal for section in sections for goal in section.goals]
    rows = [_row(section, goal) for section in sections for goal in section.goals]
    title = f"Goals: {sum(goal.reached for goal in goals)} of {len(goals)} reached"
    table = _table(Table(title, ["part", "what", "measured", "goal", "reached"], rows))
    parts = [_INTRODUCTION, _OF_THE_PAGE, _about(about), table.replace("###", "##", 1)]
    return "\n".join([*parts, *_misses(sections)])


def _row(section: Section, goal: Goal) -> list[Cell]:
    reached = "yes" if goal.reached else "**no**"
    return [section.title, goal.text, goal.measured, _target(goal), reached]


def _misses(sections: list[Section]) -> list[str]:
    """Return the parts that failed, and a paragraph with the reason for each missed goal."""
    lines = [
        f"**{section.title}** failed, and has no figures: {section.failure}\n"
        for section in sections
        if section.failure
    ]
    missed = [each for each in sections if not all(goal.reached for goal in each.goals)]
    reasons = [WHY.get(each.name, f"{each.title}: the reason is not known.") for each in missed]
    lines += ["\n".join(reasons) + "\n"] if reasons else []
    return ["## What is slower than others, and why\n", *lines] if lines else []


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
        parts.append(f"{WHY[section.name]}\n")
    return "\n".join(parts + [f"{note}\n" for note in section.notes])


def _table(table: Table) -> str:
    numeric = [
        any(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))
    ]
    lines = [f"### {table.title}\n", _line(table.columns)]
    lines.append(_line(["---:" if right else "---" for right in numeric]))
    lines += [_line([_cell(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, ""])


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
