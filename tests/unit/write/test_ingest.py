"""Whole ingests against a reading of the raw files, record for record and byte for byte."""

import json
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import Engine, LocalEngine
from seglake.errors import OutsideInterval, QuarantineLimit
from seglake.format.codecs.compression import NAMES
from seglake.layout import SUFFIXES
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.undo import replace_files
from seglake.read.lake import open as open_lake
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.map.unit import MapUnits, Unit, group_splits
from seglake.write.spool.spool import read_blobs, unpack_rows
from tests.harness.engines import ScatteredEngine
from tests.harness.large_runs import large_runs
from tests.makers.inputs import map_settings, splits_of
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    TINY,
    Line,
    T,
    assert_holds,
    file_lists,
    ingest,
    pipeline_of,
    quarantined,
    read_back,
    read_lake,
    read_raw,
    segments_of,
    write_files,
)
from tests.makers.strategies import examples

Files = list[tuple[list[Line], str]]

topics = st.fixed_dictionaries(
    {
        "compression.type": st.sampled_from(NAMES),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
        "batch.size": st.sampled_from([1, 300, 16_384]),
        "segment.bytes": st.sampled_from([700, 2**30]),
        "index.interval.bytes": st.sampled_from([0, 400]),
    },
    optional={"partition_field": st.just("p"), "segment.ms": st.just(10)},
)
tasks = st.sampled_from([{}, TINY, TINY, {**TINY, "piece_bytes": 300, "merge_bytes": 1}])
orders = st.sampled_from(["time", "arrival"])


def of_a_lake(root: Path) -> dict[tuple[int, int, str], bytes]:
    """The bytes of every live segment file, by partition, base offset and suffix."""
    return {
        (row.partition, row.base_offset, suffix): (root / row.key(suffix)).read_bytes()
        for row in segments_of(root)
        for suffix in SUFFIXES
    }


@examples(25)
@given(file_lists(), file_lists(2, 20), orders, topics, tasks, st.booleans())
def test_an_ingest_is_what_the_files_say(
    first: Files,
    second: Files,
    order: str,
    topic: dict[str, Any],
    task: dict[str, int],
    large: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder, large_runs() if large else nullcontext():
        root, runs = Path(folder) / "lake", []
        for name, files in (("a", [([Line(T)], ""), *first]), ("b", second)):
            paths = write_files(Path(folder) / name, files)
            settings = pipeline_of(root, [Path(folder) / name], order=order, topic=topic, task=task)
            good, bad = read_back(paths)
            if bad and not good:
                with pytest.raises(QuarantineLimit, match="a run without a record"):
                    ingest(settings, name)
                continue
            report, rows = ingest(settings, name), len(good) + len(bad)
            assert (report.records, report.quarantined) == (len(good), len(bad))
            assert report.input_rows == rows == sum(report.reasons.values()) + len(good)
            runs.append(paths)
        assert_holds(read_lake(root), settings, runs)
        assert {p: log for p, log in read_lake(root).items() if log} == read_raw(root)
        assert quarantined(root) == sorted(each for run in runs for each in read_back(run)[1])


@examples(8)
@given(
    file_lists(), orders, st.sampled_from(NAMES), st.integers(1, 9), st.integers(0, 99),
    st.booleans(),
)  # fmt: skip
def test_the_bytes_are_the_same_on_any_cores_after_any_failure(
    files: Files, order: str, codec: str, cores: int, seed: int, large: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, large_runs() if large else nullcontext():
        write_files(Path(folder) / "in", files)
        made = []
        engines: Sequence[Engine] = [
            LocalEngine(), LocalEngine(2),
            ScatteredEngine(1, seed), ScatteredEngine(cores, seed + 1),
        ]  # fmt: skip
        for number, engine in enumerate(engines):
            root = Path(folder) / str(number)
            topic = {"compression.type": codec, "batch.size": 300, "segment.bytes": 900}
            settings = pipeline_of(root, [Path(folder) / "in"], order=order, topic=topic, task=TINY)
            ingest_files(engine, settings, DeclaredRun("1"))
            made.append(of_a_lake(root))
        assert all(other == made[0] for other in made)


@examples(25)
@given(file_lists(4), orders, st.lists(st.integers(1, 5), max_size=6))
def test_blobs_do_not_depend_on_how_units_meet_in_tasks(
    files: Files, order: str, sizes: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder) / "in", files)
        lake = Path(folder) / "lake"
        settings = pipeline_of(lake, [Path(folder) / "in"], order=order, task=TINY)
        splits = splits_of(settings)
        units = group_splits(splits, settings.task.split_bytes)
        assert [split for unit in units for split in unit.splits] == splits
        task = MapUnits(map_settings(settings))
        alone = [blob for unit in units for blob in blobs_of(task, [unit])]
        together, at = [], 0
        for size in [*sizes, len(units)]:
            together += blobs_of(task, units[at : at + size])
            at += size
        assert together == alone


def blobs_of(task: MapUnits, units: list[Unit]) -> list[tuple[dict[str, Any], bytes]]:
    """What is said of each staged blob but for its place, and its bytes."""
    found = []
    for row, data in read_blobs(task.settings.store, unpack_rows([task(units)])):
        said = {name: row[name] for name in row if name not in {"object", "start", "end"}}
        found.append((said, bytes(data)))
    return found


# ------------------------------------------------------------------ what is written down


@pytest.mark.parametrize(
    ("start", "times", "outside"),
    [
        (11, [1], 1),
        (2, [1, 1], 2),
        (1, [1, 1], None),
        (2, [1, 2], None),
        (0, [1, 2], None),
        (0, [2, 2], 2),
        (0, [-9, 9], 2),  # the times of one segment surround the interval
    ],
)
def test_a_run_without_a_record_in_its_interval_says_so(
    tmp_path: Path, start: int, times: list[int], outside: int | None
) -> None:
    """The end is exclusive; a late record among others is nothing odd."""
    write_files(tmp_path / "in", [([Line(T + time, "a") for time in times], "")])
    interval = (T + start, T + start + 1 + (start == 0))
    report = ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"), "x", interval)
    assert [(each.code, each.count) for each in report.findings] == (
        [("outside-interval", outside)] if outside else []
    )
    log = open_lake(str(tmp_path / "lake")).topic("events")
    assert log.closed(*interval) == (outside is None)
    catalog = open_catalog(str(tmp_path / "lake"))
    (run,) = catalog.rows.runs(catalog.snapshot(), "events")
    assert json.loads(run.report).get("findings", []) == [*map(asdict, report.findings)]


def test_segments_roll_by_time_if_the_topic_asks(tmp_path: Path) -> None:
    decades = [Line(T + year * 31_557_600_000, "a") for year in range(46)]
    write_files(tmp_path / "in", [(decades, "")])
    topic = {"partitions": 1, "batch.size": 1}
    for n, (more, segments) in enumerate(
        [({}, 1), ({"segment.ms": "1d"}, 46), ({"retention.ms": "90d"}, 46)]
    ):
        settings = pipeline_of(tmp_path / str(n), tmp_path / "in", topic={**topic, **more})
        assert ingest(settings).segments == segments


def test_run_outside_its_interval_can_be_an_error(tmp_path: Path) -> None:
    write_files(tmp_path / "in", [([Line(T + 1, "a")], "")])
    strict = pipeline_of(tmp_path / "lake", tmp_path / "in", on_outside_interval="fail")
    with pytest.raises(OutsideInterval):
        ingest(strict, "x", (T + 5, T + 9))
    assert open_catalog(str(tmp_path / "lake")).snapshot().topics() == []
    assert ingest(strict, "x", (T, T + 5)).findings == []
    lenient = pipeline_of(tmp_path / "lake", tmp_path / "in")
    assert ingest(lenient, "x", (T, T + 5)).status == "already done"


def test_intervals_without_records_or_event_times_are_closed(tmp_path: Path) -> None:
    lake, interval = str(tmp_path / "lake"), (T + 5, T + 9)
    write_files(tmp_path / "in", [([Line(T + 1, "a")], "")])
    clock = {"message.timestamp.type": "LogAppendTime"}
    ingest(pipeline_of(lake, tmp_path / "in", topic={"name": "stamped", **clock}), "x", interval)
    ingest(pipeline_of(lake, tmp_path / "in"), "1")
    ingest(pipeline_of(lake, tmp_path / "in"), "2", interval)  # every file was ingested before
    opened = open_lake(lake)
    assert all(opened.topic(name).closed(*interval) for name in ("stamped", "events"))


def test_open_interval_stays_open_after_erasure_and_rebuild(tmp_path: Path) -> None:
    """The counts at the commit decide, not the records that are left, and manifests have them."""
    lake = str(tmp_path / "lake")
    for run_id, time in (("wrong", 1), ("right", 11)):
        write_files(tmp_path / run_id, [([Line(T + time, run_id)], "")])
        start = T + 10 if run_id == "right" else T + 5
        ingest(pipeline_of(lake, tmp_path / run_id), run_id, (start, start + 5))
    erase(lake, "events", ["wrong", "right"])
    for _ in range(2):
        log = open_lake(lake).topic("events")
        assert log.coverage() == [(T + 10, T + 15)]
        rebuild_catalog(lake, force=True, dry_run=False)


def test_replacement_outside_the_interval_can_be_an_error(tmp_path: Path) -> None:
    """It keeps the interval of the run that it replaces."""
    lake, interval = tmp_path / "lake", (T, T + 5)
    write_files(tmp_path / "in", [([Line(T + 1, "a")], "")])
    ingest(pipeline_of(lake, tmp_path / "in"), "x", interval)
    write_files(tmp_path / "in", [([Line(T + 9, "a")], "")])
    strict = pipeline_of(lake, tmp_path / "in", on_outside_interval="fail")
    with pytest.raises(OutsideInterval):
        replace_files(LocalEngine(), strict, DeclaredRun("x"))
    assert open_lake(str(lake)).topic("events").coverage() == [interval]
    replace_files(LocalEngine(), pipeline_of(lake, tmp_path / "in"), DeclaredRun("x"))
    assert open_lake(str(lake)).topic("events").coverage() == []


def test_the_report_and_the_run_row_say_the_same(tmp_path: Path) -> None:
    content = [Line(T + 10, "a"), Line(T, "b"), Line(0, broken="{"), Line(0, broken='{"n": 1}')]
    write_files(tmp_path / "in", [(content, "")])
    report = ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"), "x", (T, T + 100))
    catalog = open_catalog(str(tmp_path / "lake"))
    (run,) = catalog.rows.runs(catalog.snapshot(), "events")
    assert (run.run_id, run.interval_start_ms, run.interval_end_ms) == ("x", T, T + 100)
    assert (run.records, run.quarantined, run.input_rows, run.input_files) == (2, 2, 4, 1)
    assert run.attempt_id == report.attempt_id
    assert report.reasons == {"not parseable": 1, "timestamp missing": 1}
    assert (report.min_timestamp, report.max_timestamp) == (T, T + 10)
    assert report.version == catalog.snapshot().version
    assert sum(report.end_offsets.values()) == 2
    (source,) = catalog.rows.all(catalog.snapshot(), "source", "events").to_pylist()
    assert (source["path"], source["rows"]) == (str(tmp_path / "in" / "000.jsonl"), 4)
    assert read_lake(tmp_path / "lake")


@examples(12)
@given(file_lists(4), orders, st.sampled_from([TINY, {}]))
def test_the_report_tells_how_late_events_arrived(
    files: Files, order: str, task: dict[str, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder) / "in", [([Line(T)], ""), *files])
        root = Path(folder) / "lake"
        report = ingest(pipeline_of(root, [Path(folder) / "in"], order=order, task=task))
        partitions = {each.value: p for p, log in read_lake(root).items() for each in log}
        worst, largest = 0, dict.fromkeys(partitions.values(), 0)
        for told in read_back(paths)[0]:
            partition = partitions[told.value]
            worst = max(worst, largest[partition] - told.timestamp)
            largest[partition] = max(largest[partition], told.timestamp)
        assert report.max_lateness_ms == worst


def test_a_run_without_records_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    settings = pipeline_of(tmp_path / "lake", [f"{tmp_path}/in/*"], input={"on_empty": "ok"})
    assert ingest(settings, "1", (T, T + 1)).records == 0
    assert ingest(settings, "1", (T, T + 1)).status == "already done"
    write_files(tmp_path / "in", [([], ""), ([Line(0, broken="")], ".gz")])
    report = ingest(settings, "2")
    assert (report.status, report.input_files, report.input_rows) == ("committed", 2, 0)
    catalog = open_catalog(str(tmp_path / "lake"))
    assert [run.records for run in catalog.rows.runs(catalog.snapshot(), "events")] == [0, 0]
    assert {p: log for p, log in read_lake(tmp_path / "lake").items() if log} == {}


def test_rejected_rows_are_named_by_file_and_line_over_splits_and_chunks(tmp_path: Path) -> None:
    bad = {3, 17, 18, 60, 99}
    content = [Line(T, "a", broken=f"bad {at}" if at in bad else None) for at in range(100)]
    content[40] = Line(0, broken="")  # an empty line is no row, and counts as a line
    paths = write_files(tmp_path / "in", [(content[:30], ""), (content, ""), (content, ".gz")])
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "in", task=TINY))
    rejects = quarantined(tmp_path / "lake")
    found = [(Path(each.path).name, each.number, each.raw) for each in rejects]
    wanted = [(p.name, at + 1, b"bad %d" % at) for p in paths for at in sorted(bad)]
    assert found == [each for each in wanted if each[1] <= 30 or each[0] != "000.jsonl"]


def test_records_without_a_key_are_spread_evenly(tmp_path: Path) -> None:
    write_files(tmp_path / "in", [([Line(T)] * 91, "")])
    chunks_of_one_unit = {"chunk_bytes": 100}
    settings = pipeline_of(tmp_path / "lake", tmp_path / "in", task=chunks_of_one_unit)
    ingest(settings)
    assert sorted(map(len, read_lake(tmp_path / "lake").values())) == [30, 30, 31]


def test_a_pipeline_of_every_input_format_is_the_same_story(tmp_path: Path) -> None:
    """Their readers are tested apart; here each goes through the whole path once."""
    rows = [(T + 7 * (at % 5) + at, f"k{at % 4}") for at in range(40)]
    (tmp_path / "a.csv").write_text("ts,k\n" + "".join(f"{ts},{k}\n" for ts, k in rows))
    (tmp_path / "a.txt").write_text("".join(f"{ts} {k}\n" for ts, k in rows))
    table = pa.table({"ts": [ts for ts, _ in rows], "k": [k for _, k in rows]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    inputs = {
        "csv": {"format": "csv"},
        "txt": {"format": "text", "pattern": r"(?P<ts>\d+) (?P<k>\w+)"},
        "parquet": {"format": "parquet"},
    }
    found = []
    for suffix, given_input in inputs.items():
        settings = pipeline_of(
            tmp_path / suffix, tmp_path / f"a.{suffix}", input=given_input, task=TINY,
        )  # fmt: skip
        assert ingest(settings).records == 40
        logs = read_lake(tmp_path / suffix).values()
        found.append([(r.partition, r.timestamp, r.key) for log in logs for r in log])
    assert found[0] == found[1] == found[2]
    assert sorted((t, (k or b"").decode()) for _, t, k in found[0]) == sorted(rows)
