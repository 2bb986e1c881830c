"""`seglake init`: a table of files, the settings that it writes for each, and its findings.

Every inferred pipeline is tried with `check`, which reads the rows as an ingest does.
"""

import bz2
import gzip
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import from_tables, load
from seglake.errors import CommitConflict, ConfigError, InputError, UsageError
from seglake.infer.pipeline import InferredPipeline, infer_pipeline
from seglake.write.check import CheckResult, check
from seglake.write.driver.run_input import InputBatches
from tests.harness.object_server import object_server
from tests.makers.raw_events import quarantined

ROWS = 40
BEGIN = datetime(2026, 3, 17, 9, 30, tzinfo=UTC)
TIMES = [BEGIN + timedelta(hours=7 * n, seconds=37 * n) for n in range(ROWS)]


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def rows(line: Callable[[int, datetime], str], head: str = "") -> bytes:
    lines = [line(n, time) for n, time in enumerate(TIMES)]
    return "".join(f"{each}\n" for each in ([head] if head else []) + lines).encode()


def lines(form: str) -> bytes:
    """Lines of strftime's directives and {n}, the number of the line."""
    return rows(lambda n, t: t.strftime(form).format(n=n))


def objects(row: Callable[[int, datetime], dict[str, Any]]) -> bytes:
    return rows(lambda n, t: json.dumps(row(n, t)))


def parquet(times: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"at": times, "user": [f"u{n % 7}" for n in range(ROWS)]}), sink)
    return sink.getvalue()


def tar(content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def avro(time: str) -> bytes:
    kind, sink = {"type": "long", "logicalType": time}, io.BytesIO()
    fields = [{"name": "at", "type": kind}, {"name": "user", "type": "string"}]
    events = [{"at": time, "user": f"u{n % 7}"} for n, time in enumerate(TIMES)]
    fastavro.writer(sink, {"type": "record", "name": "Record", "fields": fields}, events)
    return sink.getvalue()


EPOCHS = objects(lambda n, t: {"ts": ms(t), "user": f"u{n % 7}"})
ACCESS = lines('10.0.0.{n} - u7 [%d/%b/%Y:%H:%M:%S +0000] "GET /{n} HTTP/1.1" 200 {n}')


class Case(NamedTuple):
    """A file, and what is expected of it: the time's format, some settings, and findings."""

    name: str
    content: bytes
    time: str | list[str] | None
    form: str | None = None
    key: Any = None
    codes: frozenset[str] = frozenset()
    settings: Mapping[str, Any] = MappingProxyType({})
    rejects: int = 0
    exact: bool = True  # the times are TIMES, to the second


def codes(*names: str) -> frozenset[str]:
    return frozenset(names)


ZONE, NO_KEY = "no-zone", "no-key-field"
CASES = {
    # JSON lines
    "epoch ms": Case("a.jsonl", EPOCHS, "ts", "epoch_ms", "user"),
    "gzip": Case("a.json.gz", gzip.compress(EPOCHS), "ts", "epoch_ms", "user"),
    "tar": Case("a.tgz", tar(EPOCHS), "ts", "epoch_ms", "user"),
    "no suffix": Case("events", EPOCHS, "ts", "epoch_ms", "user"),
    "nested": Case("a.ndjson", objects(lambda n, t: {"event": {"created_at": t.isoformat()},
                                                     "actor": {"user_id": n % 5}}),
                   "event.created_at", "iso8601", "actor.user_id"),
    "seconds beside a size": Case("a.jsonl", objects(lambda n, t: {"size": 10**12 + n,
                                                                   "time": ms(t) / 1000}),
                                  "time", "epoch_s", codes=codes(NO_KEY)),
    "a broken line": Case("a.jsonl", EPOCHS + b"{broken\n", "ts", "epoch_ms", "user",
                          codes("not-json"), rejects=1),
    "two times": Case("a.jsonl", objects(lambda n, t: {"created": ms(t), "time": ms(t)}), "time",
                      "epoch_ms", codes=codes("other-times", NO_KEY)),
    "a timestamp beside another one": Case(
        "a.jsonl", objects(lambda n, t: {"load_timestamp": 1_790_000_000_000, "timestamp": ms(t)}),
        "timestamp", "epoch_ms", codes=codes("other-times", NO_KEY)),
    "a number that only looks like a time": Case(
        "a.jsonl", objects(lambda n, t: {"order_no": 17 * 10**8 + n, "phone": 165 * 10**7}), None,
        codes=codes("no-time", NO_KEY), settings={"pipeline.order": "arrival"}),
    "a number without a telling name": Case(
        "a.jsonl", objects(lambda n, t: {"height": ms(t)}), "height", "epoch_ms",
        codes=codes("doubtful-number", NO_KEY)),
    "times that some rows lack": Case(
        "a.jsonl", objects(lambda n, t: {"x": 1} | ({"when": t.isoformat()} if n % 10 else {})),
        None, codes=codes("no-time", "other-times", NO_KEY)),
    "an array of objects": Case("a.json", objects(lambda n, t: {"n": 1, "r": [{"ts": 1}]}), None,
                                codes=codes("no-time", NO_KEY)),
    "two units": Case("a.jsonl", objects(lambda n, t: {"ts": ms(t) if n % 3 else ms(t) // 1000}),
                      "ts", "epoch_ms", codes=codes("mixed-formats", NO_KEY), exact=False),
    "dates of MongoDB": Case(
        "a.jsonl", objects(lambda n, t: {"at": {"$date": ms(t) if n % 2 else f"{t:%FT%TZ}"},
                                         "user": {"$oid": f"{n % 7:024x}"}}), "at",
        "iso8601", "user.$oid"),
    "times of BigQuery": Case(
        "a.jsonl", objects(lambda n, t: {"at": f"{t:%F %T}{'.5' * (n % 2)} UTC"}), "at", "iso8601",
        codes=codes(NO_KEY)),
    "fractions in some times": Case(
        "a.csv", rows(lambda n, t: f"{t:%d.%m.%Y %T}{'.123' * (n % 2)},{n}", "at,n"), "at",
        "%d.%m.%Y %H:%M:%S[.%f]", codes=codes(ZONE, NO_KEY)),
    "changes of a database": Case(
        "a.jsonl", objects(lambda n, t: {"before": None, "after": {"id": n % 7}, "ts_ms": ms(t)}),
        "ts_ms", "epoch_ms", ["after.id", "before.id"]),
    # CSV
    "semicolons": Case("a.csv", rows(lambda n, t: f"{t:%d.%m.%Y %H:%M:%S};{n % 3}", "Zeit;user_no"),
                       "Zeit", "%d.%m.%Y %H:%M:%S", "user_no", codes(ZONE),
                       {"input.delimiter": ";", "timestamp.zone": "UTC"}),
    "tabs": Case("a.tsv", rows(lambda n, t: f"{n}\t{t:%F %T}\td{n % 4}", "id\ttimestamp\tdevice"),
                 "timestamp", "iso8601", "device", codes(ZONE)),
    "quotes": Case("a.csv", rows(lambda n, t: f'{t.isoformat()},s{n % 6},"a ""b"", c"',
                                 "when,session,text"), "when", "iso8601", "session"),
    "months first": Case("a.csv", rows(lambda n, t: f"{t:%m/%d/%Y %I:%M:%S %p},{n}", "date,n"),
                         "date", "%m/%d/%Y %I:%M:%S %p", codes=codes(ZONE, NO_KEY)),
    "an order that is not sure": Case(
        "a.csv", rows(lambda n, t: f"03/0{n % 9 + 1}/2026 10:00:00,{n}", "date,n"), "date",
        "%m/%d/%Y %H:%M:%S", codes=codes(ZONE, NO_KEY, "date-order"), exact=False),
    "no header": Case("a.csv", rows(lambda n, t: f"{t:%FT%TZ},u{n % 7},{n}"), "c1", "iso8601",
                      codes=codes("no-header", NO_KEY)),
    "uneven": Case("a.csv", rows(lambda n, t: f"{ms(t)},a" + ",b" * (n == 3), "ts,x"), "ts",
                   "epoch_ms", codes=codes("uneven-rows", NO_KEY), rejects=1, exact=False),
    "a name twice": Case("a.csv", rows(lambda n, t: f"{ms(t)},a,b", "ts,x,x"), "ts", "epoch_ms",
                         codes=codes("unusable-column", NO_KEY)),
    "a date and a clock": Case("a.csv", rows(lambda n, t: f"{t:%F,%T},{n}", "day,clock,n"),
                               ["day", "clock"], "%Y-%m-%d %H:%M:%S", codes=codes(ZONE, NO_KEY)),
    "whole days": Case("a.csv", rows(lambda n, t: f"{t:%F},{n}", "date,n"), "date", "iso8601",
                       codes=codes(ZONE, NO_KEY, "whole-days"), exact=False),
    "cp1252": Case("a.csv", rows(lambda n, t: f"{ms(t)};Straße", "ts;x").decode().encode("cp1252"),
                   "ts", "epoch_ms", codes=codes("encoding", NO_KEY),
                   settings={"input.encoding": "cp1252"}),
    "utf-16": Case("a.csv", rows(lambda n, t: f"{ms(t)};Straße", "ts;x").decode().encode("utf-16"),
                   "ts", "epoch_ms", codes=codes("encoding", NO_KEY)),
    "quotes with a backslash": Case(
        "a.csv", rows(lambda n, t: rf'{t.isoformat()},u{n % 3},"a \"b\", c"', "at,user,text"), "at",
        "iso8601", "user", settings={"input.escape": "\\"}),
    "two backslashes": Case(
        "a.csv", rows(lambda n, t: rf'{t.isoformat()},"C:\\d{n}",\\x', "at,path,text"), "at",
        "iso8601", codes=codes("two-backslashes", NO_KEY)),
    "quotes doubled": Case(
        "a.csv", rows(lambda n, t: rf'{t.isoformat()},"C:\","a\""b"', "at,user,text"), "at",
        "iso8601", codes=codes(NO_KEY)),
    "quotes with a backslash in a later line": Case(
        "a.csv", rows(lambda n, t: f'{t.isoformat()},u{n % 3},"a\n\\"b\\", c"', "at,user,text"),
        "at", "iso8601", "user", settings={"input.escape": "\\"}),
    "a title": Case("a.csv", b"Report,,\r\n\r\n" + rows(
        lambda n, t: f"{t.isoformat()},u{n % 3},x", "at,user,text"), "at", "iso8601", "user",
        settings={"input.skip_lines": 2}),
    "a delimiter in the first line": Case(
        "a.csv", b"sep=;\r\n" + rows(lambda n, t: f"{t.isoformat()};u{n % 3}", "at;user") + b";\n",
        "at", "iso8601", "user", settings={"input.skip_lines": 1}, rejects=1),
    "no header, and quotes": Case(
        "a.csv", rows(lambda n, t: f'"a, ""{n}""",{t:%FT%TZ},{chr(34) * 2 * (n % 2)}'), "c2",
        "iso8601", codes=codes("no-header", NO_KEY)),
    "a header over lines": Case(
        "a.csv", rows(lambda n, t: f'{t.isoformat()},u{n % 3},"a\nb"', 'at,user,"the\ntext"'), "at",
        "iso8601", "user"),
    "nulls": Case("a.csv", rows(lambda n, t: rf"{t.isoformat()},u{n % 3},\N", "at,user,x"), "at",
                  "iso8601", "user", settings={"input.null_values": [r"\N"]}),
    "comments": Case(
        "a.csv", b"# by\n#\n" + rows(lambda n, t: f"{ms(t)},u{n % 3}" + "\n# x" * (n < 9),
                                     "ts,user"),
        "ts", "epoch_ms", "user", settings={"input.comment": "#"}),
    "a header that looks like a comment": Case(
        "a.csv", rows(lambda n, t: f"{ms(t)},{n}", "#ts,n"), "#ts", "epoch_ms",
        codes=codes(NO_KEY)),
    # W3C logs
    "IIS": Case("u_ex.log", rows(lambda n, t: f"{t:%F %T} GET /{n} -",
                                 "#Software: x\n#Fields: date time cs-method path query"),
                ["date", "time"], "%Y-%m-%d %H:%M:%S", codes=codes(ZONE, NO_KEY),
                settings={"input.comment": "#", "input.null_values": ["-"]}),
    "CloudFront": Case(
        "a.gz", gzip.compress(rows(lambda n, t: f"{t:%F\t%T}\tFRA{n}\t-",
                                   "#Version: 1.0\n#Fields: date time edge cs(Host)")),
        ["date", "time"], "%Y-%m-%d %H:%M:%S", codes=codes(ZONE, NO_KEY),
        settings={"input.delimiter": "\t", "input.comment": "#"}),
    "Exchange": Case("a.log", rows(lambda n, t: f"{t:%FT%TZ},10.0.0.{n % 4},",
                                   "#Fields: date-time,client-ip,server"),
                     "date-time", "iso8601", "client-ip", exact=False),
    "Zeek": Case("conn.log", rows(lambda n, t: f"{t.timestamp()}\tu{n % 3}\t(empty)",
                                  "#empty_field\t(empty)\n#unset_field\t?\n#fields\tts\tuser\tx"),
                 "ts", "epoch_s", "user", settings={"input.null_values": ["-", "(empty)", "?"]}),
    # Parquet
    "parquet": Case("a.parquet", parquet(pa.array(TIMES, pa.timestamp("us", "UTC"))), "at", None,
                    "user"),
    "avro": Case("a.avro", avro("timestamp-millis"), "at", "iso8601", "user"),
    "parquet without a zone": Case("a.parquet", parquet(pa.array(TIMES).cast(pa.timestamp("ns"))),
                                   "at", None, "user", codes(ZONE)),
    # logs
    "access log": Case("access.log.1", ACCESS, "time", "%d/%b/%Y:%H:%M:%S %z", None, codes(NO_KEY)),
    "packed access log": Case("a.log.1.bz2", bz2.compress(ACCESS), "time", "%d/%b/%Y:%H:%M:%S %z",
                              codes=codes(NO_KEY)),
    "access log of S3": Case(
        "2026-05-01-10-15-A1", lines("79a5 b [%d/%b/%Y:%H:%M:%S +0000] 10.0.0.{n} - 3E57 REST.GET"),
        "time", "%d/%b/%Y:%H:%M:%S %z", codes=codes(NO_KEY)),
    "access log of a load balancer": Case(
        "a.log", lines("h2 %Y-%m-%dT%H:%M:%S.000Z app/lb/1 10.0.0.{n}:28 10.1.0.1:80 0.1 200"),
        "time", "iso8601", codes=codes(NO_KEY)),
    "syslog": Case("syslog", lines("%b %e %H:%M:%S web{n} cron[{n}]: hello"), "time",
                   "%b %e %H:%M:%S", codes=codes("no-year", ZONE, NO_KEY)),
    "RFC 5424": Case("syslog", lines("<165>1 %Y-%m-%dT%H:%M:%S.003Z web1 app{n} 1 ID47 - hello"),
                     "time", "iso8601", codes=codes(NO_KEY), exact=False),
    "logfmt": Case("a.log", lines('time="%Y-%m-%dT%H:%M:%SZ" level=info msg="a \\" b" dur=1'),
                   "time", "iso8601", codes=codes(NO_KEY)),
    "comments among lines": Case(
        "a.log", b"# rotated\n" + rows(lambda n, t: f"{t:%F %T} a\n# b\n  c"), "time", "iso8601",
        codes=codes(ZONE, NO_KEY, "continued-lines"), settings={"input.comment": "#"}),
    "several lines": Case("app.log", lines("%Y-%m-%d %H:%M:%S,000 INFO x says {n}\n  and more"),
                          "time", "iso8601", codes=codes(ZONE, NO_KEY, "continued-lines")),
    "a named zone": Case("a.log", lines("%Y-%m-%d %H:%M:%S CET hello {n}"), "time",
                         "%Y-%m-%d %H:%M:%S CET", codes=codes("zone-name", NO_KEY)),
    "a region": Case("a.log", lines("%Y-%m-%d %H:%M:%S Europe/Berlin {n}"), "time",
                     "%Y-%m-%d %H:%M:%S Europe/Berlin", codes=codes(NO_KEY), exact=False,
                     settings={"timestamp.zone": "Europe/Berlin"}),
}  # fmt: skip


def infer(folder: Path, *paths: Path, **how: Any) -> tuple[InferredPipeline, CheckResult]:
    """The inferred pipeline, and what `check` says of its input."""
    made = infer_pipeline([str(path) for path in paths], root=str(folder / "lake"), **how)
    tables = tomllib.loads(made.toml)
    tables["pipeline"].setdefault("name", "p")
    return made, check(from_tables(tables), 10 * ROWS)


@pytest.mark.parametrize("case", CASES)
def test_inferred_pipeline_reads_the_file(tmp_path: Path, case: str) -> None:
    want = CASES[case]
    (tmp_path / want.name).write_bytes(want.content)
    made, checked = infer(tmp_path, tmp_path / want.name)
    chosen = {setting: choice.value for setting, choice in made.choices.items()}
    time = chosen.get("timestamp.field") or chosen.get("timestamp.fields")
    assert (time, chosen.get("timestamp.format")) == (want.time, want.form)
    assert chosen.get("key.fields") == (want.key and [want.key])
    assert {each.code for each in made.findings} == want.codes
    settings = tomllib.loads(made.toml)
    for setting, value in want.settings.items():
        table, _, name = setting.partition(".")
        assert settings[table][name] == value
    assert sum(checked.reasons.values()) == want.rejects
    if want.time and want.exact and "no-year" not in want.codes:
        times = [(row.timestamp or 0) // 1000 for row in checked.rows if not row.reason]
        assert times == [int(time.timestamp()) for time in TIMES]


# Each program's log begins with a time: no list of formats has these, only dates and clocks.
PROGRAMS = {
    "log4j": "%Y-%m-%d %H:%M:%S,123 INFO  [main] c.e.App - start {n}",
    "log4j DATE": "%d %b %Y %H:%M:%S,123 [main] INFO  c.e.App - {n}",
    "java.util.logging": "%b %d, %Y %I:%M:%S %p com.example.App main\nINFO: started {n}",
    "tomcat": "%d-%b-%Y %H:%M:%S.123 INFO [main] org.apache.catalina {n}",
    "jvm gc": "[%Y-%m-%dT%H:%M:%S.123+0000][info][gc] GC({n}) Pause Young",
    "elasticsearch": "[%Y-%m-%dT%H:%M:%S,123][INFO ][o.e.n.Node          ] [node-1] {n}",
    "spark": "%y/%m/%d %H:%M:%S INFO SparkContext: Running {n}",
    "hadoop": "%y%m%d %H%M%S 14{n} INFO dfs.DataNode: {n}",
    "nginx error": "%Y/%m/%d %H:%M:%S [error] 12#12: *{n} open() failed",
    "apache error": "[%a %b %d %H:%M:%S.123456 %Y] [core:error] [pid 1:tid 2] {n}",
    "iis": "%Y-%m-%d %H:%M:%S 10.0.0.1 GET /{n} - 443 - 10.0.0.2 curl - 200 0 0 12",
    "postgres": "%Y-%m-%d %H:%M:%S.123 UTC [{n}] LOG:  checkpoint starting: time",
    "mysql": "%Y-%m-%dT%H:%M:%S.123456Z {n} [Note] [MY-010000] [Server] x",
    "oracle": "%a %b %d %H:%M:%S %Y\nThread 1 advanced to log sequence {n}",
    "cisco": "%Y %b %e %H:%M:%S.123 sw1 %%ETHPORT-5-IF_UP: {n}",
    "suricata": "%m/%d/%Y-%H:%M:%S.123456  [**] [1:1:1] x {n} [**]",
    "openvpn": "%a %b %d %H:%M:%S %Y TLS: x {n}",
    "jenkins": "%Y-%m-%d %H:%M:%S.123+0000 [id={n}]\tINFO\thudson.X#y: z",
    "gunicorn": "[%Y-%m-%d %H:%M:%S +0000] [{n}] [INFO] x",
    "django": '[%d/%b/%Y %H:%M:%S] "GET /{n} HTTP/1.1" 200 12',
    "php": "[%d-%b-%Y %H:%M:%S UTC] PHP Warning:  x in /a.php on line {n}",
    "mail": "%a, %d %b %Y %H:%M:%S +0000 x {n}",
    "gin": "%Y/%m/%d - %H:%M:%S | 200 | {n}ms | 10.0.0.1 | GET /",
    "caddy": "%d/%b/%Y:%H:%M:%S +0000 [INFO] {n}",
    "rust": "[%Y-%m-%dT%H:%M:%SZ INFO  app] x {n}",
    "german": "%d.%m.%Y %H:%M:%S gestartet {n}",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_log_that_begins_with_a_time_is_read(tmp_path: Path, program: str) -> None:
    (tmp_path / "app.log").write_bytes(lines(PROGRAMS[program]))
    made, checked = infer(tmp_path, tmp_path / "app.log")
    assert made.choices["input.format"].value == "text"
    assert checked.reasons == {}
    assert [row.timestamp // 1000 for row in checked.rows if row.timestamp] == [
        int(time.timestamp()) for time in TIMES
    ]


def bucket_with_an_odd_key(_: Path) -> None:
    with object_server() as server:
        server.objects |= {"a//b": EPOCHS}
        infer_pipeline([f"{server.root}/a"], storage=server.options)


def delta_table(folder: Path) -> None:
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log/0.json").write_text("{}")


WORDS = zstandard.train_dictionary(999, [b"user %d at %d" % (n, n * n) for n in range(999)])
REFUSED: dict[str, list[bytes | Callable[[Path], None]]] = {  # by the beginning of a row
    "text": [b"hello\nworld\n", lines("INFO [main] %F %T {n}"), b"[[1, 2]]\n", b'{\n "a: 1\n}\n'],
    "lines": [b"a,b\r1,2\r"],
    "binary": [b"a b\x00\x01\n" * 9],
    "only": [b""],
    "spread": [b"PK\x03\x04"],
    "zip": [b"PK\x03\x04", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18"],
    "zstd": [zstandard.ZstdCompressor(dict_data=WORDS).compress(EPOCHS)],
    "damaged": [gzip.compress(EPOCHS)[:-9]],
    "Avro in": [gzip.compress(avro("timestamp-millis"))],
    "Avro types": [avro("timestamp-millis").replace(b'"string"', b'"Record"')],
    "ORC": [b"ORC\0\1", b"ARROW1\0\0", b"FEA1\0\0"],
    "truncated": [b'{"Records": [{"ts": 1}'],
    "tables": [delta_table],
    "pipes": [lambda folder: os.mkfifo(folder / "fifo")],
    "keys": [bucket_with_an_odd_key],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_files_get_the_words_of_the_page(tmp_path: Path, kind: str) -> None:
    page = (Path(__file__).parents[3] / "docs/files.md").read_text()
    table = page.partition("## Files that are refused")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (.*) \| `(.*)` \|$", table, re.MULTILINE))
    assert len(rows) == len(REFUSED)
    (words,) = (text for row, text in rows.items() if row.startswith(kind))
    for made in REFUSED[kind]:
        file = tmp_path / ("a.XLSX" if kind == "spread" else "a")
        file.write_bytes(made if isinstance(made, bytes) else EPOCHS)
        with pytest.raises(InputError, match=re.escape(words)):  # noqa: PT012
            if not isinstance(made, bytes):
                made(tmp_path)
            infer(tmp_path, tmp_path)


def test_files_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(EPOCHS)
    (tmp_path / "notes.txt").write_text("x\n")
    (tmp_path / "p.toml").write_text("")
    made, checked = infer(tmp_path, tmp_path, output=tmp_path / "p.toml")
    assert checked.files == made.files == 2
    assert [each.code for each in made.findings] == ["other-files"]


def test_files_with_other_columns_are_excluded(tmp_path: Path) -> None:
    for name, column in (("a", "user"), ("b", "user"), ("c", "other")):
        (tmp_path / f"{name}.csv").write_bytes(
            rows(lambda n, t: f"{ms(t)},{n % 3}", f"ts,{column}")
        )
    made, checked = infer(tmp_path, tmp_path)
    assert (made.files, checked.files) == (2, 2)
    assert [(each.code, Path(each.subject).name) for each in made.findings] == [
        ("file-left-out", "c.csv")
    ]
    with pytest.raises(InputError, match=r"c\.csv has other columns"):
        infer_pipeline([str(tmp_path / f"{name}.csv") for name in "abc"])


def test_partition_folders_are_named(tmp_path: Path) -> None:
    for day in ("day=2026-11-01", "day=2026-11-02"):
        (tmp_path / day).mkdir()
        (tmp_path / day / "a.jsonl").write_bytes(EPOCHS)
    made, _ = infer(tmp_path, tmp_path)
    assert [(each.code, each.subject) for each in made.findings] == [("partition-folder", "day")]


@pytest.mark.parametrize(("paths", "topic"), [
    (["web"], "web"), (["web/*.jsonl"], "web"), (["web/a-1.jsonl", "web/a-2.jsonl"], "a"),
    (["web/x.jsonl", "web/y.jsonl"], "web"), (["web/a.b.jsonl"], "a"),
])  # fmt: skip
def test_topic_is_named_after_the_files(tmp_path: Path, paths: list[str], topic: str) -> None:
    (tmp_path / "web").mkdir()
    for name in ("a-1", "a-2", "x", "y", "a.b"):
        (tmp_path / "web" / f"{name}.jsonl").write_bytes(EPOCHS)
    assert infer_pipeline([str(tmp_path / path) for path in paths]).topic == topic


def test_command_writes_the_file_and_prints_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("web.tsv").write_bytes(CASES["tabs"].content)
    told = CliRunner().invoke(app, ["init", "web.tsv", "--json"])
    made = json.loads(told.stdout)
    assert (told.exit_code, made["file"], made["sampled"]) == (0, "web.toml", ROWS)
    assert [each["code"] for each in made["findings"]] == ["no-zone"]
    assert Path("web.toml").read_text() == made["toml"]
    again = CliRunner().invoke(app, ["init", "web.tsv"])
    assert isinstance(again.exception, UsageError)
    assert CliRunner().invoke(app, ["init", "web.tsv", "--force"]).exit_code == 0


COPIED = {
    "a level first": "INFO  [main] %Y-%m-%d %H:%M:%S,000 {n}",
    "glog": "I%m%d %H:%M:%S.000000 77 a.cc:{n}] x",
    "logcat": "%m-%d %H:%M:%S.000  77  78 D tag: {n}",
    "HAProxy": "%b %e %H:%M:%S lb haproxy[7]: 10.0.0.1:5000 [%d/%b/%Y:%H:%M:%S.000] in {n}",
    "Redis": "12:M %d %b %Y %H:%M:%S.000 * DB saved {n}",
    "anywhere": "u{n} did it at %Y-%m-%d %H:%M:%S in a room",
}


def test_patterns_to_copy_read_their_logs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/files.md").read_text()
    found = re.findall(r"\| `'(.*)'` \| `([^`]*)`(, with `timestamp.year`)? \|", page)
    for (pattern, form, year), log in zip(found, COPIED.values(), strict=True):
        (tmp_path / "a.log").write_bytes(lines(log))
        times = {"field": "time", "format": form} | ({"year": 2026} if year else {})
        source = {"paths": [str(tmp_path / "a.log")], "format": "text", "pattern": pattern}
        tables = {"pipeline": {"root": str(tmp_path / "lake"), "name": "p"}, "input": source,
                  "timestamp": times, "topic": {"name": "t", "partitions": 1}}  # fmt: skip
        rows = check(from_tables(tables), 10 * ROWS).rows
        assert [(row.timestamp or 0) // 1000 for row in rows] == [
            int(time.timestamp()) for time in TIMES
        ]


# `seglake.append`: inferred settings, an ingest by the rules of `ingest`, and clear refusals.

T = 1_780_315_200_000  # 2026-06-01T12:00:00Z
SENT = [{"ts": T + 1000 * (n * 37 % 50), "user": f"u{n % 7}", "n": n} for n in range(50)]
TABLE = pa.Table.from_pylist(SENT)
EVENTS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", None]), st.text(max_size=3)),
    min_size=1,
    max_size=30,
)


def records(lake: Path, topic: str = "web") -> list[dict[str, Any]]:
    table = seglake.open(str(lake)).topic(topic).read_range(T, T + 86_400_000).read_all()
    columns = table.select(["partition", "offset", "timestamp", "key", "value"])
    rows = columns.sort_by([("partition", "ascending"), ("offset", "ascending")])
    return rows.to_pylist()


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in SENT))
    return file


@pytest.mark.parametrize("own", [{}, {"time": "ts", "key": ["user"]}], ids=["inferred", "given"])
def test_append_writes_what_init_and_ingest_write(events: Path, own: dict[str, Any]) -> None:
    for line in ("init events.jsonl --topic web", "ingest --conf-file web.toml --local"):
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, done.output
    seglake.append(events.name, "own", "web", **own)
    assert records(Path("own")) == records(Path("lake"))


def test_files_are_appended_once(events: Path) -> None:
    first = seglake.append(events, "lake", "web", time="ts", key="user")
    before = records(Path("lake"))
    again = seglake.append([events.name], "lake", "web", time="ts", key="user")
    assert (again.status, again.records, again.owner) == ("already done", 0, first.run_id)
    assert [*again.skipped_files] == [str(events)]
    assert seglake.open("lake").version == first.version
    named = seglake.append(events.name, "lake", "web", time="ts", key="user", run_id="named")
    assert (named.version, named.records) == (first.version + 1, 0)
    shutil.copy(events, "more.jsonl")
    assert seglake.append("*.jsonl", "lake", "web", time="ts").records == len(SENT)
    assert records(Path("lake"))[: len(before)] == before


def test_the_report_has_a_pipeline_that_ingest_accepts(events: Path) -> None:
    report = seglake.append(events, "lake", "web", time="ts", key="user", run_id="1")
    Path("web.toml").write_text(report.pipeline)
    again = seglake.run_pipeline(load("web.toml"), run_id="1", local=True)
    assert (again.status, again.records) == ("already done", len(SENT))


def test_a_topic_keeps_its_partitions(events: Path) -> None:
    seglake.append(events, "lake", "web", settings={"topic.partitions": 3})
    report = seglake.append(TABLE, "lake", "web", run_id="1")
    assert "partitions = 3\n" in report.pipeline
    assert {row["partition"] for row in records(Path("lake"))} == {0, 1, 2}


@given(rows=EVENTS, size=st.integers(1, 9))
def test_batches_give_the_records_of_a_parquet_file(
    rows: list[tuple[int, str | None, str]], size: int
) -> None:
    types: dict[str, pa.DataType] = {
        "ts": pa.timestamp("ms", "UTC"), "user": pa.string(), "t": pa.string()
    }  # fmt: skip
    schema = pa.schema(types)
    data = [{"ts": T + ms, "user": user, "t": text} for ms, user, text in rows]
    table = pa.Table.from_pylist(data, schema)
    how: dict[str, Any] = {"time": "ts", "key": "user"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(table, folder / "rows.parquet")
        seglake.append(folder / "rows.parquet", folder / "of_files", "web", **how)
        batches = table.to_batches(max_chunksize=size)
        for _ in range(2):
            seglake.append(iter(batches), folder / "of_rows", "web", run_id="1", **how)
        assert records(folder / "of_rows") == records(folder / "of_files")


@pytest.mark.parametrize(
    "make",
    [pa.Table.to_batches, pa.Table.to_reader, pd.DataFrame.from_records, pl.DataFrame],
    ids=["list", "reader", "pandas", "polars"],
)
def test_rows_of_any_kind_are_appended(make: Callable[[Any], Any], tmp_path: Path) -> None:
    data = SENT if make in {pd.DataFrame.from_records, pl.DataFrame} else TABLE
    seglake.append(make(data), tmp_path / "rows", "web", run_id="1")
    seglake.append(TABLE, tmp_path / "table", "web", run_id="1")
    assert records(tmp_path / "rows") == records(tmp_path / "table")


def test_rows_after_the_sample_that_are_rejected_have_their_number(tmp_path: Path) -> None:
    rows = [{"ts": str(T), "user": "u"}] * 1500 + [{"ts": "late", "user": "u"}]
    report = seglake.append(pa.Table.from_pylist(rows), tmp_path, "web", time="ts", run_id="1")
    assert (report.records, report.quarantined) == (1500, 1)
    assert [reject.number for reject in quarantined(tmp_path, "web")] == [1500]


def test_batches_are_never_read_twice() -> None:
    """A topic that gets more partitions in the meantime is planned again, and reads again."""
    rows = InputBatches(iter([]), "n")
    rows._is_read = True
    with pytest.raises(CommitConflict):
        rows.spool(None)  # type: ignore[arg-type]


NAIVE = pa.table({"at": pa.array([T], pa.timestamp("ms"))})
SPANS = pa.table({name: pa.array([T], pa.timestamp("ms", "UTC")) for name in ("start", "end")})
KEYS = TABLE.append_column("host", [[f"h{n % 5}" for n in range(50)]])


@pytest.mark.parametrize(
    ("data", "own", "error", "words"),
    [
        (TABLE, {"run_id": None}, UsageError, "run_id"),
        (TABLE.select(["n"]), {}, UsageError, "Give time"),
        (TABLE, {"time": "user"}, UsageError, "time names "),
        (TABLE, {"time": "tss"}, UsageError, "Did you mean ts?"),
        (TABLE, {"key": "usr"}, UsageError, "Did you mean user?"),
        (TABLE, {"settings": {"topic.partition": 1}}, ConfigError, "topic.partitions"),
        (SPANS, {}, UsageError, "Give time"),
        (KEYS, {}, UsageError, "Give key"),
        (NAIVE, {}, UsageError, "Give zone"),
        (TABLE.slice(0, 0), {}, InputError, "no rows"),
        (iter(()), {}, InputError, "no rows"),
        ([], {}, InputError, "paths"),
        (7, {}, UsageError, "int"),
        ([*TABLE.to_batches(), *NAIVE.to_batches()], {}, UsageError, "same columns"),
    ],
)
def test_an_uncertain_append_names_the_argument(
    data: Any, own: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words.replace("?", r"\?")):
        seglake.append(data, tmp_path / "lake", "web", **{"run_id": "1", **own})
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("data", "own"), [(SPANS, {"time": "end"}), (KEYS, {"key": ()}), (NAIVE, {"zone": "UTC"})]
)
def test_the_argument_settles_it(data: pa.Table, own: dict[str, Any], tmp_path: Path) -> None:
    report = seglake.append(data, tmp_path, "web", run_id="1", **own)
    assert report.records == len(data)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="empty"):
        seglake.append(tmp_path / "empty.jsonl", tmp_path / "lake", "web")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["append", "lake", "web", "events.jsonl", *arguments])


@pytest.mark.usefixtures("events")
def test_the_command_appends_files_once() -> None:
    first, second = (invoke("--time", "ts", "--key", "", "--json") for _ in range(2))
    assert [json.loads(each.stdout)["records"] for each in (first, second)] == [len(SENT), 0]
    assert 'field = "ts"\n' in json.loads(first.stdout)["pipeline"]
    assert {row["key"] for row in records(Path("lake"))} == {None}
    assert "[timestamp]" not in invoke("--time", "ts").stdout


@pytest.mark.usefixtures("events")
def test_the_command_refuses_an_unknown_field() -> None:
    done = invoke("--time", "when")
    assert isinstance(done.exception, UsageError)
    assert not Path("lake").exists()
