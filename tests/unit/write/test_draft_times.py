"""`seglake init` and the ways to write a time: the draft is exact, or says that it is not sure.

Each way stands in fields of JSON and CSV, and in lines of text, at the beginning and inside.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seglake
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.errors import InputError
from seglake.write.draft.draft import Draft, draft
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.rows.hints import PATTERNS
from tests.harness.tiers import rest_but_today

BEGIN = datetime(2026, 5, 13, 9, 30, 7, 120_000, UTC)  # no month has this day's number
TIMES = [BEGIN + timedelta(minutes=97 * n) for n in range(30)]
INDIA = timezone(timedelta(hours=5, minutes=30))
MADE = (  # of others, as the times want it
    "%Y-%m-%d %H:%M:%S,%f %z",
    "%Y/%m/%d %I:%M:%S %p",
    "%Y/%m/%d %H:%M:%S %z",
    "%d.%m.%Y %H:%M:%S%z",
    "%d/%b/%Y %H:%M:%S",
)
WHOLE = [each for each in (*PATTERNS, *MADE) if "%M" in each and "%y" in each.lower()]


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
@pytest.mark.parametrize("pattern", rest_but_today(WHOLE))
def test_a_field_is_read_in_each_way(tmp_path: Path, pattern: str, name: str) -> None:
    made, found = ingested(tmp_path, name, FIELDS[name](written(pattern)))
    assert found == as_precise(pattern)
    unsure = "the times name no zone"
    named = "%z" in pattern.lower()
    assert any(unsure in doubt for doubt in made.doubts) == (not named)


IN_TWO = [
    each
    for each in WHOLE
    if re.fullmatch(r"(?!%y%m|.*(?:%M\.|/%b/%y|年))[^ ,]+ %[HI](?!\.)[^,]*", each)
]
IN_TWO += ["%d-%b-%Y %H:%M", "%Y.%m.%d %H:%M", "%Y%m%d %H:%M", "%d.%m.%y %H:%M:%S", "%Y-%m-%d %H%M"]


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("pattern", rest_but_today(IN_TWO))
def test_a_day_and_a_time_of_day_in_two_fields(tmp_path: Path, pattern: str, behind: bool) -> None:
    pairs = [text.split(" ", 1) for text in written(pattern)]
    rows = [(day, clock, n) if behind else (clock, n, day) for n, (day, clock) in enumerate(pairs)]
    head = "date,start,n" if behind else "start,n,date"
    lines = [head, *(",".join(map(str, row)) for row in rows)]
    made, found = ingested(tmp_path, "a.csv", "".join(f"{line}\n" for line in lines).encode())
    assert made.choices["timestamp.fields"].value == ["date", "start"]
    assert found == as_precise(pattern)


def test_a_length_of_time_is_no_time_of_day(tmp_path: Path) -> None:
    rows = [f"2026-11-{n + 1:02},00:0{n % 9}:00,{n}" for n in range(28)]
    made, _ = ingested(tmp_path, "a.csv", "\n".join(["day,duration,n", *rows]).encode())
    assert made.choices["timestamp.field"].value == "day"
    doubts = "; ".join(made.doubts)
    assert "day has whole days; if another field has the time of day" in doubts
    made, _ = ingested(tmp_path, "b.csv", "\n".join(["day,x,n", *rows]).encode())
    assert "x is taken as the time of day since it stands behind day" in "; ".join(made.doubts)
    made, _ = ingested(
        tmp_path,
        "c.csv",
        "\n".join(
            ["day,start,end_time,n", *(row.replace(",", ",07:00,", 1) for row in rows)]
        ).encode(),
    )
    assert "start is taken as the time of day; these have one, too: end_time" in "; ".join(
        made.doubts
    )


REGIONAL = {
    "%Y-%m-%d %H:%M:%S Europe/Berlin": "Europe/Berlin",
    "%d.%m.%Y %H:%M:%S (Europe/Berlin)": "Europe/Berlin",
    "%Y-%m-%dT%H:%M:%S.120%z[Europe/Berlin]": None,  # as Java writes it
    "%Y-%m-%d %H:%M:%S %z (CEST)": None,
    "%a, %d %b %Y %H:%M:%S %z (CEST)": None,
    "%a %b %d %Y %H:%M:%S GMT%z (Central European Summer Time)": None,  # as browsers do
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("pattern", REGIONAL)
def test_a_region_behind_the_time_is_its_zone(tmp_path: Path, pattern: str, name: str) -> None:
    times = [time.astimezone(ZoneInfo("Europe/Berlin")).strftime(pattern) for time in TIMES]
    made, found = ingested(tmp_path, name, FIELDS[name](times))
    assert found == (TIMES if ".120" in pattern else as_precise("%S"))
    assert not any("zone" in doubt for doubt in made.doubts)
    zone = made.choices.get("timestamp.zone")
    assert (zone and zone.value) == REGIONAL[pattern]


@pytest.mark.parametrize(
    "pattern", [each for each in PATTERNS if "%H" not in each and "%I" not in each]
)
def test_a_day_is_read_in_each_way(tmp_path: Path, pattern: str) -> None:
    days = [BEGIN + timedelta(days=n) for n in range(100)]
    made, found = ingested(tmp_path, "a.csv", as_csv([day.strftime(pattern) for day in days]))
    assert found == [
        datetime.strptime(day.strftime("%Y%m%d"), "%Y%m%d").replace(tzinfo=UTC) for day in days
    ]
    told = "; ".join(made.doubts)
    assert "whole days" in told
    assert "the times name no zone" in told


@pytest.mark.parametrize(("pattern", "unit"), [("%Y%m%d%H", "hours"), ("%Y%m%d%H%M", "minutes")])
def test_a_number_of_hours_or_minutes_is_no_epoch(tmp_path: Path, pattern: str, unit: str) -> None:
    """That would lie in 2034, or in 1976."""
    times = [datetime(2026, 5, 13, 9, 0, tzinfo=UTC) + timedelta(**{unit: n}) for n in range(50)]
    made, found = ingested(tmp_path, "a.csv", as_csv([each.strftime(pattern) for each in times]))
    assert found == times
    assert made.choices["timestamp.format"].value == pattern


def test_times_that_lie_ahead_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(as_json(["2066-05-13T09:30:07Z"] * 30))
    told = "; ".join(draft([str(tmp_path / "a.jsonl")]).doubts)
    assert "at has times up to 2066-05-13T09:30:07.000Z, which lies ahead" in told


@pytest.mark.parametrize("pattern", ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y", "%m/%d/%y"])
@pytest.mark.parametrize("month", [2, 6, 11])
def test_days_of_a_month_are_no_months(tmp_path: Path, pattern: str, month: int) -> None:
    days = [datetime(2025, month, 1 + n % 12, tzinfo=UTC) for n in range(50)]
    made, found = ingested(tmp_path, "a.csv", as_csv([day.strftime(pattern) for day in days]))
    assert found == sorted(days)
    assert "may be the other way round" in "; ".join(made.doubts)


@pytest.mark.parametrize("place", LINES)
@pytest.mark.parametrize("pattern", rest_but_today(WHOLE))
def test_a_line_is_read_in_each_way_or_refused(tmp_path: Path, pattern: str, place: str) -> None:
    try:
        made, found = ingested(tmp_path, "a.log", LINES[place](written(pattern)))
    except InputError as error:
        assert "no time is found" in str(error)  # noqa: PT017  # either may happen
        return
    told = "; ".join(made.doubts)
    unsure = "whole days", "and no format that is known reads them", "no field has times"
    assert found == as_precise(pattern) or any(text in told for text in unsure)


HALVES = {  # of a day, as Java, .NET and Node write them, and milliseconds behind a colon
    "a narrow blank": "%m/%d/%Y, %I:%M:%S\u202f%p",
    "no blank": "%Y-%m-%d %I:%M:%S%p",
    "milliseconds": "%Y-%m-%d %H:%M:%S:120",
    "WebSphere": "%m/%d/%y %H:%M:%S:120",
    "a tab": "%Y-%m-%d\t%H:%M:%S",
    "two blanks": "%Y-%m-%d  %H:%M:%S",
    "Suricata": "%m/%d/%Y-%H:%M:%S.120000 ",
    "Android": "%m-%d %H:%M:%S.120  1234  1234 I Tag",
    "Hadoop": "%y%m%d %H%M%S 17 INFO",
}


@pytest.mark.parametrize("name", HALVES)
def test_a_line_of_an_odd_clock_is_read(tmp_path: Path, name: str) -> None:
    times = [time.strftime(HALVES[name]) for time in TIMES]
    line = "{time} did {n}" if name in ("Hadoop", "Android") else "[{time}] did {n}"
    _, found = ingested(tmp_path, "a.log", as_text(line)(times))
    assert found == (TIMES if "120" in HALVES[name] else as_precise("%S"))


def test_a_half_of_a_day_with_dots_is_read(tmp_path: Path) -> None:
    times = [
        time.strftime("%d/%m/%Y %I:%M:%S ") + ("a.m." if time.hour < 12 else "p.m.")
        for time in TIMES
    ]
    for name, content in {
        "a.log": as_text("{time} did {n}")(times),
        "a.csv": as_csv(times),
    }.items():
        (tmp_path / name[2:]).mkdir()
        _, found = ingested(tmp_path / name[2:], name, content)
        assert found == as_precise("%S")


@pytest.mark.parametrize("rest", [":5", "x7", "-120", ".5.6"])
def test_what_stands_behind_a_time_is_told(tmp_path: Path, rest: str) -> None:
    times = [time.strftime("%Y-%m-%d %H:%M:%S") for time in TIMES]
    (tmp_path / "a.log").write_bytes(as_text(f"{{time}}{rest} INFO did {{n}}")(times))
    told = "; ".join(draft([str(tmp_path / "a.log")]).doubts)
    assert f"stands {rest.removeprefix('.5')!r}, which is not read" in told


@pytest.mark.parametrize("blank", ["", " ", "\u00a0", "\u202f"])
@pytest.mark.parametrize("gap", ["", " ", "\u00a0"])
def test_halves_of_a_day_are_read_as_they_are_written(tmp_path: Path, blank: str, gap: str) -> None:
    halves = [f"{'ap'[t.hour >= 12]}.{blank}m." for t in TIMES]
    clocks = [f"{t:%I:%M:%S}{gap}{half}" for t, half in zip(TIMES, halves, strict=True)]
    days = [f"{time:%d/%m/%Y}" for time in TIMES]
    both = [" ".join(pair) for pair in zip(days, clocks, strict=True)]
    rows = [f"{day};{clock};{n}\n" for n, (day, clock) in enumerate(zip(days, clocks, strict=True))]
    for name, content in {
        "a.csv": as_csv(both),
        "a.jsonl": as_json(both),
        "a.log": as_text("{time} did {n}")(both),
        "b.csv": f"Fecha;Hora;n\n{''.join(rows)}".encode(),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        _, found = ingested(folder, name, content)
        assert found == as_precise("%S")


@pytest.mark.parametrize("form", ["%H.%M", "%H.%M.%S", "%H%M%S", "%H:%M"])
@pytest.mark.parametrize("names", [("Data", "Ora"), ("Datum", "Klockslag"), ("ERDAT", "ERZET")])
@pytest.mark.parametrize("midnight", ["", " 00:00:00"])
def test_a_time_of_day_as_spreadsheets_and_banks_write_it(
    tmp_path: Path, form: str, names: tuple[str, str], midnight: str
) -> None:
    rows = [f"{time:%Y-%m-%d}{midnight};x;{time:{form}};{n}" for n, time in enumerate(TIMES)]
    content = "\n".join([f"{names[0]};what;{names[1]};n", *rows])
    made, found = ingested(tmp_path, "a.csv", content.encode())
    assert made.choices["timestamp.fields"].value == [*names]
    assert found == as_precise(form)


@pytest.mark.parametrize("name", ["Data", "Data/Ora", "Tid", "Tidpunkt", "Skapad", "Inserito"])
def test_days_of_excel_are_named_in_any_language(tmp_path: Path, name: str) -> None:
    rows = [f"{46328 + n / 96:.6f};{n}".replace(".", ",") for n in range(30)]
    (tmp_path / "a.csv").write_text("\n".join([f"{name};n", *rows]))
    assert f"{name}, such as '46328,000000', looks like days as Excel counts them" in (
        "; ".join(draft([str(tmp_path)]).doubts)
    )


@pytest.mark.parametrize("name", ["tz", "utc_offset", "Zeitzone"])
@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S"])
def test_an_offset_in_another_field_belongs_to_the_time(
    tmp_path: Path, form: str, name: str
) -> None:
    local = [time.astimezone(INDIA) for time in TIMES]
    rows = [f"{n},{time:{form}},+05:30" for n, time in enumerate(local)]
    made, found = ingested(tmp_path, "a.csv", "\n".join([f"n,at,{name}", *rows]).encode())
    assert made.choices["timestamp.fields"].value == ["at", name]
    assert found == as_precise("%S")
    assert "name no zone" not in "; ".join(made.doubts)
    days = [f"{n},{t:%Y-%m-%d},{t:%H:%M:%S},+0530" for n, t in enumerate(local)]
    made, found = ingested(tmp_path, "b.csv", "\n".join([f"n,date,time,{name}", *days]).encode())
    assert made.choices["timestamp.fields"].value == ["date", "time", name]
    assert found == as_precise("%S")
    named = "\n".join([f"n,at,{name}", *rows]).replace("+05:30", "IST")
    made, _ = ingested(tmp_path, "c.csv", named.encode())
    assert f"{name}, such as 'IST', may name the zone, and is not read" in made.doubts


def test_times_of_parquet_are_doubted_as_those_of_text_are(tmp_path: Path) -> None:
    """Beside a column of a time type, numbers are named; one of it may lie ahead, too."""
    hours = pa.array(TIMES, pa.timestamp("us", "UTC"))
    late = pa.array([int(t.timestamp() * 1000) + 9 for t in TIMES])
    pq.write_table(pa.table({"planned": hours, "arrived_ms": late}), tmp_path / "a.parquet")
    told = "; ".join(draft([str(tmp_path)]).doubts)
    assert "these fields are times, too: arrived_ms" in told
    ahead = datetime.now(UTC) + timedelta(days=9)
    days = pa.array([ahead.date()] * 9, pa.date32())
    pq.write_table(pa.table({"due": days}), tmp_path / "a.parquet")
    assert f"due has times up to {ahead:%F}T00:00:00.000Z, which lies ahead" in (
        draft([str(tmp_path)]).doubts
    )


def test_the_reason_is_no_name_that_says_nothing(tmp_path: Path) -> None:
    rows = [f"{t:%FT%TZ},{t:%FT%TZ},{n}" for n, t in enumerate(TIMES)]
    for names, said in {
        ("received_by_server_time", "expiry"): "received_by_server_time is taken for its name",
        ("expiry", "received_by_server_time"): "received_by_server_time is taken for its name",
        ("expiry", "validity_of_it"): "expiry is taken since it stands first",
        ("expiry_of_it", "validity"): "expiry_of_it is taken since it stands first",
    }.items():
        (tmp_path / "a.csv").write_text("\n".join([f"{','.join(names)},n", *rows]))
        assert said in "; ".join(draft([str(tmp_path)]).doubts)


@pytest.mark.parametrize("gap", ["", " "])
def test_an_offset_in_hours_is_read_behind_a_blank_too(tmp_path: Path, gap: str) -> None:
    """As Postgres writes zones without letters."""
    zone = timezone(timedelta(hours=-3))
    lines = [f"{t.astimezone(zone):%F %T}{gap}-03 [12] LOG:  did {n}" for n, t in enumerate(TIMES)]
    made, found = ingested(tmp_path, "a.log", "\n".join(lines).encode())
    assert found == as_precise("%S")
    assert "timestamp.zone" not in made.choices


def test_of_times_of_two_zones_the_one_that_says_utc_is_taken(tmp_path: Path) -> None:
    rows = [f"{t.astimezone(INDIA):%F %T},{t:%F %T},{n}" for n, t in enumerate(TIMES)]
    made, found = ingested(tmp_path, "a.csv", "\n".join(["local_time,utc_time,n", *rows]).encode())
    assert found == as_precise("%S")
    assert "utc_time is taken since its name says UTC" in "; ".join(made.doubts)


def test_numbers_that_lie_ahead_are_no_times_unless_a_name_says_so(tmp_path: Path) -> None:
    for name, is_time in {"parcel": False, "barcode": False, "expiry_date": True}.items():
        rows = [f"{3_000_000_000_000 + n},x{n}" for n in range(30)]
        (tmp_path / "a.csv").write_text("\n".join([f"{name},what", *rows]))
        assert ("timestamp.field" in draft([str(tmp_path)]).choices) == is_time


def test_blanks_around_delimiters_belong_to_no_cell(tmp_path: Path) -> None:
    rows = [f"{t:%F %T} +00:00 | {n} | GET / " for n, t in enumerate(TIMES)]
    made, found = ingested(tmp_path, "a.log", "\n".join(rows).encode())
    assert found == as_precise("%S")
    assert made.choices["timestamp.field"].value == "c1"
    log = seglake.open(str(tmp_path / "lake")).topic(made.topic)
    assert log.read(0, 3, max_records=1)["value"].to_pylist() == [rows[3].encode()]


def test_blanks_that_a_pattern_keeps_are_those_of_the_sample(tmp_path: Path) -> None:
    """With a blank on one side alone the cells have it, so the time is read as an ingest would."""
    rows = [f"{t:%F %T} +00:00 |{n}|GET /" for n, t in enumerate(TIMES)]
    (tmp_path / "a.log").write_text("\n".join(rows))
    made = draft([str(tmp_path / "a.log")])
    assert "timestamp.field" not in made.choices
    assert "c1 looks like times, such as" in "; ".join(made.doubts)


def test_files_of_other_orders_of_a_date_are_named(tmp_path: Path) -> None:
    """Alone, each has its own order; together, one of them decides."""
    days = [datetime(2026, 11, day, 9, day, tzinfo=UTC) for day in range(3, 20)]
    for name, form, some in ("es", "%d/%m/%Y %H:%M", days), ("us", "%m/%d/%Y %H:%M", days[:6]):
        rows = [f"{time:{form}},{n}" for n, time in enumerate(some)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["Fecha,n", *rows]))
    made = draft([str(tmp_path)])
    assert made.choices["timestamp.format"].value == "%d/%m/%Y %H:%M"
    told = (
        f"{tmp_path / 'us.csv'}: its times lie closer together with timestamp.format = "
        "'%m/%d/%Y %H:%M'"
    )
    assert told in "; ".join(made.doubts)
    (tmp_path / "us.csv").write_text("Fecha,n\n11/11/2026 10:00,1\n11/11/2026 11:00,2\n")
    assert "closer together" not in "; ".join(draft([str(tmp_path)]).doubts)


def test_a_line_ends_where_an_ingest_ends_it(tmp_path: Path) -> None:
    """Progress in the log of a build has carriage returns inside of its lines."""
    lines = as_text("{time} INFO docker pull\r10%\r50%\r{n}")([f"{t:%FT%TZ}" for t in TIMES])
    made, found = ingested(tmp_path, "a.log", lines)
    assert found == as_precise("%S")
    assert "continue an event" not in "; ".join(made.doubts)


BEHIND = {
    "%Y-%m-%d %H:%M:%S GMT+1": "'GMT+1', which is not read",
    "%Y-%m-%d %H:%M:%S UTC+01:00": "'UTC+01:00', which is not read",
    "%Y-%m-%d %H:%M:%S CET": "'CET', which is not read",
}


@pytest.mark.parametrize("form", BEHIND)
def test_a_zone_that_is_not_read_is_told(tmp_path: Path, form: str) -> None:
    lines = as_text("{time} INFO did {n}")([time.strftime(form) for time in TIMES])
    (tmp_path / "a.log").write_bytes(lines)
    assert BEHIND[form] in "; ".join(draft([str(tmp_path / "a.log")]).doubts)


@pytest.mark.parametrize(
    ("form", "hours"),
    [
        ("%d-%b-%Y %H:%M:%S Europe/Berlin", 2),
        ("%Y-%m-%dT%H:%M:%S+01", 1),
        ("%d-%b-%Y %H:%M:%S UTC", 0),
    ],
)
def test_a_zone_of_all_times_is_read(tmp_path: Path, form: str, hours: int) -> None:
    """As PHP names it, or by its hours alone."""
    lines = as_text("[{time}] did {n}")([time.strftime(form) for time in TIMES])
    made, found = ingested(tmp_path, "a.log", lines)
    right = [t.replace(microsecond=0) - timedelta(hours=hours) for t in TIMES]
    assert found == right
    first, last = (t.strftime("%Y-%m-%dT%H:%M:%S.000Z") for t in (right[0], right[-1]))
    assert f"times from {first} to {last}" in made.choices["timestamp.field"].reason
    assert "zone" not in "; ".join(made.doubts)


def test_a_second_time_in_the_lines_is_told(tmp_path: Path) -> None:
    """A relay's time stands before that of the event."""
    line = as_text("Nov 20 09:00:19 app[1]: {time} INFO did {n}")
    (tmp_path / "a.log").write_bytes(line([time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in TIMES]))
    told = "; ".join(draft([str(tmp_path / "a.log")]).doubts)
    assert "the lines have another time, such as '2026-05-13T09:30:07Z'" in told


def test_a_time_in_front_of_that_of_a_known_log_is_told(tmp_path: Path) -> None:
    """HAProxy's own, of the accept, has a year; that of the relay stands before it."""
    line = as_text("Nov 20 09:00:19 lb haproxy[14]: 10.0.0.1:5{n} [{time}] fe be/s1")
    times = [time.strftime("%d/%b/%Y:%H:%M:%S.120") for time in TIMES]
    (tmp_path / "a.log").write_bytes(line(times))
    told = "; ".join(draft([str(tmp_path / "a.log")]).doubts)
    assert "the lines have another time, such as 'Nov 20 09:00:19', beside that which" in told


LED = {
    "a time of day": ("09:58:12 [INFO] task {n} for {time}", "stands '09:58:12'"),
    "a time that is not known": ("10h 09:58 {n} since={time}", "stands '09:58'"),
}


@pytest.mark.parametrize("name", LED)
def test_what_may_be_a_time_in_front_of_the_time_is_told(tmp_path: Path, name: str) -> None:
    line, told = LED[name]
    times = [time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in TIMES]
    (tmp_path / "a.log").write_bytes(as_text(line)(times))
    doubts = "; ".join(draft([str(tmp_path / "a.log")]).doubts)
    assert told in doubts
    assert "correct input.pattern" in doubts


def test_times_behind_other_words_than_most_are_told(tmp_path: Path) -> None:
    """The second line of each event has a time inside, and continues it."""
    two = "INFO {time} worker did {n}\njava.lang.Error: token expired at 2026-11-01 10:00:00"
    times = [time.strftime("%Y-%m-%d %H:%M:%S") for time in TIMES]
    (tmp_path / "a.log").write_bytes(as_text(two)(times).replace(b"worker did 7\njava", b"x\njava"))
    told = "; ".join(draft([str(tmp_path / "a.log")]).doubts)
    assert "30 of 60 sampled times stand behind other text than most, such as 'java.lang" in told


def test_a_number_behind_a_time_may_be_a_cell(tmp_path: Path) -> None:
    """Of CSV without a header, whose times would else have parts of a second."""
    times = [time.strftime("%b %d %Y %H:%M:%S") for time in TIMES]
    made, found = ingested(tmp_path, "a.csv", as_text("{n},{time},{n}.5,a")(times))
    assert made.choices["timestamp.field"].value == "c2"
    assert found == as_precise("%S")


def test_a_comma_in_numbers_is_no_delimiter(tmp_path: Path) -> None:
    times = [time.strftime("%Y-%m-%d %H:%M:%S") for time in TIMES]
    _, found = ingested(tmp_path, "a.csv", as_text("{time};Kessel{n};27,{n}")(times))
    assert found == as_precise("%S")


def test_a_log_with_a_comma_in_each_line_is_no_csv(tmp_path: Path) -> None:
    """As Symfony's, whose first line is no header."""
    times = [time.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00") for time in TIMES]
    line = '[{time}] app.INFO: Matched route "home". {{"route":"home","n":{n}}} []'
    made, found = ingested(tmp_path, "app.log", as_text(line)(times))
    assert (made.choices["input.format"].value, found) == ("text", TIMES)


def test_the_name_of_a_zone_is_no_level(tmp_path: Path) -> None:
    """Else the lines of the other season, with CET, would be rejects."""
    texts = [time.strftime("%Y-%m-%d %H:%M:%S CE") for time in TIMES]
    zones = ["ST" if at < 20 else "T" for at in range(len(texts))]
    lines = "".join(f"{text}{zone} [3] LOG:  x\n" for text, zone in zip(texts, zones, strict=True))
    made, found = ingested(tmp_path, "a.log", lines.encode())
    assert found == as_precise("%S")
    assert "the times are followed by 'CEST', 'CET'" in "; ".join(made.doubts)


@pytest.mark.parametrize("absent", ["NULL", "-", "N/A", "NaN"])
def test_what_exports_write_for_no_time_is_no_time(tmp_path: Path, absent: str) -> None:
    times = [t.strftime("%Y-%m-%dT%H:%M:%SZ") if t.minute % 3 else absent for t in TIMES]
    (tmp_path / "a.csv").write_bytes(as_csv(times))
    told = "; ".join(draft([str(tmp_path / "a.csv")]).doubts)
    assert f"happened_at has times in {len(TIMES) - times.count(absent)} of 30 sampled rows" in told


def test_a_time_with_no_telling_name_names_the_others(tmp_path: Path) -> None:
    rows = [
        {"sampled_us": int(t.timestamp() * 1e6), "got_ms": int(t.timestamp() * 1e3)} for t in TIMES
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = "; ".join(draft([str(tmp_path / "a.jsonl")]).doubts)
    assert "these fields are times, too: got_ms" in told


def test_a_name_inside_of_an_object_may_have_dots(tmp_path: Path) -> None:
    """As OpenTelemetry's attributes."""
    rows = [
        {"attributes": {"event.time": t.isoformat(), "user.id": f"u{n % 5}"}}
        for n, t in enumerate(TIMES)
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    made, found = ingested(tmp_path, "a.jsonl", lines)
    assert found == TIMES
    assert made.choices["key.fields"].value == ["attributes.user.id"]
    log = seglake.open(str(tmp_path / "lake")).topic(made.topic)
    assert {*log.read_range(0, 5 * 10**12).read_all()["key"].to_pylist()} == {
        f"u{n}".encode() for n in range(5)
    }


def test_an_id_behind_a_dot_is_no_suffix(tmp_path: Path) -> None:
    """As in the names of CloudFront's logs: all are of one kind."""
    times = [time.strftime("%Y-%m-%d\t%H:%M:%S") for time in TIMES]
    for n, name in enumerate(("b68daeed", "1234abcd", "cafebabe01")):
        (tmp_path / f"E1AB.2026-11-20-0{n}.{name}.gz").write_bytes(
            gzip.compress(as_text("{time}\tFRA\t{n}")(times))
        )
    made = draft([str(tmp_path)])
    assert "other kinds" not in "; ".join(made.doubts)
    assert made.choices["input.format"].reason.startswith("3 files")


def test_times_of_day_alone_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"09:58:12.345 INFO thing\n" * 5)
    with pytest.raises(InputError, match=r"times of day, such as '09:58:12.345', and no date"):
        draft([str(tmp_path / "a.log")])


def test_a_date_that_does_not_stand_before_its_time_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes("le 20/11/2026 à 09:58:12 INFO thing\n".encode() * 5)
    with pytest.raises(InputError, match=r"may be dates, such as '20/11/2026': if they belong tog"):
        draft([str(tmp_path / "a.log")])


def test_a_time_is_a_whole_number(tmp_path: Path) -> None:
    """Not ten digits of more, as in the export format of journald."""
    times = [str(int(time.timestamp() * 1e6) * 10) for time in TIMES]
    (tmp_path / "a.log").write_bytes(as_text("web1 app {time} did {n}")(times))
    with pytest.raises(InputError, match="no time is found"):
        draft([str(tmp_path / "a.log")])
    made, found = ingested(tmp_path, "b.log", as_text("X={time} {n} a")([t[:16] for t in times]))
    assert found == TIMES
    assert "no time but numbers such as 1778664607120000" in "; ".join(made.doubts)
