"""Topics of keys: exactly the records with a key, at their offsets, and no trace of the key."""

from __future__ import annotations

import base64
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse, ListOffsetsRequest
from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from seglake.errors import UsageError
from seglake.format.decode import scan_batches
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.layout import new_attempt
from seglake.maintain.erasure.erase import erase
from seglake.maintain.tagging import tag
from seglake.serve.reads import fetch as fetch_module
from seglake.serve.records import sought
from seglake.serve.topics.names import Derived, hidden, parse
from seglake.store import local
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
from tests.makers.gaps import Loss, lose
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.murmur2 import murmur2
from tests.makers.served import time_name
from tests.makers.strategies import examples
from tests.makers.versions import (
    T,
    cuts,
    grow,
    headers,
    in_window,
    lost,
    shapes,
    texts,
    times,
    timestamps,
)

UNKNOWN_TOPIC, INVALID_TOPIC, CORRUPT = 3, 17, 2
KEYS = [b"u1", b"u2", b"u3", b"u4", b"u1\x00", b"", b"a-b_c", b"\xff\xfe\x00", b"\x00\x00\x00\x01"]

keys = st.sampled_from([None, *KEYS])
events = st.builds(
    Event, timestamps, keys, texts, st.one_of(st.just(()), headers), st.sampled_from([0] * 9 + [3])
)
rows = st.one_of(
    st.lists(events, max_size=20),
    st.builds(
        lambda some, count: [some[i * i % len(some)] for i in range(count)],
        st.lists(events, min_size=1, max_size=9), st.sampled_from([50, 150]),
    ),
)  # fmt: skip
indexed = st.tuples(shapes, st.booleans()).map(
    lambda both: replace(
        both[0], policy=replace(both[0].policy, subjects=(RECORD_KEYS,) if both[1] else ())
    )
)
runs = st.lists(st.tuples(rows, indexed), min_size=1, max_size=3)


def key64(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def placed(given: list[Event], count: int) -> dict[int, list[Event]]:
    """Events by log partition, as Kafka's producers choose it."""
    found: dict[int, list[Event]] = {number: [] for number in range(count)}
    for place, event in enumerate(given):
        home = place if event.key is None else murmur2(event.key)
        found[home % count].append(event)
    return found


@contextmanager
def keyed_lake(
    generated: list[tuple[list[Event], Shape]], cut: float, loss: Loss | None, is_append: bool
) -> Iterator[tuple[LakeMaker, int, list[Written]]]:
    """The lake, its version after the first run, and what that had."""
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder), partitions=2)
        had = list[Written]()
        for number, (given_rows, shape) in enumerate(generated):
            at = T + 7 * number if is_append else None
            maker.run(placed(given_rows, 2), replace(shape, append_time_ms=at))
            had = had if number else maker.records()
        first = maker.versions[0]
        if loss is not None:
            lose(maker, loss)
        end = maker.catalog.snapshot().partition("events", 0).end_offset
        if cut and end:
            maker.delete_records(0, int(end * cut))
        yield maker, first, had


def with_key(records: list[Written], key: bytes, partition: int) -> list[Written]:
    return [r for r in records if r.key == key and r.partition == partition]


@given(
    runs, cuts, lost, st.sampled_from(KEYS), st.tuples(times, times),
    st.sampled_from([10, 11, 12, 18]), st.sampled_from([1, 300, 2**20]),
    st.sampled_from([100, 3000, 2**20]), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
@examples(25)
def test_a_topic_of_a_key_is_exactly_its_records(
    generated: list[tuple[list[Event], Shape]],
    cut: float,
    loss: Loss | None,
    key: bytes,
    window: tuple[int, int],
    version: int,
    size: int,
    group_bytes: int,
    at_once: bool,
    is_far: bool,
    is_append: bool,
) -> None:
    start, end = min(window), max(window) + 1
    text = key.decode() if key in {b"u1", b"u2", b"a-b_c"} else None
    spelled = f"key.{text}" if text else f"key64.{key64(key)}"
    span = f"{time_name(start)}.{time_name(end)}"
    with (
        pytest.MonkeyPatch.context() as patch,
        far_away(is_far),
        keyed_lake(generated, cut, loss, is_append) as (maker, first, had),
        serving(maker.root) as server,
        Wire(server.address) as wire,
    ):
        patch.setattr(sought, "GROUP_BYTES", group_bytes)
        all_of = maker.records()
        pinned = [r for r in had if r.key == key]
        for name, records in [
            (f"events.{spelled}", all_of),
            (f"events.{span}.{spelled}", in_window(all_of, start, end)),
            (f"events.{spelled}.v{first}", had),
            (f"events.{span}.{spelled}.v{first}", in_window(pinned, start, end)),
        ]:
            for partition in (0, 1):
                wanted = with_key(records, key, partition)
                wait_ms = 0 if at_once else 5000
                data = b"".join(read(wire, name, partition, version, size, wait_ms))
                assert records_in(data, partition) == wanted
                check_times(wire, name, partition, wanted)
        for partition in (0, 1):
            for time_ms in (EARLIEST, LATEST):
                plain = offset_at(wire, "events", partition, time_ms)
                assert offset_at(wire, f"events.{spelled}", partition, time_ms) == plain


@contextmanager
def far_away(is_far: bool) -> Iterator[None]:
    """Local files pretend to be an object store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local._LocalStore, "remote", is_far)
        yield


def read(
    wire: Wire, name: str, number: int, version: int, size: int, wait_ms: int
) -> Iterator[bytes]:
    """All fetches up to the end; each one brings the reader forward."""
    _, offset, _ = offset_at(wire, name, number, EARLIEST)
    _, end, _ = offset_at(wire, name, number, LATEST)
    while offset < end:
        # a client that counts records waits for some where it gets an empty batch
        how: dict[str, Any] = {"max_wait_ms": 0 if version == 10 else wait_ms}
        (got,) = fetch(wire, name, [Wanted(number, offset, size)], version, **how)
        assert (got.code, got.end, got.stable) == (0, end, end)
        table = scan_batches(got.data)
        assert table[0]["last_offset"] >= offset
        assert (table["base_offset"][1:] > table["last_offset"][:-1]).all()
        yield got.data
        offset = int(table[-1]["last_offset"]) + 1
    assert offset == end


def check_times(wire: Wire, name: str, partition: int, records: list[Written]) -> None:
    """Lookups by time see the records with the key alone."""
    dated = [r for r in records if r.timestamp >= 0]
    newest = max(dated, key=lambda r: (r.timestamp, -r.offset), default=None)
    expected = (0, -1, -1) if newest is None else (0, newest.offset, newest.timestamp)
    assert offset_at(wire, name, partition, MAX_TIMESTAMP) == expected
    for time_ms in {0, T, T + 20, *(r.timestamp for r in dated[:: 1 + len(dated) // 4])}:
        found = next((r for r in dated if r.timestamp >= time_ms), None)
        expected = (0, -1, -1) if found is None else (0, found.offset, found.timestamp)
        assert offset_at(wire, name, partition, time_ms) == expected


def test_new_records_appear(tmp_path: Path) -> None:
    """The topic follows the lake; a fetch that waits at its end is woken, also by other keys."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T, b"u1"), Event(T, b"u2")]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        name = "events.key.u1"
        (id_before,) = {each.topic_id for each in metadata(wire, [name], 12).topics}
        data = b"".join(everything(wire, name, 0))
        assert [r.offset for r in records_in(data, 0)] == [0]
        (got,) = fetch(wire, name, [Wanted(0, 2)], max_wait_ms=20)
        assert (got.data, got.end) == (b"", 2)
        maker.run({0: [Event(T, b"u2"), Event(T, b"u1", b"new")]})
        (got,) = fetch(wire, name, [Wanted(0, 2)], 18, max_wait_ms=60_000)
        assert [(r.offset, r.value) for r in records_in(got.data, 0)] == [(3, b"new")]
        maker.run({0: [Event(T, b"u2")]})
        (got,) = fetch(wire, name, [Wanted(0, 4)], max_wait_ms=60_000)
        assert (records_in(got.data, 0), got.end) == ([], 5)
        (id_now,) = {each.topic_id for each in metadata(wire, [name], 12).topics}
        assert id_now == id_before


def test_a_topic_that_gets_more_partitions(tmp_path: Path) -> None:
    """Then keys choose another partition, and records may be in either."""
    key = next(b"k%d" % n for n in range(99) if murmur2(b"k%d" % n) % 2 == 0
               and murmur2(b"k%d" % n) % 4 == 2)  # fmt: skip
    maker = LakeMaker(tmp_path, partitions=2)
    maker.run(placed([Event(T, key, b"old"), Event(T, b"other")], 2))
    with serving(tmp_path) as server, Wire(server.address) as wire:
        name = f"events.key.{key.decode()}"
        assert len(metadata(wire, [name], 9).topics[0].partitions) == 2
        grow(maker, 4)
        server.refresh()
        maker.run(placed([Event(T, key, b"new"), Event(T, b"other")], 4))
        server.refresh()
        assert len(metadata(wire, [name], 9).topics[0].partitions) == 4
        values = [
            record.value
            for partition in range(4)
            for record in records_in(b"".join(everything(wire, name, partition)), partition)
        ]
        assert values == [b"old", b"new"]


def test_only_the_partition_that_keys_choose_is_searched(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    maker.run({0: [Event(T, b"u1")], 1: [Event(T, b"u1")]})  # one of them is in a wrong place
    home = murmur2(b"u1") % 2
    with serving(tmp_path) as server, Wire(server.address) as wire:
        for partition in (0, 1):
            data = b"".join(everything(wire, "events.key.u1", partition))
            assert len(records_in(data, partition)) == (partition == home)


@pytest.fixture
def long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """600 records; the first and the last have the key. Groups of blocks are small."""
    monkeypatch.setattr(sought, "GROUP_BYTES", 1000)
    given = [Event(T + i, b"u1" if i in {0, 599} else b"u2", b"%d" % i) for i in range(600)]
    LakeMaker(tmp_path).run({0: given}, Shape(batch_bytes=100))
    with serving(tmp_path) as server:
        yield server


def test_a_fetch_without_time_goes_on_a_little(long_log: Serving) -> None:
    """Each answer of a fetch that may not wait brings the client forward, by an empty batch."""
    with Wire(long_log.address) as wire:
        parts = list(everything(wire, "events.key.u1", 0))
        assert len(parts) > 10
        empty = [scan_batches(part)[0] for part in parts[1:-1]]
        assert {(int(each["count"]), int(each["size"])) for each in empty} == {(0, 61)}
        assert [r.offset for r in records_in(b"".join(parts), 0)] == [0, 599]


def test_a_fetch_with_time_finds_what_is_far_away(long_log: Serving) -> None:
    with Wire(long_log.address) as wire:
        (got,) = fetch(wire, "events.key.u1", [Wanted(0, 1)], max_wait_ms=60_000, min_bytes=62)
        assert [r.offset for r in records_in(got.data, 0)] == [599]


def test_a_fetch_from_any_offset(tmp_path: Path) -> None:
    """It begins with the first record there is, also in the middle of a batch."""
    maker = LakeMaker(tmp_path)
    given = [Event(T + i, b"u1" if i % 5 < 2 else b"u2", b"%d" % i) for i in range(60)]
    maker.run({0: given}, Shape("lz4", 300))
    wanted = [r for r in maker.records(0) if r.key == b"u1"]
    with serving(tmp_path) as server, Wire(server.address) as wire:
        for offset in range(61):
            (got,) = fetch(wire, "events.key.u1", [Wanted(0, offset, 1)])
            expected = [r for r in wanted if r.offset >= offset]
            found = records_in(got.data, 0, offset)
            assert found == expected[: len(found)]
            assert bool(found) == bool(expected)


def test_a_key_index_says_where_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch without time comes far at once: only blocks with the key are work."""
    monkeypatch.setattr(sought, "GROUP_BYTES", 1000)
    given = [Event(T + i, b"u1" if i in {0, 599} else b"v%d" % i) for i in range(600)]
    policy = IndexPolicy("bytes", 200, (RECORD_KEYS,))
    LakeMaker(tmp_path).run({0: given}, Shape(batch_bytes=100, policy=policy))
    with serving(tmp_path) as server, Wire(server.address) as wire:
        parts = list(everything(wire, "events.key.u1", 0))
        assert [r.offset for r in records_in(b"".join(parts), 0)] == [0, 599]
        assert len(parts) < 6


def test_a_fetch_that_wants_more_goes_on_at_once(
    long_log: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that was cut off is no reason to wait for a newer version."""
    monkeypatch.setattr(fetch_module, "_SEARCH_S", 0)
    with Wire(long_log.address) as wire:
        (got,) = fetch(wire, "events.key.u1", [Wanted(0, 1)], max_wait_ms=20_000, min_bytes=62)
        assert [r.offset for r in records_in(got.data, 0)] == [599]


def test_records_below_the_log_start_stay_away(tmp_path: Path) -> None:
    """Also where the log starts within a batch: what was deleted does not come."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i, b"u1") for i in range(20)]}, Shape(batch_bytes=10_000))
    maker.delete_records(0, 7)
    with serving(tmp_path) as server, Wire(server.address) as wire:
        data = b"".join(everything(wire, "events.key.u1", 0))
        assert [r.offset for r in records_in(data, 0)] == [*range(7, 20)]


@pytest.mark.parametrize("version", [10, 12])
def test_a_client_that_counts_records_comes_over_a_gap(long_log: Serving, version: int) -> None:
    """It asks for the same offset again; the search goes on where the last one ended."""
    with Wire(long_log.address) as wire:
        for _ in range(100):
            (got,) = fetch(wire, "events.key.u1", [Wanted(0, 1)], version)
            if found := records_in(got.data, 0):
                assert [r.offset for r in found] == [599]
                return
    raise AssertionError("it stays there for ever")


def test_records_without_a_timestamp_have_no_time(tmp_path: Path) -> None:
    """They come, but no lookup by time finds them, as in the whole topic."""
    LakeMaker(tmp_path).run({0: [Event(T, b"u2"), Event(-1, b"u1"), Event(-1, b"u1")]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        data = b"".join(everything(wire, "events.key.u1", 0))
        assert [r.offset for r in records_in(data, 0)] == [1, 2]
        for time_ms in (0, T, MAX_TIMESTAMP):
            assert offset_at(wire, "events.key.u1", 0, time_ms) == (0, -1, -1)


def test_a_lookup_ends_when_its_client_leaves(
    long_log: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else bounds it: no record of the key may be as late as the time."""
    groups, matches = list[Any](), sought.SoughtRecords.matches

    def slow(self: sought.SoughtRecords, *given: Any) -> Any:
        groups.append(given)
        time.sleep(0.03)
        return matches(self, *given)

    monkeypatch.setattr(sought.SoughtRecords, "matches", slow)
    assert offset_of_newest(long_log) == 599
    every = len(groups)
    long_log.topics.searcher.forget()
    groups.clear()
    wire = Wire(long_log.address)
    wire.send(list_offsets("events.key.u1", MAX_TIMESTAMP), 7)
    wait_until(lambda: len(groups) > 2)
    wire.close()
    before = -1
    while before != len(groups):
        before = len(groups)
        time.sleep(0.5)
    assert len(groups) < every


def offset_of_newest(server: Serving) -> int:
    with Wire(server.address) as wire:
        return int(offset_at(wire, "events.key.u1", 0, MAX_TIMESTAMP)[1])


def list_offsets(name: str, time_ms: int) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    one = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=time_ms)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name=name, partitions=[one])]
    )


def test_a_fetch_of_many_partitions_shares_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search in one partition leaves time for the others, whatever their order."""
    monkeypatch.setattr(sought, "GROUP_BYTES", 1000)
    rows = [Event(T, b"u1" if i in {0, 599} else b"u2", b"%d" % i) for i in range(600)]
    maker = LakeMaker(tmp_path, partitions=2)
    maker.topic = "web"
    maker.run({0: rows, 1: rows}, Shape(batch_bytes=100))
    base = maker.catalog.snapshot()
    plain = replace(base.topic("web"), sequence=2, partitioner="column")
    maker.catalog.commit([plain], topic="web", base=base, attempt_id=new_attempt())
    with serving(tmp_path) as server, Wire(server.address) as wire:
        for order in ([0, 1], [1, 0]):
            found = fetch(wire, "web.key.u1", [Wanted(number, 0) for number in order])
            assert all(got.data for got in found)


def test_damage_is_in_the_way_where_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What lies before a damaged block and behind it is served, also in one group with it."""
    maker = LakeMaker(tmp_path)
    given = [Event(T + i, b"u1" if i % 2 else b"u2", b"%d" % i) for i in range(300)]
    maker.run({0: given}, Shape(batch_bytes=100))
    (row,) = maker.catalog.segments(maker.catalog.snapshot(), "events")
    path = tmp_path / row.key("log")
    data = bytearray(path.read_bytes())
    table = scan_batches(bytes(data))
    hit = table[len(table) // 2]
    data[int(hit["position"]) + 70] ^= 1
    path.write_bytes(data)
    with serving(tmp_path) as server, Wire(server.address) as wire:
        offset, found, codes = 0, list[int](), list[int]()
        while offset < 300:
            (got,) = fetch(wire, "events.key.u1", [Wanted(0, offset)], max_wait_ms=1000)
            if got.code:
                codes.append(offset)
                offset = offset + 1
                continue
            found += [r.offset for r in records_in(got.data, 0)]
            offset = int(scan_batches(got.data)[-1]["last_offset"]) + 1
    lost = {*range(1, 300, 2)} - {*found}
    assert sorted(found) == found
    assert codes
    assert codes == [*range(codes[0], codes[-1] + 1)]  # one index block, and no more
    assert codes[0] <= hit["base_offset"] <= hit["last_offset"] <= codes[-1]
    assert lost == {each for each in codes if each % 2}
    assert len(lost) <= 12
    assert caplog.text.count("damaged:") == 1


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("web.key.u1", Derived("web", key=b"u1")),
        ("web.key.v7", Derived("web", key=b"v7")),
        ("web.key.v7.v8", Derived("web", version=8, key=b"v7")),
        ("a.b.key.-_Z", Derived("a.b", key=b"-_Z")),
        ("web.key64.dTE", Derived("web", key=b"u1")),
        ("web.key64._-8", Derived("web", key=b"\xff\xef")),
        ("web.key64.", Derived("web", key=b"")),
        ("web.key64..v3", Derived("web", version=3, key=b"")),
        (
            "web.20260601T120000Z.20260601T121000Z.key.u1.v7.x10.again",
            Derived("web", 1_780_315_200_000, 1_780_315_800_000, 7, 10, b"u1"),
        ),
        ("web.key", None),
        ("web.key.", None),
        ("web.key.a.b", None),
        ("web.keys.u1", None),
        ("web.key65.dTE", None),
    ],
)
def test_names(name: str, meaning: Derived | None) -> None:
    assert parse(name) == meaning


@given(st.binary(max_size=30))
def test_each_key_has_a_name(key: bytes) -> None:
    assert parse(f"a.b.key64.{key64(key)}") == Derived("a.b", key=key)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("web.key64.A", INVALID_TOPIC),  # no bytes have this
        ("web.key64.dTF", INVALID_TOPIC),  # stray bits
        ("web.key64.dTE=", INVALID_TOPIC),
        ("web.key.secret.x10", INVALID_TOPIC),
        ("web.20260601T120000Z.20260601T120000Z.key.secret", INVALID_TOPIC),
        ("web.key.secret.v99", INVALID_TOPIC),
        ("web.key.s/ecret", INVALID_TOPIC),
        (f"web.key.{'secret' * 41}", INVALID_TOPIC),
        ("web.key.secret.more", UNKNOWN_TOPIC),
        ("other.key.secret", UNKNOWN_TOPIC),
        ("web.key.", UNKNOWN_TOPIC),
    ],
)
def test_names_without_sense(
    name: str, code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what is wrong, and has a hash for the key."""
    LakeMaker(tmp_path, "web").run({0: [Event(T)]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        (found,) = metadata(wire, [name], 9).topics
        assert found.error_code == code
        assert [each.code for each in fetch(wire, name, [Wanted(0, 0)])] == [UNKNOWN_TOPIC]
        assert offset_at(wire, name, 0, LATEST) == (code, -1, -1)
    assert ("WARNING" in caplog.text) == (code == INVALID_TOPIC)
    assert "secret" not in caplog.text
    assert "dTF" not in caplog.text


def test_a_name_of_no_topic_is_in_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client may wait without a word. Each connection has a bound, and a key no trace."""
    caplog.set_level(logging.INFO)
    LakeMaker(tmp_path, "web").run({0: [Event(T)]})
    short, strange = "web.20261025T02.20261025T03", "nosuch.key.secret"
    number = "47110815471108"  # longer than a hash, which may have any short one
    mistyped = ["web.kye.secret", "web.secret", f"web.{number}", "wbe.kye.secret"]
    with serving(tmp_path) as server:
        for _ in range(2):
            with Wire(server.address) as wire:
                for _ in range(3):
                    metadata(wire, [short, strange, *mistyped], 9)
                metadata(wire, [f"none{n}" for n in range(100)], 9)
    lines = [line for line in caplog.messages if "is not in version" in line]
    assert sum(f"'{short}'" in line for line in lines) == 2  # once for each connection
    for begin, count in {"nosuch.#": 1, "web.#": 3, "wbe.#": 1}.items():
        assert sum(f"'{begin}" in line for line in lines) == 2 * count
    assert len(lines) == 2 * 20
    assert "what follows web is no window, as in web.20260601T120000Z.20260601T130000Z" in lines[0]
    assert "secret" not in caplog.text
    assert number not in caplog.text


def test_a_topic_of_the_lake_wins(tmp_path: Path) -> None:
    """Also its versions do, where its name looks like that of a key."""
    maker = LakeMaker(tmp_path, "web")
    maker.run({0: [Event(T, b"u1")]})
    maker.topic = "web.key.u1"
    version = maker.run({0: [Event(T, b"u2"), Event(T, b"u3")]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        for name in ("web.key.u1", f"web.key.u1.v{version}"):
            data = b"".join(everything(wire, name, 0))
            assert [r.key for r in records_in(data, 0)] == [b"u2", b"u3"]
        data = b"".join(everything(wire, f"web.key64.{key64(b'u1')}", 0))
        assert [r.key for r in records_in(data, 0)] == [b"u1"]


def test_names_in_logs() -> None:
    shown = hidden("web.20260601T120000Z.20260601T121000Z.key.u1.v7")
    assert shown.startswith("web.20260601T120000Z.20260601T121000Z.key.#")
    assert "u1" not in shown
    assert hidden("web.key64.dTE") == hidden("web.key64.dTE") != hidden("web.key64.dTI")
    assert hidden("web.20260601T120000Z.20260601T121000Z.v7").endswith("Z.v7")
    with pytest.raises(UsageError, match=r"web\.key64\.#[0-9a-f]{12}: "):
        parse("web.key64.A")


@pytest.mark.parametrize("version", [12, 18])
def test_what_is_erased_leaves_the_memory(tmp_path: Path, version: int) -> None:
    """What a search has found is not served from memory when its files are gone."""
    maker = LakeMaker(tmp_path, "web")
    first = maker.run({0: [Event(T + i, b"u%d" % (i % 2), b"{}") for i in range(20)]})
    with serving(tmp_path, refresh_ms=600_000) as server, Wire(server.address) as wire:
        pinned = f"web.key.u1.v{first}"
        for name in (pinned, "web.key.u1"):
            (got,) = fetch(wire, name, [Wanted(0, 0)], version)
            assert len(records_in(got.data, 0)) == 10
        ids = {name: topic_id(wire, name) for name in (pinned, "web.key.u1")}
        erase(str(tmp_path), "web", [b"u1"], vacuum=True)
        server.refresh()
        assert not server.topics.searcher._outcomes._entries
        request = fetch_request(pinned, [Wanted(0, 0)], id_of=ids[pinned])
        (answer,) = wire.ask(request, FetchResponse, version).responses
        assert [each.error_code for each in answer.partitions] == [3 if version == 12 else 100]
        assert metadata(wire, [pinned], 9).topics[0].error_code == INVALID_TOPIC
        (got,) = fetch(wire, "web.key.u1", [Wanted(0, 0)], version)
        assert (records_in(got.data, 0), got.end) == ([], 20)
        data = b"".join(everything(wire, "web.key.u0", 0))
        assert len(records_in(data, 0)) == 10


def test_no_trace_of_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither logs, at any level, nor metrics, nor lists of topics have it."""
    caplog.set_level(logging.DEBUG)
    maker = LakeMaker(tmp_path, "web")
    version = maker.run({0: [Event(T + i, b"secret%d" % (i % 2)) for i in range(100)]})
    span = f"{time_name(T)}.{time_name(T + 50)}"
    spelled = key64(b"secret1")
    with serving(tmp_path) as server, Wire(server.address) as wire:
        for more in ("key.secret1", f"key64.{spelled}", f"{span}.key.secret1.v{version}",
                     f"{span}.key64.{spelled}", f"{span}.key.secret1.x9",
                     "key.secret1.v99", "key.secret1.!"):  # fmt: skip
            name = f"web.{more}"
            metadata(wire, [name], 9)
            fetch(wire, name, [Wanted(0, 0), Wanted(5, 0)])
            offset_at(wire, name, 0, T + 3)
        for versions in (0, 9, 13):
            assert [each.name for each in metadata(wire, None, versions).topics] == ["web"]
        counts = repr(server.topics._counts)
    for text in (caplog.text, counts):
        assert "secret" not in text
        assert spelled not in text
    assert "'web'" in counts


def test_names_that_clients_make_up_are_few(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=3)
    maker.run({0: [Event(T, b"u1")]})
    with serving(tmp_path, windows=3) as server, Wire(server.address) as wire:
        for number in range(8):
            for more in ("", ".v1"):
                (found,) = metadata(wire, [f"events.key.u{number}{more}"], 12).topics
                assert found.error_code == 0
        topics = server.topics
        for entries in (topics._derived, topics._sizes):
            assert len(entries) == 3
        assert len(topics._keys) < 3
        assert len(topics._ids) == 4
    with serving(tmp_path, windows_bytes=20_000) as server, Wire(server.address) as wire:
        for number in range(8):
            metadata(wire, [f"events.key.u{number}"], 12)
        assert len(server.topics._derived) == 2


def test_a_replay_of_a_key(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    given = [Event(T + 10 * i, b"u%d" % (i % 3)) for i in range(200)]
    maker.run({0: given}, Shape(batch_bytes=100))
    name = f"events.{time_name(T)}.{time_name(T + 2000)}.key.u1.x2"
    with serving(tmp_path) as server, Wire(server.address) as wire:
        assert offset_at(wire, name, 0, LATEST) == (0, 0, -1)
        started, offset, found = time.monotonic(), 0, list[int]()
        while offset < 200:
            assert time.monotonic() < started + 120
            (got,) = fetch(wire, name, [Wanted(0, offset)], max_wait_ms=5000)
            passed = time.monotonic() - started
            assert got.data
            offset = int(scan_batches(got.data)[-1]["last_offset"]) + 1
            for record in records_in(got.data, 0):
                found.append(record.offset)
                assert record.timestamp <= T + 2 * 1000 * passed + 1
        assert found == [r.offset for r in maker.records(0) if r.key == b"u1"]
        assert time.monotonic() - started > 0.95


def committed(wire: Wire, group: str) -> dict[str, int]:
    """The offset of partition 0 of each topic for which a group has one."""
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=False)
    found = wire.ask(request, OffsetFetchResponse, 7)
    assert found.error_code == 0
    return {each.name: each.partitions[0].committed_offset for each in found.topics}


def commit(wire: Wire, group: str, names: list[str]) -> None:
    """Commit an offset for partition 0 of each topic."""
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    part = kind.OffsetCommitRequestPartition
    topics = [
        kind(name=name, partitions=[part(
            partition_index=0, committed_offset=number, committed_leader_epoch=-1,
            committed_metadata="",
        )])
        for number, name in enumerate(names)
    ]  # fmt: skip
    metadata(wire, names, 9)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=topics, retention_time_ms=-1,
    )  # fmt: skip
    answer = wire.ask(request, OffsetCommitResponse, 8)
    assert {p.error_code for t in answer.topics for p in t.partitions} == {0}


@pytest.mark.parametrize("is_running", [True, False])
def test_offsets_leave_with_an_erased_key(
    is_running: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that runs forgets them soon, another one at its start; the file has no trace."""
    caplog.set_level(logging.DEBUG)
    root, file = tmp_path / "lake", tmp_path / "groups"
    maker = LakeMaker(root, "web")
    maker.run({0: [Event(T + i, b"secret%d" % (i % 3), b"{}") for i in range(30)]})
    maker.topic = "other"
    maker.run({0: [Event(T, b"x"), Event(T, b"secret1")]})
    tag(str(root), "q3", 1)
    span = f"{time_name(T)}.{time_name(T + 1)}"  # none of its records has the key
    staying = ["web", "web.v1", "web.q3", "web.key.secret0.q3", "web.key.secret0", f"web.{span}",
               "other.key.secret1"]  # fmt: skip
    leaving = ["web.key.secret1", "web.key.secret1.q3", f"web.{span}.key64.{key64(b'secret1')}.v1",
               "web.key.never-was-there", f"web.{span}.key.secret1.x1000"]  # fmt: skip
    settings = {"groups.file": str(file)}
    erased = partial(erase, str(root), "web", [b"secret1"])
    with serving(root, settings) as server, Wire(server.address) as wire:
        commit(wire, "g", staying + leaving)
        commit(wire, "none left", leaving[:1])
        fetch(wire, leaving[-1], [Wanted(0, 0)])  # the replay starts
        assert len(committed(wire, "g")) == 12
        if is_running:
            erased()
            wait_until(lambda: len(committed(wire, "g")) == len(staying))
            assert server.topics._derived.keys() & {*leaving} == set()
    if not is_running:
        erased()
    with serving(root, settings) as server, Wire(server.address) as wire:
        wait_until(lambda: len(committed(wire, "g")) == len(staying))
        assert committed(wire, "g") == {name: number for number, name in enumerate(staying)}
        assert committed(wire, "none left") == {}
        stored = b"".join(each.read_bytes() for each in tmp_path.glob("groups*"))
        assert b"web.key.secret0" in stored
        for trace in (b"web.key.secret1", key64(b"secret1").encode(), b"never-was", b"Z.key.secr"):
            assert trace not in stored
        commit(wire, "g", leaving[:1])  # whoever still reads it, brings it back
        maker.topic = "web"
        maker.run({0: [Event(T, b"y")]})
        server.refresh()
        assert leaving[0] in committed(wire, "g")
    assert "secret" not in caplog.text


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
