"""What `check` and an ingest notice about input: a table of inputs, settings and findings.

Both must find the same, and however the input is cut.
"""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seglake
from seglake.advice.file_times import FileTimes
from seglake.advice.finding import _SENTENCES, Finding, merge_findings
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import InputError, QuarantineLimit
from seglake.write.check import check
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.makers.raw_events import T, pipeline_of

ISO = "2026-01-31T12:00:00Z"
PDT_AND_PST = [f"20/10/2026 1{n % 10}:00:00 {'PDT' if n % 3 else 'PST'}" for n in range(30)]
BOTH_ORDERS = [f"11/{n % 12 + 1}/2026 0:17:46" for n in range(30)]
ONE_ORDER = [f"11/{n % 13 + 1}/2026 0:17:46" for n in range(26)]
MULTILINE = r"\w{3} \d\d \d\d:\d\d:\d\d"
SYSLOG = [f"Nov 16 00:00:{n:02} web sshd[1]: event {n}" for n in range(60)]
TRACE = ['Traceback (most recent call last):\n  File "a.py", line 7\nValueError: 2026']
LOG = {
    "input": {"format": "text", "pattern": rf"(?P<ts>{MULTILINE}) ",
              "multiline_start_pattern": MULTILINE, "multiline_max_bytes": 1000},
    "timestamp": {"format": "%b %d %H:%M:%S", "year": 2026, "zone": "UTC"}, "key": {"fields": []},
}  # fmt: skip
TEXT = {"input": {"format": "text", "pattern": r"(?P<ts>\d+)"}, "key": {"fields": []}}
CSV = {"input": {"format": "csv"}, "key": {"fields": []}}


def times(*values: object, field: str = "ts") -> bytes:
    return "".join(json.dumps({field: value, "k": "u"}) + "\n" for value in values).encode()


def lines(*values: str) -> bytes:
    return "".join(f"{value}\n" for value in values).encode()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"ts": [T + n for n in range(99)]}), sink)
    return sink.getvalue()


class Case(NamedTuple):
    """Files, and what is noticed about them: codes, with the count and some facts of each."""

    files: Mapping[str, bytes]
    found: Mapping[str, tuple[int, dict[str, Any]]]
    form: str = "epoch_ms"
    tables: Mapping[str, Any] = MappingProxyType({})


def one(content: bytes, found: Mapping[str, tuple[int, dict[str, Any]]], *how: Any) -> Case:
    return Case({"a": content}, found, *how)


def unread(code: str, count: int, **facts: Any) -> dict[str, tuple[int, dict[str, Any]]]:
    return {code: (count, facts)}


CASES = {
    "nothing odd": one(times(T, T + 1), {}),
    # fields
    "a field is misspelt": one(times(T, field="tss"),
                               unread("absent-field", 0, name="ts", near=["tss"])),
    "a field of some rows": one(times(T) + b'{"ts": 1780000000000}\n', {}),
    # rows
    "a JSON array": one(json.dumps([{"ts": T}, {"ts": T}]).encode(),
                        unread("json-documents", 1, records="[]")),
    "a JSON array over lines": one(json.dumps([{"ts": T}], indent=1).encode(),
                                   unread("json-documents", 1, records="[]")),
    "JSON over lines": Case({"a": json.dumps({"ts": T, "n": [1]}, indent=1).encode(), "b": b"{\n"},
                            unread("json-documents", 1, records=".")),
    "an array over lines": one(b'{"events": [\n{"ts": 1}]}\n',
                               unread("json-documents", 1, records="events[]")),
    "objects side by side": Case(dict.fromkeys("ab", b'{"ts": 1}{"ts": 2}\n'),
                                 unread("json-documents", 2, records=".")),
    "a line that is cut off": one(b'{"ts":\n' + times(T), {}),
    "no JSON at all": one(b"ts;n\n1;2\n", unread("not-json-lines", 1, rows=2)),
    "NaN": one(b'{"ts": 1780000000000, "k": "u", "n": NaN}\n' + times(T),
               unread("nan-constants", 0)),
    "NaN as text": one(b'{"ts": 1780000000000, "k": "u", "n": "NaN"}\n', {}),
    "Parquet as lines": one(parquet(), unread("is-parquet", 1)),
    "Parquet as text": one(parquet(), unread("is-parquet", 1), "epoch_ms", TEXT),
    "UTF-16": one("\ufeff{}\n".encode("utf-16-le"), unread("is-utf-16", 1)),
    "another encoding": one('{"ts": 1, "k": "Käse"}\n'.encode("latin-1") + times(T),
                            unread("not-utf-8", 1)),
    "a row of another encoding": one(
        '{"ts": 1780000000000, "k": "Käse"}\n'.encode() * 9
        + '{"ts": 1780000000000, "k": "Käse"}\n'.encode("latin-1"), unread("not-utf-8", 1)),
    "a record of another encoding": one(
        "ts,x\n1780000000000,ä\n".encode() + "1780000000000,ä\n".encode("latin-1"),
        unread("not-utf-8", 1), "epoch_ms", CSV),
    "no row matches": Case({"a": lines(*["x"] * 9, f"{T} a"), "b": lines(*["x"] * 9)},
                           unread("no-match-at-start", 1, rows=9), "epoch_ms", TEXT),
    "no event begins": one(lines(*["x"] * 9), unread("no-event-start", 1, lines=9),
                           "%b %d %H:%M:%S", LOG),
    "lines of another form": one(
        lines(*SYSLOG, *["[2026-11-17 00:09:31] web cron[2]: event"] * 9),
        unread("continued-times", 9), "%b %d %H:%M:%S", LOG),
    "quotes after backslashes": one(
        lines("ts,x", rf'{T},"a \"b\" c"', f'{T},"a"b', f"{T},a"), unread("escaped-quotes", 1),
        "epoch_ms", CSV),
    "such quotes, as set": one(
        lines("ts,x", rf'{T},"a \"b\" c"', f'{T},"a"b', f"{T},a"), {}, "epoch_ms",
        {"input": {"format": "csv", "escape": "\\"}, "key": {"fields": []}}),
    "comments in CSV": one(lines("ts,x", "# by x", f"{T},#", "#"), unread("comments", 2),
                           "epoch_ms", CSV),
    "comments in text": one(lines("# by x", f"{T} a"), unread("comments", 1), "epoch_ms", TEXT),
    "tracebacks": one(lines(*SYSLOG, *TRACE, *SYSLOG), {}, "%b %d %H:%M:%S", LOG),
    "no key to compact by": one(
        times(T), unread("no-keys-to-compact", 0), "epoch_ms",
        {"key": {"fields": []}, "topic": {"cleanup.policy": "compact"}}),
    # times in another format
    "milliseconds": one(times(T), unread("all-times-in-format", 1, format="epoch_ms"), "epoch_s"),
    "seconds": one(times(T // 1000), unread("all-times-in-format", 1, format="epoch_s"), "iso8601"),
    "nanoseconds": one(times(T * 10**6), unread("all-times-in-format", 1, format="epoch_ns"),
                       "%d.%m.%Y"),
    "ISO": one(times(ISO), unread("all-times-in-format", 1, format="iso8601")),
    "a pattern": one(times("31/Jan/2026:12:00:00 +0000"),
                     unread("all-times-in-format", 1, format="%d/%b/%Y:%H:%M:%S %z"), "iso8601"),
    "compact": one(times("20260131T120000Z"),
                   unread("all-times-in-format", 1, format="%Y%m%dT%H%M%S%z"), "iso8601"),
    "a named zone": one(times("Sat Jan 31 12:00:00 CET 2026"),
                        unread("times-in-named-zone", 1, format="%a %b %e %H:%M:%S CET %Y",
                               zone="CET"), "iso8601"),
    "a region": one(times("2026-01-31 12:00:00 Europe/Berlin"),
                    unread("times-in-region", 1, zone="Europe/Berlin"), "iso8601"),
    "two orders": one(times(*BOTH_ORDERS),
                      unread("times-in-two-orders", 30, format="%d/%m/%Y %H:%M:%S",
                             other="%m/%d/%Y %H:%M:%S"), "iso8601"),
    "two orders, as set": one(times(*BOTH_ORDERS),
                              unread("times-in-two-orders", 30, format="%m/%d/%Y %H:%M:%S",
                                     other="%d/%m/%Y %H:%M:%S"), "%m/%d/%y %H:%M:%S"),
    "one order": one(times(*ONE_ORDER),
                     unread("all-times-in-format", 26, format="%m/%d/%Y %H:%M:%S"), "iso8601"),
    "several zones": one(times(*PDT_AND_PST), unread("several-zones", 0, zones=["PDT", "PST"]),
                         "%d/%m/%Y %H:%M:%S %Z"),
    "most are milliseconds": one(times(ISO, T, T, T),
                                 unread("all-times-in-format", 3, format="epoch_ms"), "epoch_s"),
    "some are milliseconds": one(
        times(*[T // 1000] * 1500, *[T] * 500),
        unread("some-times-in-format", 500, format="epoch_ms", given="epoch_s", records=1500),
        "epoch_s"),
    "days and months changed places": one(
        times(*(f"{day:02}.{month:02}.26" for day in range(1, 29) for month in (9, 10))),
        unread("other-order", 32, format="%d.%m.%y", records=24)
        | {"no-zone-in-times": (24, {})}, "%m.%d.%y"),
    "a fraction in some times": one(
        times("31.01.2026 12:00:00Z", "31.01.2026 12:00:00.5Z"),
        unread("fraction-in-some-times", 1, format="%d.%m.%Y %H:%M:%S[.%f]%z"),
        "%d.%m.%Y %H:%M:%S%z"),
    "a fraction in some times of ISO 8601": one(
        times("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5Z"),
        unread("fraction-in-some-times", 1, format="%Y-%m-%dT%H:%M:%S[.%f]%z"), "%FT%T%z"),
    "a time that nothing reads": one(times("yesterday"), {}),
    # odd times
    "no zone": one(times("2026-01-31 12:00:00"), unread("no-zone-in-times", 1), "iso8601"),
    "shown twice": one(times("2026-10-25 02:30:00", "2026-10-25 04:00:00"),
                       unread("ambiguous-times", 1, way="earliest"), "iso8601",
                       {"timestamp": {"zone": "Europe/Berlin"}}),
    "skipped": one(times("2026-03-29 02:30:00"), unread("nonexistent-times", 1, way="latest"),
                   "iso8601", {"timestamp": {"zone": "Europe/Berlin"}}),
    "January 1970": Case({"a": times(T), "b": times(T // 1000), "c": times(5)},
                         unread("january-1970", 2, format="epoch_s"), "epoch_ms",
                         {"timestamp": {"allow_1970": False}}),
    "January 1970 of no unit": one(times(5), unread("january-1970-unknown-unit", 1), "epoch_ms",
                                   {"timestamp": {"allow_1970": False}}),
    "some of January 1970": one(times(*[5] * 3, *[T] * 9),
                                unread("some-in-january-1970", 1, early=3, records=12), "epoch_ms",
                                {"timestamp": {"allow_1970": False}}),
    "New Year": Case({"a": lines("Dec 31 23:59:00 a", "Jan 01 00:00:00 b"),
                      "b": lines("Nov 01 00:00:00 a", "Dec 01 00:00:00 b")},
                     unread("times-go-back", 1, year=2026), "%b %d %H:%M:%S", LOG),
    "times of the run": one(times(T), unread("times-not-read", 0), "epoch_ms",
                            {"topic": {"message.timestamp.type": "LogAppendTime"}}),
}  # fmt: skip


def settings_of(case: Case, folder: Path, **task: int) -> Pipeline:
    (folder / "in").mkdir(exist_ok=True)
    for name, content in case.files.items():
        (folder / "in" / name).write_bytes(content)
    tables = {key: dict(value) for key, value in case.tables.items()}
    timestamp = {"format": case.form} | tables.pop("timestamp", {})
    return pipeline_of(folder / "lake", [str(folder / "in")], timestamp=timestamp, task=task,
                       **{"max_quarantine_ratio": 1.0, **tables})  # fmt: skip


def ingest_findings(settings: Pipeline) -> list[Finding] | str:
    """The findings of an ingest; the message of the error if it does not commit."""
    try:
        return ingest_files(LocalEngine(), settings, DeclaredRun("1")).findings
    except (QuarantineLimit, InputError) as error:
        return str(error)


@pytest.mark.parametrize("case", CASES)
def test_check_and_ingest_find_the_same(tmp_path: Path, case: str) -> None:
    want, settings = CASES[case], settings_of(CASES[case], tmp_path)
    found = check(settings, 10_000).findings
    assert {each.code: each.count for each in found} == {
        code: count for code, (count, _) in want.found.items()
    }
    for each in found:
        facts = want.found[each.code][1]
        assert {name: each.facts[name] for name in facts} == facts
    ingested = ingest_findings(settings)
    if isinstance(ingested, str):
        assert all(str(each) in ingested for each in found)
    else:
        assert ingested == found


@pytest.mark.parametrize("case", [name for name in CASES if name != "no event begins"])
def test_chunks_and_splits_change_no_finding(tmp_path: Path, case: str) -> None:
    (tmp_path / "cut").mkdir()
    whole = ingest_findings(settings_of(CASES[case], tmp_path))
    cut = ingest_findings(settings_of(CASES[case], tmp_path / "cut", chunk_bytes=2500))
    assert isinstance(whole, str) == isinstance(cut, str)
    if not isinstance(whole, str) and not isinstance(cut, str):
        assert [(each.code, each.count) for each in cut if each.code != "no-match-at-start"] == [
            (each.code, each.count) for each in whole if each.code != "no-match-at-start"
        ]


def test_findings_have_no_value_of_a_row(tmp_path: Path) -> None:
    """Reports keep findings, and an erasure does not search there."""
    case = one(times(*["31/Jan/2026:12:00:00 secret"] * 3), {})
    assert "secret" not in repr(check(settings_of(case, tmp_path), 20).findings)


def test_findings_of_one_code_are_added_up() -> None:
    found = [Finding("x", "a", count=2), Finding("y"), Finding("x", "b", count=3)]
    assert merge_findings(found) == [Finding("x", "a", count=5), Finding("y")]


def test_times_of_parts_are_those_of_the_file() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        whole = random.integers(0, 1000, random.integers(0, 9))
        joined = FileTimes()
        for part in np.split(whole, np.sort(random.integers(0, len(whole) + 1, 2))):
            joined = joined.merge(FileTimes.from_timestamps(part))
        times = FileTimes.from_timestamps(whole)
        assert joined[:5] == times[:5]
        assert joined.from_ms - joined.to_ms == times.from_ms - times.to_ms


# The sentences for findings: each code has one, and a few are read here as people see them.


SOURCES = Path(seglake.__file__).parent
COUNTED = {"times-in-format"}  # `conclude` makes others of it
READ = [
    (
        Finding("all-times-in-format", "timestamp.field 'ts'",
                {"format": "epoch_ms", "given": "epoch_s"}, 500),
        (
            "timestamp.field 'ts': 500 rows can be read as epoch_ms, none as 'epoch_s'. Set "
            "timestamp.format = 'epoch_ms'."
        ),
    ),
    (
        Finding("absent-field", "key.fields", {"name": "usr", "near": ["user"], "has": ["user"]}),
        "key.fields 'usr' is not a field of any row. Did you mean 'user'?",
    ),
    (
        Finding("absent-field", "key.fields", {"name": "x", "near": [], "has": ["ts", "user"]}),
        "key.fields 'x' is not a field of any row. A row has 'ts', 'user'.",
    ),
    (Finding("other-files", "b.txt", count=1),
     "Left out 1 file of other kinds, such as b.txt."),
    (Finding("other-times", facts={"fields": ["a", "b"]}), "These fields also have times: a, b."),
]  # fmt: skip


@pytest.mark.parametrize(("finding", "sentence"), READ)
def test_findings_are_read_as_sentences(finding: Finding, sentence: str) -> None:
    assert str(finding) == sentence


def test_every_code_in_the_sources_has_a_sentence_and_none_is_left_over() -> None:
    text = "".join(path.read_text() for path in SOURCES.rglob("*.py") if path.name != "finding.py")
    quoted = {*re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)*)"', text)} | {"january-1970-unknown-unit"}
    assert {*re.findall(r'Finding\(\s*"([a-z0-9-]+)"', text)} - COUNTED <= {*_SENTENCES}
    assert {*_SENTENCES} <= quoted


def test_sentences_end_and_say_no_more_than_a_template_can() -> None:
    for code, sentence in _SENTENCES.items():
        assert sentence.endswith((".", "}", "FILE`", "FILE")), code
