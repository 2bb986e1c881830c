"""Times of typed columns, in any unit and far out of range, against Python's big integers."""

import csv
import datetime as dt
import io
import json
import tempfile
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.advice.finding import Finding
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.limits import ALL_TIMES, INT32_MAX, INT64_MAX
from seglake.maintain.health.verify import verify
from seglake.times.instants import to_epoch_ms
from seglake.times.zones import is_near_a_change
from seglake.write.check import check
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.rows.arrow import ArrowRows, column_text
from seglake.write.rows.records import ExtractedChunk, RowLimits, extract
from seglake.write.rows.rows import REASON_TEXTS, Reason
from tests.makers.files import Result, pipeline, read, read_bytes
from tests.makers.raw_events import Line, T, ingest, pipeline_of, quarantined, read_lake, write_file
from tests.makers.strategies import examples

LAST_MS = 253_402_300_799_999
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH = {"s": "epoch_s", "ms": "epoch_ms", "us": "epoch_us", "ns": "epoch_ns"}
ZONES = {None: 9 * 3_600_000, "UTC": 0, "Europe/Berlin": 0}  # Etc/GMT-9 is the zone of the settings
WRAP = 2**64 // 1000  # so many seconds are 0 ms in 64 bits, so 10^9 more are a plausible time


def near(*centres: int) -> st.SearchStrategy[int]:
    """Any 64 bit integer, and those near to some."""
    edges = [0, -INT64_MAX - 1, INT64_MAX, *centres]
    close = st.tuples(st.sampled_from(edges), st.integers(-(10**6), 10**6)).map(sum)
    return st.one_of(st.integers(-INT64_MAX - 1, INT64_MAX), close).filter(
        lambda value: -INT64_MAX - 1 <= value <= INT64_MAX
    )


def settings_of(**timestamp: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "a", "root": "b", "input": {"format": "dataframe", "order_column": "n"},
            "timestamp": {"field": "t", "zone": "Etc/GMT-9", **timestamp},
            "topic": {"name": "c"},
        }
    )  # fmt: skip


def extracted(column: Any, **timestamp: str) -> ExtractedChunk:
    batch = pa.record_batch({"t": column, "n": pa.array(range(len(column)))})
    return extract(ArrowRows("x", batch), settings_of(**timestamp), RowLimits(), "x", 0)


def outside(ms: int) -> Reason:
    return Reason.TIMESTAMP_BEFORE_1970 if ms < 0 else Reason.TIMESTAMP_OUT_OF_RANGE


def assert_times(found: ExtractedChunk, wanted_ms: list[int]) -> None:
    good = [ms for ms in wanted_ms if 0 <= ms <= LAST_MS]
    assert found.records.timestamps.tolist() == good
    bad = [at for at, ms in enumerate(wanted_ms) if not 0 <= ms <= LAST_MS]
    assert found.rejects.lines.tolist() == bad
    assert found.rejects.reasons.tolist() == [outside(wanted_ms[at]) for at in bad]


@given(st.sampled_from(list(PER_SECOND)), st.sampled_from(list(ZONES)), st.data())
@examples(200)
def test_an_instant_of_any_unit_is_a_time_or_a_reject_never_another_instant(
    unit: str, zone: str | None, data: st.DataObject
) -> None:
    centre = LAST_MS * PER_SECOND[unit] // 1000
    values = data.draw(st.lists(near(centre, WRAP, WRAP + 10**9), min_size=1, max_size=9))
    column = pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))
    found = extracted(column)
    assert_times(found, [at_zone(value * 1000 // PER_SECOND[unit], zone) for value in values])
    for line, raw in zip(found.rejects.lines.tolist(), found.rejects.raw.tolist(), strict=True):
        assert_shown(json.loads(raw or b"")["t"], values[line], unit)


def at_zone(ms: int, zone: str | None) -> int:
    """The instant; a clock that shows the year 10000 is out of range wherever it stands."""
    return ms if ms > LAST_MS else ms - ZONES[zone]


def assert_shown(text: str, value: int, unit: str) -> None:
    """The text names this instant: as ISO 8601, or as the number of the column."""
    if text.startswith("<"):
        assert text == f"<value out of range: {value}>"
        return
    years, rest = text[0] == "-", text.removeprefix("-").removesuffix("Z")
    year, month_on = rest.split("-", 1)
    number = -int(year) if years else int(year)
    clock, _, fraction = month_on.partition(".")
    same_year = 2000 + number % 400  # the calendar repeats itself after 400 years
    moment = dt.datetime.fromisoformat(f"{same_year}-{clock}+00:00")
    seconds = int(moment.timestamp()) + (number - same_year) // 400 * 146_097 * 86_400
    assert seconds == value // PER_SECOND[unit]
    assert int(fraction or 0) == value % PER_SECOND[unit]


@given(st.lists(st.integers(-INT32_MAX - 1, INT32_MAX), min_size=1, max_size=9))
@examples(60)
def test_a_day_is_a_time_or_a_reject(days: list[int]) -> None:
    zone_ms = ZONES[None]
    found = extracted(pa.array(days, pa.int32()).cast(pa.date32()))
    assert_times(found, [day * 86_400_000 - zone_ms for day in days])
    longest = INT64_MAX // 86_400_000
    ms = [max(-longest, min(day * 50, longest)) * 86_400_000 for day in days]
    found = extracted(pa.array(ms, pa.int64()).cast(pa.date64()))
    assert_times(found, [each - zone_ms for each in ms])


@given(st.sampled_from(list(PER_SECOND)), st.data())
@examples(60)
def test_numbers_of_any_width_are_times_or_rejects(unit: str, data: st.DataObject) -> None:
    centre = LAST_MS * PER_SECOND[unit] // 1000
    values = data.draw(st.lists(near(centre, WRAP, WRAP + 10**9), min_size=1, max_size=9))
    wanted = [value * 1000 // PER_SECOND[unit] for value in values]
    assert_times(extracted(pa.array(values, pa.int64()), format=EPOCH[unit]), wanted)
    decimals = pa.array(list(map(Decimal, values)), pa.decimal128(30, 3))
    assert_times(extracted(decimals, format=EPOCH[unit]), wanted)
    large = [2**63 + (value & INT64_MAX) for value in values]
    assert_times(extracted(pa.array(large, pa.uint64()), format=EPOCH[unit]), [
        value * 1000 // PER_SECOND[unit] for value in large
    ])  # fmt: skip
    huge = pa.array([Decimal(value) * 10**40 for value in values], pa.decimal256(76, 0))
    wanted = [value * 10**43 // PER_SECOND[unit] for value in values]
    assert_times(extracted(huge, format=EPOCH[unit]), wanted)


def test_nulls_stay_missing_beside_them() -> None:
    column = pa.array([None, INT64_MAX, 1], pa.int64()).cast(pa.timestamp("s"))
    found = extracted(column, zone="UTC")
    assert found.records.timestamps.tolist() == [1000]
    reasons = REASON_TEXTS[found.rejects.reasons].tolist()
    assert reasons == ["timestamp missing", "timestamp out of range"]
    assert column_text(column, "").tolist()[0] is None


# ------------------------------------------------------------------ Parquet

# INT96 counts Julian days from 4713 BC. pyarrow reads day 0 as 1970-01-01, and has no earlier days.
DAY_1_US = -210_866_716_800_000_000
INT96_VALUES = st.lists(
    near(LAST_MS * 1000, 2**63 // 1000).filter(lambda us: us >= DAY_1_US), min_size=1, max_size=9
)


@given(INT96_VALUES, st.integers(1, 4))
@examples(25)
def test_a_time_of_twelve_bytes_is_not_bent_to_nanoseconds(values: list[int], group: int) -> None:
    """INT96, as old Spark, Hive and Impala write it, reaches farther than 64 bits do."""
    column = pa.array(values, pa.int64()).cast(pa.timestamp("us"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.parquet")
        pq.write_table(
            pa.table({"t": column, "n": pa.array([[each] for each in column])}), path,
            use_deprecated_int96_timestamps=True, row_group_size=group,
        )  # fmt: skip
        found = read(pipeline(path, "parquet", timestamp={"field": "t"}))
    wanted = [value // 1000 for value in values]
    assert [row.timestamp for row in found.rows] == sorted_good(wanted)
    bad = [value for value in values if not 0 <= value // 1000 <= LAST_MS]
    for reject, value in zip(found.rejects, bad, strict=True):
        assert reject.reason == outside(value).text
        row = json.loads(reject.raw)
        for text in (row["t"], row["n"][0]):
            digits = len(text.partition(".")[2])
            unit = {3: "ms", 6: "us", 9: "ns"}[digits] if text[0] != "<" else None
            if unit is not None:
                assert_shown(text, value * PER_SECOND[unit] // 10**6, unit)


def sorted_good(wanted: list[int]) -> list[int]:
    return [ms for ms in wanted if 0 <= ms <= LAST_MS]


# A time whose date and time of day stand in two fields: as if they stood in one.

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


# Local times around a change of clocks: the same in every input format.

TWICE, SKIPPED = "2026-10-25T02:30:00", "2026-03-29T02:30:00"
FIRST, AFTER_GAP = 1_792_888_200_000, 1_774_746_000_000
HOUR = 3_600_000


@pytest.mark.parametrize("form", ["jsonl", "csv", "text", "parquet"])
@pytest.mark.parametrize(
    ("choice", "twice", "skipped"),
    [
        ({}, FIRST, AFTER_GAP),
        ({"ambiguous": "latest", "nonexistent": "earliest"}, FIRST + HOUR, AFTER_GAP - 1),
        ({"ambiguous": "reject", "nonexistent": "reject"}, None, None),
    ],
)
def test_both_settings_hold_in_every_format(
    tmp_path: Path, form: str, choice: dict[str, str], twice: int | None, skipped: int | None
) -> None:
    path, times = tmp_path / "file", [TWICE, SKIPPED]
    if form == "parquet":
        column = pa.array([datetime.fromisoformat(each) for each in times], pa.timestamp("us"))
        pq.write_table(pa.table({"t": column}), path)
    else:
        row = {"jsonl": '{"t": "%s"}\n', "text": "%s \n"}.get(form, "%s\n")
        path.write_text(("t\n" if form == "csv" else "") + "".join(row % each for each in times))
    tables: dict[str, Any] = {
        "timestamp": {"field": "t", "format": "iso8601", "zone": "Europe/Berlin", **choice},
        "input": {"pattern": r"(?P<t>\S+) "} if form == "text" else {},
    }
    found = read(pipeline(path, form, **tables))
    wanted = [each for each in (twice, skipped) if each is not None]
    assert [row.timestamp for row in found.rows] == wanted
    reasons = [Reason.TIMESTAMP_AMBIGUOUS.text, Reason.TIMESTAMP_NONEXISTENT.text]
    assert [reject.reason for reject in found.rejects] == ([] if wanted else reasons)


def test_a_run_and_its_check_count_both(tmp_path: Path) -> None:
    times = [TWICE, TWICE, "2026-10-25T03:30:00", SKIPPED, "2026-06-01T02:30:00", TWICE + "Z"]
    (tmp_path / "file").write_text("".join(f'{{"t": "{time}"}}\n' for time in times))
    zone = {"field": "t", "format": "iso8601", "zone": "Europe/Berlin"}
    settings = pipeline(tmp_path / "file", "jsonl", timestamp=zone)
    settings = settings.model_copy(update={"root": str(tmp_path / "lake")})
    found = check(settings, 20).findings
    assert [(each.code, each.count) for each in found] == [
        ("ambiguous-times", 2),
        ("nonexistent-times", 1),
    ]
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).findings == found
    strict = settings.timestamp.model_copy(update={"ambiguous": "reject"})
    assert check(settings.model_copy(update={"timestamp": strict}), 20).findings == found[1:]


def test_times_of_no_zone_are_told_unless_the_pipeline_says_of_which(tmp_path: Path) -> None:
    """Such as those of a service that leaves its offsets out after an update."""
    times = ["2026-11-20T10:00:00+01:00"] * 3 + ["2026-11-20T10:00:00"] * 4 + ["soon"]
    (tmp_path / "file").write_text("".join(f'{{"t": "{time}"}}\n' for time in times))
    named = {"field": "t", "format": "iso8601"}
    loose = {"root": str(tmp_path / "lake"), "max_quarantine_ratio": 0.5}
    settings = pipeline(tmp_path / "file", "jsonl", timestamp=named).model_copy(update=loose)
    found = [Finding("no-zone-in-times", count=4)]
    assert check(settings, 20).findings == found
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).findings == found
    said = pipeline(tmp_path / "file", "jsonl", timestamp={**named, "zone": "UTC"})
    assert check(said, 20).findings == []


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_a_change_of_clocks_is_near_or_not(zone: str) -> None:
    def is_near(*times: str) -> bool:
        return is_near_a_change(np.array([to_epoch_ms(time) for time in times], np.int64), zone)

    assert not is_near()
    assert not is_near("2026-06-01T00:00Z", "2026-12-24T00:00Z")
    there = {"Europe/Berlin": "2026-10-25T01:00Z", "Australia/Lord_Howe": "2026-10-03T15:30Z"}
    if zone in there:
        assert is_near("2026-06-01T00:00Z", there[zone])


# Limits of event time: the same in every input format, and for the whole of a run.

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
OLD = f"timestamp too old for {BEFORE}"
NEW = f"timestamp too new for {AFTER}"
LIMITED = ["jsonl", "csv", "text", "parquet", "dataframe"]
PATTERN = {"text": {"pattern": r"(?P<t>[0-9]+) "}}


def read_as(form: str, times: list[int], limits: dict[str, int], clock_ms: int) -> Result:
    """What a run makes of one row for each time."""
    topic = {"message.timestamp.type": "CreateTime", **limits}
    tables: dict[str, Any] = {
        "timestamp": {"field": "t", "format": "epoch_ms"},
        "topic": topic,
        "input": PATTERN.get(form, {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        match form:
            case "jsonl":
                path.write_text("".join(f"{json.dumps({'t': each})}\n" for each in times))
            case "csv":
                path.write_text("t\n" + "".join(f"{each}\n" for each in times))
            case "text":
                path.write_text("".join(f"{each} x\n" for each in times))
            case _:
                pq.write_table(pa.table({"t": pa.array(times, pa.int64())}), path)
        form = "parquet" if form == "dataframe" else form
        settings = pipeline(path, form, **tables)
        return read(settings, RowLimits(settings.topic.event_times(clock_ms)))


limits = st.sampled_from([0, 1, 1000, 10**9, INT64_MAX])
times = st.one_of(
    st.integers(T - 1100, T + 1100), st.sampled_from([0, T - 1000, T - 1001, T + 1000, T + 1001])
)


@given(st.sampled_from(LIMITED[:4]), st.lists(times, min_size=1, max_size=30), limits, limits)
def test_rows_outside_the_limits_are_rejected(
    form: str, given_: list[int], before: int, after: int
) -> None:
    found = read_as(form, given_, {BEFORE: before, AFTER: after}, T)
    good = [each for each in given_ if T - each <= before and each - T <= after]
    assert [row.timestamp for row in found.rows] == good
    reasons = [OLD if each < T else NEW for each in given_ if each not in good]
    assert [reject.reason for reject in found.rejects] == reasons


@given(st.lists(times, min_size=1, max_size=30), limits, limits)
def test_rows_of_a_dataframe_are_measured_alike(given_: list[int], before: int, after: int) -> None:
    settings = Pipeline.model_validate(
        {
            "name": "a", "root": "b", "timestamp": {"field": "t", "format": "epoch_ms"},
            "input": {"format": "dataframe", "order_column": "t"},
            "topic": {"name": "c", BEFORE: before, AFTER: after},
        }
    )  # fmt: skip
    rows = ArrowRows("x", pa.record_batch({"t": given_}))
    found = extract(rows, settings, RowLimits(settings.topic.event_times(T)), "x", 0)
    good = [each for each in given_ if T - each <= before and each - T <= after]
    assert found.records.timestamps.tolist() == good
    assert len(found.rejects) == len(given_) - len(good)


def test_no_limit_by_default_and_none_under_the_clock_of_the_run() -> None:
    settings = pipeline("in", timestamp={"field": "t", "format": "epoch_ms"})
    assert settings.topic.event_times(T) == RowLimits().event_times == ALL_TIMES
    stamped = pipeline("in", topic={BEFORE: 1, AFTER: 1})
    assert stamped.topic.event_times(T) == ALL_TIMES


def lake_of(folder: Path, times: list[int], **limits: int) -> Pipeline:
    write_file(folder / "in" / "1.jsonl", [Line(each, "k") for each in times])
    return pipeline_of(folder / "lake", folder / "in", topic=dict(limits))


def stamps(folder: Path) -> list[int]:
    return sorted(r.timestamp for log in read_lake(folder / "lake").values() for r in log)


def test_they_are_measured_from_the_end_of_the_interval(tmp_path: Path) -> None:
    settings = lake_of(tmp_path, [T - 101, T - 100, T, T + 50, T + 51], **{BEFORE: 100, AFTER: 50})
    report = ingest(settings, "1", interval=(T - 100, T))
    assert stamps(tmp_path) == [T - 100, T, T + 50]
    assert report.reasons == {OLD: 1, NEW: 1}
    assert [each.number for each in quarantined(tmp_path / "lake")] == [1, 5]
    assert verify(str(tmp_path / "lake"), deep=True).findings == []


def test_the_catalogs_limits_hold_for_a_pipeline_that_says_nothing(tmp_path: Path) -> None:
    ingest(lake_of(tmp_path, [T], **{AFTER: 50}), "1", interval=(T - 100, T))
    write_file(tmp_path / "in" / "2.jsonl", [Line(T + 51, "k"), Line(T + 1, "k")])
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"), "2", interval=(T - 100, T))
    assert stamps(tmp_path) == [T, T + 1]


def test_a_redrive_measures_as_its_run_did(tmp_path: Path) -> None:
    """Not from the redrive's own time, which is long after the events."""
    late = [Line(T, broken=json.dumps({"when": each, "p": 0})) for each in (T - 5, T + 51)]
    write_file(tmp_path / "in" / "1.jsonl", [Line(T, "k"), *late])
    limits = {BEFORE: 100, AFTER: 50}
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "in", topic=limits), "1", interval=(T - 9, T))
    corrected = pipeline_of(tmp_path / "lake", tmp_path / "in", timestamp={"field": "when"})
    report = redrive(LocalEngine(), corrected, "1")
    assert (report.records, report.reasons) == (1, {NEW: 1})
    assert stamps(tmp_path) == [T - 5, T]
