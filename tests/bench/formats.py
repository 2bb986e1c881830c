"""Ingest of the same events as JSON lines, CSV and text, beside DuckDB's readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from seglake.config import Pipeline
from tests.bench import writers
from tests.bench.measure import Contender, Goal, Section, Table, race, say
from tests.bench.workbench import Workbench, require

PATTERN = r"(?P<ts>\d+) (?P<user>\S+) "
INPUTS: dict[str, dict[str, str]] = {
    "jsonl": {"format": "jsonl"},
    "csv": {"format": "csv"},
    "text": {"format": "text", "pattern": PATTERN},
}
SHARE = 0.7  # of the rows per second of JSON lines, at least

_TEXT = """\
The same {events:,} events in {files} files as JSON lines, as CSV with a header and as text of which
an expression takes the time and the key, with `order = "arrival"`. DuckDB reads CSV by its own
reader and keeps one field as the value; it reads text line by line with the same expression, and
keeps the line. It writes Parquet sorted by time.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    events = bench.events
    inputs = {"jsonl": events.files, **_written(bench)}
    contenders = [_ours(bench, name, files) for name, files in inputs.items()]
    contenders += [
        _duckdb(bench, "csv", inputs["csv"], writers.duckdb_csv),
        _duckdb(bench, "text", inputs["text"], partial(writers.duckdb_text, pattern=PATTERN)),
    ]
    samples = race(contenders, bench.sizes.runs, aloud=True)
    sizes = {name: sum(path.stat().st_size for path in files) for name, files in inputs.items()}
    rows: list[list[Any]] = []
    for each in samples:
        size, (low, middle, high) = sizes[each.name.rsplit(" ", 1)[-1]] / 1e6, each.spread()
        rate = len(events.times) / middle / 1e6
        rows.append([each.name, size, low, middle, high, rate, size / middle])
    section = Section(
        "formats", "Input formats", _TEXT.format(events=len(events.times), files=len(events.files))
    )
    columns = ["", "MB", "s, min", "median", "max", "M rows/s", "MB/s"]
    section.tables = [Table("Ingest by format of the input", columns, rows)]
    lines = samples[0]
    for each, theirs in zip(samples[1:3], samples[3:], strict=True):
        name = each.name.rsplit(" ", 1)[-1]
        section.goals += [
            Goal(f"Speed of {name} as a share of that of JSON lines",
                 each.times_as_fast_as(lines)[1], SHARE),
            Goal(f"Speed of {name} as a multiple of DuckDB", each.times_as_fast_as(theirs)[1], 1.0),
        ]  # fmt: skip
    return section


def _written(bench: Workbench) -> dict[str, list[Path]]:
    """The events as CSV and as text, file by file."""
    say("writing the events as CSV and text")
    names = "ts, user, id, msg"
    columns = "{ts: 'BIGINT', user: 'VARCHAR', id: 'VARCHAR', msg: 'VARCHAR'}"
    found: dict[str, list[Path]] = {"csv": [], "text": []}
    for name, chosen, options in (
        ("csv", names, "HEADER"),
        ("text", "concat_ws(' ', ts, user, id, msg)", "HEADER false, QUOTE '', DELIMITER '\x01'"),
    ):
        folder = bench.scratch(name)
        folder.mkdir()
        for path in bench.events.files:
            target = folder / f"{path.stem}.{name}"
            source = f"read_json('{path}', format = 'newline_delimited', columns = {columns})"
            copy = f"COPY (SELECT {chosen} FROM {source}) TO '{target}' (FORMAT csv, {options})"
            with duckdb.connect() as connection:
                connection.execute("SET threads = 1")  # which keeps the order
                connection.execute(copy)
            found[name].append(target)
    return found


def _ours(bench: Workbench, name: str, files: list[Path]) -> Contender:
    root = bench.folder / f"format-{name}"

    def pipeline(count: int) -> Pipeline:
        plain = bench.pipeline(str(root), "arrival", files[:count])
        given = plain.model_dump(by_alias=True, exclude_unset=True)
        given["input"] = {"paths": [str(path) for path in files[:count]], **INPUTS[name]}
        return Pipeline.model_validate(given)

    def take(count: int) -> int:
        return bench.ingest(pipeline(count))

    def check(records: int) -> None:
        require(records == len(bench.events.times), f"{name}: {records} records")

    return Contender(
        f"Seglake, {name}", partial(take, len(files)), check,
        partial(_clear, bench, root.name), partial(take, 1), files,
    )  # fmt: skip


def _duckdb(
    bench: Workbench, name: str, files: list[Path], write: Callable[[list[Path], Path], None]
) -> Contender:
    path = bench.folder / f"format-{name}.parquet"

    def check(_result: object) -> None:
        rows = writers.rows_in(path)
        require(rows == len(bench.events.times), f"DuckDB wrote {rows} rows of {name}")

    return Contender(
        f"DuckDB to Parquet, {name}", lambda: write(files, path), check,
        partial(_clear, bench, path.name), lambda: write(files[:1], path), files,
    )  # fmt: skip


def _clear(bench: Workbench, name: str) -> None:
    bench.scratch(name)
