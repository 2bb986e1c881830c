"""Tables of commands at 80 columns: what stays, what leaves, and that nothing is folded."""

from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.cli.inspect import segment_rows, topic_rows
from seglake.errors import UnknownTopic
from seglake.terminal.tables import Column, draw, moment, number, prose, report_table, second
from seglake.terminal.wording import path_ends, short_time
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import examples

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


def test_runs_and_failures_come_newest_first(root: Path) -> None:
    newest = [run.run_id for run in reversed(seglake.open(str(root)).history())]
    rows = [line for line in printed("history", root).splitlines() if " run " in line]
    assert [row.partition(" run ")[2][0] for row in rows[1:]] == [run[-1] for run in newest]


def test_a_pipe_gets_all_columns(root: Path) -> None:
    heads = printed("history", root).splitlines()[1].split()
    assert heads == ["finished", "topic", "operation", "pipeline", "run", "state", "interval",
                     "took", "files", "rows", "records", "rejected", "reasons"]  # fmt: skip


def test_times_have_milliseconds_where_there_are_some() -> None:
    assert short_time(T) == "2026-11-20T10:00:00Z"
    assert short_time(T + 37) == "2026-11-20T10:00:00.037Z"
    assert short_time(-1) == "-"
    assert second("at", "at").text(T + 999) == "2026-11-20T10:00:00Z"
    assert second("at", "at").text(-1) == "-"


def test_a_report_has_times_and_places_of_zero() -> None:
    """1970 is a time, and 0 an offset; a count of 0 says nothing, and -1 is none."""
    report = {"min_timestamp": 0, "max_timestamp": -1, "base_offset": 0, "partition": 0,
              "finished_at_ms": 0, "max_lateness_ms": 0, "version": -1, "records": 0}  # fmt: skip
    rows = {str(name): value for name, value in report_table("run", report).rows}
    assert rows == {
        "min timestamp": "1970-01-01T00:00:00Z", "base offset": "0", "partition": "0",
        "finished at": "1970-01-01T00:00:00Z", "max lateness": "0 ms",
    }  # fmt: skip


VALUES = st.tuples(
    st.integers(0, 2**62), st.integers(-1, T), st.text(st.sampled_from("ab äx"), max_size=90),
    st.text(max_size=60),
)  # fmt: skip


@given(st.lists(VALUES, min_size=1, max_size=4), st.integers(20, 250))
def test_every_value_is_whole_in_a_table_or_record_by_record(
    rows: list[tuple[int, int, str, str]], width: int
) -> None:
    columns = [number("n", "number"), moment("t", "time"), prose("p", "prose"), Column("c", "cell")]
    page = StringIO()
    draw(columns, rows, page, width)
    lines = page.getvalue().splitlines()
    is_table = len(lines) == 2 + len(rows) and "[" not in lines[0]
    assert not is_table or max(map(cell_len, lines)) <= width
    assert is_table or sum(line.startswith("─[ ") for line in lines) == len(rows)
    for n, t, p, c in rows:
        for text in (f"{n:,}", columns[1].text(t), *p.split(), columns[3].text(c).rstrip()):
            assert any(text in line for line in lines)


@given(st.lists(st.text("a/", min_size=1, max_size=8), min_size=1, max_size=5, unique=True))
def test_ends_of_paths_tell_them_apart(paths: list[str]) -> None:
    ends = [*map(path_ends(paths), paths)]
    assert len({*ends}) == len(paths)
    assert all(path.endswith(end) for path, end in zip(paths, ends, strict=True))


def test_a_mistyped_topic_has_no_rejects_and_is_told(root: Path) -> None:
    done = CliRunner().invoke(app, ["quarantine", str(root), f"{NAME}s"])
    assert isinstance(done.exception, UnknownTopic)
    assert f"Did you mean {NAME!r}?" in str(done.exception)


def test_a_table_tells_of_misfits_too(root: Path) -> None:
    read = ["read", str(root), NAME, "--partition", "1", "--fields", "text:int8"]
    for form in ("table", "jsonl"):
        told = CliRunner().invoke(app, [*read, "--format", form]).stderr
        assert f"{NAME}: 'text' is null in 27 records, where" in told


# The sizes and times that `seglake topics` shows are those of the records that are there.


def test_a_lost_log_hides_no_listing(tmp_path: Path) -> None:
    """They are for who looks for damage, too: the oldest time is that of the whole segment."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(time, b"k", b"value") for time in (5, 6, 7)]})
    maker.delete_records(0, 1)
    for log in tmp_path.rglob("*.log"):
        log.unlink()
    lake = seglake.open(str(tmp_path))
    (row,), (segment,) = topic_rows(lake).rows, segment_rows(lake.topic("events"), 0).rows
    assert (row["min_timestamp"], segment["min_timestamp"], segment["record_count"]) == (5, 5, 2)


TIMES = st.lists(st.integers(0, 500), min_size=1, max_size=60)


@given(TIMES, TIMES, st.data())
@examples(15)
def test_the_oldest_time_is_that_of_what_is_left(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[int],
    second: list[int],
    data: st.DataObject,
) -> None:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    for times in (first, second):
        maker.run({0: [Event(time, b"k", b"value") for time in times]}, Shape(batch_bytes=200))
    start = data.draw(st.integers(0, len(first) + len(second)))
    maker.delete_records(0, start)
    left = [*first, *second][start:]
    lake = seglake.open(str(maker.root))
    (row,) = topic_rows(lake).rows
    assert row["records"] == len(left)
    if left:
        assert row["min_timestamp"] == min(left)
    for segment in segment_rows(lake.topic("events"), 0).rows:
        ends = segment["end_offset"]
        mine = [*first, *second][max(start, segment["base_offset"]) : ends]
        assert segment["record_count"] == len(mine)
        assert segment["min_timestamp"] == min(mine, default=-1)
