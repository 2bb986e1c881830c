"""Records whose timestamps lie at the ends of int64 are in every answer that should have them.

A negative timestamp is no time: such a record is in no window, but in every read of all records.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.kafka.exporting import export_logs
from seglake.kafka.importing import import_logs
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.read.log import Log
from tests.harness.lake_server import Wire, serving
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.fetches import everything, offset_at, records_in
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import ENDS, examples
from tests.unit.datasource.spark_rows import tables
from tests.unit.datasource.test_datasource_batch import reader_of
from tests.unit.log.test_segments import MEMORY

SHAPES = st.builds(
    Shape, st.sampled_from(["none", "zstd"]), st.sampled_from([1, 150]),
    st.sampled_from([200, 2**30]),
)  # fmt: skip
MS = pa.timestamp("ms", "UTC")
Bound = int | None


def made(folder: str, times: Sequence[int], shape: Shape) -> Log:
    """A log whose record i has the timestamp times[i], and a key that is its timestamp's sign."""
    events = [Event(time, b"old" if time < 0 else b"new") for time in times]
    LakeMaker(Path(folder)).run({0: events}, shape)
    return seglake.open(folder).topic("events")


def offsets_of(records: Any) -> list[int]:
    table = records if isinstance(records, pa.Table) else records.read_all()
    offsets: Any = table["offset"].to_pylist()
    return [*offsets]


def windows(log: Log, start: Bound, end: Bound) -> Iterator[list[int]]:
    """The offsets in a window of time, from each kind of read."""
    yield offsets_of(log.read_range(start, end))
    yield sorted(offsets_of(log.read_range(start, end, order="time")))
    yield offsets_of(log.plan_range(start, end).execute())
    yield sorted(offsets_of(log.find(keys=["old", "new"], start=start, end=end)))
    yield offsets_of(log.dataset(start, end).to_table())
    bounds = {"startTime": start, "endTime": end}
    options = {name: str(time) for name, time in bounds.items() if time is not None}
    reader = reader_of(Path(log.store.uri), columns="offset", **options)
    yield [offset for table in tables(reader, reader.partitions()) for offset in offsets_of(table)]
    if end is None or end > max(start or 0, 0):  # an export of no time is refused
        yield exported(log, start, end)


def exported(log: Log, start: Bound, end: Bound) -> list[int]:
    """The offsets in an export of a window."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        export_logs(log.store.uri, "events", f"{folder}/logs", start=start, end=end)
        import_logs(f"{folder}/lake", [f"{folder}/logs"])
        lake = seglake.open(f"{folder}/lake")
        return [each for name in lake.topics() for each in offsets_of(lake.topic(name).tail(99))]


@given(st.lists(ENDS, min_size=1, max_size=12), SHAPES, ENDS, ENDS)
@examples(40)
def test_every_window_has_its_records(times: list[int], shape: Shape, one: int, two: int) -> None:
    start, end = sorted((one, two))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        log = made(folder, times, shape)
        bounds: list[tuple[Bound, Bound]] = [(None, None), (start, end), (start, None), (None, end)]
        for low, high in bounds:
            whole = low is None and high is None
            wanted = [
                offset for offset, time in enumerate(times)
                if whole or (time >= max(low or 0, 0) and (high is None or time < high))
            ]  # fmt: skip
            assert {str(found) for found in windows(log, low, high)} == {str(wanted)}, (low, high)


@given(st.lists(ENDS, min_size=1, max_size=12), SHAPES, ENDS)
@examples(40)
def test_lookups_and_filters_match_brute_force(times: list[int], shape: Shape, time: int) -> None:
    every = list(range(len(times)))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        log = made(folder, times, shape)
        assert [log.record_at(0, offset).timestamp for offset in every] == times
        assert log.records_at(0, every)["timestamp"].cast(pa.int64()).to_pylist() == times
        assert offsets_of(log.read(0, 0)) == offsets_of(log.tail(len(times))) == every
        last = log.last("new")
        assert (last and last.offset) == max((i for i in every if times[i] >= 0), default=None)
        reached = next((i for i in every if times[i] >= max(time, 0)), None)
        found = log.offsets_for_times({0: max(time, 0)})[0]
        assert (found and found.offset) == reached
        newest, largest = log.max_timestamps()[0], max(times)
        assert newest == (None if largest < 0 else (times.index(largest), largest))
        field, bound = pc.field("timestamp"), pa.scalar(time, MS)
        for condition, holds in (
            (field >= bound, int.__ge__), (field > bound, int.__gt__), (field < bound, int.__lt__),
            (field <= bound, int.__le__), (field == bound, int.__eq__),
        ):  # fmt: skip
            table = log.dataset().to_table(columns=["offset"], filter=condition)
            assert offsets_of(table) == [i for i in every if holds(times[i], time)]
        around = log.read_around(
            pa.table({"at": [time]}), "at", before_ms=1, after_ms=1, columns=["offset"]
        )
        near = [i for i in every if times[i] >= 0 and time - 1 <= times[i] < time + 1]
        assert sorted(offsets_of(around)) == near


@given(st.lists(ENDS, min_size=1, max_size=12), SHAPES)
@examples(8)
def test_the_server_has_the_records_of_all_times(times: list[int], shape: Shape) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        made(folder, times, shape)
        window = "events.19691231T235959Z.20260101T000000Z"
        with serving(folder) as server, Wire(server.address) as wire:
            for name, least, most in (("events", INT64_MIN, INT64_MAX), (window, 0, 5)):
                stored = records_in(b"".join(everything(wire, name, 0)), 0)
                wanted = [i for i, time in enumerate(times) if least <= time <= most]
                assert [record.offset for record in stored] == wanted
                for time in (0, 5, INT64_MAX):
                    first = next((i for i in wanted if times[i] >= time), -1)
                    expected = (0, first, times[first] if first >= 0 else -1)
                    assert offset_at(wire, name, 0, time) == expected


@given(st.lists(ENDS, min_size=1, max_size=12), st.sampled_from([1, 3]), SHAPES)
@examples(25)
def test_any_timestamp_is_imported_and_kept(times: list[int], size: int, shape: Shape) -> None:
    events = [Event(time, b"%d" % (number % 2)) for number, time in enumerate(times)]
    steps = [Step(-1, tuple(events[at : at + size])) for at in range(0, len(events), size)]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        BrokerLog(steps, shape).write(Path(folder) / "logs" / "events-0")
        root = f"{folder}/lake"
        import_logs(root, [f"{folder}/logs"])
        assert times_in(root) == times
        merge(root, "events", everything=True)
        assert times_in(root) == times
        erase(root, "events", [b"0"])
        assert times_in(root) == times[1::2]


def times_in(root: str) -> list[int]:
    """The timestamps of a lake's records, which is sound."""
    assert verify(root, deep=True).findings == []
    table: Any = seglake.open(root).topic("events").read_range(None, None).read_all()
    assert table["timestamp_type"].unique().to_pylist() in ([], [0])
    return [*table["timestamp"].cast(pa.int64()).to_pylist()]
