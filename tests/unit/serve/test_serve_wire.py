"""The protocol itself: versions, refusals, bounds, and requests that are none."""

import logging
import random
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from seglake.serve.topics.catalog import LEADER_EPOCH
from tests.harness.lake_server import Serving, Wire, no_failure, serving, until
from tests.makers.fetches import LATEST, Wanted, fetch, fetch_request, metadata, offset_at, topic_id
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.strategies import examples

LONG_MS = 300_000  # of a poll: more than a test waits for an answer


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    made = LakeMaker(
        tmp_path_factory.mktemp("lake"), partitions=2, settings={"retention.ms": 3_600_000}
    )
    made.run({0: [Event(T + i, b"%d" % i) for i in range(300)]}, Shape("lz4", 300))
    return made


def api_versions(wire: Wire, version: int, software: str = "wire") -> Any:
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1.0")
    return wire.ask(request, ApiVersionsResponse, version)


# versions


@pytest.mark.parametrize("version", range(5))
def test_api_versions(wire: Wire, version: int) -> None:
    answer = api_versions(wire, version)
    assert answer.error_code == 0
    found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    # without these librdkafka is silent, or never fetches (client-side feature map)
    assert found[0] == (0, 9)
    assert found[1] == (4, 18)
    assert found[2] == (1, 11)
    assert found[3] == (0, 13)
    assert found[18] == (0, 4)
    assert found[22] == (0, 5)  # frameworks open idempotent producers that never write
    assert 71 not in found  # no telemetry


def test_versions_that_are_too_new_are_told_in_version_0(wire: Wire) -> None:
    """KIP-511: the header of the answer is the oldest, too, and the client goes on from there."""
    wire.send_bytes(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00rest that nobody knows")
    frame = wire.receive()
    assert frame is not None
    assert struct.unpack_from(">ihi", frame)[:2] == (7, 35)
    answer = ApiVersionsResponse.decode(frame, version=0, header=True)
    assert 18 in {each.api_key for each in answer.api_keys}
    assert api_versions(wire, 3).error_code == 0


@pytest.mark.parametrize("software", ["", "-a", "a b", "a\n", "ä"])
def test_software_names(wire: Wire, software: str) -> None:
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1.0")
    wire.send(request, 3)
    frame = wire.receive()
    assert frame is not None
    assert struct.unpack_from(">h", frame, 4) == (42,)


def test_metadata_of_every_version(wire: Wire, server: Serving) -> None:
    for version in range(14):
        answer = metadata(wire, ["events", "none"], version)
        (broker,) = answer.brokers
        assert (broker.host, broker.port) == tuple(server.address)
        events, none = answer.topics
        assert [each.partition_index for each in events.partitions] == [0, 1]
        assert (none.error_code, none.partitions) == (3, [])
        if version >= 7:
            assert events.partitions[0].leader_epoch == LEADER_EPOCH
    everything = metadata(wire, None, 9)
    assert [each.name for each in everything.topics] == ["events"]
    assert len(str(everything.cluster_id)) == 22


def test_topics_by_id(wire: Wire) -> None:
    found = topic_id(wire, "events")
    one = MetadataRequest.MetadataRequestTopic(topic_id=found, name=None)
    request = MetadataRequest(topics=[one], allow_auto_topic_creation=False)
    (topic,) = wire.ask(request, MetadataResponse, 12).topics
    assert topic.name == "events"
    stranger = fetch_request("", [Wanted(0, 0)], id_of=type(found)(int=5))
    (answer,) = wire.ask(stranger, FetchResponse, 13).responses
    assert [each.error_code for each in answer.partitions] == [100]


def test_configs(wire: Wire) -> None:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        ("events", 2, None), ("events", 2, ["cleanup.policy"]), ("none", 2, None), ("1", 4, None),
        ("x", 99, None),
    ]  # fmt: skip
    request = DescribeConfigsRequest(
        resources=[
            kind(resource_type=number, resource_name=name, configuration_keys=keys)
            for name, number, keys in asked
        ]
    )
    results = wire.ask(request, DescribeConfigsResponse, 4).results
    assert [each.error_code for each in results] == [0, 0, 3, 0, 42]
    values = {each.name: each.value for each in results[0].configs}
    assert values["message.timestamp.type"] == "CreateTime"
    assert (values["retention.ms"], values["cleanup.policy"]) == ("3600000", "delete")
    assert (values["compression.type"], values["index.interval.bytes"]) == ("zstd", "4096")
    assert not {"None", None, "", "[]"} & {*values.values()}
    assert [(each.name, each.value) for each in results[1].configs] == [
        ("cleanup.policy", "delete")
    ]


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (LEADER_EPOCH, 0), (3, 74), (2**31 - 1, 75)])
def test_epochs(wire: Wire, epoch: int, code: int) -> None:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    one = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=2)
    request = OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[kind(topic="events", partitions=[one])]
    )
    (topic,) = wire.ask(request, OffsetForLeaderEpochResponse, 4).topics
    (found,) = topic.partitions
    expected = (0, 2, 300) if code == 0 else (code, -1, -1)
    assert (found.error_code, found.leader_epoch, found.end_offset) == expected
    request = fetch_request("events", [Wanted(0, 0)])
    request.topics[0].partitions[0].current_leader_epoch = epoch
    (answer,) = wire.ask(request, FetchResponse, 12).responses
    assert answer.partitions[0].error_code == code


# refusals


@pytest.mark.parametrize("version", [3, 7, 8, 9])
def test_produce_is_refused(wire: Wire, version: int) -> None:
    kind = ProduceRequest.TopicProduceData
    data = kind(name="events", partition_data=[kind.PartitionProduceData(index=0, records=b"")])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[data])
    answer = wire.ask(request, ProduceResponse, version)
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    assert partition.error_code == 29
    if version >= 8:
        assert "read-only" in partition.error_message
    request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[data])
    wire.send(request, version)
    assert wire.receive() is None


def test_other_apis_are_unknown(wire: Wire) -> None:
    answer = wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert CreateTopicsRequest.API_KEY not in {each.api_key for each in answer.api_keys}
    wire.send(CreateTopicsRequest(topics=[], timeout_ms=1000, validate_only=True), 5)
    assert wire.receive() is None


def test_sizes_of_logs(wire: Wire, server: Serving, maker: LakeMaker) -> None:
    """As a broker answers: what is not there is left out; an empty list is no topic."""
    one, snapshot = DescribeLogDirsRequest.DescribableLogDirTopic, maker.catalog.snapshot()
    sizes = dict.fromkeys(range(maker.partitions), 0)
    for row in maker.catalog.rows.segments(snapshot, "events"):
        sizes[row.partition] += (maker.root / row.key("log")).stat().st_size
    assert sizes[0]
    for version in range(1, 5):
        for topics, found in (
            (None, sizes), ([], None), ([one(topic="none", partitions=[0])], None),
            ([one(topic="events", partitions=[9, 0, -1, 0])], {0: sizes[0]}),
        ):  # fmt: skip
            asked = DescribeLogDirsRequest(topics=topics)
            (folder,) = wire.ask(asked, DescribeLogDirsResponse, version).results
            assert folder.error_code == 0
            told = {t.name: {p.partition_index: p.partition_size for p in t.partitions}
                    for t in folder.topics}  # fmt: skip
            assert told.get("events") == found
            assert bool(told) == bool(found)


@pytest.mark.parametrize("session", [0, 77])
def test_sessions_are_declined(wire: Wire, session: int) -> None:
    for epoch, code in ((0, 0), (-1, 0), (1, 70), (5, 70), (-2, 70)):
        request = fetch_request("events", [Wanted(0, 0)], session=session)
        request.session_epoch = epoch
        answer = wire.ask(request, FetchResponse, 12)
        assert (answer.error_code, answer.session_id, bool(answer.responses)) == (code, 0, not code)


@pytest.mark.parametrize("version", range(6))
def test_producers_get_an_id_but_no_transactions(wire: Wire, version: int) -> None:
    def ask(name: str | None, number: int = -1) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1000, producer_id=number,
            producer_epoch=-1,
        )  # fmt: skip
        answer = wire.ask(request, InitProducerIdResponse, version)
        return answer.error_code, answer.producer_id

    (first, one), (second, other) = ask(None), ask(None)
    assert first == second == 0
    assert 0 <= one < other
    assert ask("name") == (53, -1)
    assert ask("") == (42, -1)
    assert ask(None, 7)[0] == (42 if version >= 3 else 0)


@pytest.mark.parametrize("time_asked", [-3, -4, -5, -6, -7])
def test_times_of_later_versions(wire: Wire, time_asked: int) -> None:
    since = {-3: 7, -4: 8, -5: 9, -6: 11}.get(time_asked, 99)
    for version in range(1, 12):
        code, _, _ = offset_at(wire, "events", 0, time_asked, version)
        assert code == (0 if version >= since else 35)


# waiting


def test_a_long_poll_wakes_for_a_new_version(tmp_path: Path) -> None:
    made = LakeMaker(tmp_path)
    made.run({0: [Event(T)]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        started = time.monotonic()
        timer = threading.Timer(0.3, lambda: made.run({0: [Event(T + 1)]}))
        timer.start()
        (got,) = fetch(wire, "events", [Wanted(0, 1)], max_wait_ms=LONG_MS)
        assert time.monotonic() - started > 0.25
        assert (got.end, bool(got.data)) == (2, True)


def test_a_long_poll_ends(wire: Wire) -> None:
    started = time.monotonic()
    (got,) = fetch(wire, "events", [Wanted(0, 300)], max_wait_ms=300)
    assert (got.code, got.data) == (0, b"")
    assert time.monotonic() - started >= 0.3


def test_errors_end_a_long_poll(wire: Wire) -> None:
    fetch(wire, "events", [Wanted(0, 300), Wanted(1, 99)], max_wait_ms=LONG_MS)


def test_a_request_behind_a_long_poll_does_not_wait_for_it(wire: Wire) -> None:
    """Answers come in order, so the poll is answered early."""
    first = wire.send(fetch_request("events", [Wanted(0, 300)], max_wait_ms=LONG_MS), 12)
    kind = ListOffsetsRequest.ListOffsetsTopic
    one = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name="events", partitions=[one])]
    )
    second = wire.send(request, 5)
    for number in (first, second):
        frame = wire.receive()
        assert frame is not None
        assert struct.unpack_from(">i", frame) == (number,)


# bounds


def answers(server: Serving, patience_s: float = 60) -> bool:
    """Whether a new connection is served."""
    with Wire(server.address, patience_s) as wire:
        try:
            return int(api_versions(wire, 0).error_code) == 0
        except (TimeoutError, ConnectionError, AssertionError):
            return False


def test_frames_are_bounded(server: Serving, caplog: pytest.LogCaptureFixture) -> None:
    for size in (2**31 - 1, 100 * 2**20, -1, -(2**31)):
        with Wire(server.address) as wire:
            wire.send_raw(struct.pack(">i", size))
            assert wire.receive() is None
    assert "socket.request.max.bytes" in caplog.text


def test_requests_in_memory_are_bounded(maker: LakeMaker, caplog: pytest.LogCaptureFixture) -> None:
    """What is announced costs nothing, what has come is counted; no request waits for another."""
    bounds: dict[str, Any] = {
        "queued__max__request__bytes": 2**20,
        "socket__request__max__bytes": 2**20,
    }
    whole = GOOD[0] + bytes(2**20 - 8192 - len(GOOD[0]))  # bytes behind a message are ignored
    with serving(maker.root, **bounds) as server:
        silent = [Wire(server.address) for _ in range(100)]
        for wire in silent:
            wire.send_raw(struct.pack(">i", 2**20))
        with Wire(server.address) as wire:
            wire.send_bytes(whole)
            assert wire.receive() is not None
        greedy = Wire(server.address)
        greedy.send_raw(struct.pack(">i", 2**20) + bytes(2**20 - 70_000))
        with Wire(server.address) as wire:
            while "requests use queued" not in caplog.text:  # until the other's bytes have come
                wire.send_bytes(whole)
                if wire.receive() is None:
                    break
        assert answers(server)  # small requests are served all the time
        greedy.close()
        for wire in silent:
            wire.close()
        until(lambda: server.topics._counts.open_connections == 0)
        with Wire(server.address) as wire:
            wire.send_bytes(whole)
            assert wire.receive() is not None
    assert "requests use queued.max.request.bytes = 1048576" in caplog.text


def test_connections_are_bounded(maker: LakeMaker, caplog: pytest.LogCaptureFixture) -> None:
    with serving(maker.root, max__connections=3, max__connections__per__ip=3) as server:
        wires = [Wire(server.address) for _ in range(3)]
        assert [api_versions(wire, 0).error_code for wire in wires] == [0, 0, 0]
        with Wire(server.address) as more:
            assert more.receive() is None
        wires[0].close()
        until(lambda: answers(server))
        for wire in wires:
            wire.close()
    assert "too many connections" in caplog.text


def test_one_address_cannot_take_all_connections(maker: LakeMaker) -> None:
    with serving(maker.root, max__connections=4) as server, Wire(server.address) as wire:
        assert api_versions(wire, 0).error_code == 0
        with Wire(server.address) as second, Wire(server.address) as third:
            assert api_versions(second, 0).error_code == 0
            assert third.receive() is None
            with socket.create_connection(server.address, 120, ("127.0.0.2", 0)) as other:
                other.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
                assert other.recv(4)


def test_idle_connections_are_closed(maker: LakeMaker) -> None:
    with serving(maker.root, connections__max__idle__ms=1000) as server:
        started = time.monotonic()
        with Wire(server.address) as wire:
            assert api_versions(wire, 0).error_code == 0
            assert wire.receive() is None
            assert time.monotonic() - started > 0.9
        with Wire(server.address) as wire:  # a frame that never comes
            wire.send_raw(struct.pack(">i", 100) + b"begun")
            assert wire.receive() is None


def test_clients_that_take_nothing_are_left(maker: LakeMaker, tmp_path: Path) -> None:
    """Their answers fill what the kernel holds, and wait no longer than an idle connection may."""
    made = LakeMaker(tmp_path)
    made.run({0: [Event(T + i, None, bytes(100_000)) for i in range(100)]}, Shape("none", 2**20))
    with serving(tmp_path, connections__max__idle__ms=400) as server:
        wire = Wire(server.address)
        for _ in range(3):
            wire.send(fetch_request("events", [Wanted(0, 0, 2**24)]), 12)
        counts = server.topics._counts
        until(lambda: bool(counts.connections) and not counts.open_connections)
        wire.close()


# what is no request


def requests() -> list[bytes]:
    """Good frames of several APIs and versions."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    one = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=T)
    listing = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name="events", partitions=[one])]
    )
    topics = [MetadataRequest.MetadataRequestTopic(name="events")]
    described = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    fetching = fetch_request("events", [Wanted(0, 0), Wanted(1, 0)])
    versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    some = [
        (listing, 1), (listing, 7), (described, 1), (described, 9), (fetching, 4), (fetching, 12),
        (versions, 3),
    ]  # fmt: skip
    frames = []
    for request, version in some:
        request.API_VERSION = version
        request.with_header(5, client_id="fuzz")
        frames.append(bytes(request.encode(header=True)))
        request._header = None
    return frames


GOOD = requests()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    frame = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        how, at = draw(st.integers(0, 3)), draw(st.integers(0, max(0, len(frame) - 1)))
        if how == 0 and frame:
            frame[at] ^= draw(st.integers(1, 255))
        elif how == 1:
            del frame[at:]
        elif how == 2:
            frame[at:at] = draw(st.binary(min_size=1, max_size=9))
        else:
            frame[at : at + 4] = draw(st.sampled_from(
                [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\x7f"]
            ))  # fmt: skip
    return bytes(frame)


@given(frames=st.lists(st.one_of(mutated(), st.binary(max_size=60)), min_size=1, max_size=5))
@examples(150)
def test_nothing_that_is_sent_harms_the_server(server: Serving, frames: list[bytes]) -> None:
    """Each is answered, or the connection is closed; then the next one is served."""
    with no_failure():
        for frame in frames:
            with Wire(server.address, 20) as wire:
                wire.send_bytes(frame)
                wire.send_bytes(GOOD[0])  # ends a long poll that a mutation asked for
                wire.receive()
        with Wire(server.address, 20) as wire:
            assert api_versions(wire, 0).error_code == 0


@pytest.mark.parametrize("version", [1, 4, 8, 9, 12])
def test_texts_that_go_on_behind_the_frame(wire: Wire, version: int, server: Serving) -> None:
    """kafka-python would shorten them in silence."""
    topics = [MetadataRequest.MetadataRequestTopic(name="events-and-more")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    request.API_VERSION = version
    request.with_header(5, client_id="wire")
    frame = bytes(request.encode(header=True))
    wire.send_bytes(frame[: frame.index(b"-and-more")])
    assert wire.receive() is None
    with Wire(server.address) as longer:  # as librdkafka does, and Kafka takes it
        longer.send_bytes(frame + b"\x00\x00\x00")
        assert longer.receive() is not None


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (struct.pack(">hhihii", 2, 1, 3, -1, -1, -1), "topics is null"),  # of ListOffsets
        (struct.pack(">hhih", 999, 0, 3, -1), "999"),
        (struct.pack(">hhih", FetchRequest.API_KEY, 3, 3, -1) + bytes(30), "Fetch has version 3"),
    ],
    ids=["null where there may be none", "an unknown API", "an old version"],
)
def test_a_request_that_cannot_be_answered_ends_its_connection(
    wire: Wire, caplog: pytest.LogCaptureFixture, sent: bytes, told: str
) -> None:
    caplog.set_level(logging.INFO)
    wire.send_bytes(sent)
    assert wire.receive() is None
    assert told in caplog.text


def test_a_client_that_goes_in_the_middle(server: Serving) -> None:
    chance = random.Random(3)
    for _ in range(30):
        wire = Wire(server.address)
        frame = GOOD[chance.randrange(len(GOOD))]
        wire.send_raw(struct.pack(">i", len(frame)) + frame[: chance.randrange(len(frame) + 1)])
        wire.close()
    with Wire(server.address) as wire:
        assert api_versions(wire, 0).error_code == 0


def test_an_unknown_name_is_logged_once_per_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    LakeMaker(tmp_path, "web").run({0: [Event(T)]})
    with serving(tmp_path) as server:
        for _ in range(2):
            with Wire(server.address) as wire:
                for _ in range(3):
                    metadata(wire, ["web.20261025T02.20261025T03", "web.key.u1"], 9)
                metadata(wire, [f"none{n}" for n in range(100)], 9)
    lines = [line for line in caplog.messages if "is not in version" in line]
    for name in ("web.20261025T02.20261025T03", "web.key.u1"):
        assert sum(f"'{name}'" in line for line in lines) == 2
    assert len(lines) == 2 * 20
