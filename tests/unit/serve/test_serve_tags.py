"""Topics of tags: `web.q3-train` is `web` in the version that the tag names, while it names it."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

import seglake
from seglake.errors import ConfigError, UsageError
from seglake.maintain.erasure.erase import erase
from seglake.maintain.tagging import tag
from seglake.maintain.vacuum import vacuum
from seglake.read.lake import Lake
from seglake.serve.settings import load
from seglake.serve.topics.catalog import DerivedName, ServedTopics, parse_derived_name
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.harness.lake_server import Serving, Wire, serving
from tests.makers.fetches import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Wanted,
    everything,
    fetch,
    fetch_request,
    metadata,
    offset_at,
    records_in,
    topic_id,
)
from tests.makers.lakes import Event, LakeMaker
from tests.makers.served import rich_lake, time_name
from tests.makers.strategies import examples
from tests.makers.versions import Run, T, cuts, lost, runs, times, versions_of

UNKNOWN_TOPIC, INVALID_TOPIC, UNKNOWN_ID, STORAGE = 3, 17, 100, 56
SPAN = (1_780_315_200_000, 1_780_315_800_000)
WINDOW = "20260601T120000Z.20260601T121000Z"
Records = list[tuple[int, int, bytes | None, bytes | None]]


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("web.q3-train", DerivedName("web", tag="q3-train")),
        ("a.b.q3", DerivedName("a.b", tag="q3")),
        ("web.nothing", None),
        ("q3", None),
        ("web.Q3", None),
        ("web.v3.q3", None),
        ("web.q3.q3", DerivedName("web.q3", tag="q3")),  # a topic that the lake does not have
        ("web.q3.v3", DerivedName("web.q3", version=3)),
        ("web.key", None),
        (f"web.{WINDOW}.q3", DerivedName("web", *SPAN, tag="q3")),
        (f"web.{WINDOW}.nothing", None),
        ("a.key.q3", DerivedName("a.key", tag="q3")),
        ("a.v1.q3", DerivedName("a.v1", tag="q3")),
    ],
)
def test_names(name: str, meaning: DerivedName | None) -> None:
    assert parse_derived_name(name, {"web", "a.b", "a.key", "a.v1"}, {"q3-train", "q3"}) == meaning


@given(st.text("ab.v3x0key64q-_ZT", min_size=1, max_size=20), st.data())
@examples(300)
def test_a_tag_changes_no_other_name(name: str, data: st.DataObject) -> None:
    topics = data.draw(st.sets(st.sampled_from(["a", "a.b", "a.key", "q"])))
    asked = seen_or_error(parse_derived_name, name, topics, ())
    found = seen_or_error(parse_derived_name, name, topics, {"q", "b", "a-q", "b_"})
    if asked is not None and (isinstance(asked, str) or asked.topic in topics):
        assert found == asked
    elif isinstance(found, DerivedName) and found.tag is not None:
        assert name.rsplit(".", maxsplit=1)[-1] == found.tag


def seen_or_error(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except UsageError as error:
        return str(error)


# ------------------------------------------------------------------ content


def lake_records(
    root: Path, tagged: str, partition: int, bounds: tuple[int, int], topic: str = "events"
) -> Records:
    """What a reader of the tag finds; records without a timestamp only without bounds."""
    log = seglake.open(str(root), tagged).topic(topic)
    columns = ["offset", "timestamp", "key", "value"]
    if bounds == (-1, -1):
        span = (log.beginning_offsets()[partition], log.end_offsets()[partition])
        batches = [*log.plan_offsets({partition: span}, columns=columns).execute()]
    else:
        batches = [*log.read_range(*bounds, partitions=[partition], columns=columns)]
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    rows = table.set_column(1, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def served(wire: Wire, name: str, partition: int, version: int = 12, size: int = 2**20) -> Records:
    """What a client finds."""
    data = b"".join(everything(wire, name, partition, version, size))
    return [(r.offset, r.timestamp, r.key, r.value) for r in records_in(data, partition)]


@pytest.mark.rest
@given(
    runs, cuts, lost, st.lists(st.tuples(times, times), max_size=2), st.sampled_from([11, 12, 18]),
    st.sampled_from([1, 700, 2**20]), st.data(),
)  # fmt: skip
@examples(12)
def test_each_tag_is_exactly_its_version(
    tmp_path_factory: pytest.TempPathFactory,
    generated: list[Run],
    cut: float,
    loss: Any,
    windows: list[tuple[int, int]],
    version: int,
    size: int,
    data: st.DataObject,
) -> None:
    """As `seglake.open` finds it by the tag, also behind later versions, in parts and by key."""
    root = tmp_path_factory.mktemp("tags") / "lake"
    names = list[str]()
    for number, _ in enumerate(versions_of(root, generated, cut, loss=loss)):
        if data.draw(st.booleans()) or not names:
            names.append(f"tag-{number}")
            tag(str(root), names[-1])
    with serving(root) as server, Wire(server.address) as wire:
        for name in names:
            for partition in (0, 1):
                whole = f"events.{name}"
                expected = lake_records(root, name, partition, (-1, -1))
                assert served(wire, whole, partition, version, size) == expected
                check_ends(wire, root, name, partition)
                for first, second in windows:
                    span = (min(first, second), max(first, second) + 1)
                    window = f"events.{time_name(span[0])}.{time_name(span[1])}.{name}"
                    expected = lake_records(root, name, partition, span)
                    assert served(wire, window, partition, version, size) == expected


def check_ends(wire: Wire, root: Path, name: str, partition: int) -> None:
    log, topic = seglake.open(str(root), name).topic("events"), f"events.{name}"
    bounds = (log.beginning_offsets()[partition], log.end_offsets()[partition])
    assert offset_at(wire, topic, partition, EARLIEST) == (0, bounds[0], -1)
    assert offset_at(wire, topic, partition, LATEST) == (0, bounds[1], -1)
    for time in (0, T, T + 20):
        found = log.offsets_for_times({partition: time})[partition]
        expected = (0, -1, -1) if found is None else (0, *found)
        assert offset_at(wire, topic, partition, time) == expected
    newest = log.max_timestamps()[partition]
    expected = (0, -1, -1) if newest is None else (0, *newest)
    assert offset_at(wire, topic, partition, MAX_TIMESTAMP) == expected


def test_windows_of_a_tag(tmp_path: Path) -> None:
    maker = rich_lake(tmp_path)
    tag(str(tmp_path), "q3")
    maker.run({0: [Event(T, b"key 3", b"later")]})
    start, end = T, T + 200_000
    span = f"{time_name(start)}.{time_name(end)}"
    with serving(tmp_path) as server, Wire(server.address) as wire:
        rows = lake_records(tmp_path, "q3", 0, (start, end))
        assert served(wire, f"events.{span}.q3", 0) == rows


# ------------------------------------------------------------------ what becomes of tags


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", "web")
    maker.run({0: [Event(T + i, b"u%d" % (i % 2), b"%d" % i) for i in range(10)]})
    return maker


@pytest.fixture
def server(maker: LakeMaker) -> Iterator[Serving]:
    """It looks when a test says so."""
    with serving(maker.root, refresh_ms=600_000) as server:
        yield server


def codes(wire: Wire, name: str, id_of: uuid.UUID | None = None) -> tuple[int, int, int, int]:
    """The errors of metadata, of a lookup, of a fetch by name, and of one by id."""
    (found,) = metadata(wire, [name], 9).topics
    at, _, _ = offset_at(wire, name, 0, LATEST)
    (got,) = fetch(wire, name, [Wanted(0, 0)])
    request = fetch_request(name, [Wanted(0, 0)], id_of=id_of or uuid.uuid4())
    (answer,) = wire.ask(request, FetchResponse, 18).responses
    return found.error_code, at, got.code, answer.partitions[0].error_code


GONE = (UNKNOWN_TOPIC, UNKNOWN_TOPIC, UNKNOWN_TOPIC, UNKNOWN_ID)


def test_a_tag_comes_and_goes(maker: LakeMaker, server: Serving, wire: Wire) -> None:
    root = str(maker.root)
    assert codes(wire, "web.q3") == GONE
    tag(root, "q3")
    server.refresh()
    first = topic_id(wire, "web.q3")
    assert codes(wire, "web.q3", first) == (0, 0, 0, 0)
    assert [each.name for each in metadata(wire, None, 9).topics] == ["web"]
    maker.run({0: [Event(T + 99)]})
    tag(root, "q3", until="2099-01-01")
    server.refresh()
    assert topic_id(wire, "web.q3") == first
    assert offset_at(wire, "web.q3", 0, LATEST) == (0, 10, -1)
    tag(root, "q3", delete=True)
    server.refresh()
    assert codes(wire, "web.q3", first) == GONE
    assert server.topics._derived == {}
    tag(root, "q3")
    server.refresh()
    second = topic_id(wire, "web.q3")
    assert second != first
    assert codes(wire, "web.q3", first) == (0, 0, 0, UNKNOWN_ID)
    assert codes(wire, "web.q3", second) == (0, 0, 0, 0)
    assert offset_at(wire, "web.q3", 0, LATEST) == (0, 11, -1)


@pytest.mark.parametrize("swept", [False, True])
def test_a_tag_that_is_made_anew_between_two_looks(
    maker: LakeMaker, server: Serving, wire: Wire, swept: bool
) -> None:
    root, span = str(maker.root), f"{time_name(T)}.{time_name(T + 1000)}"
    names = ["web.q3", f"web.{span}.q3"]
    tag(root, "q3")
    server.refresh()
    ids = [topic_id(wire, name) for name in names]
    tag(root, "q3", delete=True)
    maker.run({0: [Event(T + 99, b"u1")]})
    tag(root, "q3")
    if swept:
        vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    server.refresh()
    for name, before in zip(names, ids, strict=True):
        now = topic_id(wire, name)
        assert codes(wire, name, before) == (0, 0, 0, UNKNOWN_ID)
        assert now != before
        assert offset_at(wire, name, 0, LATEST) == (0, 11, -1)
    assert len({*server.topics._ids}) == 1 + len(names)


def test_the_id_of_a_tag_is_the_same_in_every_server(maker: LakeMaker) -> None:
    tag(str(maker.root), "q3")
    tag(str(maker.root), "q4")
    ids = set[tuple[uuid.UUID, ...]]()
    for _ in range(2):
        with serving(maker.root) as server, Wire(server.address) as wire:
            ids.add((topic_id(wire, "web.q3"), topic_id(wire, "web.q4"), topic_id(wire, "web.v1")))
    (some,) = ids
    assert len({*some}) == 3


@pytest.mark.parametrize("version", [12, 18])
def test_what_an_erasure_takes_out_of_a_tag_is_gone(
    maker: LakeMaker, server: Serving, wire: Wire, version: int
) -> None:
    """The topic is the same, by name and by id; so is that of the version's number."""
    root, pinned = str(maker.root), maker.versions[-1]
    tag(root, "q3", pinned)
    maker.run({0: [Event(T + 50, b"u0")]})
    server.refresh()
    names = ["web.q3", f"web.{time_name(T)}.{time_name(T + 9)}.q3", f"web.v{pinned}"]
    ids = {name: topic_id(wire, name) for name in names}
    for name in names:
        assert any(row[2] == b"u1" for row in served(wire, name, 0, version))
    erase(root, "web", [b"u1"], vacuum=True)
    server.refresh()
    for name in names:
        request = fetch_request(name, [Wanted(0, 0)], id_of=ids[name])
        (answer,) = wire.ask(request, FetchResponse, version).responses
        assert answer.partitions[0].error_code == 0  # by the id that the client has
        rows = served(wire, name, 0, version)
        assert not any(row[2] == b"u1" for row in rows)
        expected = lake_records(maker.root, "q3", 0, (-1, -1), "web")
        assert rows == [row for row in expected if ".2023" not in name or row[1] < T + 9] != []
        assert topic_id(wire, name) == ids[name]


def test_files_that_leave_before_a_look(maker: LakeMaker, server: Serving, wire: Wire) -> None:
    """The client tries again, and finds what the tag has now, or that it is gone."""
    root = str(maker.root)
    maker.run({0: [Event(T + 50, b"u1")]})
    pinned = f"web.v{tag(root, 'q3').tagged}"
    seglake.merge(root, "web", everything=True)
    server.refresh()
    assert len(served(wire, "web.q3", 0)) == len(served(wire, pinned, 0)) == 11
    erase(root, "web", [b"u1"], vacuum=True)
    server.topics.batch_ranges.forget()
    for name in (pinned, "web.q3"):
        first, second = (fetch(wire, name, [Wanted(0, 0)])[0] for _ in range(2))
        assert first.code == (STORAGE if name == pinned else 0)  # which looked for all
        assert second.code == 0
        assert {r.key for r in records_in(second.data, 0)} == {b"u0"}
    tag(root, "q3", delete=True)
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    assert codes(wire, "web.q3.other") == GONE
    fresh = f"web.{time_name(T)}.{time_name(T + 1000)}.q3"  # its plan finds the tag's object gone
    assert codes(wire, fresh)[:3] == GONE[:3]
    assert codes(wire, "web.q3")[:3] == GONE[:3]


def test_a_version_that_a_tag_holds(maker: LakeMaker, server: Serving, wire: Wire) -> None:
    """Its number goes on as long as the tag, and then no longer."""
    root, pinned = str(maker.root), f"web.v{maker.versions[-1]}"
    assert offset_at(wire, pinned, 0, LATEST) == (0, 10, -1)
    before = topic_id(wire, pinned)
    tag(root, "q3", maker.versions[-1])
    seglake.merge(root, "web", everything=True)
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    server.refresh()
    assert len(served(wire, pinned, 0)) == 10
    assert topic_id(wire, pinned) == before
    maker.run({0: [Event(T + 99)]})
    seglake.merge(root, "web", everything=True)
    tag(root, "q3", delete=True)
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    server.refresh()
    assert metadata(wire, [pinned], 9).topics[0].error_code == INVALID_TOPIC


def test_real_topics_win(maker: LakeMaker, server: Serving, wire: Wire) -> None:
    tag(str(maker.root), "q3")
    server.refresh()
    derived = topic_id(wire, "web.q3")
    maker.topic = "web.q3"
    maker.run({0: [Event(T + i) for i in range(5)]})
    server.refresh()
    assert offset_at(wire, "web.q3", 0, LATEST) == (0, 5, -1)
    assert codes(wire, "web.q3", derived) == (0, 0, 0, UNKNOWN_ID)
    assert codes(wire, "web.q3", topic_id(wire, "web.q3")) == (0, 0, 0, 0)
    tag(str(maker.root), "q4")
    server.refresh()
    assert offset_at(wire, "web.q3.q4", 0, LATEST) == (0, 5, -1)


def test_only_what_is_served(maker: LakeMaker) -> None:
    maker.topic = "other"
    maker.run({0: [Event(T)]})
    tag(str(maker.root), "q3")
    with serving(maker.root, topics=("web",)) as server, Wire(server.address) as wire:
        assert codes(wire, "web.q3")[:3] == (0, 0, 0)
        assert codes(wire, "other.q3") == GONE


@pytest.mark.parametrize("change", ["anew", "erased", "deleted"])
def test_a_tag_that_changes_while_its_topic_is_planned(
    maker: LakeMaker, server: Serving, wire: Wire, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The client gets what the tag has by then."""
    root, planned = str(maker.root), ServedTopics._planned
    tag(root, "q3")
    server.refresh()
    seen = list[int]()

    def windowed(topics: ServedTopics, *arguments: Any) -> Any:
        made = planned(topics, *arguments)
        seen.append(made.log.version)
        if len(seen) == 1:
            _change(maker, change)
            server.refresh()
        return made

    monkeypatch.setattr(ServedTopics, "_planned", windowed)
    (found,) = metadata(wire, ["web.q3"], 12).topics
    if change == "deleted":
        assert (found.error_code, len(seen)) == (UNKNOWN_TOPIC, 1)
        tag(root, "q3")
        server.refresh()
        assert codes(wire, "web.q3")[:3] == (0, 0, 0)
        return
    assert (found.error_code, len(seen)) == (0, 2)
    assert uuid.UUID(str(found.topic_id)) == topic_id(wire, "web.q3")
    assert len(served(wire, "web.q3", 0)) == {"anew": 11, "erased": 5}[change]
    assert len(seen) == 2


def _change(maker: LakeMaker, change: str) -> None:
    if change == "erased":
        erase(str(maker.root), "web", [b"u1"], vacuum=True)
        return
    tag(str(maker.root), "q3", delete=True)
    if change == "anew":
        maker.run({0: [Event(T + 99)]})
        tag(str(maker.root), "q3")


def test_names_that_clients_make_up_are_few(maker: LakeMaker) -> None:
    for name in ("a", "b", "c", "d"):
        tag(str(maker.root), name)
    with serving(maker.root, windows=2) as server, Wire(server.address) as wire:
        ids = {name: topic_id(wire, f"web.{name}") for name in ("a", "b", "c", "d")}
        topics = server.topics
        assert list(topics._derived) == ["web.c", "web.d"]
        assert {*topics._ids.values()} == {"web", "web.c", "web.d"}
        assert topic_id(wire, "web.a") == ids["a"]


# ------------------------------------------------------------------ what it costs


def counted(maker: LakeMaker) -> tuple[Lake, Callable[[], int]]:
    """The lake, and what says how many requests there were since it was asked last."""
    store = CountingStore(open_store(str(maker.root)))

    def requests() -> int:
        count, store.counts.requests = store.counts.requests, 0
        return count

    return Lake(store), requests


def test_no_request_of_a_client_asks_storage_for_tags(maker: LakeMaker) -> None:
    tag(str(maker.root), "q3")
    maker.topic = "late"
    maker.run({0: [Event(T)]})
    lake, requests = counted(maker)
    with serving(lake, refresh_ms=600_000) as server, Wire(server.address) as wire:
        id_of = topic_id(wire, "web.q3")
        codes(wire, "web.q3", id_of)
        codes(wire, "late.q3")  # a topic that the tag's version does not have
        assert requests() > 0
        for _ in range(3):
            assert codes(wire, "web.q3", id_of) == (0, 0, 0, 0)
            for name in ("late.q3", "web.q4", "other.q3"):
                assert codes(wire, name) == GONE
        assert requests() == 0


def test_a_look_costs_no_more_for_tags_that_stay(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither without tags, nor with some: those are read when there are others."""
    lake, requests = counted(maker)
    with serving(lake, refresh_ms=600_000) as server, Wire(server.address) as wire:

        def of_a_look() -> tuple[int, int]:
            """Requests of a look that finds nothing new, and of one that finds a run."""
            server.refresh()
            requests()
            server.refresh()
            idle = requests()
            maker.run({0: [Event(T)]})
            requests()
            server.refresh()
            return idle, requests()

        without = of_a_look()
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "known_tags", lambda _: [])
            assert of_a_look() == without
        tag(str(maker.root), "q3")
        server.refresh()
        assert codes(wire, "web.q3")[:3] == (0, 0, 0)
        assert of_a_look() == without
        requests()
        tag(str(maker.root), "q4")
        server.refresh()
        assert requests() > without[1]


def test_only_names_that_the_operator_gives_are_listed(maker: LakeMaker) -> None:
    root, span = str(maker.root), f"{time_name(T)}.{time_name(T + 1000)}"
    window, version = f"web.{span}", f"web.v{maker.versions[-1]}"
    tag(root, "q3-a")
    with serving(root) as server, Wire(server.address) as wire:
        for name in (window, version, "web.q3-a"):
            topic_id(wire, name)
        assert listed(wire) == ["web"]
    given = (window, version, "web", "web.v99", "web.q?-*", "web.nothing")
    with serving(root, list=given) as server, Wire(server.address) as wire:
        assert listed(wire) == ["web", window, "web.q3-a", version]
        tag(root, "q3-b")
        tag(root, "other")
        tag(root, "q3-a", delete=True)
        server.refresh()
        assert listed(wire) == ["web", window, "web.q3-b", version]
    with serving(root, list=given, windows=1) as server, Wire(server.address) as wire:
        assert listed(wire) == ["web", window]
    with pytest.raises(ConfigError, match=r"server\.list"):
        load(None, {"server.list": ("we b.*",)})


def listed(wire: Wire) -> list[str]:
    return [each.name for each in metadata(wire, None, 12).topics]
