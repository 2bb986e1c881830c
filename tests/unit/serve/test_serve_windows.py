"""Topics that a name makes: windows of time, exactly; versions."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.group import OffsetFetchRequest, OffsetFetchResponse

import seglake
from seglake.errors import UsageError
from seglake.format.decode import scan_batches
from seglake.maintain.erasure.erase import erase
from seglake.serve.groups.offsets import CommittedOffset, OffsetStore
from seglake.serve.records import batch_ranges
from seglake.serve.topics.catalog import DerivedName, parse_derived_name
from tests.harness.lake_server import Wire, serving
from tests.makers.fetches import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Wanted,
    everything,
    fetch,
    metadata,
    offset_at,
    records_in,
)
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.served import asked, time_name
from tests.makers.strategies import examples
from tests.makers.versions import Run, T, cuts, in_window, lost, runs, times

INVALID_TOPIC = 17


def window_name(topic: str, start: int, end: int, more: str = "") -> str:
    return f"{topic}.{time_name(start)}.{time_name(end)}{more}"


@given(
    runs, cuts, st.booleans(), lost, st.lists(st.tuples(times, times), min_size=1, max_size=6),
    st.sampled_from([11, 12, 18]), st.sampled_from([1, 700, 2**20]),
)  # fmt: skip
@examples(25)
def test_a_window_is_exactly_its_records(
    generated: list[Run],
    cut: float,
    log_append: bool,
    loss: Loss | None,
    windows: list[tuple[int, int]],
    version: int,
    size: int,
) -> None:
    with asked(generated, cut, log_append, loss) as (log, maker, wire):
        for start, end in windows:
            first, last = min(start, end), max(start, end) + 1
            name = window_name("events", first, last)
            for partition in log.partitions():
                data = list(everything(wire, name, partition, version, size))
                wanted = in_window(maker.records(partition), first, last)
                assert records_in(b"".join(data), partition) == wanted
                check_offsets(wire, name, partition, b"".join(data))


def check_offsets(wire: Wire, name: str, partition: int, data: bytes) -> None:
    """The log ends after its last record and batch; lookups only see the window."""
    table = scan_batches(data)
    _, start, _ = offset_at(wire, name, partition, EARLIEST)
    _, end, _ = offset_at(wire, name, partition, LATEST)
    if not len(table):
        assert start == end
        return
    records = records_in(data, partition)
    assert (start, end) == (table[0]["base_offset"], table[-1]["last_offset"] + 1)
    assert end == records[-1].offset + 1
    newest = max(records, key=lambda r: (r.timestamp, -r.offset))
    assert offset_at(wire, name, partition, MAX_TIMESTAMP) == (0, newest.offset, newest.timestamp)
    for record in records[:: 1 + len(records) // 5]:
        found = next(r for r in records if r.timestamp >= record.timestamp)
        expected = (0, found.offset, found.timestamp)
        assert offset_at(wire, name, partition, record.timestamp) == expected


def test_the_end_of_a_window_is_the_same_in_every_version(tmp_path: Path) -> None:
    """A merge makes larger batches, an erasure takes the last records of a stored batch."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i, b"%d" % (i % 2)) for i in range(100)]}, Shape(batch_bytes=100))
    name, group = window_name("events", T + 10, T + 61), {"groups.file": str(tmp_path / "groups")}
    store = OffsetStore(tmp_path / "groups", seglake.open(str(tmp_path)).identity)
    store.commit("g", {("events", 0): CommittedOffset(500), (name, 0): CommittedOffset(64)}, 1)
    store.commit("g", {(f"{name}.v99", 0): CommittedOffset(64)}, 1)
    store.close()
    for end in (61, 61, 60):
        if end == 60:
            erase(str(tmp_path), "events", [b"0"])
        with serving(tmp_path, group) as server, Wire(server.address) as wire:
            assert offset_at(wire, name, 0, LATEST) == (0, end, -1)
            batches = scan_batches(b"".join(everything(wire, name, 0)))
            assert batches[-1]["last_offset"] + 1 == end
            request = OffsetFetchRequest(group_id="g", topics=None, require_stable=False)
            found = wire.ask(request, OffsetFetchResponse, 7).topics
        offsets = {each.name: each.partitions[0].committed_offset for each in found}
        assert offsets == {"events": 500, name: end, f"{name}.v99": 64}
        seglake.merge(str(tmp_path), "events", everything=True, rebatch=True)


@given(st.data())
def test_caches_of_the_smallest_size_change_no_answer(data: st.DataObject) -> None:
    """What is forgotten and cut anew differs: fetches at any offset begin batch ranges anywhere."""
    events, most = 300, data.draw(st.integers(1, 4))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        maker = LakeMaker(Path(folder))
        for _ in range(2):
            rows = [Event(T + i * 7 % 100, b"key", b"value %d" % i) for i in range(events)]
            maker.run({0: rows}, Shape("none", batch_bytes=400, segment_bytes=9_000))
        patch.setattr(batch_ranges, "_MOST_RANGES", most)
        patch.setattr(
            batch_ranges, "BATCH_RANGE_BYTES", data.draw(st.sampled_from([500, 1_500, 6_000]))
        )
        with serving(Path(folder)) as server, Wire(server.address) as wire:
            for _ in range(8):
                for offset in data.draw(st.lists(st.integers(0, 2 * events - 1), max_size=6)):
                    fetch(wire, "events", [Wanted(0, offset, 1)])
                first = T + data.draw(st.integers(0, 99))
                last = first + data.draw(st.integers(1, 60))
                found = b"".join(everything(wire, window_name("events", first, last), 0))
                assert records_in(found, 0) == in_window(maker.records(0), first, last)


def test_only_batches_with_strangers_are_encoded_again(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i, None, b"%d" % i) for i in range(500)]}, Shape("zstd", 500, 4000))
    whole = b"".join(
        (tmp_path / row.key("log")).read_bytes()
        for row in maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    )
    with serving(tmp_path) as server, Wire(server.address) as wire:
        data = b"".join(everything(wire, window_name("events", T + 103, T + 391), 0))
    table = scan_batches(data)
    cuts_at = [*table["position"].tolist(), len(data)]
    batches = [data[a:b] for a, b in pairwise(cuts_at)]
    assert [batch in whole for batch in batches] == [False, *[True] * (len(batches) - 2), False]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("web", None),
        ("web.x10", None),
        ("web.20260601T120000Z.20260601T121000Z.v3.x10.again", None),
        ("web.20260601T120000.000Z", None),
        ("web.v12", DerivedName("web", version=12)),
        ("a.b.v0", DerivedName("a.b", version=0)),
        (
            "web.20260601T120000.000Z.20260601T121000.5Z",
            DerivedName("web", 1_780_315_200_000, 1_780_315_800_500),
        ),
        (
            "web.20260601T120000Z.20260601T121000Z.v3",
            DerivedName("web", 1_780_315_200_000, 1_780_315_800_000, 3),
        ),
    ],
)
def test_names(name: str, meaning: DerivedName | None) -> None:
    assert parse_derived_name(name) == meaning


@pytest.mark.parametrize(
    "name",
    [
        "web.20260601T120000.000Z.20260601T120000.000Z",
        "web.20260601T120001.000Z.20260601T120000.000Z",
        "web.20261301T120000.000Z.20261401T120000.000Z",
    ],
)
def test_names_without_sense(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match=name):
        parse_derived_name(name)
    LakeMaker(tmp_path, "web").run({0: [Event(T)]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        (found,) = metadata(wire, [name], 9).topics
        assert found.error_code == INVALID_TOPIC
        assert [each.code for each in fetch(wire, name, [Wanted(0, 0)])] == [3]
    assert name in caplog.text


@given(st.integers(0, 4_102_444_800_000), st.integers(1, 10**10))
@examples(100)
def test_times_in_names(start: int, length: int) -> None:
    assert parse_derived_name(window_name("a.b", start, start + length)) == DerivedName(
        "a.b", start, start + length
    )


def test_a_version_stays_as_it_is(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    first = maker.run({0: [Event(T + i) for i in range(10)]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        pinned, window = f"events.v{first}", window_name("events", T, T + 1000)
        assert offset_at(wire, window, 0, LATEST) == (0, 10, -1)
        maker.run({0: [Event(T + i) for i in range(10, 30)]})
        server.refresh()
        assert offset_at(wire, "events", 0, LATEST) == (0, 30, -1)
        assert offset_at(wire, pinned, 0, LATEST) == (0, 10, -1)
        assert offset_at(wire, window, 0, LATEST) == (0, 10, -1)  # bound when first asked for
        later = window_name("events", T, T + 1001)
        assert offset_at(wire, later, 0, LATEST) == (0, 30, -1)
        assert offset_at(wire, f"{later}.v{first}", 0, LATEST) == (0, 10, -1)
        (found,) = metadata(wire, ["events.v99"], 9).topics
        assert found.error_code == INVALID_TOPIC
        assert [each.name for each in metadata(wire, None, 9).topics] == ["events"]


@pytest.mark.parametrize(("start", "end"), [(-5000, T + 1000), (-5000, -1000), (-1, 0), (-5, 1)])
def test_windows_that_begin_before_1970(start: int, end: int, tmp_path: Path) -> None:
    """Records without a timestamp are in none, as in `read_range`."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(t) for t in (-1, 0, T, -1, T + 5, -1, T + 2000)]}, Shape(batch_bytes=100))
    log = seglake.open(str(tmp_path)).topic("events")
    wanted = log.read_range(start, end).read_all()["offset"].to_pylist()
    with serving(tmp_path) as server, Wire(server.address) as wire:
        name = window_name("events", start, end)
        data = b"".join(everything(wire, name, 0))
        assert [record.offset for record in records_in(data, 0)] == wanted
