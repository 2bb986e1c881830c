"""Export: what a lake holds comes back from the folders as it was, every record at its offset."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.errors import CorruptData, UnknownTopic, UsageError
from seglake.format.codecs.compression import NAMES
from seglake.format.decode import scan_batches
from seglake.kafka.exporting import ExportResult, export_logs, require_outside
from seglake.kafka.importing import import_logs
from seglake.kafka.survey import batch_headers
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.store import open_store
from tests.judges.oracle import as_written
from tests.makers.broker_folders import TOPIC_ID, BrokerLog, Step
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T, event_lists, examples
from tests.unit.kafka.test_importing import ONE, TWO, read, take
from tests.unit.log.test_segments import MEMORY, with_gaps

shapes = st.builds(
    Shape, codec=st.sampled_from(NAMES), batch_bytes=st.sampled_from([256, 16_384]),
    segment_bytes=st.sampled_from([20_000, 2**30]), append_time_ms=st.sampled_from([None, T + 7]),
)  # fmt: skip
gaps_of = st.lists(st.sampled_from([0, 0, 0, 5]), min_size=1, max_size=7)


def back(root: Path, dest: Path) -> Path:
    """The lake that the folders give."""
    again = dest.with_name("again")
    import_logs(str(again), [str(dest)])
    assert verify(str(again), deep=True).findings == []
    return again


def bounds(root: Path) -> tuple[dict[int, int], dict[int, int]]:
    log = seglake.open(str(root)).topic("events")
    return log.beginning_offsets(), log.end_offsets()


@given(event_lists(max_size=120), shapes, gaps_of, st.integers(0, 40), st.booleans())
@examples(30)
def test_there_and_back(
    events: list[Event], shape: Shape, gaps: list[int], start: int, merged: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        maker = LakeMaker(Path(name, "lake"), partitions=2)
        for part in (events[::2], events[1::2]):
            maker.run({0: with_gaps(part, gaps), 1: with_gaps(part, [])}, shape)
        end = maker.catalog.snapshot().partition("events", 0).end_offset
        maker.delete_records(0, min(start, end))
        if merged:
            merge(str(maker.root), "events", everything=True)
        export_logs(str(maker.root), "events", str(Path(name, "out")))
        again = back(maker.root, Path(name, "out"))
        assert read(again) == maker.records()
        if maker.records(0) and maker.records(1):
            assert bounds(again) == bounds(maker.root)


@given(event_lists(max_size=120), shapes, gaps_of, st.integers(-20, 400), st.integers(1, 300))
@examples(30)
def test_a_window_holds_its_records(
    events: list[Event], shape: Shape, gaps: list[int], first: int, length: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        maker = LakeMaker(Path(name, "lake"), partitions=2)
        maker.run({0: with_gaps(events, gaps), 1: with_gaps(events[::3], [])}, shape)
        maker.delete_records(0, min(3, len(events)))
        window = (T + first, T + first + length)
        dest = Path(name, "out")
        export_logs(str(maker.root), "events", str(dest), start=window[0], end=window[1])
        log = seglake.open(str(maker.root)).topic("events")
        wanted = as_written(log.read_range(*window).read_all())
        assert stored(dest) == wanted
        if wanted:
            assert read(back(maker.root, dest)) == wanted


def stored(dest: Path) -> list[Written]:
    """The records of all folders below an export."""
    again = dest.with_name("stored")
    import_logs(str(again), [str(dest)])
    return read(again) if (again / "catalog").exists() else []


def test_logs_and_indexes_are_copied_byte_for_byte(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T + n, b"k", b"v" * 30) for n in range(200)]}, Shape(segment_bytes=5000))
    report = export_logs(str(maker.root), "events", str(tmp_path / "out"), topic_id=TOPIC_ID)
    folder = tmp_path / "out" / "events-0"
    for suffix in ("log", "index", "timeindex"):
        ours = {path.name: path.read_bytes() for path in maker.files(suffix)}
        theirs = {path.name: path.read_bytes() for path in folder.glob(f"*.{suffix}")}
        assert theirs == ours | {f"{200:020d}.{suffix}": b""}
    assert (folder / "partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID}\n"
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    note = tmp_path / "out" / "log-start-offset-checkpoint"
    assert note.read_text() == "0\n1\nevents 0 0\n"
    (part,) = report.partitions
    assert (part.log_start_offset, part.end_offset, part.segments) == (0, 200, report.segments)


def test_leader_epochs_are_those_of_a_new_topic(tmp_path: Path) -> None:
    steps = [Step(-1, TWO), Step(-1, ONE, rolls=True), Step(9, TWO), Step(9)]
    folder = BrokerLog(steps).write(tmp_path / "events-0", epoch=6)
    take(tmp_path / "lake", folder)
    export_logs(str(tmp_path / "lake"), "events", str(tmp_path / "out"))
    for path in sorted((tmp_path / "out").glob("events-0/*.log")):
        data = path.read_bytes()
        assert not batch_headers(data, scan_batches(data))["leader_epoch"].any()
    assert read(back(tmp_path / "lake", tmp_path / "out")) == read(tmp_path / "lake")


def test_a_log_without_records_keeps_its_end(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T)] * 5})
    maker.delete_records(0, 5)
    report = export_logs(str(maker.root), "events", str(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out" / "events-0").glob("*.log")] == [
        f"{5:020d}.log"
    ]
    assert (report.partitions[0].log_start_offset, report.partitions[0].end_offset) == (5, 5)


def test_what_is_refused(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T)]})
    root, dest = str(maker.root), tmp_path / "out"

    def refused(error: type[Exception], match: str, topic: str = "events", **how: str) -> None:
        with pytest.raises(error, match=match):
            export_logs(root, topic, str(dest), **how)  # type: ignore[arg-type]

    refused(UnknownTopic, "topic 'event' is not in", topic="event")
    refused(UsageError, "ends before it starts", start="2026-01-02T00Z", end="2026-01-01T00Z")
    refused(UsageError, "is empty", start="2026-01-01T00Z", end="2026-01-01T00Z")
    refused(UsageError, "is not a topic id", topic_id="abc")
    dest.mkdir()
    (dest / "file").touch()
    refused(UsageError, "is not empty: it has file")
    (dest / "file").unlink()
    (log,) = maker.files("log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    refused(CorruptData, "CRC-32C")
    assert [path for path in dest.rglob("*") if path.is_file()] == []
    assert isinstance(ExportResult("t", 1).as_json(), str)


def test_no_export_goes_into_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its place is spelt; the next vacuum would find what it does not know."""
    maker = LakeMaker(tmp_path / "the lake")
    maker.run({0: [Event(T)]})
    monkeypatch.chdir(maker.root)
    (tmp_path / "link").symlink_to(maker.root / "topics")
    (tmp_path / "lake").symlink_to(maker.root)
    before = sorted(maker.root.rglob("*"))
    inside = [
        maker.root, maker.root / "out", maker.root / "topics" / "events-0", "out", "./a/../out",
        f"{maker.root}/../the lake/x", tmp_path / "link" / "new", tmp_path / "lake" / "a" / "b",
        (maker.root / "out").as_uri(), f"{tmp_path}//the lake//out/",
    ]  # fmt: skip
    for root in (maker.root, tmp_path / "lake", maker.root.as_uri()):
        for dest in inside:
            with pytest.raises(UsageError, match=r"is inside the lake .*Name a folder outside"):
                export_logs(str(root), "events", str(dest))
    assert sorted(maker.root.rglob("*")) == before
    (tmp_path / "the lake 2").mkdir()
    for dest in (tmp_path / "the lake 2", "../out"):
        assert export_logs(str(maker.root), "events", str(dest)).segments == 1


@pytest.mark.parametrize("dest", ["s3://b/lake", "s3a://b/lake/out/", "s3://b/lake//x"])
def test_no_export_goes_into_a_lake_in_a_bucket(dest: str) -> None:
    with pytest.raises(UsageError, match="is inside the lake"):
        require_outside(open_store("s3://b/lake"), open_store(dest))
    for other in ("s3://b/lake2", "s3://c/lake/x", "s3://b", "gs://b/lake", "/b/lake"):
        require_outside(open_store("s3://b/lake"), open_store(other))


def test_times_that_no_calendar_has_go_out_and_come_in(tmp_path: Path) -> None:
    """Microseconds and nanoseconds that a producer wrote for milliseconds."""
    t = 1_700_000_000_000
    times = [t, t * 1000, t * 10**6, 2**63 - 2, -1, t]
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(time, b"k", b"v") for time in times]}, Shape())
    export_logs(str(maker.root), "events", str(tmp_path / "out"))
    import_logs(str(tmp_path / "other"), [str(tmp_path / "out")])
    found = seglake.open(str(tmp_path / "other")).topic("events").read(0, 0, max_records=10)
    assert found["timestamp"].cast(pa.int64()).to_pylist() == times
    assert verify(str(tmp_path / "other"), deep=True).findings == []
