"""`seglake check`: what it says of files and rows is what an ingest makes of them."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
from codecs import BOM_UTF8
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import from_tables
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, InputError, QuarantineLimit, SeglakeError
from seglake.write.check import check
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.makers.files import pipeline
from tests.makers.lakes import Event, LakeMaker
from tests.makers.raw_events import ingest, write_settings

T = 1_780_000_000_000
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


def test_a_topic_that_was_altered_to_be_compacted_is_told(folder: Path) -> None:
    tables: dict[str, Any] = {"max_quarantine_ratio": 1, "input": {"exclude": "*.tmp"}}
    tables |= {**TIMED, "key": {}, "topic": {"name": "t"}, "root": str(folder.parent / "lake")}
    settings = pipeline(folder, **tables)
    assert ingest_files(LocalEngine(), settings, DeclaredRun("1")).findings == []
    seglake.alter(settings.root, "t", {"cleanup.policy": "compact"})
    (folder / "d.jsonl").write_bytes(events(1))
    (found,) = ingest_files(LocalEngine(), settings, DeclaredRun("2")).findings
    assert found.code == "no-keys-to-compact"


def test_files_are_named_with_their_packing_and_what_is_left_out(folder: Path) -> None:
    found = checked(folder)
    sizes = [(folder / name).stat().st_size for name in ("a.jsonl", "b.jsonl.gz")]
    assert (found["files"], found["size_bytes"], found["splits"]) == (2, sum(sizes), 2)
    assert found["first_files"] == [
        {"path": str(folder / "a.jsonl"), "size_bytes": sizes[0], "packing": ""},
        {"path": str(folder / "b.jsonl.gz"), "size_bytes": sizes[1], "packing": "gzip"},
    ]
    assert [*found["left_out"]] == [str(folder / "c.tmp")]


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


ROWS = [b"%d,u\n" % T, b',"a\nb"\n', b"1,2,3\n", b"x,\xff\n", b"\n", b'"', b'"a\\"b"', b"# c\n",
        BOM_UTF8]  # fmt: skip
OBJECTS = [b'{"ts": %d}' % T, b'{"r":[{"ts":%d},5]}' % T, b'{"r":[]}', b"{}\n", b"\n"]
# By format: the beginning of a file, what may follow it, and settings.
PIECES: dict[str, tuple[bytes, list[bytes], list[dict[str, Any]]]] = {
    "jsonl": (b"", [*OBJECTS, b"[]", b"}", b'"', b"x\n", b"\xff\n", b",", BOM_UTF8], [
        {}, {"records": "."}, {"records": "r[]"}, {"records": "r[]", "inherit": ["i"]}]),
    "csv": (b"ts,user\n", [*ROWS, b"ts,user\n", b"#Fields: ts user\n"], [
        {}, {"multiline": False}, {"comment": "#", "escape": "\\"}, {"skip_lines": 1}]),
    "text": (b"", ROWS, [
        {"pattern": r"(?P<ts>\d*),(?P<user>.*)"},
        {"pattern": "(?P<ts>[^,]*)(?P<user>.*)", "multiline_start_pattern": r"\d"}]),
    "parquet": (b"", [], [{}]),
    "avro": (b"", [], [{}]),
}  # fmt: skip


@st.composite
def contents(draw: st.DrawFn, form: str) -> bytes:
    """A file, of which some are damaged."""
    begin, pieces, _ = PIECES[form]
    data, sink = (
        begin + b"".join(draw(st.lists(st.sampled_from(pieces or [b""]), max_size=9))),
        io.BytesIO(),
    )
    times = draw(st.lists(st.sampled_from([T, None]), max_size=5))
    if form == "parquet":
        pq.write_table(
            pa.table({"ts": pa.array(times, pa.int64()), "user": ["a"] * len(times)}), sink
        )
    elif form == "avro":
        fields = [{"name": "ts", "type": ["null", "long"]}, {"name": "user", "type": "string"}]
        schema = {"type": "record", "name": "R", "fields": fields}
        fastavro.writer(sink, schema, [{"ts": time, "user": "u"} for time in times])
    elif draw(st.booleans()):
        sink.write(gzip.compress(data))
    data = sink.getvalue() or data
    return data[: draw(st.integers(0, 2 * len(data)))]


@pytest.mark.parametrize("form", PIECES)
@given(data=st.data())
def test_check_passes_exactly_when_an_ingest_does_with_the_same_counts(
    form: str, data: st.DataObject
) -> None:
    files = data.draw(st.lists(contents(form), min_size=1, max_size=3))
    with TemporaryDirectory() as folder:
        for number, content in enumerate(files):
            (Path(folder) / f"{number}.in").write_bytes(content)
        settings = pipeline(
            f"{folder}/*.in", form, root=f"{folder}/lake", max_quarantine_ratio=1, **TIMED,
            input=data.draw(st.sampled_from(PIECES[form][2])),
        )  # fmt: skip
        results = list[Any]()
        for act in (lambda: check(settings, 1000), lambda: ingest(settings)):
            try:
                results.append(act())
            except SeglakeError as error:
                results.append(type(error))
        found, report = results
        if report is QuarantineLimit and not isinstance(found, type):
            assert all(row.reason for row in found.rows)
        elif isinstance(found, type) or isinstance(report, type):
            assert found == report or found.stops
        else:
            assert not found.stops
            assert len(found.rows) == report.input_rows
            assert found.reasons == report.reasons


def shell(folder: Path, *options: str, field: str = "ts", form: str = "jsonl") -> Any:
    given = {"format": form, "exclude": ["*.tmp"]}
    file = write_settings(
        folder.parent / "p.toml", "lake", folder, "t",
        input=given, timestamp={"field": field}, key={"fields": ["usr"]},
    )  # fmt: skip
    return CliRunner().invoke(app, ["check", "--conf-file", str(file), *options])


def test_a_field_that_no_row_has_is_named_with_the_nearest(folder: Path) -> None:
    done = shell(folder, field="tss")
    assert done.exit_code == 3
    assert "timestamp.field 'tss' is not a field of any row. Did you mean 'ts'?" in done.stdout
    assert "key.fields 'usr' is not a field of any row. Did you mean 'user'?" in done.stdout
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


def test_a_topic_with_more_partitions_is_an_error_as_in_an_ingest(tmp_path: Path) -> None:
    LakeMaker(tmp_path / "lake", "t", partitions=3).run({0: [Event(T)]})
    (tmp_path / "a.jsonl").write_bytes(events(1))
    two, files = {"partitions": 2}, tmp_path / "*.jsonl"
    conf = write_settings(tmp_path / "t.toml", tmp_path / "lake", files, "t", topic=two)
    run = CliRunner().invoke
    checked, ingested = (run(app, [command, "--conf-file", str(conf), *how])
                         for command, *how in (("check",), ("ingest", "--local")))  # fmt: skip
    assert isinstance(checked.exception, ConfigError)
    assert "topic 't' has 3 partitions, which cannot be lowered to 2" in str(checked.exception)
    assert str(ingested.exception) == str(checked.exception)


def test_the_sample_of_an_archive_says_where_it_ends(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        for name in ("x/e.jsonl", "y/e.jsonl"):
            content = events(30)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    told = json.loads(shell(tmp_path, "--json", "--sample", "20").stdout)["findings"]
    (end,) = [each for each in told if each["code"] == "archive-member"]
    assert end["facts"]["member"].endswith("x/e.jsonl")
    told = json.loads(shell(tmp_path, "--json", "--sample", "99").stdout)["findings"]
    assert "archive-member" not in [each["code"] for each in told]


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
