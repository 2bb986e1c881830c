"""Tables of commands at 80 columns: what stays, what leaves, and that nothing is folded."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake import shown
from seglake.catalog.failed_run import FailedRun
from seglake.cli.app import app
from seglake.cli.ingest import keeping_parts
from seglake.cli.inspect import history_rows
from seglake.cli.terminal.tables import show
from seglake.errors import UnknownTopic
from seglake.shown import (
    Column,
    draw,
    folded,
    keeping_ends,
    moment,
    number,
    of_report,
    path_ends,
    prose,
    second,
    short_bytes,
    short_time,
    size,
)
from seglake.write.api import declared
from tests.harness.narrow import assert_whole, narrow_terminal
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_795_168_800_000
HOUR = 3_600_000
NAME = "orders.of.the.northern.shops"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    maker = LakeMaker(folder / "lake", NAME, partitions=2)
    for hour in range(3):
        first = T + hour * HOUR
        value = b'{"text": "a value that is longer than what a line has room for", "n": 7}'
        events = [Event(first + 37 * n, b"customer-%d" % n, value) for n in range(60)]
        shape = Shape("zstd", batch_bytes=400, segment_bytes=2000)
        maker.run({0: events, 1: events[:9]}, shape, (first, first + HOUR))
    return maker.root


def printed(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


def commands(root: Path) -> list[tuple[object, ...]]:
    folders = root.parent / "folders"
    return [
        ("topics", root), ("segments", root, NAME), ("offsets", root, NAME, "--time", T + 5),
        ("history", root), ("history", root, "--failed"), ("describe", root, NAME),
        ("read", root, NAME, "--format", "table", "--max-records", 5),
        ("read", root, NAME, "--start", T, "--end", T + 900, "--explain"), ("report", root),
        ("run-status", root, NAME, "--run-id", "run 1"), ("quarantine", root, NAME), ("jobs",),
        ("merge", root, NAME, "--all", "--dry-run"), ("maintain", root, "--dry-run"),
        ("undo", root, NAME, "--run-id", "run 1", "--dry-run"), ("reindex", root, NAME),
        ("delete-records", root, NAME, "--before-time", T + 100, "--dry-run"),
        ("export", root, NAME, folders), ("import", folders, "--root", root.parent / "new"),
    ]  # fmt: skip


def test_no_command_folds_a_number_or_a_time(root: Path) -> None:
    """Nor with numbers of thirteen digits; the commands of Kafka and the rest: test_flags."""
    for command in commands(root):
        with narrow_terminal() as drawn:
            told = printed(*command)
        assert drawn or told.endswith(": none\n"), command


def test_history_keeps_what_matters(root: Path) -> None:
    with narrow_terminal():
        title, heads, _, *rows, hint, rest = printed("history", root).splitlines()
    assert title.strip() == "commits"
    shown = ["finished", "topic", "operation", "run", "state", "took", "records"]
    assert heads.split() == shown
    assert sum("ingest" in row and " run " in row for row in rows) == 3
    assert f"{hint} {rest}" == (
        "all 0: files, rejected; no room for: pipeline, interval, rows; … is where a text is cut; "
        "--json has all"
    )


def test_history_tells_long_names_of_topics_apart(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    for city in ("vienna", "munich"):
        maker.topic = f"orders_{city}_website_v2"
        maker.run({0: [Event(T)]}, interval=(T, T + HOUR))
    with narrow_terminal():
        told = printed("history", tmp_path)
    assert "…vienna" in told
    assert "…munich" in told
    assert "… is where a text is cut" in " ".join(told.split())


@pytest.mark.parametrize(
    ("run_id", "shown"),
    [
        ("scheduled__2026-11-20T10:00:00+00:00", "2026-11-20T10:00…"),
        ("backfill-of-northern-shops-manual__2026-11-20T10:02:03+01:00", "6-11-20T10:02:03…"),
        ("a-run-of-the-northern-shops-without-a-time-20261120", "61120"),
    ],
)
def test_a_long_run_id_drives_out_no_column(
    root: Path, capsys: pytest.CaptureFixture[str], run_id: str, shown: str
) -> None:
    """It is cut, so that what tells the runs of a schedule apart stays."""
    (run, *_) = seglake.open(str(root)).history()
    run = replace(run, run_id=run_id, records=2_100_000, quarantined=3)
    runs = [replace(run, topic=topic) for topic in (NAME, "big3")]
    for width, whole in ((80, False), (250, True)):
        of_both = runs if whole else runs[1:]
        with narrow_terminal(shown=width):
            show("commits", history_rows(of_both, as_json=False), as_json=False)
        _, heads, _, first, *_ = capsys.readouterr().out.splitlines()
        assert (run_id in first) is whole
        assert shown in first or whole
        kept = ["finished", "topic", "run", "state", "records", "rejected"]
        assert [head for head in heads.split() if head in kept] == kept


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("2026-11-20T10:46:45.928+00:00", True), ("20/Nov/2026:10:46:45 +0100", True),
        ("123456789012345678901234567890", True), ("-1.5e-300", True),
        ("9f3e1c62-6c1c-4d6f-9d6b-0d4a5b3c2f1e", False), ("1 of many words that are cut", False),
        ("24518393,2026/11/20 09:01:19,佐藤,249", False),
        ("17;2026-11-20 09:01:19;23,5;48,1", False),
        ("-1,234,567,890 bytes", True), ("2026-11-20 10:46:45,928", True),
    ],
)  # fmt: skip
def test_no_number_and_no_time_is_cut_whatever_its_type(text: str, whole: bool) -> None:
    columns = [Column(name, name) for name in "abcde"]
    page = StringIO()
    draw(columns, [[text] * 5], page, 80)
    shown = page.getvalue().splitlines()[2]
    assert ("…" not in shown) is whole
    assert (text in shown) is whole


def test_what_differs_in_names_stays() -> None:
    shorten = keeping_ends([f"orders-2026-11-{day}.jsonl.gz:1" for day in (20, 21)])
    assert shorten("orders-2026-11-21.jsonl.gz:1", 16) == "…1-21.jsonl.gz:1"
    assert keeping_ends(["a-very-long-name", "other-long-name"])("a-very-long-name", 10).startswith(
        "a-very"
    )


def test_files_that_differ_inside_of_their_names_stay_apart() -> None:
    """As Spark names those of a write."""
    paths = [f"/in/day=2026-11-{day}/part-0000{n}-6e1f.c000.parquet:{n}"
             for day in (18, 19) for n in (0, 1)]  # fmt: skip
    shorten = keeping_parts(paths)
    assert [shorten(path, 30) for path in paths] == [
        f"…/day=2026-11-{day}/part-0000{n}…:{n}" for day in (18, 19) for n in (0, 1)
    ]
    assert {len(shorten(path, 20)) for path in paths} == {20}


def test_a_time_within_prose_stands_in_one_piece() -> None:
    time = "'2026-11-18T09:40:19.720+01:00'"
    page = StringIO()
    columns = [Column("at", "file:line"), prose("reason", "reason"), Column("raw", "raw", least=24)]
    draw(columns, [["a" * 23, f"timestamp unreadable: {time}", "x" * 90]], page, 80)
    assert time in page.getvalue()


def test_the_name_of_a_setting_within_prose_stands_in_one_piece() -> None:
    name, page = "`message.timestamp.after.max.ms`", StringIO()
    columns = [prose("topic", "topic"), prose("text", "what"), prose("help", "what helps")]
    draw(
        columns,
        [["web", "2 records lie ahead of now " * 4, f"{name} rejects such rows."]],
        page,
        80,
    )
    assert name in page.getvalue()


def test_a_line_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    time = "2026-11-19T10:27:51.724Z"
    line = f"  timestamp.field = 'timestamp': times from {time} to {time} in 3,000 sampled rows"
    assert folded(line) == line
    monkeypatch.setattr(shown, "terminal_width", lambda _=None: 80)
    first, second = folded(line).split("\n")
    assert (len(first) <= 80, second) == (True, f"    {time} in 3,000 sampled rows")
    assert folded("short") == "short"


def test_the_time_of_a_run_without_a_name_stays(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the run's id."""
    made = declared(None, (None, None)).run_id
    runs = [replace(run, run_id=made) for run in seglake.open(str(root)).history()]
    with narrow_terminal():
        show("commits", history_rows(runs, as_json=False), as_json=False)
    assert made in capsys.readouterr().out.splitlines()[3]


def test_an_error_has_the_whole_width_below_its_row() -> None:
    columns = [second("t", "failed"), Column("id", "run"), Column("error", "error", fit="below")]
    rows = [(T, "run 1", "no such file: " * 9 + "\nlook"), (T, "run 2", "a disk is full")]
    page = StringIO()
    draw(columns, rows, page, 80)
    heads, _, *body = page.getvalue().splitlines()
    assert heads.split() == ["failed", "run"]
    assert [line.split()[0] for line in body] == [
        "2026-11-20T10:00:00Z", "no", "file:", "look", "2026-11-20T10:00:00Z", "a"
    ]  # fmt: skip
    assert [len(line) > 60 for line in body] == [False, True, False, False, False, False]
    page = StringIO()
    draw(columns, rows, page, None)  # a pipe has a line for each row
    assert "a disk is full" in page.getvalue().splitlines()[-1]


def test_failed_attempts_say_why_below_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "input/2026-11-20/10.jsonl.gz is cut: its last block is not whole; write it again"
    run = FailedRun(
        topic=NAME, pipeline="p", run_id="scheduled__2026-11-20T10:00:00+00:00", attempt_id="a",
        error=said, exit_code=1, failed_at_ms=T,
    )  # fmt: skip
    monkeypatch.setattr("seglake.cli.runs.all_failed_runs", lambda *_: [run])
    with narrow_terminal():
        printed_lines = printed("history", root, "--failed").splitlines()
    assert printed_lines[3].split()[2] == run.run_id
    assert " ".join(map(str.strip, printed_lines[4:6])) == said


def test_topics_show_large_numbers_whole() -> None:
    columns = [Column("topic", "topic"), number("n", "records"), size("b", "bytes"),
               second("t", "newest")]  # fmt: skip
    page = StringIO()
    draw(columns, [(NAME * 3, 1_000_000_000, 5 * 2**30, T)], page, 70)
    heads, _, row = page.getvalue().splitlines()
    assert heads.split() == ["topic", "records", "bytes", "newest"]
    assert row.split()[1:] == ["1,000,000,000", "5", "GiB", "2026-11-20T10:00:00Z"]
    assert "…" in row.split()[0]


def test_runs_and_failures_come_newest_first(root: Path) -> None:
    newest = [run.run_id for run in reversed(seglake.open(str(root)).history())]
    rows = [line for line in printed("history", root).splitlines() if " run " in line]
    assert [row.partition(" run ")[2][0] for row in rows[1:]] == [run[-1] for run in newest]


def test_a_pipe_gets_all_columns(root: Path) -> None:
    heads = printed("history", root).splitlines()[1].split()
    assert heads == ["finished", "topic", "operation", "pipeline", "run", "state", "interval",
                     "took", "files", "rows", "records", "rejected", "reasons"]  # fmt: skip


def test_a_terminal_of_80_columns(root: Path) -> None:
    """A real one: the program asks the terminal how wide it is."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "seglake", "segments", str(root), NAME]
    subprocess.run(command, stdout=theirs, env=environment, check=True)
    os.close(theirs)
    text = os.read(ours, 2**16).decode()
    os.close(ours)
    assert "no room for: " in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (2**40, "1 TiB")]
)
def test_bytes_are_for_people(count: int, text: str) -> None:
    assert short_bytes(count) == text


def test_times_have_milliseconds_where_there_are_some() -> None:
    assert short_time(T) == "2026-11-20T10:00:00Z"
    assert short_time(T + 37) == "2026-11-20T10:00:00.037Z"
    assert short_time(-1) == "-"
    assert second("at", "at").text(T + 999) == "2026-11-20T10:00:00Z"
    assert second("at", "at").text(-1) == "-"


def test_lines_in_a_text_are_one_line() -> None:
    assert Column("a", "a").text("x\ny\t") == r"x\ny\t"
    assert Column("a", "a").text("\x1b[2J") == r"\x1b[2J"
    assert prose("a", "a").text("x\ny") == "x\ny"


def test_a_column_without_values_is_not_missed() -> None:
    """Where there is no room it leaves first, and nobody is told that something is not shown."""
    columns = [Column("a", "text"), number("n", "partition", rank=1), Column("h", "headers")]
    page = StringIO()
    draw(columns, [("x" * 60, 3, None)], page, 72)
    heads, _, row = page.getvalue().splitlines()
    assert (heads.split(), row.split()) == (["text", "partition"], ["x" * 60, "3"])


def test_no_figure_leaves_for_a_zero() -> None:
    """Figures that are all 0 leave first, whatever their ranks; a line says that they are 0."""
    columns = [
        number("partition", "partition"),
        number("a", "superseded"),
        size("b", "old bytes"),
        Column("c", "ratio", "{:.2f}".format, right=True),
        number("d", "null keys", rank=3),
    ]
    page = StringIO()
    draw(columns, [(0, 0, 0, 0.0, 0), (0, None, 0, 0.0, 5_000)], page, 24, rest="--json has all")
    heads, _, _, row, *remark = page.getvalue().splitlines()
    assert (heads.split(), row.split()) == (["partition", "null", "keys"], ["0", "5,000"])
    assert " ".join(remark) == "all 0: superseded, old bytes, ratio; --json has all"


def test_a_plan_of_a_compaction_says_how_many_records_go_and_stay(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, settings={"cleanup.policy": "compact"})
    maker.run({0: [Event(T + n, b"k" if n < 2 else None, b"x" * 90) for n in range(5_000)]})
    compact = "compact", tmp_path, "events"
    with narrow_terminal():
        _, heads, _, row, *_ = printed(*compact, "--dry-run").splitlines()
        printed(*compact)
        _, _, _, later, *_ = printed(*compact, "--dry-run").splitlines()
    assert re.split(" {2,}", heads.strip()) == [
        "partition", "segments", "due", "records", "records after", "superseded", "null keys"
    ]  # fmt: skip
    assert row.split() == ["0", "1", "yes", "5,000", "1", "1", "4,998"]
    assert later.split()[-1] == "no"  # what it would do to a log that is not due, no column says


def test_a_column_says_how_much_of_a_text_stays() -> None:
    page = StringIO()
    draw([Column("a", "a"), Column("v", "v", least=10), number("n", "n", rank=1)],
         [("a" * 20, "v" * 90, 1_234)], page, 39)  # fmt: skip
    assert page.getvalue().splitlines()[2].split() == ["a" * 20, "vvvvvv…vvv", "1,234"]


def test_a_report_has_times_and_places_of_zero() -> None:
    """1970 is a time, and 0 an offset; a count of 0 says nothing, and -1 is none."""
    report = {"min_timestamp": 0, "max_timestamp": -1, "base_offset": 0, "partition": 0,
              "finished_at_ms": 0, "max_lateness_ms": 0, "version": -1, "records": 0}  # fmt: skip
    rows = {str(name): value for name, value in of_report("run", report).rows}
    assert rows == {
        "min timestamp": "1970-01-01T00:00:00Z", "base offset": "0", "partition": "0",
        "finished at": "1970-01-01T00:00:00Z", "max lateness": "0 ms",
    }  # fmt: skip


@given(st.lists(st.text("a/", min_size=1, max_size=8), min_size=1, max_size=5, unique=True))
def test_ends_of_paths_tell_them_apart(paths: list[str]) -> None:
    ends = [*map(path_ends(paths), paths)]
    assert len({*ends}) == len(paths)
    assert all(path.endswith(end) for path, end in zip(paths, ends, strict=True))


KINDS: dict[str, Any] = {"n": number, "b": size, "t": moment, "p": prose, "c": Column}
VALUES = st.fixed_dictionaries({
    "n": st.integers(0, 2**62), "b": st.integers(0, 2**50), "t": st.integers(-1, T),
    "p": st.text(st.sampled_from("ab äx"), max_size=90), "c": st.text(max_size=60),
})  # fmt: skip


@given(st.lists(st.sampled_from("nbtpc"), min_size=1, max_size=9), st.lists(VALUES, max_size=4))
def test_any_table_fits(kinds: Sequence[str], rows: Sequence[dict[str, object]]) -> None:
    columns = [KINDS[kind](kind, f"{kind} {at}", rank=at % 3) for at, kind in enumerate(kinds)]
    assert_whole(columns, [[row[kind] for kind in kinds] for row in rows], 80)


def test_a_record_in_a_narrow_terminal_has_its_value(root: Path) -> None:
    with narrow_terminal(60, shown=60):
        heads = printed("read", root, NAME, "--tail", 2, "--format", "table").splitlines()[1]
    assert heads.split() == ["offset", "timestamp", "key", "value"]  # no record has headers


def test_what_is_piped_ends_where_its_texts_end() -> None:
    page = StringIO()
    draw([Column("a", "a"), Column("b", "b")], [("x", "y" * 900), ("z", "w")], page, None)
    _, rule, long, short = page.getvalue().splitlines()
    assert (len(rule), long.split(), short.split()) == (160, ["x", "y" * 900], ["z", "w"])
    assert len(short) < 10


def test_a_mistyped_topic_has_no_rejects_and_is_told(root: Path) -> None:
    done = CliRunner().invoke(app, ["quarantine", str(root), f"{NAME}s"])
    assert isinstance(done.exception, UnknownTopic)
    assert f"did you mean {NAME!r}?" in str(done.exception)


def test_a_table_tells_of_misfits_too(root: Path) -> None:
    read = ["read", str(root), NAME, "--partition", "1", "--fields", "text:int8"]
    for form in ("table", "jsonl"):
        told = CliRunner().invoke(app, [*read, "--format", form]).stderr
        assert f"{NAME}: 'text' is null in 27 records that do not fit" in told
