"""`seglake.append`: inferred settings, an ingest by the rules of `ingest`, and clear refusals."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import load
from seglake.errors import CommitConflict, ConfigError, InputError, UsageError
from seglake.write.driver.run_input import InputBatches
from tests.makers.raw_events import quarantined

T = 1_780_315_200_000  # 2026-06-01T12:00:00Z
EVENTS = [{"ts": T + 1000 * (n * 37 % 50), "user": f"u{n % 7}", "n": n} for n in range(50)]
TABLE = pa.Table.from_pylist(EVENTS)
ROWS = st.lists(
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
    file.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
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
    assert seglake.append("*.jsonl", "lake", "web", time="ts").records == len(EVENTS)
    assert records(Path("lake"))[: len(before)] == before


def test_the_report_has_a_pipeline_that_ingest_accepts(events: Path) -> None:
    report = seglake.append(events, "lake", "web", time="ts", key="user", run_id="1")
    Path("web.toml").write_text(report.pipeline)
    again = seglake.run_pipeline(load("web.toml"), run_id="1", local=True)
    assert (again.status, again.records) == ("already done", len(EVENTS))


def test_a_topic_keeps_its_partitions(events: Path) -> None:
    seglake.append(events, "lake", "web", settings={"topic.partitions": 3})
    report = seglake.append(TABLE, "lake", "web", run_id="1")
    assert "partitions = 3\n" in report.pipeline
    assert {row["partition"] for row in records(Path("lake"))} == {0, 1, 2}


@given(rows=ROWS, size=st.integers(1, 9))
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
    data = EVENTS if make in {pd.DataFrame.from_records, pl.DataFrame} else TABLE
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
TIMES = pa.table({name: pa.array([T], pa.timestamp("ms", "UTC")) for name in ("start", "end")})
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
        (TIMES, {}, UsageError, "Give time"),
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
    ("data", "own"), [(TIMES, {"time": "end"}), (KEYS, {"key": ()}), (NAIVE, {"zone": "UTC"})]
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
    assert [json.loads(each.stdout)["records"] for each in (first, second)] == [len(EVENTS), 0]
    assert 'field = "ts"\n' in json.loads(first.stdout)["pipeline"]
    assert {row["key"] for row in records(Path("lake"))} == {None}
    assert "[timestamp]" not in invoke("--time", "ts").stdout


@pytest.mark.usefixtures("events")
def test_the_command_refuses_an_unknown_field() -> None:
    done = invoke("--time", "when")
    assert isinstance(done.exception, UsageError)
    assert not Path("lake").exists()
