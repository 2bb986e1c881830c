"""A time whose date and time of day stand in two fields: as if they stood in one."""

import csv
import io
import json
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.files import Result, read_bytes

BERLIN = {"zone": "Europe/Berlin", "ambiguous": "reject", "nonexistent": "reject"}
TEXT = st.text(st.characters(codec="ascii", exclude_characters='\r\n\0"'), min_size=1, max_size=9)
DAYS = st.one_of(
    st.none(), TEXT, st.dates(date(1969, 1, 1), date(2100, 1, 1)).map(lambda day: day.isoformat()),
    st.sampled_from(["2026-03-29", "2026-10-25"]),
)  # fmt: skip
CLOCKS = st.one_of(st.none(), TEXT, st.times().map(lambda clock: clock.isoformat("seconds")))
FORMATS = st.sampled_from(["iso8601", "%Y-%m-%d %H:%M:%S", "epoch_ms"])


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_json(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    table = {name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]}
    pq.write_table(pa.table(table), sink)
    return sink.getvalue()


FILES = {"csv": as_csv, "jsonl": as_json, "parquet": as_parquet}


def seen(result: Result) -> tuple[list[int], list[tuple[int, str]]]:
    rejects = [(reject.line, reject.reason) for reject in result.rejects]
    return [row.timestamp for row in result.rows], rejects


@pytest.mark.parametrize("name", FILES)
@given(st.lists(st.tuples(DAYS, CLOCKS), min_size=1, max_size=20), FORMATS)
def test_two_fields_are_read_as_one_with_a_blank(
    name: str, pairs: list[tuple[str | None, str | None]], form: str
) -> None:
    two = [{"n": str(n), "day": d, "clock": c} for n, (d, c) in enumerate(pairs)]
    one = [
        {"n": str(n), "at": None if d is None or c is None else f"{d} {c}", "rest": None}
        for n, (d, c) in enumerate(pairs)
    ]
    rules = {**BERLIN, "format": form}
    by_two = read_bytes(FILES[name](two), name, timestamp={**rules, "fields": ["day", "clock"]})
    by_one = read_bytes(FILES[name](one), name, timestamp={**rules, "field": "at"})
    assert seen(by_two) == seen(by_one)


def test_columns_of_date_and_of_time_are_joined() -> None:
    days, clocks = [date(2026, 11, 20), None], [time(9, 30, 7, 120_000), time(1)]
    sink = io.BytesIO()
    table: dict[str, Any] = {
        "d": pa.array(days, pa.date32()),
        "c": pa.array(clocks, pa.time64("us")),
    }
    pq.write_table(pa.table(table), sink)
    rules = {"fields": ["d", "c"], "format": "iso8601", "zone": "Asia/Tokyo"}
    result = read_bytes(sink.getvalue(), "parquet", timestamp=rules)
    tokyo = datetime.fromisoformat("2026-11-20T09:30:07.120+09:00")
    assert seen(result) == ([int(tokyo.timestamp() * 1000)], [(1, "timestamp missing")])
