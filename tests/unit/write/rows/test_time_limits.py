"""Limits of event time: the same in every input format, and for the whole of a run."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.limits import ALL_TIMES, INT64_MAX
from seglake.maintain.health.verify import verify
from seglake.write.driver.redrive import redrive
from seglake.write.rows.arrow import ArrowRows
from seglake.write.rows.records import RowLimits, extract
from tests.makers.files import Result, pipeline, read
from tests.makers.raw_events import Line, T, ingest, pipeline_of, quarantined, read_lake, write_file

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
OLD = f"timestamp too old for {BEFORE}"
NEW = f"timestamp too new for {AFTER}"
FORMATS = ["jsonl", "csv", "text", "parquet", "dataframe"]
PATTERN = {"text": {"pattern": r"(?P<t>[0-9]+) "}}


def read_as(form: str, times: list[int], limits: dict[str, int], clock_ms: int) -> Result:
    """What a run makes of one row for each time."""
    topic = {"message.timestamp.type": "CreateTime", **limits}
    tables: dict[str, Any] = {
        "timestamp": {"field": "t", "format": "epoch_ms"},
        "topic": topic,
        "input": PATTERN.get(form, {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        match form:
            case "jsonl":
                path.write_text("".join(f"{json.dumps({'t': each})}\n" for each in times))
            case "csv":
                path.write_text("t\n" + "".join(f"{each}\n" for each in times))
            case "text":
                path.write_text("".join(f"{each} x\n" for each in times))
            case _:
                pq.write_table(pa.table({"t": pa.array(times, pa.int64())}), path)
        form = "parquet" if form == "dataframe" else form
        settings = pipeline(path, form, **tables)
        return read(settings, RowLimits(settings.topic.event_times(clock_ms)))


limits = st.sampled_from([0, 1, 1000, 10**9, INT64_MAX])
times = st.one_of(
    st.integers(T - 1100, T + 1100), st.sampled_from([0, T - 1000, T - 1001, T + 1000, T + 1001])
)


@given(st.sampled_from(FORMATS[:4]), st.lists(times, min_size=1, max_size=30), limits, limits)
def test_rows_outside_the_limits_are_rejected(
    form: str, given_: list[int], before: int, after: int
) -> None:
    found = read_as(form, given_, {BEFORE: before, AFTER: after}, T)
    good = [each for each in given_ if T - each <= before and each - T <= after]
    assert [row.timestamp for row in found.rows] == good
    reasons = [OLD if each < T else NEW for each in given_ if each not in good]
    assert [reject.reason for reject in found.rejects] == reasons


@given(st.lists(times, min_size=1, max_size=30), limits, limits)
def test_rows_of_a_dataframe_are_measured_alike(given_: list[int], before: int, after: int) -> None:
    settings = Pipeline.model_validate(
        {
            "name": "a", "root": "b", "timestamp": {"field": "t", "format": "epoch_ms"},
            "input": {"format": "dataframe", "order_column": "t"},
            "topic": {"name": "c", BEFORE: before, AFTER: after},
        }
    )  # fmt: skip
    rows = ArrowRows("x", pa.record_batch({"t": given_}))
    found = extract(rows, settings, RowLimits(settings.topic.event_times(T)), "x", 0)
    good = [each for each in given_ if T - each <= before and each - T <= after]
    assert found.records.timestamps.tolist() == good
    assert len(found.rejects) == len(given_) - len(good)


def test_no_limit_by_default_and_none_under_the_clock_of_the_run() -> None:
    settings = pipeline("in", timestamp={"field": "t", "format": "epoch_ms"})
    assert settings.topic.event_times(T) == RowLimits().event_times == ALL_TIMES
    stamped = pipeline("in", topic={BEFORE: 1, AFTER: 1})
    assert stamped.topic.event_times(T) == ALL_TIMES


def lake_of(folder: Path, times: list[int], **limits: int) -> Pipeline:
    write_file(folder / "in" / "1.jsonl", [Line(each, "k") for each in times])
    return pipeline_of(folder / "lake", folder / "in", topic=dict(limits))


def stamps(folder: Path) -> list[int]:
    return sorted(r.timestamp for log in read_lake(folder / "lake").values() for r in log)


def test_they_are_measured_from_the_end_of_the_interval(tmp_path: Path) -> None:
    settings = lake_of(tmp_path, [T - 101, T - 100, T, T + 50, T + 51], **{BEFORE: 100, AFTER: 50})
    report = ingest(settings, "1", interval=(T - 100, T))
    assert stamps(tmp_path) == [T - 100, T, T + 50]
    assert report.reasons == {OLD: 1, NEW: 1}
    assert [each.number for each in quarantined(tmp_path / "lake")] == [1, 5]
    assert verify(str(tmp_path / "lake"), deep=True).findings == []


def test_the_catalogs_limits_hold_for_a_pipeline_that_says_nothing(tmp_path: Path) -> None:
    ingest(lake_of(tmp_path, [T], **{AFTER: 50}), "1", interval=(T - 100, T))
    write_file(tmp_path / "in" / "2.jsonl", [Line(T + 51, "k"), Line(T + 1, "k")])
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"), "2", interval=(T - 100, T))
    assert stamps(tmp_path) == [T, T + 1]


def test_a_redrive_measures_as_its_run_did(tmp_path: Path) -> None:
    """Not from the redrive's own time, which is long after the events."""
    late = [Line(T, broken=json.dumps({"when": each, "p": 0})) for each in (T - 5, T + 51)]
    write_file(tmp_path / "in" / "1.jsonl", [Line(T, "k"), *late])
    limits = {BEFORE: 100, AFTER: 50}
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "in", topic=limits), "1", interval=(T - 9, T))
    corrected = pipeline_of(tmp_path / "lake", tmp_path / "in", timestamp={"field": "when"})
    report = redrive(LocalEngine(), corrected, "1")
    assert (report.records, report.reasons) == (1, {NEW: 1})
    assert stamps(tmp_path) == [T - 5, T]
