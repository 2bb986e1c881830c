"""The program: what its commands print, and how it ends."""

import base64
import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather
from typer.testing import CliRunner

from seglake import format_ms
from seglake import open as open_lake
from seglake.cli import main
from seglake.cli.app import app
from seglake.cli.demo.events import generate
from seglake.cli.demo.run import demo
from seglake.cli.inspect import history_rows
from seglake.cli.record_formats import iso_batches
from seglake.errors import CorruptData, StoreError, UsageError
from seglake.maintain.undo import undo
from tests.makers.lakes import Event, LakeMaker, Shape, T


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    made = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=2)
    rows = [
        Event(T + 10, b"k", 'v "é"\n'.encode(), (("h", b"\xff"), ("g", None))),
        Event(T + 5, None, b"\xff\x00"),
        Event(T + 20, b"", None),
    ]
    many = [Event(T + i, b"k", b"x" * 50) for i in range(3000)]
    made.run({0: rows, 1: many}, Shape("zstd"), interval=(T, T + 100))
    return made


def seglake(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_are_the_documented_form(maker: LakeMaker) -> None:
    found = lines(seglake("read", maker.root, "events", "--partition", 0))
    encoded = {"base64": base64.b64encode(b"\xff\x00").decode()}
    header = {"key": "h", "value": {"base64": base64.b64encode(b"\xff").decode()}}
    names = "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"
    rows = [
        (T + 10, "k", 'v "é"\n', [header, {"key": "g", "value": None}]),
        (T + 5, None, encoded, []),
        (T + 20, "", None, []),
    ]
    assert [[*line.items()] for line in found] == [
        [*zip(names, ("events", 0, offset, time, "CreateTime", *rest), strict=True)]
        for offset, (time, *rest) in enumerate(rows)
    ]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**11), 10**14)))
def test_iso_times_are_those_of_format_ms(times: list[int]) -> None:
    column = pa.array(times, pa.timestamp("ms", "UTC"))
    (batch,) = iso_batches([pa.record_batch({"timestamp": column, "at": column})])
    assert batch["at"].to_pylist() == [*map(format_ms, times)]
    assert batch["timestamp"].to_pylist() == [None if t == -1 else format_ms(t) for t in times]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--offset", 1], "needs --partition"),
        (["--partition", 0, "--offset", 1, "--start", T], "contradicts"),
        (["--partition", 0, "--offset", 4], "no offset 4"),
        (["--partition", 0, "--offset", 1, "--order", "time"], "--order time contradicts"),
        (["--partition", 5], "partitions 0 to 1"),
        (["--start", "2023-11-14T22:13:20"], "zone"),
    ],
)
def test_contradictions_are_errors(
    maker: LakeMaker, options: list[int | str] | list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        seglake("read", maker.root, "events", *options)


@pytest.mark.parametrize("command", [("read",), ("find", "--key", "k")], ids=" ".join)
def test_arrow_is_a_file_where_its_name_says_so_and_else_a_stream(
    maker: LakeMaker, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *options = command
    asked = [name, str(maker.root), "events", *options]
    for suffix in (".arrow", ".arrows"):
        seglake(*asked, "--output", tmp_path / f"o{suffix}")
    table = feather.read_table(tmp_path / "o.arrow")
    streams = (
        (tmp_path / "o.arrows").read_bytes(),
        CliRunner().invoke(app, [*asked, "--format", "arrow"]).stdout_bytes,
    )
    for data in streams:
        with pa.ipc.open_stream(data) as stream:
            assert stream.read_all().equals(table)


def test_a_pipe_has_no_bar_whose_reader_writes_to_the_same_terminal(
    maker: LakeMaker, tmp_path: Path
) -> None:
    """As in `seglake read … | head`; a file that standard output is has one."""
    read = f"{sys.executable} -c 'from seglake.cli import main; main()' read {maker.root} events"
    assert "reading events" not in on_a_terminal(f"{read} | wc -l > lines", tmp_path)
    assert (tmp_path / "lines").read_text().strip() == "3003"
    assert "reading events" in on_a_terminal(f"{read} > records", tmp_path)


def on_a_terminal(command: str, folder: Path) -> str:
    """What a terminal shows of standard error."""
    shown, terminal = pty.openpty()
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, stderr=terminal, check=True, timeout=120)
    os.close(terminal)
    said = b""
    with suppress(OSError):  # its end
        while more := os.read(shown, 1 << 16):
            said += more
    os.close(shown)
    return said.decode()


@pytest.mark.parametrize("command", [("read",), ("find", "--key", "k")], ids=" ".join)
def test_the_suffix_of_a_file_says_how_it_is_written(
    maker: LakeMaker, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *options = command
    asked = [name, str(maker.root), "events", *options]
    forms = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".CSV": "csv", ".arrow": "arrow",
             ".parquet": "parquet", "": "jsonl"}  # fmt: skip
    count = {"read": "3,003 records", "find": "1 record"}[name]
    for suffix, form in forms.items():
        file, plain = tmp_path / f"o{suffix}", tmp_path / "plain"
        done = CliRunner().invoke(app, [*asked, "--output", str(file)])
        assert (done.stdout, done.stderr) == ("", f"{count} written to {file}\n")
        seglake(*asked, "--format", form, "--output", plain)
        assert file.read_bytes() == plain.read_bytes()
    seglake(*asked, "--format", "csv", "--output", tmp_path / "o.txt")  # it says nothing
    assert (tmp_path / "o.txt").read_bytes() == (tmp_path / "o.csv").read_bytes()
    with pytest.raises(UsageError, match=r"xlsx has an unknown suffix. Use \.jsonl, .*\.csv"):
        seglake(*asked, "--output", tmp_path / "o.xlsx")
    assert not (tmp_path / "o.xlsx").exists()
    for how in (["--format", "csv"], ["--json"], ["--format", "arrow"]):
        with pytest.raises(UsageError, match=rf"{' '.join(how)} contradicts --output .*p\.parquet"):
            seglake(*asked, *how, "--output", tmp_path / "p.parquet")
    assert not (tmp_path / "p.parquet").exists()


def test_csv_has_the_fields_of_the_lines(tmp_path: Path) -> None:
    events = [
        Event(T, b"k", b'a "quoted", one'), Event(-1, None, None), Event(T + 1, b"", b"x\r\ny"),
        Event(T + 2, b"\xff\x00", "ä".encode(), (("h", b"1"), ("h", None))),
    ]  # fmt: skip
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    maker.run({0: events, 1: events[::-1]})
    seglake("read", maker.root, "events", "--format", "csv", "--output", tmp_path / "file")
    text = (tmp_path / "file").read_bytes().decode()
    lines = [json.loads(line) for line in seglake("read", maker.root, "events").splitlines()]
    rows = [*csv.DictReader(io.StringIO(text, newline=""))]
    assert [*rows[0]] == [*lines[0]]
    assert rows == [{name: _field(value) for name, value in line.items()} for line in lines]
    quoted = [line for line in text.splitlines() if line.startswith('"events",0,1,')]
    assert quoted == ['"events",0,1,-1,"CreateTime",,,"[]"']  # a null has no quotes
    found = pa_csv.read_csv(io.BytesIO(text.encode()), parse_options=_BREAKS)
    assert found["offset"].to_pylist() == [0, 1, 2, 3] * 2
    assert seglake("read", maker.root, "events", "--format", "csv") == text.replace("\r\n", "\n")
    assert seglake("read", maker.root, "events", "--format", "csv", "--start", T + 9) == (
        ",".join(f'"{name}"' for name in lines[0]) + "\n"
    )


_BREAKS = pa_csv.ParseOptions(newlines_in_values=True)


def _field(value: Any) -> str:
    if value is None:
        return ""
    is_json = isinstance(value, dict | list)
    return json.dumps(value, separators=(",", ":")) if is_json else str(value)


@pytest.mark.parametrize("form", ["jsonl", "csv", "arrow", "parquet"])
@pytest.mark.parametrize("there", ["nothing", "a file", "a link"])
def test_a_read_that_fails_leaves_the_file_as_it_was(tmp_path: Path, form: str, there: str) -> None:
    made, output = LakeMaker(tmp_path / "lake"), tmp_path / "out" / "records"
    made.run({0: [Event(T + i, b"k", b"x" * 5000) for i in range(3000)]}, Shape(batch_bytes=9000))
    (log,) = made.root.rglob("*.log")
    with log.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"?")
    output.parent.mkdir()
    place = tmp_path / "elsewhere" if there == "a link" else output
    if there != "nothing":
        place.write_bytes(b"older")
    if there == "a link":
        output.symlink_to(place)
    read = "read", made.root, "events", "--format", form, "--output", output
    before = sorted(output.parent.iterdir())
    with pytest.raises(CorruptData, match="CRC-32C"):
        seglake(*read)
    assert sorted(output.parent.iterdir()) == before
    assert there == "nothing" or place.read_bytes() == b"older"
    seglake(*read, "--max-records", 2)
    assert [*output.parent.iterdir()] == [output]
    assert output.is_symlink() == (there == "a link")
    assert place.read_bytes() != b"older"


def test_an_output_that_cannot_be_written_is_one_sentence(maker: LakeMaker, tmp_path: Path) -> None:
    """And a device stays a device."""
    for output in (tmp_path, tmp_path / "missing" / "file"):
        with pytest.raises(StoreError, match=f"^{output} cannot be written: "):
            seglake("read", maker.root, "events", "--output", output)
    assert not [*tmp_path.iterdir()]
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit((tmp_path / "pipe").read_bytes)
        seglake("read", maker.root, "events", "--output", tmp_path / "pipe")
        assert read.result().count(b"\n") == 3003


def test_a_demo_killed_while_it_makes_events_makes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path, *, events: int) -> None:
        generate(folder, events=events // 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("seglake.cli.demo.events.generate", killed)
    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path / "lake", tmp_path / "events", 1000)
    assert not [*tmp_path.iterdir()]


def test_times_of_fields_look_like_those_of_records(tmp_path: Path) -> None:
    """In a table; JSON has milliseconds."""
    values = [b'{"at": "2026-01-31T12:00:00Z"}', b'{"at": "1970-01-01T00:00:00.5Z"}', b"{}"]
    LakeMaker(tmp_path).run({0: [Event(T, None, value) for value in values]})
    read = ("read", tmp_path, "events", "--fields", "at:timestamp")
    table = seglake(*read, "--format", "table").splitlines()[-3:]
    assert [row.split()[-1] for row in table] == [
        "2026-01-31T12:00:00Z", "1970-01-01T00:00:00.500Z", "-"
    ]  # fmt: skip
    assert [row["at"] for row in lines(seglake(*read))] == [1769860800000, 500, None]


def test_dump_shows_a_log_and_its_indexes(maker: LakeMaker) -> None:
    file = maker.files("log")[-1]
    batches = lines(seglake("dump", file, "--json"))
    assert sum(batch["count"] for batch in batches) == 3000
    assert batches[-1]["position"] + batches[-1]["size"] == file.stat().st_size
    assert batches[0]["codec"] == "zstd"
    deep = lines(seglake("dump", file, "--deep"))
    assert deep == lines(seglake("read", maker.root, "events", "--partition", 1))
    entries = lines(seglake("dump", file.with_suffix(".index"), "--json"))
    at = {batch["last_offset"]: batch["position"] for batch in batches}
    assert entries
    assert all(at[entry["offset"]] == entry["position"] for entry in entries)
    times = lines(seglake("dump", file.with_suffix(".timeindex"), "--json"))
    assert times[-1] == {"timestamp": T + 2999, "offset": 2999}
    assert f"timestamp: {T + 2999}" in seglake("dump", file.with_suffix(".timeindex"))
    with pytest.raises(UsageError, match="name of a Kafka segment"):
        seglake("dump", file.parent)
    with pytest.raises(UsageError, match=r"does not exist. `seglake segments ROOT TOPIC --json`"):
        seglake("dump", file.parent / "none" / file.name)


Run = Callable[..., tuple[str | int | None, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the whole program; gives its exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[str | int | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["seglake", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def broken(maker: LakeMaker, tmp_path: Path) -> Path:
    """A log with a wrong bit."""
    log = tmp_path / "events-0" / f"{0:020}.log"
    log.parent.mkdir()
    content = bytearray(maker.files("log")[0].read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    return log


def test_an_error_is_one_line_and_an_exit_code(maker: LakeMaker, broken: Path, run: Run) -> None:
    problem = "seglake: topic 'nothing' is not in version 1 of the lake\n"
    assert run("read", maker.root, "nothing") == (2, "", problem)
    code, _, problem = run("dump", broken)
    assert code == 1
    assert problem.startswith(f"seglake: {broken.name} at byte 0: CRC")
    assert run("read")[0] == 2


@pytest.mark.parametrize(
    ("typed", "kind", "message"),
    [
        (("segments", "LAKE", "no"), "UnknownTopic", "topic 'no' is not in version 1 of the lake"),
        (("topics", "LAKE", "--foo"), "UsageError", "No such option: --foo"),
        (("topics",), "UsageError", "Missing argument"),
        (("reed", "LAKE"), "UsageError", "No such command 'reed'"),
        (("check", "--conf-file", "none.toml"), "ConfigError", "none.toml cannot be read"),
    ],
)
def test_with_json_an_error_is_an_object(
    maker: LakeMaker, run: Run, typed: tuple[str, ...], kind: str, message: str
) -> None:
    words = [str(maker.root) if word == "LAKE" else word for word in typed]
    code, output, problem = run(*words, "--json")
    error = json.loads(problem)["error"]
    assert (code, output, problem.count("\n")) == (2, "", 1)
    assert (error["kind"], error["exit_code"], message in error["message"]) == (kind, 2, True)


def test_with_json_damage_has_its_own_kind_and_answers_stay_as_they_are(
    maker: LakeMaker, broken: Path, run: Run
) -> None:
    code, _, problem = run("dump", broken, "--json")
    error = json.loads(problem)["error"]
    assert (code, error["kind"], error["exit_code"]) == (1, "CorruptData", 1)
    code, output, problem = run("topics", maker.root, "--json")
    assert (code, json.loads(output)[0]["topic"], problem) == (None, "events", "")
    code, output, problem = run("run-status", maker.root, "events", "--run-id", "x", "--json")
    assert (code, json.loads(output)["status"], problem) == (1, "not there", "")


@pytest.mark.rest
@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(maker: LakeMaker) -> None:
    program = "from seglake.cli import main; main()"
    command = [sys.executable, "-c", program, "read", str(maker.root), "events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_help_loads_no_heavy_library() -> None:
    heavy = "pyarrow", "numba", "deltalake", "pyspark", "numpy"
    code = (
        "import sys, seglake.cli.app, seglake\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_that_is_taken_out_is_one_row_of_history(tmp_path: Path) -> None:
    """Its commit, with what became of it; the undo names it, and JSON has every row."""
    made = LakeMaker(tmp_path)
    for _ in range(2):
        made.run({0: [Event(T)]})
    undo(str(tmp_path), "events", "run 0")
    lake = open_lake(str(tmp_path))
    rows = [*history_rows([*lake.history(), *lake.maintenance()], as_json=False).rows]
    assert [(row["operation"], row["run_id"], row["state"]) for row in rows] == [
        ("undo", "run 0", "committed"),
        ("ingest", "run 1", "committed"),
        ("ingest", "run 0", "undone"),
    ]
    assert all(row["took"].endswith(" s") for row in rows)
    found = json.loads(seglake("history", tmp_path, "--json"))
    assert sorted(str(row["state"]) for row in found) == [
        "None",
        "committed",
        "committed",
        "undone",
    ]


def test_the_status_of_a_run_that_is_taken_out_says_so(tmp_path: Path) -> None:
    """A scheduler can tell it from a run that was never there, though the exit code is the same."""
    LakeMaker(tmp_path).run({0: [Event(T)]})
    undo(str(tmp_path), "events", "run 0")
    status = ["run-status", str(tmp_path), "events", "--run-id"]
    done = CliRunner().invoke(app, [*status, "run 0", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["status"], found["exit_code"]) == (1, "undone", None)
    assert "ended" in found
    assert "undone" in CliRunner().invoke(app, [*status, "run 0"]).stdout
    assert "not there" in CliRunner().invoke(app, [*status, "run 1"]).stdout


def test_a_search_that_finds_nothing_says_so(maker: LakeMaker) -> None:
    find = ["find", str(maker.root), "events", "--key", "nobody"]
    assert CliRunner().invoke(app, find).stderr == "events: no matching record was found\n"
    for form in ("jsonl", "table"):
        done = CliRunner().invoke(app, [*find, "--last", "1w", "--format", form])
        assert done.exit_code == 0
        assert done.stderr == "events: no matching record was found in the requested time\n"


def told_of(root: Path, command: str, *arguments: str) -> list[str]:
    done = CliRunner().invoke(app, [command, str(root), "events", *arguments])
    assert done.exit_code == 0, done.output
    return done.stderr.splitlines()


def test_an_unknown_field_of_a_search_is_printed_with_a_similar_one(tmp_path: Path) -> None:
    values = [b'{"name": "ann", "n": 1}', b"no JSON"]
    LakeMaker(tmp_path).run({0: [Event(T + at, b"k", each) for at, each in enumerate(values)]})
    near = "events: the sampled values have no field 'nmae'. Did you mean 'name'?"
    none = "events: no matching record was found"
    assert told_of(tmp_path, "find", "--where", "nmae=ann") == [none, near]
    assert told_of(tmp_path, "find", "--where", "name=nobody") == [none]


def test_nothing_is_sampled_where_something_is_found(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("seglake.read.log.Log.fields")
    assert told_of(maker.root, "find", "--key", "k") == []
