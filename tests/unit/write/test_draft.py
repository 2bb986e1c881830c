"""`seglake init`: what it drafts is ingested as it is, with the right time and key."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import math
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.errors import InputError
from seglake.times.instants import format_ms
from seglake.write.draft.draft import Draft, draft
from seglake.write.draft.files import LEFT_OUT
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.object_server import object_server

ROWS = 40
BEGIN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
TIMES = [BEGIN + timedelta(seconds=37 * n) for n in range(ROWS)]
USERS = [f"u{n % 7}" for n in range(ROWS)]
TAIL = "tail -n +4 < FILE"  # what a remark says


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def jsonl(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def table(head: str, line: Callable[[int], str], end: str = "\n") -> bytes:
    return (end.join([*([head] if head else []), *map(line, range(ROWS))]) + end).encode()


def of_events(form: str, **more: Any) -> bytes:
    return table("", lambda n: TIMES[n].strftime(form).format(user=USERS[n], n=n, **more))


EPOCHS = jsonl(*({"ts": ms(t), "user": u} for t, u in zip(TIMES, USERS, strict=True)))
NESTED = jsonl(
    *(
        {"n": n, "event": {"created_at": TIMES[n].isoformat()}, "actor": {"user_id": n % 5}}
        for n in range(ROWS)
    )
)
SECONDS = jsonl(*({"size": 10**12 + n, "time": ms(t) / 1000} for n, t in enumerate(TIMES)))
SEMICOLONS = table(
    "Datum;Kunde;customer_no", lambda n: f"{TIMES[n]:%d.%m.%Y %H:%M};Käse;{n % 3}", "\r\n"
)
TABS = table("id\ttimestamp\tdevice", lambda n: f"{n}\t{TIMES[n]:%Y-%m-%d %H:%M:%S}\td{n % 4}")
QUOTED = table("when,session,text", lambda n: f'{TIMES[n].isoformat()},s{n % 6},"a ""b"", c"')
AMERICAN = table(
    "date,amount", lambda n: f"{TIMES[n] + timedelta(days=n):%m/%d/%Y %I:%M:%S %p},{n}"
)
HALF_DAYS = table(
    "id,created,amount", lambda n: f"{n},{TIMES[n] + timedelta(days=n):%m/%d/%Y %I:%M %p},5"
)
GERMAN_DAYS = table("Datum;Wer", lambda n: f"{TIMES[n]:%d.%m.%y %H:%M:%S};w{n}")
MAIL = jsonl(*({"sent": format_datetime(t), "n": n} for n, t in enumerate(TIMES)))
MAIL_LOG = table("", lambda n: f"{format_datetime(TIMES[n])} queue {n}")
NAMELESS = table("", lambda n: f"{ms(TIMES[n])},{USERS[n]},{n}")
ACCESS = of_events('10.0.0.{n} - {user} [%d/%b/%Y:%H:%M:%S +0000] "GET /{n} HTTP/1.1" 200 {n}')
SYSLOG = of_events("%b %e %H:%M:%S web1 {user}[{n}]: hello")
PROXY = of_events(
    "%b %e %H:%M:%S lb haproxy[7]: 10.0.0.{n}:5000 [%d/%b/%Y:%H:%M:%S.655] in srv/{user} 200 {n}"
)
SENT = of_events("<34>%b %e %H:%M:%S web1 {user}[{n}]: hello")
SENT_WITH_A_YEAR = of_events("<165>1 %Y-%m-%dT%H:%M:%S.003Z web1 {user} {n} ID47 - hello")
LEVELS = of_events("%Y-%m-%d %H:%M:%S,123 INFO module {user} says {n}\n  and more of it")
BRACKETS = of_events("[%Y-%m-%dT%H:%M:%SZ] {user} {n}")
ERRORS = of_events("%Y/%m/%d %H:%M:%S [error] {n}#0: {user}")
GLOG = of_events("I%m%d %H:%M:%S.123456 77 {user}.cc:{n}] says, hello\n  and more")
GLOG_WITH_A_YEAR = of_events("W%Y%m%d %H:%M:%S.123456 77 {user}.cc:{n}] says, hello")
LEVEL_FIRST = of_events("INFO [main] %Y-%m-%d %H:%M:%S,250 {user} says, {n}")
LOG4J_DATE = of_events("%d %b %Y %H:%M:%S,250 INFO {user} says {n}")
LOGFMT = of_events(
    'time="%Y-%m-%dT%H:%M:%S.250Z" level=info msg="a \\" user=no b" panic user={user} dur={n}ms\n'
    "  and more=1"
)
MIDDLE = of_events("{user} did something at %Y-%m-%d %H:%M:%S in room {n}")


def parquet(times: Any) -> bytes:
    columns: dict[str, Any] = {"at": times, "user": USERS}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


ZONED = pa.array(TIMES, pa.timestamp("us", "UTC"))
NANOSECONDS = pa.array([ms(time) * 10**6 + 789 for time in TIMES], pa.timestamp("ns"))


def tar() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(EPOCHS)
        archive.addfile(member, io.BytesIO(EPOCHS))
    return sink.getvalue()


Case = tuple[str, bytes, dict[str, Any], str | None]
CASES: dict[str, Case] = {
    "numbers of ms": ("a.jsonl", EPOCHS, {"field": "ts", "format": "epoch_ms"}, "user"),
    "gzip": ("a.json.gz", gzip.compress(EPOCHS), {"field": "ts", "format": "epoch_ms"}, "user"),
    "bz2": ("a.log.1.bz2", bz2.compress(ACCESS), {"field": "time"}, "user"),
    "tar": ("a.tgz", tar(), {"field": "ts", "format": "epoch_ms"}, "user"),
    "no suffix": ("events", EPOCHS, {"field": "ts", "format": "epoch_ms"}, "user"),
    "nested": ("a.ndjson", NESTED, {"field": "event.created_at", "format": "iso8601"},
               "actor.user_id"),
    "seconds with a fraction": ("a.jsonl", SECONDS, {"field": "time", "format": "epoch_s"}, None),
    "semicolons": ("a.csv", SEMICOLONS, {"field": "Datum", "format": "%d.%m.%Y %H:%M"},
                   "customer_no"),
    "tabs": ("a.tsv", TABS, {"field": "timestamp", "format": "iso8601"}, "device"),
    "quotes": ("a.csv", QUOTED, {"field": "when", "format": "iso8601"}, "session"),
    "months first": ("a.csv", AMERICAN, {"field": "date", "format": "%m/%d/%Y %I:%M:%S %p"}, None),
    "halves of days": ("a.csv", HALF_DAYS, {"field": "created", "format": "%m/%d/%Y %I:%M %p"},
                       None),
    "log with halves of days": ("a.log", of_events("%m/%d/%Y %I:%M:%S %p {user} {n}"),
                                {"field": "time", "format": "%m/%d/%Y %I:%M:%S %p"}, None),
    "short years": ("a.csv", GERMAN_DAYS, {"field": "Datum", "format": "%d.%m.%y %H:%M:%S"}, None),
    "dates of mail": ("a.jsonl", MAIL, {"field": "sent", "format": "%a, %d %b %Y %H:%M:%S %z"},
                      None),
    "log of mail": ("a.log", MAIL_LOG, {"field": "time", "zone": None,
                                        "format": "%a, %d %b %Y %H:%M:%S %z"}, None),
    "no header line": ("a.csv", NAMELESS, {"field": "c1", "format": "epoch_ms"}, None),
    "access log": ("access.log", ACCESS, {"field": "time", "format": "%d/%b/%Y:%H:%M:%S %z"},
                   "user"),
    "syslog": ("syslog", SYSLOG, {"field": "time", "format": "%b %e %H:%M:%S"}, "process"),
    "syslog from the network": ("syslog", SENT, {"field": "time", "format": "%b %e %H:%M:%S"},
                                "process"),
    "syslog of RFC 5424": ("syslog", SENT_WITH_A_YEAR, {"field": "time", "format": "iso8601"},
                           "process"),
    "log of a proxy": ("haproxy.log", PROXY, {"field": "time", "format": "%d/%b/%Y:%H:%M:%S.%f"},
                       None),
    "several lines": ("app.log", LEVELS, {"field": "time", "format": "iso8601"}, None),
    "glog": ("a.INFO", GLOG, {"field": "time", "format": "%m%d %H:%M:%S.%f"}, None),
    "glog with a year": ("a.log", GLOG_WITH_A_YEAR,
                         {"field": "time", "format": "%Y%m%d %H:%M:%S.%f", "year": None}, None),
    "a level first": ("a.log", LEVEL_FIRST, {"field": "time", "format": "iso8601"}, None),
    "dates of log4j": ("a.log", LOG4J_DATE, {"field": "time", "format": "%d %b %Y %H:%M:%S,%f"},
                       None),
    "brackets": ("app.log", BRACKETS, {"field": "time", "format": "iso8601"}, None),
    "a zone after a day": ("a.log", of_events("[%d/%b/%Y:%H:%M:%S +0000] {user}"),
                           {"field": "time", "format": "%d/%b/%Y:%H:%M:%S %z"}, None),
    "error log": ("error.log", ERRORS, {"field": "time", "format": "%Y/%m/%d %H:%M:%S"}, None),
    "time in the middle": ("a.txt", MIDDLE, {"field": "time", "format": "iso8601"}, None),
    "logfmt": ("a.log", LOGFMT, {"field": "time", "format": "iso8601"}, "user"),
    "parquet": ("a.parquet", parquet(ZONED), {"field": "at", "zone": None}, "user"),
    "parquet without a zone": ("a.parquet", parquet(NANOSECONDS), {"field": "at", "zone": "UTC"},
                               "user"),
    "log of a server": ("error.log", of_events("[%a %b %d %H:%M:%S.123456 %Y] [core] {user}"),
                        {"field": "time", "format": "%a %b %e %H:%M:%S.%f %Y"}, None),
    "log of Java": ("a.log", of_events("%d-%b-%Y %H:%M:%S.123 INFO [main] {user} {n}"),
                    {"field": "time", "format": "%d-%b-%Y %H:%M:%S.%f"}, None),
    "name of a host": ("a.json", jsonl(*({"@timestamp": t.isoformat(), "host": {"name": u}}
                                         for t, u in zip(TIMES, USERS, strict=True))),
                       {"field": "@timestamp", "format": "iso8601"}, "host.name"),
    "compact": ("a.csv", table("ts,n", lambda n: f"{TIMES[n]:%Y%m%dT%H%M%SZ},{n}"),
                {"field": "ts", "format": "%Y%m%dT%H%M%S%z", "zone": None}, None),
    "compact numbers": ("a.jsonl", jsonl(*({"ts": int(f"{t:%Y%m%d%H%M%S}")} for t in TIMES)),
                        {"field": "ts", "format": "%Y%m%d%H%M%S", "zone": "UTC"}, None),
    "no time": ("a.csv", table("color,size", lambda n: f"red,{n}"), {}, None),
}  # fmt: skip


def drafted(folder: Path, *paths: Path, **how: Any) -> tuple[Draft, Any]:
    """The draft, and the report of its ingest."""
    made = draft([str(path) for path in paths], root=str(folder / "lake"), **how)
    file = folder / "drafted.toml"
    file.write_text(made.toml)
    pipeline = load(file)
    return made, ingest_files(LocalEngine(), pipeline, DeclaredRun("1"))


@pytest.mark.parametrize("case", CASES)
def test_what_it_drafts_is_ingested_as_it_is(tmp_path: Path, case: str) -> None:
    name, content, time, key = CASES[case]
    (tmp_path / name).write_bytes(content)
    made, report = drafted(tmp_path, tmp_path / name)
    assert (report.records, report.quarantined) == (ROWS, 0)
    chosen = {setting: choice.value for setting, choice in made.choices.items()}
    assert {f: chosen.get(f"timestamp.{f}") for f in time} == time
    assert chosen.get("key.fields") == (None if key is None else [key])
    records = seglake.open(str(tmp_path / "lake")).topic(made.topic).read_range(0, 4 * 10**12)
    stamps: list[Any] = records.read_all()["timestamp"].to_pylist()
    times = sorted(stamps)
    if time and case not in {"syslog", "syslog from the network", "glog"}:  # a guessed year
        by_minute, by_day = {"semicolons", "halves of days"}, {"months first", "halves of days"}
        per_unit = timedelta(minutes=1) if case in by_minute else timedelta(seconds=1)
        wanted = [t + timedelta(days=n) * (case in by_day) for n, t in enumerate(TIMES)]
        assert all(
            abs(ms(want) - ms(got)) < per_unit / timedelta(milliseconds=1)
            for want, got in zip(wanted, times, strict=True)
        )


def doubts_of(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return "; ".join(draft([str(folder / name)]).doubts)


def test_lines_with_nan_are_json_lines_that_are_rejects(tmp_path: Path) -> None:
    rows = ({"ts": 1_780_000_000 + n, "user": f"u{n % 7}", "x": math.nan} for n in range(60))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = draft([str(tmp_path)])
    assert made.choices["input.format"].value == "jsonl"
    assert "rejects: 60 of 60 sampled lines, with NaN or Infinity" in "; ".join(made.doubts)


def test_broken_lines_of_json_stay_rejects(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(EPOCHS + b"{bad\n" * (ROWS - 1))
    made = draft([str(tmp_path)])
    assert made.choices["input.format"].value == "jsonl"
    assert f"no JSON objects: {ROWS - 1} of {2 * ROWS - 1} sampled lines" in made.doubts


def test_a_long_first_line_is_read_whole(tmp_path: Path) -> None:
    long = b'{"ts": %d, "user": "a", "text": "%s"}\n' % (ms(BEGIN), b"x" * 1_500_000)
    (tmp_path / "a").write_bytes(long + EPOCHS)
    assert draft([str(tmp_path / "a")]).choices["input.format"].value == "jsonl"


def test_a_header_of_csv_alone_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,id\n")
    with pytest.raises(InputError, match="one line alone, as a header of CSV without rows"):
        draft([str(tmp_path / "a.csv")])


def test_only_packed_files_have_a_guessed_size(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", EPOCHS), ("b.jsonl.gz", gzip.compress(EPOCHS))):
        (tmp_path / name).write_bytes(content)
        reason = draft([str(tmp_path / name)]).choices["input.format"].reason
        assert ("if unpacked files are 5 times as large" in reason) == name.endswith("gz")


def test_it_says_what_it_is_not_sure_of(tmp_path: Path) -> None:
    assert doubts_of(tmp_path, "a.jsonl", EPOCHS) == ""
    assert "zone = 'UTC' is a guess" in doubts_of(tmp_path, "b.tsv", TABS)
    assert "year = " in doubts_of(tmp_path, "syslog", SYSLOG)
    assert "the times name no year; timestamp.year = " in doubts_of(tmp_path, "i.INFO", GLOG)
    assert "other way round" in doubts_of(
        tmp_path, "c.csv", table("date,n", lambda n: f"03/0{n % 9 + 1}/2026 10:00:00,{n}")
    )
    halves = table("date,n", lambda n: f"03/0{n % 9 + 1}/2026 10:00 PM,{n}")
    assert "other way round: timestamp.format = '%d/%m/" in doubts_of(tmp_path, "m.csv", halves)
    assert "no field has times that are read" in doubts_of(tmp_path, "d.csv", CASES["no time"][1])
    assert "1 of 41 sampled lines" in doubts_of(tmp_path, "e.jsonl", EPOCHS + b"{broken\n")
    doubts = doubts_of(tmp_path, "f.csv", NAMELESS)
    assert "c1, c2" in doubts
    assert "with a line of names in front of each file, input.format = 'csv' does not" in doubts
    days = table("date,n", lambda n: f"2026-03-{n % 9 + 10},{n}")
    assert "date has whole days" in doubts_of(tmp_path, "h.csv", days)
    typed = doubts_of(tmp_path, "j.parquet", parquet(ZONED.cast(pa.date32())))
    assert "at has whole days" in typed
    assert "zone = 'UTC' is a guess" in typed
    assert "zone" not in doubts_of(tmp_path, "k.parquet", parquet(ZONED))
    assert "zone = 'UTC' is a guess" in doubts_of(tmp_path, "l.parquet", parquet(NANOSECONDS))
    both = jsonl(*({"created": ms(t), "time": ms(t)} for t in TIMES))
    assert "these fields are times, too: created" in doubts_of(tmp_path, "g.jsonl", both)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["updated_at", "created_at"], "created_at is taken for its name; {}: updated_at"),
        (["pickup_time", "dropoff_time"], "pickup_time is taken since it stands first; {}: dropof"),
        (["received_at", "size", "event_time"], "event_time is taken for its name; {}: received_"),
        (
            ["of.sent_time", "sent_time", "read_time"],
            "sent_time is taken since of the fields that are not nested it stands first; {}: read",
        ),
        (["of.sent_time", "read_time"], "read_time is taken since it is not nested; {}: of.sent_"),
        (
            ["read_time", "event_time", "log_time"],
            "event_time is taken since of the fields with such a name it stands first; {}: log_",
        ),
    ],
)
def test_the_times_that_are_not_taken_are_named(
    tmp_path: Path, names: list[str], said: str
) -> None:
    """Also in the draft itself; numbers that may be times are none of them."""
    (tmp_path / "a.jsonl").write_bytes(
        jsonl(*({n: 10**12 if n == "size" else t.isoformat() for n in names} for t in TIMES))
    )
    made = draft([str(tmp_path / "a.jsonl")])
    said = said.format("these fields are times, too")
    assert [doubt for doubt in made.doubts if doubt.startswith(said) and "size" not in doubt]
    assert f"# Not sure: {said}" in made.toml


def test_a_number_that_may_be_a_time_is_doubted(tmp_path: Path) -> None:
    """One that is called a phone, a number or an id is not taken at all."""
    rows = table("order_no;phone;user_id", lambda n: f"{17 * 10**8 + n};{1650 * 10**6 + n * n};5")
    doubts = doubts_of(tmp_path, "a.csv", rows)
    for name, value in (("order_no", 17 * 10**8), ("phone", 1650 * 10**6)):
        assert f"{name} could be times (epoch_s), such as '{value}', but its name" in doubts
    assert "no field has times" in doubts
    wide = rows.replace(b"order_no", b"sent_at", 1).replace(b"phone", b"width", 1)
    (tmp_path / "b.csv").write_bytes(wide)
    made = draft([str(tmp_path / "b.csv")])
    assert made.choices["timestamp.field"].value == "sent_at"
    assert "times, too" not in "; ".join(made.doubts)
    doubts = doubts_of(tmp_path, "b.csv", wide.replace(b"sent_at", b"height"))
    assert "height has numbers that are times if they are epoch_s, but its name" in doubts
    counter = wide.replace(b"sent_at", b"at", 1).replace(b"width", b"received", 1)
    assert "times, too" not in doubts_of(tmp_path, "c.csv", counter)  # of bytes, as nginx has
    assert "look whether 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:59.000Z is right" in doubts


def test_days_of_excel_are_named(tmp_path: Path) -> None:
    rows = table("when;width", lambda n: f"{46346 + n / 100};{46346 + n}")
    doubts = doubts_of(tmp_path, "a.csv", rows)
    assert "when, such as '46346.0', looks like days as Excel counts them, which Seglake" in doubts
    assert "width, such" not in doubts


@pytest.mark.parametrize(
    ("name", "epoch"),
    [("Windows FILETIME", 116444736000000000), (".NET ticks", 621355968000000000)],
)
def test_ticks_of_windows_are_no_nanoseconds(tmp_path: Path, name: str, epoch: int) -> None:
    """They would be times of 1974 and 1990; a time beside them is taken."""
    rows = table("TimeCreated,at", lambda n: f"{ms(TIMES[n]) * 10**4 + epoch},{TIMES[n]}")
    said = f"looks like {name}, which Seglake does not read: write them as epoch_ms, (n - {epoch})"
    (tmp_path / "a.csv").write_bytes(rows.replace(b",at", b",n").replace(b" ", b"x"))
    made = draft([str(tmp_path / "a.csv")])
    assert made.choices["pipeline.order"].value == "arrival"
    assert said in made.toml
    assert said in doubts_of(tmp_path, "b.csv", rows)
    assert draft([str(tmp_path / "b.csv")]).choices["timestamp.field"].value == "at"
    real = jsonl(*({"ts": ms(time) * 10**6} for time in TIMES))
    assert "looks like" not in doubts_of(tmp_path, "c.jsonl", real)


def test_a_time_inside_of_a_traceback_makes_no_event(tmp_path: Path) -> None:
    trace = "\njava.lang.IllegalStateException: no slot" + "\n\tat com.x.Y.z(Y.java:7)" * 2
    events = [f"{t:%FT%T}.123Z  INFO 1 --- [main] c.x.Y : did {n}{trace * (n % 4 == 0)}"
              for n, t in enumerate(TIMES)]  # fmt: skip
    (tmp_path / "a.log").write_text("\n".join(["Starting delivery-api", *events, ""]))
    made, report = drafted(tmp_path, tmp_path / "a.log")
    assert (report.records, report.quarantined) == (ROWS, 1)
    assert "no time, so they continue an event: 30 of 71 sampled lines" in made.doubts


def test_the_topic_of_the_working_folder_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "a.csv").write_bytes(table("ts,n", lambda n: f"{ms(TIMES[n])},{n}"))
    monkeypatch.chdir(tmp_path / "sales")
    assert draft(["."]).topic == draft(["./"]).topic == "sales"


def test_a_time_inside_of_some_lines_is_doubted(tmp_path: Path) -> None:
    """They are events of their own where nothing says that they continue one."""
    lines = (f"{'main: ' * (n % 5 == 0)}{t:%Y-%m-%d %H:%M:%S} hello" for n, t in enumerate(TIMES))
    (tmp_path / "a.log").write_text("\n".join(lines))
    made, report = drafted(tmp_path, tmp_path / "a.log")
    assert (report.records, report.quarantined) == (ROWS, 0)
    assert "8 of 40 sampled times stand inside of their lines, which become" in made.toml
    assert "stand inside" not in doubts_of(tmp_path, "b.log", MIDDLE)


def test_values_that_are_no_times_do_not_lack_a_zone(tmp_path: Path) -> None:
    rows = [f"{t.isoformat()},{n}" for n, t in enumerate(TIMES)]
    content = "\n".join(["ts,n", *rows, "Total,780", "N/A,1"]).encode()
    assert "zone" not in doubts_of(tmp_path, "a.csv", content)
    made = draft([str(tmp_path / "a.csv")])
    assert "timestamp.zone" not in made.choices
    assert made.choices["timestamp.field"].reason.endswith("in 40 sampled rows")


def test_it_says_how_many_times_name_no_zone(tmp_path: Path) -> None:
    guess = "; timestamp.zone = 'UTC' is a guess"
    told_of = {0: None, 1: "1 of 60 times names no zone", 30: "30 of 60 times name no zone"}
    for bare, said in {**told_of, 60: "the times name no zone"}.items():
        rows = ({"t": f"2026-11-26T01:00:{n:02}{'' if n < bare else 'Z'}"} for n in range(60))
        told = doubts_of(tmp_path, f"{bare}.jsonl", jsonl(*rows))
        assert (f"{said}{guess}" in told) if said else (guess not in told)


@pytest.mark.parametrize("zone", ["+02", "z", "-0530", "Z"])
def test_zones_in_any_spelling_are_zones(tmp_path: Path, zone: str) -> None:
    rows = ({"t": f"2026-11-26T01:00:{n:02}{zone}"} for n in range(60))
    assert "no zone" not in doubts_of(tmp_path, "a.jsonl", jsonl(*rows))


@pytest.mark.parametrize(
    ("time", "form"),
    [
        ("2026-11-20 09:00:{:02} CET", "%Y-%m-%d %H:%M:%S CET"),
        ("2026-11-20T09:00:{:02}.5CET", "%Y-%m-%dT%H:%M:%S.%fCET"),
        ("20.11.2026 09:00:{:02} MEZ", "%d.%m.%Y %H:%M:%S MEZ"),
        ("11/20/2026 09:00:{:02} PM (EST)", "%m/%d/%Y %I:%M:%S %p (EST)"),
        ("Fri Nov 20 09:00:{:02} CET 2026", "%a %b %e %H:%M:%S CET %Y"),
        ("Fri Nov 20 09:00:{:02} UTC 2026", "%a %b %e %H:%M:%S %Z %Y"),
    ],
)
def test_the_name_of_a_zone_in_a_field_is_told(tmp_path: Path, time: str, form: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(*({"t": time.format(n)} for n in range(60))))
    made = draft([str(tmp_path)])
    assert made.choices["timestamp.format"].value == form
    told = "which is not read: set timestamp.zone to" in "; ".join(made.doubts)
    assert told == ("timestamp.zone" in made.choices) == ("UTC" not in time)


def test_a_field_with_the_names_of_two_zones_mixes_formats(tmp_path: Path) -> None:
    rows = ({"t": f"2026-10-25 03:00:{n:02} {'CEST' if n < 20 else 'CET'}"} for n in range(60))
    told = "40 are %Y-%m-%d %H:%M:%S CET"
    assert told in doubts_of(tmp_path, "a.jsonl", jsonl(*rows))


def test_the_name_of_a_zone_behind_the_time_is_told(tmp_path: Path) -> None:
    for zone, told in (("CET", True), ("CEST", True), ("UTC", False)):
        path = tmp_path / f"{zone}.log"
        path.write_bytes(of_events(f"%Y-%m-%d %H:%M:%S {zone} INFO hello {{n}}"))
        made = draft([str(path)])
        assert ["level" in made.toml, made.choices["timestamp.zone"].value] == [True, "UTC"]
        doubts = "; ".join(made.doubts)
        assert "name no zone" not in doubts
        assert (f"the times are followed by '{zone}', which is not read: set timestamp.zone to"
                in doubts) == told  # fmt: skip


def test_fields_that_look_like_times_are_named(tmp_path: Path) -> None:
    """Also where no format reads them; a field of other texts is not."""
    for value in ("{}. Januar 2026 13:00", "17930000{:02} s", "2026/{}/3 at noon"):
        values = [value.format(n % 28 + 1) for n in range(ROWS)]
        rows = "\n".join(["day;who;note", *(f"{value};w{value};a 1:2 b" for value in values)])
        doubts = doubts_of(tmp_path, "a.csv", rows.encode())
        assert f"day looks like times, such as {values[0]!r}, and no format" in doubts
        assert "note looks like" not in doubts


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_field_with_times_that_many_rows_lack_is_named(tmp_path: Path, form: str) -> None:
    times = [f"2026-11-26T01:00:{n:02}Z" if n % 10 else None for n in range(ROWS)]
    content = {
        "jsonl": jsonl(*({"n": 1, "when": time} for time in times)),
        "csv": table("n,when", lambda n: f"{n},{times[n] or ''}"),
        "parquet": parquet(times),
    }[form]
    name = "at" if form == "parquet" else "when"
    assert doubts_of(tmp_path, "a", content).startswith(
        f"{name} has times in 36 of 40 sampled rows: with timestamp.field = '{name}', "
        "timestamp.format = 'iso8601' the others are rejects, which pipeline.max_quarantine_ratio "
        "must allow; no field has times that are read in nearly all rows"
    )


def test_fields_with_times_in_some_files_are_named(tmp_path: Path) -> None:
    for name, field, count in (("a", "ts", 60), ("b", "time", 40)):
        (tmp_path / f"{name}.jsonl").write_bytes(
            jsonl(*({field: ms(BEGIN) + n} for n in range(count)))
        )
    doubts = draft([str(tmp_path)]).doubts
    own = "draft pipelines of their own for files with it and without it"
    found = (("time", 40, "b"), ("ts", 60, "a"))
    assert doubts[:2] == [
        f"{field} has times in {count} of 100 sampled rows, in 1 of 2 files, such as "
        f"{tmp_path}/{name}.jsonl: {own}"
        for field, count, name in found
    ]


def test_an_array_of_objects_without_a_time_beside_it_is_named(tmp_path: Path) -> None:
    """The events may be in it; a list of nothing has no fields to name."""
    export: dict[str, Any] = {"count": 2, "results": [{"ts": 1}, {"ts": 2}]}
    doubts = doubts_of(tmp_path, "a.json", jsonl(export))
    assert (
        "results is an array of objects; if these are the events, one event a line is wanted: "
        "`jq -c '.results[]' < FILE` makes lines of the array in field 'results'; "
    ) in doubts
    assert "results is an array" not in doubts_of(
        tmp_path, "b.json", jsonl({**export, "ts": ms(BEGIN)})
    )
    assert "fields" not in doubts_of(tmp_path, "c.json", jsonl({"n": [1]})).replace(
        "key.fields", ""
    )


def test_an_epoch_with_a_decimal_comma_is_a_time(tmp_path: Path) -> None:
    rows = table("zeit;id", lambda n: f"17930000{n:02},123;{n}")
    (tmp_path / "a.csv").write_bytes(rows)
    made = draft([str(tmp_path / "a.csv")]).choices
    assert made["timestamp.format"].value == "epoch_s"
    assert "2026-10-26T07:33:20.123Z" in made["timestamp.field"].reason


def test_times_of_two_units_are_told_and_what_they_become(tmp_path: Path) -> None:
    """Seconds that are read as milliseconds are times of 1970, microseconds are rejects."""
    rows = ({"ts": ms(t) if n % 3 else ms(t) // 1000} for n, t in enumerate(TIMES))
    (tmp_path / "a.jsonl").write_bytes(jsonl(*rows))
    made = draft([str(tmp_path / "a.jsonl")])
    assert made.choices["timestamp.format"].value == "epoch_ms"
    counts = "ts mixes formats: of 40 times 14 are epoch_s, 26 are epoch_ms; "
    first = ms(TIMES[0]) // 1000
    wrong = f"14 become records of a wrong time, such as {first} at {format_ms(first)}"
    assert counts + wrong in made.doubts
    rows = ({"ts": ms(t) if n % 3 else ms(t) * 1000} for n, t in enumerate(TIMES))
    (tmp_path / "a.jsonl").write_bytes(jsonl(*rows))
    rejects = "; rows of another format than timestamp.format are rejects"
    assert any(each.endswith(rejects) for each in draft([str(tmp_path / "a.jsonl")]).doubts)


@pytest.mark.parametrize("has_day", [False, True])
def test_columns_in_the_names_of_folders_are_told(tmp_path: Path, has_day: bool) -> None:
    day = {"day": "x"} if has_day else {}
    for name in ("day=2026-11-01/country=DE", "day=2026-11-02/country=FR"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "part-0.json").write_bytes(jsonl(*({"ts": ms(t), **day} for t in TIMES)))
    begun = "country is no field: folders such as country=DE are"
    if not has_day:
        begun = "day, country are no fields: folders such as day=2026-11-01, country=DE are"
    rest = "not read as columns; headers.source = true keeps the path of each record's file"
    assert f"{begun} {rest}" in draft([str(tmp_path)]).doubts


def test_whole_days_have_a_remedy(tmp_path: Path) -> None:
    days = table("Datum;Menge", lambda n: f"{n % 9 + 10}.03.2026;{n}")
    remedy = "if another field has the time of day, set timestamp.fields = ['Datum', …]"
    assert remedy in doubts_of(tmp_path, "a.csv", days)


@pytest.mark.parametrize("name", ["Kunde", "Kundennummer", "Benutzer", "sitzung_id", "Nutzer-ID"])
def test_a_key_may_have_a_german_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_bytes(table(f"Zeit;{name}", lambda n: f"{TIMES[n]};k{n % 5}"))
    assert draft([str(tmp_path / "a.csv")]).choices["key.fields"].value == [name]


def test_a_header_with_a_name_twice_or_none_is_a_header(tmp_path: Path) -> None:
    for header, told in (
        ("time,user,user", "the header has 'user' 2 times, so it is no field"),
        ("time,,user", "column 2 has no name in the header, so it is no field"),
    ):
        (tmp_path / "a.csv").write_bytes(table(header, lambda n: f"{TIMES[n]},a{n % 3},b{n % 4}"))
        made, report = drafted(tmp_path, tmp_path / "a.csv", topic=f"t{len(header)}")
        assert (report.records, report.quarantined) == (ROWS, 0)
        assert made.choices["timestamp.field"].value == "time"
        assert told in "; ".join(made.doubts)


def test_users_who_are_nearly_all_dashes_are_no_key(tmp_path: Path) -> None:
    """In an access log nobody is logged in; half of the rows must have a user."""
    for known, key in [(0, "client"), (3, "client"), (40, "user")]:
        lines = (
            f"10.0.0.{n % 9} - {f'u{n % 4}' if n < known else '-'} [26/Nov/2026:01:00:{n:02} +0000]"
            ' "GET / HTTP/1.1" 200 12\n'
            for n in range(60)
        )
        (tmp_path / "access.log").write_text("".join(lines))
        made = draft([str(tmp_path / "access.log")])
        assert made.choices["key.fields"].value == [key], known
        dashes = "the user '-': 20 of 60 sampled rows"
        assert (dashes in made.doubts) == (known == 40)


def test_a_header_may_have_any_punctuation(tmp_path: Path) -> None:
    def line(n: int) -> str:
        return f'{TIMES[n]};{n};1,5;"a\nb"'

    for mark in (*"€$%°&?'!@*+=~^<>:", "№", "größe "):
        file = tmp_path / "a.csv"
        file.write_bytes(table(f"{mark}Zeit;Kunde Nr.;Betrag {mark};Notiz", line))
        made = draft([str(file)], root=str(tmp_path / "lake"))
        assert made.choices["input.format"].value == "csv", mark
        assert made.choices["timestamp.field"].value == f"{mark}Zeit"
    _, report = drafted(tmp_path, file)
    assert (report.records, report.quarantined) == (ROWS, 0)


@pytest.mark.parametrize(
    "first", ["2026-03-01 09:30:00;1;a $", "x;7;a $", "x?;y;a", "x?;y;x", "x?;;"]
)
def test_a_first_line_like_the_others_is_no_header(tmp_path: Path, first: str) -> None:
    numbers = "x?" not in first
    file = tmp_path / "a.csv"
    lines = [f"{TIMES[n]};{n};b" if numbers else "w;z;b" for n in range(9)]
    file.write_text("\n".join([first, *lines]))
    made = draft([str(file)], root=str(tmp_path / "lake"))
    assert made.choices["input.format"].value == "text"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["user.name", "user.id"], "user.id"),
        (["user", "user_id"], "user_id"),
        (["user.name", "host.id"], "user.name"),
        (["user_id", "key"], "key"),
        (["host.name", "event.id"], "host.name"),
        (["device.info", "id"], "id"),
    ],
)
def test_an_id_is_the_key_rather_than_a_name(tmp_path: Path, names: list[str], chosen: str) -> None:
    rows = [",".join(["ts", *names]), *(f"{ms(t)},{n % 5},{n % 5}" for n, t in enumerate(TIMES))]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    assert draft([str(tmp_path)]).choices["key.fields"].value == [chosen]


def test_a_column_called_key_is_the_key_though_no_value_comes_again(tmp_path: Path) -> None:
    keys = pa.array([bytes([n, 255]) if n % 11 else None for n in range(ROWS)])
    pq.write_table(pa.table({"at": ZONED, "key": keys}), tmp_path / "a.parquet")
    made, report = drafted(tmp_path, tmp_path / "a.parquet")
    assert made.choices["key.fields"].value == ["key"]
    assert (report.records, report.quarantined) == (ROWS, 0)


def test_it_says_why_ragged_csv_is_not_taken_as_csv(tmp_path: Path) -> None:
    rows = (f"2026-11-26T01:00:{n:02}Z,u{n % 5}" + ",x" * (n % 3 == 1) for n in range(60))
    content = "\n".join(["time,user", "", *rows]).encode()
    why = (
        f"not taken as CSV: line 4 of {tmp_path / 'a.csv'} has 3 fields, and the first one 2; "
        "another number: 20 of 61 sampled rows"
    )
    assert why in doubts_of(tmp_path, "a.csv", content)
    assert "not taken" not in doubts_of(tmp_path, "even.csv", content.replace(b",x", b""))
    long = content + b'\n2026-11-26T01:02:00Z,"' + b"y" * 200_000 + b'"\n'  # of Python's csv
    assert why[:60] in doubts_of(tmp_path, "a.csv", long)
    timeless = content.replace(b"2026-11-26T01", b"once")
    (tmp_path / "a.csv").write_bytes(timeless)
    with pytest.raises(InputError) as error:
        draft([str(tmp_path / "a.csv")])
    assert str(error.value).endswith(f"; {why}")


def test_a_log_with_commas_is_not_said_to_be_no_csv(tmp_path: Path) -> None:
    trace = "\njava.lang.Error: a\n\tat a.b.C(D.java:3)"
    lines = (
        f"{t:%Y-%m-%d %H:%M:%S},123 [main] INFO  com.x.Y - hello{trace * (n % 8 == 0)}"
        for n, t in enumerate(TIMES)
    )
    assert "not taken" not in doubts_of(tmp_path, "a.log", "\n".join(lines).encode())
    ragged = table("time,user", lambda n: f"{TIMES[n].isoformat()},u{',x' * (n % 3 == 1)}")
    assert "not taken as CSV: line 3 of" in doubts_of(tmp_path, "a.txt", ragged)


def test_csv_below_other_lines_is_named(tmp_path: Path) -> None:
    rows = table("time,temp,hum", lambda n: f"{TIMES[n].isoformat()},{n},1.0")
    content = b"# station 12\n\n# units: C, %\n" + rows
    told = doubts_of(tmp_path, "a.csv", content)
    assert (
        f"from line 4 of {tmp_path / 'a.csv'} on the lines look like CSV with the columns" in told
    )
    assert (
        f"time, temp, hum: for input.format = 'csv' take what stands above away, as `{TAIL}`"
        in (told)
    )
    shell = TAIL.replace("FILE", str(tmp_path / "a.csv"))
    left = subprocess.run(shell, shell=True, capture_output=True, check=True).stdout
    assert left == rows
    log = "".join(f"{t.isoformat()} INFO, a, b{n}\n" for n, t in enumerate(TIMES))
    assert "look like CSV" not in doubts_of(tmp_path, "a.log", log.encode())


def test_a_header_below_padded_lines_is_named(tmp_path: Path) -> None:
    rows = table("Datum;Betrag;Text", lambda n: f"{TIMES[n]:%d.%m.%Y};{n},50;Einkauf {n}")
    padded = "Umsätze Girokonto;;\nKonto;AT12 3456;\n;;\n".encode() + rows
    told = doubts_of(tmp_path, "a.csv", padded)
    assert "from line 4 of" in told
    assert "the columns Datum, Betrag, Text: for input.format = 'csv' take what stands" in told
    unnamed = table("Datum;Betrag;", lambda n: f"{TIMES[n]:%d.%m.%Y};{n},50;")
    assert "look like CSV" not in doubts_of(tmp_path, "b.csv", unnamed)


def test_json_behind_other_text_is_named(tmp_path: Path) -> None:
    lines = [json.dumps({"at": t.isoformat(), "n": n}) for n, t in enumerate(TIMES)]
    sequence = "".join(f"\x1e{line}\n" for line in lines).encode()
    assert f"{ROWS} of {ROWS} sampled lines have a JSON object behind a byte 0x1E: `tr -d" in (
        doubts_of(tmp_path, "a.json", sequence)
    )
    docker = "".join(f"web-1  | {line}\n" for line in lines).encode()
    told = doubts_of(tmp_path, "a.log", docker)
    assert f"{ROWS} of {ROWS} sampled lines have a JSON object behind other text, such as" in told
    shell = re.search(r"`(sed [^`]+ < FILE)`", told)
    assert shell is not None
    command = shell[1].replace("FILE", str(tmp_path / "a.log"))
    left = subprocess.run(command, shell=True, capture_output=True, check=True).stdout
    assert left.decode().splitlines() == lines
    assert "JSON object" not in doubts_of(tmp_path, "b.jsonl", "\n".join(lines).encode())


def test_numbers_near_the_times_that_are_taken_are_named(tmp_path: Path) -> None:
    """Whatever they are called; counters and sizes lie elsewhere."""
    behind = timedelta(days=95)
    rows = [
        {"dev": "s1", "device_ts": ms(t - behind), "received": ms(t) // 1000, "size": 10**12 + n}
        for n, t in enumerate(TIMES)
    ]
    told = doubts_of(tmp_path, "a.jsonl", jsonl(*rows))
    assert "device_ts is taken for its name; these fields are times, too: received;" in f"{told};"


def test_a_header_below_other_lines_may_have_signs(tmp_path: Path) -> None:
    head = '"Buchungsdatum";"Zahlungspflichtige*r";"Betrag (€)"'
    rows = table(head, lambda n: f'"{TIMES[n]:%d.%m.%y}";"Anna";"-{n},50"')
    export = b'"Girokonto";"AT12"\n"Zeitraum:";"01.03.26"\n""\n' + rows
    (tmp_path / "a.csv").write_bytes(export)
    with pytest.raises(InputError) as error:
        draft([str(tmp_path / "a.csv")])
    assert "from line 4 of" in str(error.value)
    assert "Zahlungspflichtige*r, Betrag (€): for input.format = 'csv' take" in str(error.value)


def test_a_header_in_an_encoding_that_is_guessed_may_be_one(tmp_path: Path) -> None:
    rows = table("取引日時,店舗,金額", lambda n: f"{TIMES[n]:%Y-%m-%d %H:%M:%S},新宿,{n}")
    told = doubts_of(tmp_path, "a.csv", rows.decode().encode("cp932"))
    assert "which is a guess, the first line may name columns" in told
    assert "may name columns" not in doubts_of(tmp_path, "b.csv", rows)


def test_a_flow_log_with_names_above_it_is_csv(tmp_path: Path) -> None:
    head = "version interface-id srcaddr start end action"
    flow = table(head, lambda n: f"2 eni-{n % 3} 10.0.0.1 {ms(TIMES[n]) // 1000} 1 ACCEPT")
    (tmp_path / "flow.log").write_bytes(flow)
    made, report = drafted(tmp_path, tmp_path / "flow.log")
    assert (made.choices["input.format"].value, made.choices["timestamp.field"].value) == (
        "csv", "start"
    )  # fmt: skip
    assert (report.records, report.quarantined) == (ROWS, 0)
    prose = table("The server is starting now", lambda n: f"{TIMES[n]:%Y-%m-%d %H:%M} a b c")
    (tmp_path / "a.log").write_bytes(prose.replace(b"a b c\n", b"a b c d\n", 2))
    assert draft([str(tmp_path / "a.log")]).choices["input.format"].value == "text"


def test_a_fraction_beside_the_seconds_is_named(tmp_path: Path) -> None:
    rows = [{"at": {"seconds": ms(t) // 1000, "nanos": 120_000_000}, "n": 1} for t in TIMES]
    told = doubts_of(tmp_path, "a.jsonl", jsonl(*rows))
    assert "at.nanos is not read, so the times are whole seconds" in told
    instants = ({"epochSecond": ms(t) // 1000, "nanoOfSecond": n} for n, t in enumerate(TIMES))
    told = doubts_of(tmp_path, "log4j.jsonl", jsonl(*({"instant": each} for each in instants)))
    assert "instant.nanoOfSecond is not read" in told


def test_a_second_number_that_may_be_the_time_is_named(tmp_path: Path) -> None:
    flow = "".join(f"2 eni-1 {ms(t) // 1000} {ms(t) // 1000 + 60} ACCEPT\n" for t in TIMES)
    told = doubts_of(tmp_path, "flow.log", flow.encode())
    assert f"or others such as {ms(TIMES[0]) // 1000 + 60} are meant" in told


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_bytes(ACCESS)
    (folder / "b.log.gz").write_bytes(gzip.compress(2 * SYSLOG))
    made, report = drafted(tmp_path, folder)
    (doubt,) = (doubt for doubt in made.doubts if "another format" in doubt)
    assert doubt == (
        f"{folder}/a.log has another format: none of 40 sampled lines matches input.pattern; "
        'leave a.log out with input.exclude = ["a.log"], and draft a pipeline of its own: '
        f"seglake init {folder}/a.log"
    )
    assert "multiline_start_pattern" in made.toml
    assert not any("continue an event" in doubt for doubt in made.doubts)
    assert report.quarantined == 1
    (hint,) = report.hints
    assert hint.startswith(f"{folder}/a.log: none of its first 40 lines matches")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("b.jsonl", b"\xfd7zXZ\x00 and more", "this is xz, which `xz -d FILE` unpacks"),
        ("b.jsonl", b"\0" * 300, "is no text: bytes of zero stand in it"),
        ("b.jsonl", b'[\n{"ts": 1}\n]\n', "is a JSON array"),
        ("b[1].jsonl", EPOCHS.replace(b"\n", b"\r"), "lines end with CR alone"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_out(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    folder = tmp_path / "in"
    for day in ("1", "2"):
        (folder / day).mkdir(parents=True)
        (folder / day / "a.jsonl").write_bytes(EPOCHS)
    for day, name_there in (("1", name), ("2", "a.jsonl")):
        (folder / day / name_there).write_bytes(content)
    made, report = drafted(tmp_path, folder)
    assert (made.files, report.records, report.quarantined) == (1, ROWS, 0)
    told = [doubt for doubt in made.doubts if doubt.startswith(LEFT_OUT)]
    assert [f"{folder}/1/{name}: {why}" in told[0], f"{folder}/2/a.jsonl: {why}" in told[1]] == [
        True, True,
    ]  # fmt: skip
    assert '"**/2/a.jsonl"' in made.toml
    with pytest.raises(InputError, match=re.escape(why)):
        draft([str(folder / "1" / "a.jsonl"), str(folder / "1" / name)])


def test_what_another_suffix_follows_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(EPOCHS)
    (folder / "b.jsonl.xz").write_bytes(b"\xfd7zXZ\x00")
    made, report = drafted(tmp_path, folder)
    assert (report.records, report.quarantined) == (ROWS, 0)
    assert 'exclude = ["*.xz"]' in made.toml


def test_lines_with_bytes_of_zero_among_others_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(EPOCHS + b"\0" * 500 + b"\n" + EPOCHS)
    made, report = drafted(tmp_path, tmp_path / "a.jsonl")
    assert (report.records, report.quarantined) == (2 * ROWS, 1)
    assert "no JSON objects: 1 of 81 sampled lines" in made.doubts


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_of_other_columns_are_left_out(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, column in (("a", "at"), ("b", "att"), ("c", "at")):
        file = folder / f"{name}.{form}"
        if form == "csv":
            file.write_bytes(table(f"{column},n", lambda n: f"{TIMES[n].isoformat()},{n}"))
        else:
            pq.write_table(pa.table({column: ZONED, "n": range(ROWS)}), file)
    made, report = drafted(tmp_path, folder)
    assert (made.files, report.records, report.quarantined) == (2, 2 * ROWS, 0)
    assert made.choices["timestamp.field"].value == "at"
    file = folder / f"b.{form}"
    assert (
        f"{LEFT_OUT}{file}: its columns differ from those of {folder}/a.{form} "
        f"(at, att); draft a pipeline of its own: seglake init {file}"
    ) in made.doubts


def test_long_events_are_no_other_format(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LEVELS.splitlines(keepends=True)[0] + 200 * b"  at x.y.Z\n")
    made = draft([str(tmp_path)])
    assert made.choices["timestamp.field"].value == "time"
    assert not any("another format" in doubt for doubt in made.doubts)


def test_a_file_that_is_no_json_among_others_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(10 * EPOCHS)
    (tmp_path / "b.log").write_bytes(SYSLOG.splitlines(keepends=True)[0])
    doubts = "; ".join(draft([str(tmp_path)]).doubts)
    assert f"{tmp_path}/b.log has another format: none of 1 sampled line is a JSON" in doubts


def test_logs_that_look_like_csv(tmp_path: Path) -> None:
    """An agent with a semicolon in each line; a comma before the milliseconds."""
    agent = '10.0.0.{n} - {user} [%d/%b/%Y:%H:%M:%S +0000] "GET / HTTP/1.1" 200 {n} "-" "X (a; b)"'
    python = "%Y-%m-%d %H:%M:%S,250 INFO root: request {n}, done"
    for name, form in (("access", agent), ("python", python)):
        path = tmp_path / f"{name}.log"
        path.write_bytes(of_events(form))
        found, _ = drafted(tmp_path, path)
        assert "(?P<time>" in found.choices["input.format"].reason or "(?P<time>" in found.toml
        assert found.choices["timestamp.field"].value == "time"


@pytest.mark.parametrize(
    "form", ["%b %d %H:%M:%S,250 host app: {n}", "%Y/%m/%d %H:%M:%S.250 [x] {n}"]
)
def test_fractions_of_a_second_are_read(tmp_path: Path, form: str) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(of_events(form))
    drafted(tmp_path, path)
    lake = seglake.open(str(tmp_path / "lake"))
    times = lake.topic(lake.topics()[0]).read_range(0, 2**62).read_all()["timestamp"]
    assert {*(times.cast(pa.int64()).to_numpy() % 1000).tolist()} == {250}


@pytest.mark.parametrize("form", ["%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S"])
@pytest.mark.parametrize("value", ["4.7", "47", "4", "101.3", "412"])
def test_the_column_behind_a_time_is_no_fraction_of_it(
    tmp_path: Path, form: str, value: str
) -> None:
    rows = table("No.,Time,Temp,Hum", lambda n: f"{n},{TIMES[n]:{form}},{value},78")
    (tmp_path / "a.csv").write_bytes(b"Device: K1\nInterval: 5 min\n\n" + rows)
    made = draft([str(tmp_path)])
    doubt = f"',{value[:3]}' is taken as the fraction of the second of"
    may_be = len(value.partition(".")[0]) == 3
    assert (doubt in "; ".join(made.doubts)) == may_be
    assert (".000Z" not in made.choices["timestamp.field"].reason) == may_be


def test_the_folder_may_hold_the_pipeline_and_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in (("a.parquet", None), ("b.jsonl", EPOCHS)):
        folder = tmp_path / name.partition(".")[2]
        folder.mkdir()
        monkeypatch.chdir(folder)
        if rows is None:
            pq.write_table(pa.table({"ts": pa.array(TIMES, pa.timestamp("ms", "UTC"))}), name)
        else:
            Path(name).write_bytes(rows)
        done = CliRunner().invoke(app, ["init", ".", "-o", "p.toml", "--topic", "t"])
        assert done.exit_code == 0, done.output
        for run_id, records in (("1", ROWS), ("2", 0)):
            report = ingest_files(LocalEngine(), load("p.toml"), DeclaredRun(run_id))
            assert (report.records, report.quarantined) == (records, 0)


def test_nanoseconds_need_no_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    (tmp_path / "a.parquet").write_bytes(parquet(NANOSECONDS))
    found = draft([str(tmp_path / "a.parquet")]).choices["timestamp.field"]
    assert found.reason.endswith("such as 2026-03-01T09:30:00.000000789")


BEYOND: dict[str, Any] = {  # columns that Python cannot have
    "time64[ns]": pa.array([36_000_000_000_123] * ROWS, pa.time64("ns")),
    "duration[ns]": pa.array([37] * ROWS, pa.duration("ns")),
    "year 10001": pa.array([253_433_059_200_000] * ROWS, pa.timestamp("ms")),
    "date": pa.array([2**30] * ROWS, pa.date32()),
    "list": pa.array([[253_433_059_200_000]] * ROWS, pa.list_(pa.timestamp("ms"))),
    "zone": pa.array([37] * ROWS, pa.timestamp("us", "Nowhere/At_All")),
    "not UTF-8": pa.array([b"\xff"] * ROWS, pa.binary()).view(pa.string()),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_a_column_beyond_what_python_has(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"at": ZONED, "odd": BEYOND[name]}), tmp_path / "a.parquet")
    assert draft([str(tmp_path / "a.parquet")]).choices["timestamp.field"].value == "at"


def test_times_in_a_column_of_bytes(tmp_path: Path) -> None:
    """As Impala and Hive write strings."""
    texts = pa.array([time.isoformat().encode() for time in TIMES], pa.binary())
    (tmp_path / "a.parquet").write_bytes(parquet(texts))
    choices = draft([str(tmp_path / "a.parquet")]).choices
    assert (choices["timestamp.field"].value, choices["timestamp.format"].value) == (
        "at",
        "iso8601",
    )


def test_names_of_fields_may_have_any_characters(tmp_path: Path) -> None:
    rows = jsonl(*({"a\n'b\\": 1, 't"\\s\x7f': ms(t)} for t in TIMES))
    (tmp_path / "a.jsonl").write_bytes(rows)
    made, report = drafted(tmp_path, tmp_path / "a.jsonl")
    assert made.choices["timestamp.field"].value == 't"\\s\x7f'
    assert report.records == ROWS


def test_a_year_that_would_lie_ahead_is_the_last_one(tmp_path: Path) -> None:
    ahead = datetime.now(UTC) + timedelta(days=20)
    lines = b"".join(f"{ahead:%b %e} 10:00:0{n} host cron: x\n".encode() for n in range(9))
    (tmp_path / "syslog").write_bytes(lines)
    year = draft([str(tmp_path / "syslog")]).choices["timestamp.year"].value
    assert year == ahead.year - 1


def test_files_of_other_kinds_are_left_out_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(EPOCHS))
    (folder / "b.jsonl").write_bytes(EPOCHS)
    (folder / "server.jsonl.2026-01-01").write_bytes(EPOCHS)
    (folder / "README.md").write_text("about these files")
    made, report = drafted(tmp_path, folder)
    assert (report.records, made.topic, made.files) == (3 * ROWS, "in", 3)
    assert "files of other kinds are left out: 1 (README.md)" in made.doubts


def test_files_rotated_by_day_are_of_the_same_kind(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("access.log", "access.log-20261118", "access.log-2026-11-17", "access.log-1"):
        (folder / name).write_bytes(EPOCHS)
    (folder / "access.log-20261119.gz").write_bytes(gzip.compress(EPOCHS))
    (folder / "access.log-20261120.xz").write_bytes(b"x")
    for name in "abc":
        (folder / f"{name}.md").write_text("about these files")
    made, report = drafted(tmp_path, folder)
    assert (report.records, made.files) == (5 * ROWS, 5)
    named = "(a.md, access.log-20261120.xz, b.md and 1 more)"
    assert f"files of other kinds are left out: 4 {named}" in made.doubts


@pytest.mark.parametrize(
    "ids",
    [("RT4KCN4SGK9", "AB12CDE3FGH", "QQZKCNXSGXQ"), ("ab0", "ab1", "ab2"), ("x7k", "9ab", "m2")],
)
def test_ids_behind_a_point_are_no_suffixes(tmp_path: Path, ids: tuple[str, ...]) -> None:
    """As those of CloudFront's logs."""
    for day, each in enumerate(ids, 17):
        (tmp_path / f"E1.2026-11-{day}-05.{each}.gz").write_bytes(gzip.compress(MIDDLE))
    made = draft([str(tmp_path)])
    assert "include" not in made.toml
    assert made.choices["input.format"].reason.startswith("3 files")


def test_a_suffix_is_one_in_any_case(tmp_path: Path) -> None:
    """As old programs write it."""
    for name in ("NOVEMBER.CSV", "october.csv", "Sept.Csv"):
        (tmp_path / name).write_bytes(table("ts,n", lambda n: f"{TIMES[n].isoformat()},{n}"))
    (tmp_path / "notes.txt").write_bytes(b"none")
    made = draft([str(tmp_path)])
    assert made.choices["input.format"].reason.startswith("3 files")
    assert all(f'"*.{suffix}"' in made.toml for suffix in ("CSV", "Csv", "csv"))


def test_rotated_files_without_a_suffix_are_of_the_same_kind(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("syslog", "syslog.1", "README.md"):
        (folder / name).write_bytes(EPOCHS)
    for name in ("syslog.2.gz", "syslog-20261119.gz"):
        (folder / name).write_bytes(gzip.compress(EPOCHS))
    made, report = drafted(tmp_path, folder)
    assert (report.records, made.files) == (4 * ROWS, 4)
    assert "files of other kinds are left out: 1 (README.md)" in made.doubts


LIKE_CSV = {
    "nginx": of_events('%Y/%m/%d %H:%M:%S [error] 31#31: *1 open() "/srv/{n}" failed, client: a, '
                       'server: b, request: "GET /{n} HTTP/1.1"'),
    "brackets": of_events("[%Y-%m-%dT%H:%M:%SZ] user {user} logged in, ip 10.0.0.7"),
    "a time with a comma": of_events("%d.%m.%Y, %H:%M:%S INFO {user} did {n}"),
    "alerts": table("", lambda n: f"[{ms(TIMES[n]) // 1000}] SERVICE ALERT: web;{USERS[n]};OK"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE_CSV)
def test_a_log_with_as_many_commas_in_each_line_is_no_csv(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.log").write_bytes(LIKE_CSV[name])
    made, report = drafted(tmp_path, tmp_path / "a.log")
    assert (report.records, made.choices["timestamp.field"].value) == (ROWS, "time")
    log = seglake.open(str(tmp_path / "lake")).topic(made.topic)
    found: list[Any] = log.read_range(0, 4 * 10**12).read_all()["timestamp"].to_pylist()
    assert sorted(map(ms, found)) == [ms(time) // 1000 * 1000 for time in TIMES]


def test_json_objects_one_after_another_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(EPOCHS.replace(b"\n", b""))
    with pytest.raises(InputError, match=r"several JSON objects in a line; .*jq -c"):
        draft([str(tmp_path / "a.json")])


def test_a_file_of_another_encoding_is_named(tmp_path: Path) -> None:
    for name, encoding in {"a.csv": "utf-8", "b.csv": "utf-8", "c.csv": "cp1252"}.items():
        (tmp_path / name).write_bytes(f"ts,who\n{ms(BEGIN)},Müller\n".encode(encoding))
    told = f"other files are in cp1252, such as {tmp_path / 'c.csv'}: leave them out"
    assert told in "; ".join(draft([str(tmp_path)]).doubts)


def test_what_a_run_would_refuse_is_drafted_to_be_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    kinds: dict[str, Any] = {"a": pa.timestamp("us", "UTC"), "b": pa.timestamp("ms")}
    for name, kind in kinds.items():
        pq.write_table(
            pa.table({"at": pa.array(TIMES, type=kind), "user": USERS}), f"in/{name}.parquet"
        )
    done = CliRunner().invoke(app, ["init", "in"])
    told = "at is timestamp[ms], not timestamp[us, tz=UTC]); set value.columns"
    assert told in str(done.exception)
    assert "in.toml is written" in str(done.exception)
    assert load("in.toml").timestamp.field == "at"


def test_a_birthday_is_not_the_time_of_an_event(tmp_path: Path) -> None:
    births = [f"19{70 + n % 30}-0{1 + n % 9}-11" for n in range(ROWS)]
    rows = [{"birthday": b, "visited": ms(t) // 1000} for b, t in zip(births, TIMES, strict=True)]
    (tmp_path / "a.jsonl").write_bytes(jsonl(*rows))
    made = draft([str(tmp_path / "a.jsonl")])
    assert made.choices["timestamp.field"].value == "visited"
    alone = jsonl(*({"birthday": birth} for birth in births))
    assert "birthday is a time of a person's life" in doubts_of(tmp_path, "b.jsonl", alone)


def test_days_are_taken_beside_numbers_that_may_be_times(tmp_path: Path) -> None:
    rows = [{"date": f"{t:%Y-%m-%d}", "n7": ms(t)} for t in TIMES]
    assert "these fields are times, too: n7" in doubts_of(tmp_path, "a.jsonl", jsonl(*rows))


LOOK_LIKE_TIMES = {"Go": "2026-11-20 09:58:12.255472123 +0000 UTC m=+0.000123"}


@pytest.mark.parametrize("value", LOOK_LIKE_TIMES.values(), ids=LOOK_LIKE_TIMES)
def test_what_looks_like_a_time_is_named(tmp_path: Path, value: str) -> None:
    told = doubts_of(tmp_path, "a.jsonl", jsonl(*[{"when": value, "n": n} for n in range(5)]))
    assert f"when looks like times, such as {value!r}" in told


def test_numbers_that_a_spreadsheet_has_rounded_are_doubted(tmp_path: Path) -> None:
    rounded = table("ts,n", lambda n: f"{ms(TIMES[n]):.5E},{n}")
    told = "numbers such as '1.77236E+12', which a spreadsheet rounds: 1 value in 40 sampled rows"
    assert told in doubts_of(tmp_path, "a.csv", rounded)
    whole = pa.array([float(ms(t)) for t in TIMES])
    assert "spreadsheet" not in doubts_of(tmp_path, "b.parquet", parquet(whole))


def test_a_path_without_a_file_of_the_kind_of_most_is_refused(tmp_path: Path) -> None:
    (tmp_path / "most.jsonl").write_bytes(9 * EPOCHS)
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.tsv.gz").write_bytes(gzip.compress(TABS))
    told = (
        r"few\S*: holds no file with the suffix .jsonl, as most bytes of these paths are in, but "
        r"a.tsv.gz; draft a pipeline of its own: seglake init \S*few"
    )
    for path in ("few", "few/a.tsv.gz", "few/*.gz"):
        with pytest.raises(InputError, match=told):
            draft([str(tmp_path / "most.jsonl"), str(tmp_path / path)])
    (tmp_path / "most").write_bytes(99 * EPOCHS)
    with pytest.raises(InputError, match="few: holds no file without a suffix, as most bytes"):
        draft([str(tmp_path / "most"), str(tmp_path / "few")])
    (tmp_path / "few" / "b.jsonl").write_bytes(EPOCHS)
    made, report = drafted(tmp_path, tmp_path / "most.jsonl", tmp_path / "few")
    assert (made.files, report.records) == (2, 10 * ROWS)


def test_keys_of_logfmt_are_fields_though_some_lines_lack_them(tmp_path: Path) -> None:
    lines = list[str]()
    for n, user in enumerate(USERS):
        known, rare = f"user={user} " * (n % 3 > 0), " rare=1" * (n == 5)
        note = ("x", '"a b"')[n % 2]
        lines.append(f"ts={ms(TIMES[n])} {known}note={note} n={n}{rare}")
    (tmp_path / "a.log").write_text("\n".join(lines))
    made, report = drafted(tmp_path, tmp_path / "a.log")
    assert made.choices["timestamp.format"].value == "epoch_ms"
    assert made.choices["key.fields"].value == ["user"]
    assert r"|\S*)" in made.toml  # the value ends with its line
    assert [name in made.toml for name in ("<note>", "<n>", "<rare>")] == [True, True, False]
    assert (report.records, report.quarantined) == (ROWS, 0)
    records = seglake.open(str(tmp_path / "lake")).topic(made.topic).read_range(0, 4 * 10**12)
    keys = records.read_all()["key"].to_pylist()
    assert sorted(map(str, keys)) == sorted(
        str(user.encode() if n % 3 else None) for n, user in enumerate(USERS)
    )


def test_partitions_go_by_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(EPOCHS)
    monkeypatch.setattr("seglake.write.draft.draft._BYTES_OF_A_PARTITION", len(EPOCHS) // 5)
    assert draft([str(tmp_path / "a.jsonl")]).choices["topic.partitions"].value == 8


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no file with any bytes"), (b"[{}, {}]\n", "JSON array"), (b"[\n{}\n]", "JSON array"),
        ("a,b\n1,2\n".encode("utf-16") + b"\0\0", "is no text"), (b"a\0b\n", "is no text"),
        (b"one\ntwo\n", "neither JSON nor CSV"), (b"PAR1 and more", "is no Parquet file"),
    ],
)  # fmt: skip
def test_what_it_cannot_read(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        draft([str(tmp_path / "a")])


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (EPOCHS.replace(b"\n", b"\r"), r"lines end with CR alone.*`tr '\\r' '\\n' < FILE` does"),
        (table("sep=;", lambda n: f"{TIMES[n]};{n}", "\r\n"), "'sep=;', .*`tail -n \\+2 < FILE`"),
        (json.dumps({"ts": 1, "a": [2]}, indent=2).encode(), "over several lines.*`jq -c . <"),
        (b'{"events": [\n{"ts": 1},\n{"ts": 2}]}', r"`jq -c '.events\[\]' < FILE` makes lines of"),
        (b'{\n "events": [\n{"ts": 1},\n{"ts": 2}]}', r"`jq -c '.events\[\]' < FILE` makes"),
        (b'{"ts": 1,\n "a": 2}\n' * 9, "over several lines"),
        (b'{"Records":[{"ts":1},{"ts":2}]}\n', r"nothing else: .* `jq -c '.Records\[\]' < FILE`"),
    ],
)  # fmt: skip
def test_files_that_are_no_lines_have_a_remedy(tmp_path: Path, content: bytes, remedy: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=remedy):
        draft([str(tmp_path / "a")])


def test_lines_of_json_may_begin_with_a_broken_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"ts": 1780\n' + EPOCHS)
    assert draft([str(tmp_path / "a")]).choices["input.format"].value == "jsonl"


def test_what_is_packed_twice_is_said(tmp_path: Path) -> None:
    packed = gzip.compress(EPOCHS)
    with tarfile.open(tmp_path / "a.tgz", mode="w:gz") as archive:
        member = tarfile.TarInfo("d/a.jsonl.gz")
        member.size = len(packed)
        archive.addfile(member, io.BytesIO(packed))
    with pytest.raises(
        InputError, match=r"a.tgz!d/a.jsonl.gz: is gzip inside an archive, and that"
    ):
        draft([str(tmp_path / "a.tgz")])


def test_a_glob_that_matches_folders_says_so(tmp_path: Path) -> None:
    (tmp_path / "day1").mkdir()
    (tmp_path / "day1" / "a.jsonl").write_bytes(EPOCHS)
    with pytest.raises(
        InputError, match=r"no file is found.*a folder .* is not entered: add /\*\*"
    ):
        draft([str(tmp_path / "day*")])
    (tmp_path / "day1").rename(tmp_path / "day[1]")
    with pytest.raises(InputError, match=r"and \S*day\[1\] is there: write \S*day\[\[\]1\]/\*\* "):
        draft([str(tmp_path / "day[1]")])


@pytest.mark.parametrize(
    ("paths", "topic"),
    [
        (["day1", "day2"], "day"), (["web-2026-01", "web-2026-02"], "web"),
        (["in/2026-01", "in/2026-02"], "in"), (["in/orders", "in/orphans"], "in"),
        (["a/x", "b/x"], "x"), (["one", "two"], None),
    ],
)  # fmt: skip
def test_the_topic_of_several_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[str], topic: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in paths:
        Path(path).mkdir(parents=True)
        (Path(path) / "a.jsonl").write_bytes(EPOCHS)
    made = draft(paths)
    assert made.topic == (topic or "one")
    assert ("topic.name = 'one' is from the first path" in "; ".join(made.doubts)) == (not topic)


def test_what_it_says_of_a_json_array_makes_lines_of_it(tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    rows = [{"ts": ms(time), "who": {"n": "Zoë"}} for time in TIMES]
    file.write_text(json.dumps(rows, indent=2, ensure_ascii=False), "utf-8")
    with pytest.raises(InputError) as refused:
        draft([str(file)])
    (remedy,) = re.findall("`python3 -c '([^`]*)' < FILE`", str(refused.value))
    with file.open() as source:
        command = [sys.executable, "-c", remedy]
        made = subprocess.run(command, stdin=source, capture_output=True, check=True)
    assert [json.loads(line) for line in made.stdout.splitlines()] == rows


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.jsonl: does not exist; correct the path"):
        draft([str(tmp_path / "none.jsonl")])
    above = tmp_path / "dta"
    with pytest.raises(InputError, match=rf"neither does {above}; correct the path$"):
        draft([str(above / "payments")])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clicks.jsonl").write_bytes(EPOCHS)
    first = CliRunner().invoke(app, ["init", "clicks.jsonl"])
    assert 'timestamp.format = "epoch_ms"' in first.stdout
    assert load(Path("clicks.toml")).topic.name == "clicks"
    again = CliRunner().invoke(app, ["init", "clicks.jsonl"])
    assert "is there already" in str(again.exception)
    refused = CliRunner().invoke(app, ["init", "clicks.jsonl", "-o", "c.toml", "--topic", "a b"])
    assert str(refused.exception).startswith("settings: topic.name: a topic name has")
    nowhere = CliRunner().invoke(app, ["init", "clicks.jsonl", "-o", "none/c.toml"])
    assert "none/c.toml: cannot be written" in str(nowhere.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks.jsonl", "clicks.toml"]
    how = ["-o", "b.toml", "--topic", "b", "--root", "./b", "--force", "--json"]
    told = json.loads(CliRunner().invoke(app, ["init", "clicks.jsonl", *how]).stdout)
    assert (told["file"], told["topic"], told["sampled"], told["reasons"]) == (
        "b.toml",
        "b",
        40,
        {},
    )
    assert str(load(Path("b.toml")).root).endswith("b")


def test_a_doubt_about_rows_has_their_count_and_the_first_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = EPOCHS.splitlines(keepends=True)
    lines[30:30] = [b'{"ts":"soon"}\n']
    lines[35:35] = [b"broken\n", b"broken\n"]
    Path("my clicks.jsonl").write_bytes(b"".join(lines))
    done = CliRunner().invoke(app, ["init", "my clicks.jsonl", "-o", "my clicks.toml"])
    count = len(lines)
    told = [line for line in done.stdout.splitlines() if "not sure" in line]
    assert f"  not sure: not parseable: 2 of {count} rows tried, first my clicks.jsonl:36" in told
    assert [line for line in told if f": 1 of {count} rows tried, first my clicks.jsonl:31" in line]
    assert "seglake check --conf-file 'my clicks.toml'" in done.stdout
    tried = f"'my clicks.toml' is written. {count} rows tried: {ROWS} records, 3 rejects."
    assert done.stdout.splitlines()[0] == tried.replace("'", "")


@pytest.mark.parametrize(
    ("others", "step"),
    [(2, ""), (5, "Of 45 rows tried, 5 would be rejected, and pipeline.max_quaran")],
)
def test_no_ingest_is_the_next_step_if_it_would_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int, step: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_bytes(b"no time\n" * others + MIDDLE)
    told = CliRunner().invoke(app, ["init", "a.log"]).stdout
    *_, before, last = told.splitlines()
    assert before.startswith(step)
    assert last.startswith("Next: correct a.toml, then seglake check" if step else "Next: seglake")
    assert ("seglake ingest" in last) == (not step)


def test_records_without_a_time_of_the_input_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_bytes(CASES["no time"][1])
    told = "no timestamp.field is set: all records get the time of the run"
    for command in (["init", "a.csv"], ["check", "--conf-file", "a.toml"]):
        assert CliRunner().invoke(app, command).stdout.count(told) == 1
    hints = ingest_files(LocalEngine(), load("a.toml"), DeclaredRun("1")).hints
    assert hints == [told]


REAL = {
    "elastic-logs/apache_logs": (10_000, "client"),
    "elastic-logs/auth.log": (7_121, "process"),
    "elastic-logs/nginxplus_json_logs": (500, None),
    "elastic-logs/ncedc-earthquakes-dataset.tar.gz": (38_315, "Source"),
    "elastic-logs/kafka-brokers": (None, None),
    "online-retail": (95_054, "CustomerID"),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", REAL)
def test_real_files(tmp_path: Path, data_dir: Path, name: str) -> None:
    records, key = REAL[name]
    made, report = drafted(tmp_path, data_dir / name)
    assert report.quarantined <= 0.01 * report.records
    assert records in {None, report.records}
    assert (made.choices["key.fields"].value if "key.fields" in made.choices else None) == (
        None if key is None else [key]
    )


def test_logs_that_begin_otherwise_are_named(tmp_path: Path) -> None:
    """The log of a JVM's collector beside those of the service."""
    lines = [f"2026-11-2{n % 9} 10:00:{n:02}.123  INFO 7 --- [main] did {n}" for n in range(40)]
    collected = [f"[2026-11-25T10:00:{n:02}.123+0100][info][gc] GC({n}) Pause" for n in range(9)]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    assert not [doubt for doubt in draft([str(tmp_path)]).doubts if "otherwise" in doubt]
    (tmp_path / "gc.log").write_text("\n".join(collected) + "\n")
    (doubt,) = (doubt for doubt in draft([str(tmp_path)]).doubts if "otherwise" in doubt)
    assert doubt.startswith("gc.log: 9 sampled lines begin otherwise than most, such as '[2026-11-")
    assert doubt.endswith("leave its files out with input.exclude")


@pytest.mark.parametrize(
    ("number", "name"),
    [("Kundennr", "Kunde"), ("Kunden-ID", "Kunde"), ("KundenNr.", "Kunde"),
     ("kundennummer", "kunde"), ("klantnummer", "klant"), ("customer_no", "customer"),
     ("userId", "user"), ("customerNumber", "customer_name"), ("Customer Code", "Customer")],
)  # fmt: skip
@pytest.mark.parametrize("behind", [True, False])
def test_a_number_is_the_key_rather_than_a_name(
    tmp_path: Path, number: str, name: str, behind: bool
) -> None:
    heads = [name, number] if behind else [number, name]
    lines = [",".join(["at", *heads])]
    for n in range(60):
        values = [f"name {n % 9}", f"K{n % 12:04}"]
        values = values if behind else values[::-1]
        lines.append(",".join([f"2026-11-20T10:00:{n:02}Z", *values]))
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert draft([str(tmp_path)]).choices["key.fields"].value == [number]


def test_files_of_an_object_store_are_drafted_as_those_of_a_disk(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(EPOCHS))
    local = draft([str(tmp_path / "in")])
    with object_server(tmp_path) as server:
        made = draft([f"{server.root}/in"], storage=server.options)
    assert made.choices == local.choices
    assert (made.files, made.size_bytes, made.doubts) == (
        local.files, local.size_bytes, local.doubts
    )  # fmt: skip
    assert f'paths = ["{server.root}/in"]' in made.toml


def test_times_that_some_rows_lack_are_named_beside_the_one_taken(tmp_path: Path) -> None:
    """Such as that of the arrival, where the timetable's stands first."""
    lines = ["trip,arrival_planned,arrival_actual"]
    for n in range(60):
        actual = f"2026-11-24T05:{n:02}:31Z" if n % 6 else ""
        lines.append(f"{n % 7},2026-11-24T05:{n:02}:00Z,{actual}")
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    made = draft([str(tmp_path / "a.csv")])
    assert made.choices["timestamp.field"].value == "arrival_planned"
    (told,) = (doubt for doubt in made.doubts if "some have other times" in doubt)
    assert told == (
        "of 60 sampled rows some have other times, too, which may be those that are meant: "
        "arrival_actual in 50"
    )


def test_a_header_alone_may_tell_the_encoding(tmp_path: Path) -> None:
    rows = [f"{n};2026-11-20T10:{n % 60:02}:{n // 60:02}Z;a" for n in range(300)]
    text = "\n".join(["Prénom;Début;Salle", *rows, ""])
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    made, report = drafted(tmp_path, tmp_path / "a.csv")
    assert made.choices["timestamp.field"].value == "Début"
    assert any("'cp1252' is a guess" in doubt for doubt in made.doubts)
    assert report.records == len(rows)


def test_a_line_of_logfmt_with_another_first_key_is_no_part_of_the_event_before(
    tmp_path: Path,
) -> None:
    """Behind what is sampled. It is a reject, which is told."""
    lines = [
        f"level=info ts=2026-11-20T10:{n // 60 % 60:02}:{n % 60:02}Z msg=a" for n in range(1100)
    ]
    later = "ts=2026-11-20T11:00:00Z level=warn msg=b"
    (tmp_path / "a.log").write_text("\n".join([*lines, later, lines[0], ""]))
    _, report = drafted(tmp_path, tmp_path / "a.log")
    assert (report.records, report.quarantined, report.input_rows) == (1101, 1, 1102)


def test_events_of_cef_of_other_kinds_are_events_of_their_own(tmp_path: Path) -> None:
    """The header, up to the first "=", is no key; no blank stands in it."""
    begin = "CEF:0|Fortinet|FortiGate|7.4.3|"
    lines = [f"{begin}0001|traffic|3|rt={ms(BEGIN) + n} src=10.0.0.1 end={ms(BEGIN) + n + 9}"
             for n in range(1100)]  # fmt: skip
    other = f"{begin}0032|failed|7|rt={ms(BEGIN) + 2000} src=10.0.0.2 end={ms(BEGIN) + 2009}"
    (tmp_path / "a.log").write_text("\n".join([*lines, other, ""]))
    made, report = drafted(tmp_path, tmp_path / "a.log")
    assert (report.records, report.quarantined) == (1101, 0)
    assert any("the lines have another time" in doubt for doubt in made.doubts)
    assert report.min_timestamp == ms(BEGIN)
