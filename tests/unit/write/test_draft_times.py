"""`seglake init` and the ways to write a time: the draft is exact, or says that it is not sure.

Each way stands in fields of JSON and CSV, and in lines of text, at the beginning and inside.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.errors import InputError
from seglake.write.draft.draft import Draft, draft
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.rows.hints import PATTERNS

BEGIN = datetime(2026, 5, 13, 9, 30, 7, 120_000, UTC)  # no month has this day's number
TIMES = [BEGIN + timedelta(minutes=97 * n) for n in range(30)]
INDIA = timezone(timedelta(hours=5, minutes=30))
WHOLE = [pattern for pattern in PATTERNS if "%M" in pattern and "%y" in pattern.lower()]


def written(pattern: str) -> list[str]:
    """The times; an offset is that of India, so that one that is not read would be seen."""
    zone = INDIA if "%z" in pattern else UTC
    texts = [time.astimezone(zone).strftime(pattern) for time in TIMES]
    return [text.replace("120000", "120") for text in texts]


def as_csv(times: list[str]) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["n", "happened_at", "what"])
    rows.writerows([n, time, f"w{n}"] for n, time in enumerate(times))
    return text.getvalue().encode()


def as_json(times: list[str]) -> bytes:
    return b"".join(json.dumps({"n": n, "at": t}).encode() + b"\n" for n, t in enumerate(times))


def as_text(line: str) -> Callable[[list[str]], bytes]:
    return lambda times: b"".join(
        line.format(time=time, n=n).encode() + b"\n" for n, time in enumerate(times)
    )


FIELDS = {"a.jsonl": as_json, "a.csv": as_csv}
LINES = {
    "begin": as_text("{time} INFO worker did {n}"),
    "brackets": as_text("[{time}] [main] did {n}"),
    "inside": as_text("web1 app {time} request {n} took 12ms"),
    "end": as_text("request {n} has status=200 at {time}"),
}


def ingested(folder: Path, name: str, content: bytes) -> tuple[Draft, list[datetime]]:
    """What is drafted for a file, and the times of its records when that is ingested."""
    (folder / name).write_bytes(content)
    made = draft([str(folder / name)], root=str(folder / "lake"))
    (folder / "a.toml").write_text(made.toml)
    ingest_files(LocalEngine(), load(folder / "a.toml"), DeclaredRun("1"))
    log = seglake.open(str(folder / "lake")).topic(made.topic)
    found: list[Any] = log.read_range(0, 5 * 10**12).read_all()["timestamp"].to_pylist()
    return made, sorted(found)


def as_precise(pattern: str) -> list[datetime]:
    """The times as a pattern tells them."""
    if "%f" in pattern:
        return TIMES
    whole = [time.replace(microsecond=0) for time in TIMES]
    return whole if "%S" in pattern else [time.replace(second=0) for time in whole]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("pattern", WHOLE)
def test_a_field_is_read_in_each_way(tmp_path: Path, pattern: str, name: str) -> None:
    made, found = ingested(tmp_path, name, FIELDS[name](written(pattern)))
    assert found == as_precise(pattern)
    unsure = "the times name no zone"
    named = "%z" in pattern.lower()
    assert any(unsure in doubt for doubt in made.doubts) == (not named)


@pytest.mark.parametrize("place", LINES)
@pytest.mark.parametrize("pattern", WHOLE)
def test_a_line_is_read_in_each_way_or_refused(tmp_path: Path, pattern: str, place: str) -> None:
    try:
        made, found = ingested(tmp_path, "a.log", LINES[place](written(pattern)))
    except InputError as error:
        assert "no time is found" in str(error)  # noqa: PT017  # either may happen
        return
    told = "; ".join(made.doubts)
    unsure = "whole days", "and no format that is known reads them", "no field has times"
    assert found == as_precise(pattern) or any(text in told for text in unsure)
