"""`seglake check`: what it says of files and rows is what an ingest makes of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli import check as check_command
from seglake.cli.app import app
from seglake.cli.check import places_of
from seglake.config import from_tables, load
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, InputError, QuarantineLimit, StoreError
from seglake.write.check import Checked, SampledRow, check
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.narrow import narrow_terminal
from tests.makers.files import pipeline, read
from tests.makers.lakes import Event, LakeMaker

T = 1_780_000_000_000
NO_FIELD = "no timestamp.field is set: all records get the time of the run"
TIMED: dict[str, Any] = {
    "timestamp": {"field": "ts", "format": "epoch_ms"},
    "key": {"fields": ["user"]},
}


def events(count: int, first: int = 0) -> bytes:
    return jsonl(*({"ts": T + n, "user": f"u{n % 7}", "n": n} for n in range(first, first + count)))


def jsonl(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    (made / "a.jsonl").write_bytes(events(2) + b"broken\n\n" + events(2, 2))
    (made / "b.jsonl.gz").write_bytes(gzip.compress(events(100, 100)))
    (made / "c.tmp").write_bytes(b"{")
    return made


def checked(folder: Path, sample: int = 20, **tables: Any) -> dict[str, Any]:
    given = {"exclude": "*.tmp", **tables.pop("input", {})}
    settings = pipeline(folder, **{**TIMED, **tables, "input": given})
    return check(settings, sample).as_dict()


@pytest.mark.parametrize(
    ("key", "policy", "told"),
    [
        ({}, "compact,delete", True), ({}, "compact", True), ({}, "delete", False),
        ({"fields": ["user"]}, "compact", False), ({"fields": ["none"]}, "compact", False),
    ],
)  # fmt: skip
def test_records_that_compaction_would_remove_are_told(
    folder: Path, key: dict[str, Any], policy: str, told: bool
) -> None:
    """Those of a pipeline without a key: of a field, some rows may have one."""
    topic = {"name": "t", "cleanup.policy": policy}
    tables = {**TIMED, "key": key, "topic": topic, "input": {"exclude": "*.tmp"}}
    settings = pipeline(folder, root=str(folder / "lake"), max_quarantine_ratio=1, **tables)
    report = ingest_files(LocalEngine(), settings, DeclaredRun("1"))
    for said in (check(settings, 20).problems, report.hints):
        assert any(each.startswith("no key.fields is set") for each in said) is told
        assert any(f"cleanup.policy = '{policy}': compaction" in each for each in said) is told


def test_a_topic_that_was_altered_to_be_compacted_is_told(folder: Path) -> None:
    tables: dict[str, Any] = {"max_quarantine_ratio": 1, "input": {"exclude": "*.tmp"}}
    tables |= {**TIMED, "key": {}, "topic": {"name": "t"}, "root": str(folder.parent / "lake")}
    settings = pipeline(folder, **tables)
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).hints == []
    seglake.alter(settings.root, "t", {"cleanup.policy": "compact"})
    (folder / "d.jsonl").write_bytes(events(1))
    (told,) = ingest_files(LocalEngine(), settings, DeclaredRun("2")).hints
    assert told.endswith("set key.fields, or cleanup.policy = 'delete'")


def test_files_are_named_with_their_packing_and_what_is_left_out(folder: Path) -> None:
    found = checked(folder)
    sizes = [(folder / name).stat().st_size for name in ("a.jsonl", "b.jsonl.gz")]
    assert (found["files"], found["size_bytes"], found["splits"]) == (2, sum(sizes), 2)
    assert found["first_files"] == [
        {"path": str(folder / "a.jsonl"), "size_bytes": sizes[0], "packing": ""},
        {"path": str(folder / "b.jsonl.gz"), "size_bytes": sizes[1], "packing": "gzip"},
    ]
    assert found["left_out"] == [str(folder / "c.tmp")]


def test_rows_are_those_of_an_ingest(folder: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "headers": {"fields": ["n"], "source": True},
        "topic": {"partitions": 5},
        "input": {"exclude": "*.tmp"},
    }
    found = checked(folder, 200, **given)
    settings = pipeline(folder, root=str(tmp_path / "lake"), **TIMED, **given)
    ingest_files(LocalEngine(), settings, DeclaredRun("1"))
    window = seglake.open(str(tmp_path / "lake")).topic("test").read_range(0, 2**62)
    stored = [
        (r["value"], r["timestamp"].timestamp() * 1000, r["key"], r["partition"], r["headers"])
        for r in window.read_all().to_pylist()
    ]
    rows = [row for row in found["rows"] if not row["reason"]]
    told = [
        (r["value"].encode(), r["timestamp"], r["key"].encode(), r["partition"],
         [{"key": name, "value": value.encode()} for name, value in r["headers"]])
        for r in rows
    ]  # fmt: skip
    assert sorted(told, key=str) == sorted(stored, key=str)
    assert len(rows) == 104
    (bad,) = (row for row in found["rows"] if row["reason"])
    assert (bad["line"], bad["reason"], bad["value"]) == (3, "not parseable", "broken")
    assert [row["line"] for row in found["rows"][:5]] == [1, 2, 3, 5, 6]


def test_a_small_sample_takes_rows_from_far_apart(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.jsonl").write_bytes(events(50, 100 * number))
    names = [Path(row["path"]).stem for row in checked(tmp_path, 5)["rows"]]
    assert names == ["00", "07", "14", "21", "29"]
    (tmp_path / "07.jsonl").write_bytes(b"")
    assert len(checked(tmp_path, 6)["rows"]) == 6


def test_a_large_file_is_sampled_at_several_splits(tmp_path: Path) -> None:
    data = events(1000)
    (tmp_path / "a.jsonl").write_bytes(data)
    found = checked(tmp_path, 10, task={"split_bytes": 1000})
    starts = [row["start"] for row in found["rows"]]
    assert found["splits"] == -(-len(data) // 1000)
    assert len(starts) == 10
    assert starts == sorted(starts)
    assert len(set(starts)) == 5
    for row in found["rows"]:  # a line counts from the split's first
        begin = data.find(b"\n", row["start"] - 1) + 1 if row["start"] else 0
        assert data[begin:].split(b"\n")[row["line"] - 1] == row["value"].encode()


def test_lines_of_a_member_count_from_its_beginning(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in ("x", "y"):
            member = tarfile.TarInfo(name)
            member.size = len(events(3))
            archive.addfile(member, io.BytesIO(events(3)))
    (tmp_path / "a.tgz").write_bytes(file.getvalue())
    found = checked(tmp_path)
    places = [(row["path"].rpartition("!")[2], row["line"]) for row in found["rows"]]
    assert places == [("x", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 2), ("y", 3)]
    assert found["first_files"][0]["packing"] == "gzip tar"


def test_a_time_of_the_run_and_a_partition_of_no_key_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * 300 + b"\n\xff\n")
    rows = check(pipeline(tmp_path, "text"), 9).rows
    assert [(row.timestamp, row.partition, row.key) for row in rows] == [(None, None, None)] * 2
    assert [row.value for row in rows] == ["x" * 200 + "…", "�"]


@pytest.mark.parametrize("form", ["csv", "parquet", "text"])
def test_every_format_is_sampled(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.table({"ts": [T, None], "user": ["a", "b"]}), path)
    else:
        heading = "ts,user\n" if form == "csv" else ""
        path.write_text(f"{heading}{T},a\n,b\n")
    pattern = {"pattern": r"(?P<ts>\d*),(?P<user>.)"} if form == "text" else {}
    settings = pipeline(path, form, **TIMED, input=pattern)
    rows = check(settings, 5).rows
    assert [(row.reason, row.timestamp, row.key) for row in rows] == [
        ("", T, "a"),
        ("timestamp missing", None, None),
    ]
    whole = read(settings)
    assert (len(whole.rows), len(whole.rejects)) == (1, 1)


def shell(folder: Path, *options: str, field: str = "ts", form: str = "jsonl") -> Any:
    file = folder.parent / "p.toml"
    file.write_text(
        f'[pipeline]\nroot = "lake"\n[input]\npaths = ["{folder}"]\nformat = "{form}"\n'
        f'exclude = ["*.tmp"]\n[timestamp]\nfield = "{field}"\nformat = "epoch_ms"\n'
        '[key]\nfields = ["usr"]\n[topic]\nname = "t"\n'
    )
    return CliRunner().invoke(app, ["check", "--conf-file", str(file), *options])


def test_a_field_that_no_row_has_is_named_with_the_nearest(folder: Path) -> None:
    done = shell(folder, field="tss")
    assert done.exit_code == 3
    assert "timestamp.field 'tss' is in no row; did you mean 'ts'?" in done.stdout
    assert "key.fields 'usr' is in no row; did you mean 'user'?" in done.stdout
    assert "timestamp missing" in done.stdout


def test_the_table_shows_records_and_rejects_apart(folder: Path) -> None:
    done = shell(folder, "--sample", "6")
    assert done.exit_code == 3
    assert "2 files, " in done.stdout
    assert "1 file left out by input.include and input.exclude:" in done.stdout
    assert "5 records in 6 rows" in done.stdout
    assert "a.jsonl:3" in done.stdout.split("1 reject in 6 rows")[1]
    assert "2026-05-28T20:26:40.001Z" in done.stdout
    clean = shell(folder, "--source", str(folder / "b.jsonl.gz"), "--json")
    assert clean.exit_code == 0
    assert len(json.loads(clean.stdout)["rows"]) == 20


def test_bad_settings_and_input_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        check(pipeline(folder / "nope", **TIMED), 1)
    frame = {"format": "dataframe", "order_column": "n"}
    own = {"name": "test", "root": "lake"}
    settings = from_tables({"pipeline": own, **TIMED, "input": frame, "topic": {"name": "t"}})
    with pytest.raises(ConfigError, match="has no files to check"):
        check(settings, 1)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(events(9))[:40])
    assert isinstance(shell(folder).exception, InputError)
    assert shell(folder, "--sample", "0").exit_code == 2


def test_nothing_is_written_and_spark_is_not_loaded(folder: Path) -> None:
    shell(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")}
    code = (
        "import sys\nfrom seglake.cli.app import app\n"
        "app(['check', '--conf-file', 'p.toml'], standalone_mode=False)\n"
        "print([name for name in ('pyspark', 'deltalake') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")} == before


def sampled(path: Path, text: str, form: str = "epoch_s", sample: int = 20) -> dict[str, Any]:
    path.write_text(text)
    times = {"field": "ts", "format": form}
    return check(pipeline(path, timestamp=times), sample).as_dict()


@pytest.mark.parametrize(
    ("value", "form", "meant"),
    [
        (T, "epoch_s", "milliseconds, none fits 'epoch_s': set timestamp.format = 'epoch_ms'"),
        (T // 1000, "iso8601", "seconds, none fits 'iso8601': set timestamp.format = 'epoch_s'"),
        (T * 1_000_000, "%d.%m.%Y", "nanoseconds"),
        (
            "2026-01-31T12:00:00Z",
            "epoch_ms",
            "iso8601, none fits 'epoch_ms': set timestamp.format = 'iso8601'",
        ),
        ("31/Jan/2026:12:00:00 +0000", "iso8601", "%d/%b/%Y:%H:%M:%S %z"),
        ("20260131T120000Z", "iso8601", "%Y%m%dT%H%M%S%z, none fits 'iso8601': set timestamp."),
        ("20260131120000", "iso8601", "%Y%m%d%H%M%S, none fits 'iso8601': set timestamp.format"),
        ("2026-01-31 12:00:00 UTC", "epoch_ms", "%Y-%m-%d %H:%M:%S %Z, none fits 'epoch_ms': set"),
        ("2026-01-31 12:00:00 CET", "iso8601", "%Y-%m-%d %H:%M:%S CET, none fits 'iso8601': set"),
        (
            "Sat Jan 31 12:00:00 CET 2026",
            "%F %T %Z",
            (
                "%a %b %e %H:%M:%S CET %Y, none fits '%F %T %Z': set timestamp.format = '%a %b %e "
                "%H:%M:%S CET %Y', and timestamp.zone to what is meant, such as 'Europe/Berlin':"
            ),
        ),
    ],
)
def test_a_time_that_cannot_be_read_is_shown_with_what_would_read_it(
    value: object, form: str, meant: str, tmp_path: Path
) -> None:
    before = "x" * 300  # the field in question lies behind what is cut
    line = json.dumps({"before": before, "ts": value})
    found = sampled(tmp_path / "a.jsonl", line, form)
    assert [row["time_value"] for row in found["rows"]] == [str(value)]
    told = f"timestamp.field 'ts': 1 row looks like {meant}"
    assert [problem for problem in found["problems"] if told in problem]
    assert str(value) not in str(found["problems"])  # which reports keep


DAYS_IN_TWO_ORDERS = {
    "both": ([f"11/{n % 12 + 1}/2026 0:17:46" for n in range(30)], True),
    "months first": ([f"11/{n % 13 + 1}/2026 0:17:46" for n in range(26)], False),
}


@pytest.mark.parametrize("form", ["iso8601", "%m/%d/%y %H:%M:%S", "%d/%m/%y %H:%M:%S"])
@pytest.mark.parametrize("name", DAYS_IN_TWO_ORDERS)
def test_a_remedy_does_not_guess_which_is_the_day(tmp_path: Path, name: str, form: str) -> None:
    """It has the order of the format that is set, and names the other; one alone if that is all."""
    times, unsure = DAYS_IN_TWO_ORDERS[name]
    lines = "\n".join(json.dumps({"ts": time}) for time in times)
    (problem,) = sampled(tmp_path / "a.jsonl", lines, form)["problems"]
    orders = ["%d/%m", "%m/%d"] if unsure else ["%m/%d"]
    orders.sort(key=lambda order: not form.startswith(order))
    first, *others = [f"{order}/%Y %H:%M:%S" for order in orders]
    other = "".join(f", or {each!r} if that is what is meant" for each in others)
    assert problem == (
        f"timestamp.field 'ts': {len(times)} rows look like {first}, none fits {form!r}: "
        f"set timestamp.format = {first!r}{other}"
    )


def test_times_of_both_orders_are_counted_once(tmp_path: Path) -> None:
    """A file with days that are no months in either place: no order reads all."""
    times = ["25/11/2026 0:00:00", *(f"11/{n + 13}/2026 0:00:00" for n in range(9))]
    lines = "\n".join(json.dumps({"ts": time}) for time in times)
    (problem,) = sampled(tmp_path / "a.jsonl", lines, "iso8601")["problems"]
    assert "9 rows look like %m/%d/%Y %H:%M:%S, none fits 'iso8601'" in problem
    lines = "\n".join(reversed(lines.split("\n")))
    assert sampled(tmp_path / "b.jsonl", lines, "iso8601")["problems"] == [problem]


def test_a_long_path_leaves_the_size_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("checkout-service-access-events-" + "x" * 60)
    folder.mkdir()
    (folder / "2026-11-20.jsonl").write_bytes(b'{"ts":1}\n' * 3000)
    checked = check(pipeline(folder, timestamp={"field": "ts", "format": "epoch_s"}), 1)
    monkeypatch.setattr(check_command, "terminal_width", lambda: 80)
    check_command._show(checked)
    line = capsys.readouterr().out.splitlines()[1]
    assert len(line) == 80
    assert line.endswith("2026-11-20.jsonl  27,000 bytes")


def test_times_of_several_named_zones_have_a_remedy_for_all(tmp_path: Path) -> None:
    """A format has the name of one zone, so one after another would be advised."""
    rows = [f"20/10/2026,1{n % 10}:00:00,{'PDT' if n % 3 else 'PST'}" for n in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["Date,Time,Zone", *rows, ""]))
    (tmp_path / "a.toml").write_text(TWO_FIELDS.format(path=tmp_path / "a.csv"))
    problems = check(load(tmp_path / "a.toml"), 20).problems
    told = (
        "timestamp.fields 'Date', 'Time', 'Zone': the times name the zones PDT, PST, of which a "
        "format has one: leave the field of the zone out of timestamp.fields, and set "
        "timestamp.zone to the region, such as 'America/Los_Angeles'"
    )
    assert problems == [told]
    one = load(tmp_path / "a.toml", {"timestamp.format": "%d/%m/%Y %H:%M:%S PST"})
    assert check(one, 20).problems == problems


TWO_FIELDS = """
[pipeline]
root = "./lake"
[input]
paths = ["{path}"]
format = "csv"
[timestamp]
fields = ["Date", "Time", "Zone"]
format = "%d/%m/%Y %H:%M:%S %Z"
zone = "UTC"
[topic]
name = "a"
"""
ISO = "2026-01-31T12:00:00Z"
MIXED: list[tuple[str, list[tuple[object, int]], str]] = [
    ("epoch_s", [(T // 1000, 1500), (T, 500)],
     "500 rows look like milliseconds, 1,500 others fit 'epoch_s'"),
    ("epoch_ms", [(T, 197), (ISO, 1)], "1 row looks like iso8601, 197 others fit 'epoch_ms'"),
    ("iso8601", [(T, 197), (ISO, 1)], "197 rows look like milliseconds, 1 other fits 'iso8601'"),
    ("epoch_s", [(ISO, 3), (T // 1000, 9), (T, 8)],
     "8 rows look like milliseconds, 9 others fit 'epoch_s'"),
]  # fmt: skip


@pytest.mark.parametrize("chunk_bytes", [100, 1 << 20])
@pytest.mark.parametrize(("form", "times", "told"), MIXED)
def test_no_other_format_is_advised_where_rows_fit_the_one_that_is_set(
    form: str, times: list[tuple[object, int]], told: str, chunk_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    rows = [time for time, count in times for _ in range(count)]
    path.write_text("".join(json.dumps({"ts": time}) + "\n" for time in rows))
    settings = pipeline(
        path, root=str(tmp_path / "lake"), timestamp={"field": "ts", "format": form},
        max_quarantine_ratio=0.001, task={"chunk_bytes": chunk_bytes},
    )  # fmt: skip
    told = f"timestamp.field 'ts': {told}: the input mixes formats; correct these rows, or ingest"
    assert [text for text in check(settings, 10_000).problems if told in text]
    if told.startswith("timestamp.field 'ts': 1 row "):
        hints = ingest_files(LocalEngine(), settings, DeclaredRun("1")).hints
        assert [text for text in hints if told in text]
        return
    with pytest.raises(QuarantineLimit) as it:
        ingest_files(LocalEngine(), settings, DeclaredRun("1"))
    assert told in str(it.value)
    assert "set timestamp.format" not in str(it.value)


def test_days_and_months_that_changed_places_are_told_as_such(tmp_path: Path) -> None:
    """Rows that fit the wrong order may be meant in the other one, too."""
    days = [f"{day:02}.{month:02}.26" for day in range(1, 29) for month in (9, 10)]
    content = "".join(json.dumps({"ts": day}) + "\n" for day in days)
    told, zone = sampled(tmp_path / "a.jsonl", content, "%m.%d.%y", 100)["problems"]
    assert zone.startswith("24 times name no zone and are read in UTC: set timestamp.zone to")
    assert told.startswith(
        "timestamp.field 'ts': 32 rows look like %d.%m.%y, 24 others fit '%m.%d.%y'"
    )
    assert "if '%d.%m.%y' is meant for all, which may read those, too, set timestamp.format" in told
    assert "; else the input mixes formats; correct these rows" in told


def test_a_time_that_is_not_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(events(2))
    by_run: dict[str, Any] = {"topic": {"message.timestamp.type": "LogAppendTime"}}
    settings = pipeline(path, root=str(tmp_path / "lake"), **TIMED, **by_run)
    (told,) = check(settings, 20).problems
    assert told.startswith("timestamp.field 'ts' is not read: message.timestamp.type = 'LogAppend")
    assert told in ingest_files(LocalEngine(), settings, DeclaredRun("1")).hints


def test_where_no_row_fits_the_format_of_most_rows_is_advised(tmp_path: Path) -> None:
    found = sampled(tmp_path / "a.jsonl", f'{{"ts":"{ISO}"}}\n' + f'{{"ts":{T}}}\n' * 3)
    told = "timestamp.field 'ts': 3 rows look like milliseconds, none fits 'epoch_s': "
    assert found["problems"] == [f"{told}set timestamp.format = 'epoch_ms'"]


def test_a_time_that_nothing_reads_has_no_hint(tmp_path: Path) -> None:
    found = sampled(tmp_path / "a.jsonl", '{"ts":"yesterday"}')
    assert (found["rows"][0]["time_value"], found["problems"]) == ("yesterday", [])


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_array_says_that_lines_are_wanted(indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    found = sampled(path, json.dumps([{"ts": T}, {"ts": T}], indent=indent))
    told = f"{path}: it begins with '[', so it is a JSON array; one JSON object a line is wanted"
    assert found["problems"][0].startswith(told)
    settings = pipeline(path, root=str(tmp_path / "lake"), **TIMED)
    with pytest.raises(QuarantineLimit, match="it is a JSON array; one JSON object a line") as it:
        ingest_files(LocalEngine(), settings, DeclaredRun("1"))
    assert it.value.exit_code == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (json.dumps({"ts": T, "n": [1]}, indent=1), "is JSON over several lines; one JSON object"),
        (f'{{"ts":{T},\n"n":1}}\n' * 2, "is JSON over several lines; one JSON object a line is"),
        (f'{{"events": [\n{{"ts":{T}}}]}}', "`jq -c '.events[]' < FILE` makes lines of the array"),
        (f'{{"ts":{T}}}{{"ts":{T}}}\n', "has several JSON objects in a line; one JSON object a"),
        (f'{{"ts":{T}\n{{"ts":{T}}}\n', None),  # a line that is cut off
    ],
)
def test_objects_that_are_not_one_a_line_are_told(
    content: str, told: str | None, tmp_path: Path
) -> None:
    """Of several files once."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(content)
    said = check(pipeline(tmp_path, timestamp={"field": "ts", "format": "epoch_ms"}), 20).problems
    meant = [each for each in said if each.endswith("`jq -c . < FILE` makes a line of each object")]
    assert len(meant) == (told is not None)
    assert all(each.startswith(f"{tmp_path}/a.jsonl: ") and (told or "") in each for each in meant)


@pytest.mark.parametrize("lines", ["ts;n\n1;2\n3;4\n", "2026-11-20 10:00:00 INFO a\n"])
def test_lines_that_are_no_json_at_all_are_told(lines: str, tmp_path: Path) -> None:
    """By the check and by the run that they end."""
    path = tmp_path / "a.jsonl"
    told = r"row.* at its beginning is JSON: if they are CSV or text, set input\.format"
    assert any(re.search(told, each) for each in sampled(path, lines)["problems"])
    settings = pipeline(path, root=str(tmp_path / "lake"), **TIMED)
    with pytest.raises(QuarantineLimit, match=told):
        ingest_files(LocalEngine(), settings, DeclaredRun("1"))


@pytest.mark.parametrize("value", ["NaN", "-Infinity", '"NaN"', "NaNs"])
def test_numbers_that_are_no_json_are_told(value: str, tmp_path: Path) -> None:
    line = f'{{"ts":{T},"n":{value},"user":"a"}}\n'
    found = sampled(tmp_path / "a.jsonl", events(1).decode() + line * 2, "epoch_ms")
    told = "rows have NaN or Infinity, which is no JSON, though Python's json.dumps writes it"
    said = any(told in text for text in found["problems"])
    assert said == (value in {"NaN", "-Infinity"})


@pytest.mark.parametrize("split_bytes", [1 << 20, 8192])
def test_a_file_without_the_beginning_of_an_event_is_named(
    tmp_path: Path, split_bytes: int
) -> None:
    (tmp_path / "a.log").write_text("".join(f"{T + n} a\n  more\n" for n in range(2000)))
    (tmp_path / "b.log").write_text("other\n" * 1200)
    (tmp_path / "c.log").write_text(f"\n  more\n{T} a\n")
    (tmp_path / "d.log").write_text(f"{T}\n  more\n")
    text = {"format": "text", "pattern": r"(?P<ts>\d+)", "multiline_start_pattern": r"\d+(?: |$)"}
    timestamp = {"field": "ts", "format": "epoch_ms"}
    bounds = {"split_bytes": split_bytes}
    found = checked(tmp_path, 200, input=text, timestamp=timestamp, key={}, task=bounds)
    (said,) = found["problems"]
    assert said == (
        f"{tmp_path}/b.log: none of its first 1,200 lines matches input.multiline_start_pattern, "
        "so that all continue one event; if the file has another format, leave it out with "
        "input.exclude, and ingest it by a pipeline of its own"
    )


def test_a_pattern_that_no_row_matches_is_named(tmp_path: Path) -> None:
    """Of several such files the first; one in which a row matches is not."""
    for name in "bcd":
        (tmp_path / f"{name}.log").write_text("other\n" * 600)
    (tmp_path / "a.log").write_text("other\n" * 600 + f"{T} a\n")
    text = {"format": "text", "pattern": r"(?P<ts>\d+)"}
    timestamp = {"field": "ts", "format": "epoch_ms"}
    found = checked(tmp_path, 2000, input=text, timestamp=timestamp, key={})
    told = (
        f"{tmp_path}/b.log: none of 600 rows at its beginning matches input.pattern: correct it; "
        "or if the file has another format, leave it out with input.exclude, and ingest it by a "
        "pipeline of its own, which `seglake init` drafts"
    )
    assert found["problems"] == [told]
    lake = str(tmp_path / "lake")
    settings = pipeline(tmp_path, "text", root=lake, timestamp=timestamp, input=text)
    with pytest.raises(QuarantineLimit, match=re.escape(told)):
        ingest_files(LocalEngine(), settings, DeclaredRun("1"))
    (tmp_path / "b.log").write_text("other\n")
    one = f"{tmp_path}/b.log: the row at its beginning does not match input.pattern: correct it"
    (said,) = checked(tmp_path, 9, input=text, timestamp=timestamp, key={})["problems"]
    assert said.startswith(one)


@pytest.mark.parametrize(
    ("end", "pack", "command"),
    [
        ("", bytes, "jq -c '.Records[]' < FILE"),
        (".gz", gzip.compress, "gzip -dc FILE | jq -c '.Records[]'"),
        (".bz2", bz2.compress, "bzip2 -dc FILE | jq -c '.Records[]'"),
    ],
)
def test_an_array_in_a_field_says_that_lines_are_wanted(
    end: str, pack: Callable[[bytes], bytes], command: str, tmp_path: Path
) -> None:
    line = json.dumps({"Records": [{"eventTime": "2026-11-20T10:00:00Z"}] * 3}).encode()
    for number in range(2):
        (tmp_path / f"{number}.json{end}").write_bytes(pack(line))
    told = (
        f"{tmp_path}/0.json{end}: one event a line is wanted: `{command}` makes lines "
        "of the array in field 'Records'; else each line is one record, whatever the array holds"
    )
    assert check(pipeline(tmp_path), 20).problems == [told, NO_FIELD]
    settings = pipeline(tmp_path, root=str(tmp_path / "lake"))
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).hints == [told, NO_FIELD]
    path = tmp_path / "others.json"
    for items in ([1, 2], [], [{}, 1], {"n": 1}):
        path.write_text(json.dumps({"items": items}))
        assert check(pipeline(path), 20).problems == [NO_FIELD]
    path.write_text(json.dumps({"items": [{"n": 1}], "ts": T}))
    assert check(pipeline(path), 20).problems == [NO_FIELD]


def test_a_key_that_is_an_object_is_told_with_a_field_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    user: dict[str, Any] = {"name": "anna", "id": 74}
    path.write_bytes(jsonl(*({"ts": T, "user": user if n else "x"} for n in range(9))))
    (said,) = checked(path)["problems"]
    assert said == (
        "key.fields: 'user' is an object, so that its JSON text is the key; a field of it, such as "
        "'user.id', may be meant"
    )
    assert checked(path, key={"fields": ["user.id"]})["problems"] == []
    path.write_bytes(jsonl({"ts": T, "user": json.dumps(user), "user.id": 7}))
    assert checked(path)["problems"] == []


@pytest.mark.parametrize("form", ["jsonl", "text"])
def test_a_parquet_file_that_is_read_as_lines_says_so(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    pq.write_table(pa.table({"ts": [T + n for n in range(99)]}), path)
    problems = check(pipeline(path, form), 20).problems
    assert problems[0] == f"{path}: it is a Parquet file: set input.format = 'parquet'"
    assert "input.encoding" not in str(problems)
    pieces = pipeline(path, root=str(tmp_path / "lake"), task={"chunk_bytes": 64})
    assert check(pieces, 20).problems == problems
    with pytest.raises(QuarantineLimit, match="it is a Parquet file") as caught:
        ingest_files(LocalEngine(), pieces, DeclaredRun("1"))
    assert "input.encoding" not in str(caught.value)
    path.write_bytes(b"PAR1 is the name of a level\n")
    assert check(pipeline(path, "text"), 20).problems == [NO_FIELD]


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ([b"", b""], "All 2 files are empty."),
        ([b""], "The file is empty."),
        ([b"\n", b""], "There is no row in the sample."),
    ],
)
def test_empty_files_say_so(contents: list[bytes], told: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, content in enumerate(contents):
        (tmp_path / "in" / f"{number}.jsonl").write_bytes(content)
    done = shell(tmp_path / "in")
    assert (done.exit_code, told in done.output.splitlines()) == (0, True), done.output


def test_a_pipe_and_json_have_the_whole_texts(tmp_path: Path) -> None:
    path, long = tmp_path / "a.jsonl", "x" * 700
    time = "later" + long
    lines = [{"ts": T, "usr": long, "text": long}, {"usr": "u", "text": long, "ts": time}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    check = "--source", str(path)
    told, as_json = (shell(tmp_path, *check, *how).stdout for how in ((), ("--json",)))
    assert (told.count(long), as_json.count(long)) == (6, 6)  # key, texts of values, time twice
    assert "…" not in told + as_json
    assert f"timestamp unreadable: {time!r}" in told
    assert f" {json.dumps(lines[0])}\n" in told


def test_files_of_one_name_are_told_apart_by_their_folders() -> None:
    def places(*paths: str, start: int = 0, others: Sequence[str] = ()) -> list[str]:
        rows = [SampledRow(path, start, 3, "", "x") for path in paths]
        place = places_of(Checked(0, 0, 0, [], [], rows, [], stops=False, paths=[*paths, *others]))
        return [*map(place, rows)]

    hours = [f"/in/2026/11/{day}/13/events.jsonl" for day in (25, 26)]
    assert places(*hours) == ["25/13/events.jsonl:3", "26/13/events.jsonl:3"]
    assert places("/in/25/a.jsonl", "/in/25/b.jsonl") == ["a.jsonl:3", "b.jsonl:3"]
    assert places("/in/a.jsonl", start=7) == ["a.jsonl after byte 7:3"]
    assert places("a.jsonl", "x/a.jsonl") == ["a.jsonl:3", "x/a.jsonl:3"]
    assert places("/in/0/a.log", others=["/in/1/a.log"]) == ["0/a.log:3"]  # not in the sample


def test_a_topic_with_more_partitions_is_an_error_as_in_an_ingest(tmp_path: Path) -> None:
    LakeMaker(tmp_path / "lake", "t", partitions=3).run({0: [Event(T)]})
    (tmp_path / "a.jsonl").write_bytes(events(1))
    conf = tmp_path / "t.toml"
    conf.write_text(
        f'[pipeline]\nroot = "{tmp_path}/lake"\n[input]\npaths = ["{tmp_path}/*.jsonl"]\n'
        'format = "jsonl"\n[timestamp]\nfield = "ts"\nformat = "epoch_ms"\n[topic]\nname = "t"\n'
        "partitions = 2\n"
    )
    run = CliRunner().invoke
    checked, ingested = (run(app, [command, "--conf-file", str(conf), *how])
                         for command, *how in (("check",), ("ingest", "--local")))  # fmt: skip
    assert isinstance(checked.exception, ConfigError)
    assert "topic 't' has 3 partitions and cannot shrink to 2" in str(checked.exception)
    assert str(ingested.exception) == str(checked.exception)


def test_a_lake_that_cannot_be_asked_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"ts": T, "user": "u"}))

    def refuse(*_: Any) -> Any:
        raise StoreError("s3://bucket/lake: access is denied")

    monkeypatch.setattr("seglake.write.check.open_store", refuse)
    told = json.loads(shell(tmp_path, "--json").stdout)
    assert told["problems"][1:] == [
        "whether the lake takes these settings was not asked: s3://bucket/lake: access is denied"
    ]
    assert len(told["rows"]) == 1


def test_a_narrow_terminal_shows_the_partition(tmp_path: Path) -> None:
    (tmp_path / "a-file-of-some-length.jsonl").write_text(
        json.dumps({"ts": T, "usr": "a-user", "text": "x" * 90})
    )
    with narrow_terminal():
        told = shell(tmp_path).stdout
    assert "partition" in told
    assert "headers" not in told  # no row has any


def test_a_terminal_cuts_a_value_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its end, where its column has no room."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"ts": T, "usr": "u", "text": "x" * 90}))
    shell(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        app(["check", "--conf-file", str(tmp_path.parent / "p.toml")])
    row = next(line for line in capsys.readouterr().out.splitlines() if "a.jsonl:1" in line)
    assert row.count("…") == 1
    assert row.endswith('{"ts": 1780000000000, "usr…')


def test_plain_values_have_no_path_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"ts": T, "user": "u"}))
    assert "paths" not in json.loads(shell(tmp_path, "--json").stdout)


def test_the_sample_of_an_archive_says_where_it_ends(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        for name in ("x/e.jsonl", "y/e.jsonl"):
            content = events(30)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    told = json.loads(shell(tmp_path, "--json", "--sample", "20").stdout)["problems"]
    assert any("sample ends in" in each and "x/e.jsonl; anything behind" in each for each in told)
    told = json.loads(shell(tmp_path, "--json", "--sample", "99").stdout)["problems"]
    assert not any("sample ends in" in each for each in told)


def test_a_member_is_named_with_its_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        content = events(2)
        member = tarfile.TarInfo("x/e.jsonl")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert "a.tgz!x/e.jsonl:1" in shell(tmp_path).stdout


def test_an_empty_line_before_the_header_of_csv_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("\nts,x\n1,a\n")
    with pytest.raises(InputError, match="its first line, which is the header, is empty: remove"):
        check(pipeline(tmp_path / "file", "csv", timestamp=TIMED["timestamp"]), 20)


@pytest.mark.parametrize(
    ("kind", "text", "tables", "lines"),
    [
        ("jsonl", "{}\n\n\r\n{}\n\n", {}, [1, 4]),
        ("csv", "ts;x\n\n1;a\n\r\n2;b\n\n", {"input": {"delimiter": ";"}}, [3, 5]),
        ("text", "one\n\n\r\ntwo\n\n", {}, [1, 4]),
        ("text", "- a\n\n b\n\n\n- c\n", {"input": {"multiline_start_pattern": "-"}}, [1, 6]),
    ],
    ids=["jsonl", "csv", "text", "events"],
)
def test_empty_lines_are_no_rows(
    tmp_path: Path, kind: str, text: str, tables: dict[str, Any], lines: list[int]
) -> None:
    """As docs/files.md says; they count as lines of the file, and a line of spaces is a row."""
    (tmp_path / "file").write_bytes(text.encode())
    rows = check(pipeline(tmp_path / "file", kind, **tables), 20).rows
    assert [(row.line, row.reason) for row in rows] == [(line, "") for line in lines]
    if "multiline_start_pattern" in tables.get("input", {}):
        assert rows[0].value == "- a\n\n b"
        return
    (tmp_path / "file").write_bytes(f"{text}  \n".encode())
    assert len(check(pipeline(tmp_path / "file", kind, **tables), 20).rows) == len(lines) + 1
