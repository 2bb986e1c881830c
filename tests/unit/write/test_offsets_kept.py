"""Records that keep their offsets (`topic.offset_field`): ingests of files against plain lists.

The judge is a list of the rows that were written, and a reader of raw log bytes that knows nothing
of this project's format.
"""

import json
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.config import Pipeline
from seglake.engine import Engine, LocalEngine
from seglake.errors import ConfigError, InputError
from seglake.format.codecs.compression import NAMES
from seglake.maintain.compaction.compact import compact
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import replace_files, undo
from seglake.write.driver.redrive import redrive
from seglake.write.driver.report import Report
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.engines import ScatteredEngine
from tests.judges.kafka_model import read_log
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import TINY, T
from tests.makers.strategies import examples

ONE, TWO = "A08NuvyWRgee6k9bdjakQQ", "B08NuvyWRgee6k9bdjakQQ"  # ids of topics
PARTITIONS = 2
FAR = 2**31 - 1  # that two offsets of one segment may differ by

FAR_TIMES = [T * 1000, (2**63 - 1) // 1000]  # microseconds for milliseconds; Spark's largest

Headers = list[tuple[str, bytes | None]]


class Row(NamedTuple):
    """A record as a broker has it."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


_bytes = st.none() | st.sampled_from([b"", b"a", b"key", b"\xff\x00", "größe".encode()])
_headers = st.lists(st.tuples(st.sampled_from(["", "id", "größe"]), _bytes), max_size=3)
_steps = st.one_of(
    st.just(1), st.just(1), st.integers(1, 9), st.sampled_from([FAR - 1, FAR, FAR + 1, 2**32])
)


@st.composite
def logs(draw: st.DrawFn, most: int = 30) -> list[Row]:
    """Records of all partitions: gaps of any length, both timestamp types, any times."""
    rows = []
    for partition in range(PARTITIONS):
        offset = draw(st.sampled_from([0, 0, 5, 2**32]))
        for step in draw(st.lists(_steps, max_size=most)):
            kind = draw(st.sampled_from([0, 0, 0, 1]))
            time = draw(st.sampled_from([T, T, T + 5, T + 10**6, 0, -1, *FAR_TIMES]))
            parts = (draw(_bytes), draw(_bytes), draw(_headers))
            rows.append(Row(partition, offset, time, kind, *parts))
            offset += step
    return rows


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    """The columns of Spark's Kafka source."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns: dict[str, Any] = {
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value for row in rows], pa.binary()),
        "topic": pa.array(["web"] * len(rows), pa.string()),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "timestamp": pa.array([row.timestamp * 1000 for row in rows], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([row.timestamp_type for row in rows], pa.int32()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in row.headers] or None for row in rows],
            pa.list_(header),
        ),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=7)


def write_jsonl(path: Path, rows: Iterable[Row]) -> None:
    """JSON lines as `seglake read` prints them, except that key and value are base64."""

    def plain(value: bytes | None) -> Any:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value or b"").decode()}

    lines = (
        {
            "partition": row.partition, "offset": row.offset, "timestamp": row.timestamp,
            "timestampType": ("CreateTime", "LogAppendTime")[row.timestamp_type],
            "key": None if row.key is None else b64encode(row.key).decode(),
            "value": None if row.value is None else b64encode(row.value).decode(),
            "headers": [{"key": k, "value": plain(v)} for k, v in row.headers],
        }
        for row in rows
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def pipeline_of(root: Path, path: Path, form: str = "parquet", **changes: Any) -> Pipeline:
    tables: dict[str, Any] = {
        "name": "test", "root": str(root), "order": "arrival",
        "input": {"paths": [str(path)], "format": form},
        "timestamp": {"field": "timestamp", "type_field": "timestampType"},
        "key": {"fields": ["key"]}, "value": {"from": "field", "field": "value"},
        "headers": {"array_field": "headers"},
        "topic": {"name": "web", "partitions": PARTITIONS, "partition_field": "partition",
                  "offset_field": "offset", "batch.size": 300, "segment.bytes": 900},
    }  # fmt: skip
    if form != "parquet":
        tables["timestamp"]["format"] = "epoch_ms"
    for name, change in changes.items():
        table = isinstance(change, dict) and name in tables
        tables[name] = {**tables[name], **change} if table else change
    return Pipeline.model_validate(tables)


def ingest(settings: Pipeline, run_id: str = "1", engine: Engine | None = None) -> Report:
    return ingest_files(engine or LocalEngine(), settings, DeclaredRun(run_id))


def records_of(root: Path) -> list[Row]:
    """Every record of the topic, by the log's own reading."""
    log = seglake.open(str(root)).topic("web")
    rows = []
    for partition, start in log.beginning_offsets().items():
        if start == log.end_offsets()[partition]:
            continue
        found = log.read(partition, start, max_records=10**9)
        times: list[Any] = found["timestamp"].cast(pa.int64()).to_pylist()
        for time, row in zip(times, found.drop_columns(["timestamp"]).to_pylist(), strict=True):
            headers = [(h["key"], h["value"]) for h in row["headers"] or []]
            numbers = (row["offset"], time, row["timestamp_type"])
            rows.append(Row(partition, *numbers, row["key"], row["value"], headers))
    return rows


def assert_sound(root: Path, rows: Sequence[Row], ends: dict[int, int]) -> None:
    """The lake has these records, by two readers; the catalog, indexes and zone maps agree."""
    log = seglake.open(str(root)).topic("web")
    assert records_of(root) == list(rows)
    assert log.end_offsets() == {**dict.fromkeys(range(PARTITIONS), 0), **ends}
    assert verify(str(root), deep=True).exit_code == 0
    table = open_catalog(str(root))
    raw = []
    for segment in table.rows.segments(table.snapshot(), "web"):
        found = read_log((root / segment.key("log")).read_bytes())
        raw += [(segment.partition, each.offset, each.timestamp_type) for each in found]
    assert sorted(raw) == [(row.partition, row.offset, row.timestamp_type) for row in rows]


def ends_of(rows: Iterable[Row]) -> dict[int, int]:
    return {row.partition: row.offset + 1 for row in rows}


tasks = st.sampled_from([{}, TINY, {**TINY, "piece_bytes": 300, "merge_bytes": 1}])


@examples(40)
@given(logs(), st.randoms(use_true_random=False), tasks, st.sampled_from(NAMES), st.booleans())
def test_records_stay_what_they_were(
    rows: list[Row], chance: Any, task: dict[str, int], codec: str, scattered: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mixed = chance.sample(rows, len(rows))
        write_parquet(folder / "in" / "a.parquet", mixed[::2])
        write_parquet(folder / "in" / "b.parquet", mixed[1::2])
        settings = pipeline_of(
            folder / "lake", folder / "in", task=task, topic={"compression.type": codec}
        )
        engine = ScatteredEngine(3, 5) if scattered else LocalEngine()
        report = ingest(settings, engine=engine)
        assert (report.records, report.quarantined, report.skipped_records) == (len(rows), 0, 0)
        assert_sound(folder / "lake", rows, ends_of(rows))


@examples(25)
@given(logs(20), st.integers(0, 20), tasks)
def test_running_again_is_exactly_once(rows: list[Row], cut: int, task: dict[str, int]) -> None:
    """The second run gets the rows of the first one again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = [row for p in range(PARTITIONS) for row in _of(rows, p)[:cut]]
        write_parquet(folder / "1" / "a.parquet", first)
        write_parquet(folder / "2" / "a.parquet", rows)
        ingest(pipeline_of(folder / "lake", folder / "1", task=task), "1")
        assert_sound(folder / "lake", first, ends_of(first))
        report = ingest(pipeline_of(folder / "lake", folder / "2", task=task), "2")
        assert (report.records, report.skipped_records) == (len(rows) - len(first), len(first))
        assert report.input_rows == len(rows) - len(first)
        assert_sound(folder / "lake", rows, ends_of(rows))


def _of(rows: Iterable[Row], partition: int) -> list[Row]:
    return [row for row in rows if row.partition == partition]


@examples(15)
@given(logs())
def test_json_lines_say_the_same(rows: list[Row]) -> None:
    rows = [  # text has no time of -1, and none after the year 9999
        row if 0 <= row.timestamp <= 2 * T else row._replace(timestamp=0) for row in rows
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_jsonl(folder / "a.jsonl", rows)
        ingest(pipeline_of(folder / "lake", folder / "a.jsonl", "jsonl"))
        coded = [
            row._replace(
                key=None if row.key is None else b64encode(row.key),
                value=None if row.value is None else b64encode(row.value),
            )
            for row in rows
        ]
        assert_sound(folder / "lake", coded, ends_of(rows))


@pytest.mark.rest
@examples(15)
@given(logs(), st.data())
@pytest.mark.long
def test_maintenance_holds_over_such_segments(rows: list[Row], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, root = Path(name), Path(name) / "lake"
        parts = [[row for row in rows if row.offset < 8], rows]
        for number, part in enumerate(parts):
            write_parquet(folder / str(number) / "a.parquet", part)
            ingest(pipeline_of(root, folder / str(number)), str(number))
        found = records_of(root)
        ends = seglake.open(str(root)).topic("web").end_offsets()
        merge(str(root), "web", everything=True, rebatch=data.draw(st.booleans()))
        assert_sound(root, found, ends)
        reindex(str(root), "web")
        assert_sound(root, found, ends)
        undo(str(root), "web", "0")
        left = {(row.partition, row.offset) for row in parts[0]}
        found = [row for row in found if (row.partition, row.offset) not in left]
        assert_sound(root, found, ends)
        seglake.alter(str(root), "web", {"cleanup.policy": "compact"})
        compact(str(root), "web", force=True)
        newest = {(row.partition, row.key): row.offset for row in found}
        stays = [
            row
            for row in found
            if row.key is not None and newest[row.partition, row.key] == row.offset
        ]
        assert_sound(root, stays, ends)


@pytest.mark.parametrize("task", [{}, TINY, {**TINY, "piece_bytes": 60, "merge_bytes": 1}])
@pytest.mark.parametrize("kind", [0, 1])
def test_an_offset_twice_is_refused(tmp_path: Path, task: dict[str, int], kind: int) -> None:
    rows = [Row(0, n, T, 0, None, b"x" * 50, []) for n in range(40)]
    double = rows[20]._replace(value=b"other", timestamp_type=kind)
    write_parquet(tmp_path / "in" / "a.parquet", rows)
    write_parquet(tmp_path / "in" / "b.parquet", [double])
    with pytest.raises(InputError, match=r"web-0.* offset (20 twice|.*20, but)"):
        ingest(pipeline_of(tmp_path / "lake", tmp_path / "in", task=task))
    assert open_catalog(str(tmp_path / "lake")).snapshot().topics() == []


LINE = {"partition": 0, "offset": 3, "timestamp": T, "timestampType": 0, "value": "v"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offset": None}, "offset unreadable"),
        ({"offset": -1}, "offset unreadable"),
        ({"offset": 1.5}, "offset unreadable"),
        ({"offset": 10**18}, "offset unreadable"),
        ({"timestampType": 2}, "timestamp type unreadable"),
        ({"timestampType": None}, "timestamp type unreadable"),
        ({"headers": {"a": "b"}}, "headers unreadable"),
        ({"headers": [{"key": None, "value": "b"}]}, "headers unreadable"),
        ({"headers": [{"key": "a"}]}, "headers unreadable"),
        ({"headers": [{"key": "a", "value": {"base64": "?"}}]}, "headers unreadable"),
        ({"partition": 2}, "partition out of range"),
    ],
)
def test_what_is_no_record_is_rejected(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    lines = [LINE, {**LINE, "offset": 4, **change}]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    report = ingest(pipeline_of(tmp_path / "lake", tmp_path / "a.jsonl", "jsonl"))
    assert (report.records, report.reasons) == (1, {reason: 1})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"order": "time"}, "offset_field contradicts pipeline.order = 'time'. Use 'arrival'"),
    ({"topic": {"partition_field": None}}, "offset_field needs topic.partition_field"),
    ({"timestamp": {"field": None, "type_field": None}}, "timestamp.field is missing"),
    ({"headers": {"fields": ["a"]}}, "headers.array_field contradicts headers.fields"),
    ({"topic": {"offset_field": None}}, "timestamp.type_field needs topic.offset_field"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_settings_that_contradict_each_other(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pipeline_of(Path("lake"), Path("a"), **change)


def test_what_would_move_offsets_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [Row(0, 1, T, 0, None, b"", [])])
    settings = pipeline_of(tmp_path / "lake", tmp_path / "a.parquet")
    ingest(settings)
    with pytest.raises(ConfigError, match="cannot be replaced"):
        replace_files(LocalEngine(), settings, DeclaredRun("1"))
    with pytest.raises(ConfigError, match="cannot be redriven"):
        redrive(LocalEngine(), settings, "1")
    dense = pipeline_of(
        tmp_path / "lake", tmp_path / "a.parquet", topic={"offset_field": None},
        timestamp={"type_field": None},
    )  # fmt: skip
    with pytest.raises(ConfigError, match="partitioner = 'field:partition offset:offset'"):
        ingest(dense, "2")
    assert_sound(tmp_path / "lake", [Row(0, 1, T, 0, None, b"", [])], {0: 2})


def test_a_topic_made_again_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [Row(0, 1, T, 0, None, b"", [])])
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "a.parquet", topic={"kafka.topic.id": ONE}))
    again = pipeline_of(tmp_path / "lake", tmp_path / "a.parquet", topic={"kafka.topic.id": TWO})
    with pytest.raises(ConfigError, match=f"id {ONE}, and that topic now has id {TWO}"):
        ingest(again, "2")
    seglake.alter(str(tmp_path / "lake"), "web", {"retention.ms": 5})
    with pytest.raises(ConfigError, match="deleted and created again"):
        ingest(again, "2")


def test_a_lost_race_plans_again(tmp_path: Path) -> None:
    """Another run appends while this one is about to commit: nothing is moved to other offsets."""
    rows = [Row(0, n, T + n, 0, None, b"%d" % n, []) for n in range(0, 60, 2)]
    write_parquet(tmp_path / "some.parquet", rows[:10])
    write_parquet(tmp_path / "all.parquet", rows)
    root = tmp_path / "lake"

    class Raced(LocalEngine):
        """Lets another run commit once this one has written its segments."""

        raced = False

        def map(self, task: Any, items: Any) -> Any:
            done = super().map(task, items)
            if type(task).__name__ == "WritePieces" and not self.raced:
                self.raced = True
                ingest(pipeline_of(root, tmp_path / "some.parquet"), "other")
            return done

    report = ingest(pipeline_of(root, tmp_path / "all.parquet"), engine=Raced())
    assert (report.records, report.skipped_records, report.rebased) == (20, 10, 0)
    assert_sound(root, rows, {0: 59})
