"""Nothing for whoever has no name: no request costs more than it is long, none holds the others."""

import gc
import resource
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trustme
from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.metadata import MetadataResponse

from seglake.errors import ConfigError
from seglake.serve.api import Api
from seglake.serve.frames import MOST_ITEMS, MalformedRequest, decode, decode_header
from seglake.serve.server import Listener, raise_file_limit
from seglake.serve.settings import load
from tests.harness.lake_server import Serving, Wire, holds, serving, until
from tests.harness.tiers import rest_but
from tests.makers.fetches import metadata as metadata_of
from tests.makers.hostile import Shape, frame, paths
from tests.makers.lakes import Event, LakeMaker, T

HELD_S = 0.05  # of the loop's own processor time: the longest that a request may take at once
KINDS: dict[int, Any] = {
    each.API_KEY: each  # type: ignore[attr-defined]
    for part in (admin, consumer, metadata, producer, sasl)
    for each in vars(part).values()
    if isinstance(each, type) and each.__name__.endswith("Request") and hasattr(each, "_struct")
    if getattr(each, "API_KEY", None) is not None
}
LOGIN = {17: (0, 1), 36: (0, 2)}  # versions of SaslHandshake and SaslAuthenticate


async def nothing(_request: Any, _connection: Any) -> None:
    """A handler."""


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    made = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=2)
    made.run({0: [Event(T + i, b"%d" % i) for i in range(300)]})
    return made


@pytest.fixture(scope="module")
def server(maker: LakeMaker) -> Iterator[Serving]:
    with serving(maker.root, {"groups.group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def offered(server: Serving) -> list[Api]:
    """Return every API of the server, with the versions that it advertises, and of a login."""
    with Wire(server.address) as wire:
        wire.send_bytes(struct.pack(">hhih", 18, 0, 1, -1))
        answer = metadata.ApiVersionsResponse.decode(wire.receive(), version=0, header=True)
    versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    versions |= LOGIN
    return [Api(KINDS[key], *versions[key], nothing) for key in sorted(versions) if key in KINDS]


def shapes(api: Api, version: int, count: int) -> Iterator[Shape]:
    for path in paths(api.request._struct, version):
        yield Shape(path, count)
        yield Shape(path, count, distinct=True)
        if api.request.flexible_version_q(version):
            yield Shape(path, count, item_tags=1)
    if api.request.flexible_version_q(version):
        yield Shape(top_tags=count)


def malformed(api: Api, version: int, size: int) -> Iterator[bytes]:
    """Endless varints, and counts of as many items as a number can say."""
    head = frame(api.request, version, Shape())[:10]
    for byte in (b"\xff", b"\x80", b"\x7f", b"\x00"):
        yield head + byte * size
        yield head + b"\x00" + byte * size


def calls(api: Api, data: bytes) -> int:
    """How many functions decoding calls, in Python and in C."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # Hypothesis listens to it
    sys.setprofile(note)
    try:
        decoded(api, data)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def decoded(api: Api, data: bytes) -> Any:
    view = memoryview(data)
    try:
        return decode(api, decode_header(view), view)
    except MalformedRequest:
        return None


def test_decoding_takes_as_many_steps_as_there_are_bytes(server: Serving) -> None:
    """Every API in every version, well-formed and not, in two sizes."""
    seen = 0
    for api in offered(server):
        for version in range(api.low, api.high + 1):
            for small, large in zip(
                shapes(api, version, 20), shapes(api, version, 80), strict=True
            ):
                frames = [frame(api.request, version, shape) for shape in (small, large)]
                assert all(decoded(api, data) is not None for data in frames), (api.name, version)
                few, many = (calls(api, data) for data in frames)
                assert many <= 5 * few, (api.name, version, large)
                seen += 1
            for data in malformed(api, version, 1000):
                assert calls(api, data) < 60 * len(data)
    assert seen > 300


@pytest.mark.rest
def test_decoding_copies_nothing_over_and_over(server: Serving) -> None:
    """A tagged field in each item, or a varint of the whole frame: seconds, where all is copied."""
    for api in offered(server):
        started = time.process_time()
        bad = list(malformed(api, api.high, 250_000))
        for data in bad:
            decoded(api, data)
        assert time.process_time() - started < 0.25 * len(bad), api.name
        for shape in shapes(api, api.high, 5000):
            if shape.item_tags or shape.top_tags:
                data = frame(api.request, api.high, shape)
                started = time.process_time()
                assert decoded(api, data) is not None
                assert time.process_time() - started < 1, (api.name, shape)


def test_items_are_bounded() -> None:
    api = Api(KINDS[3], 0, 13, nothing)
    for count, good in ((MOST_ITEMS - 1, True), (MOST_ITEMS + 1, False)):
        assert (decoded(api, frame(KINDS[3], 8, Shape(("topics",), count))) is not None) == good


def answered(server: Serving, data: bytes) -> bytes | None:
    with Wire(server.address) as wire:
        wire.send_bytes(data)
        wire.send_bytes(struct.pack(">hhih", 18, 0, 1, -1))  # ends a long poll
        return wire.receive()


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.rest)])
@pytest.mark.long
def test_no_request_holds_the_loop(server: Serving, which: str) -> None:
    """Each API with its arrays at some 60 KB; the loop's own time is counted, not the clock."""
    for api in offered(server):
        for shape in shapes(api, api.high, 8000 if which == "all" else 3000):
            if which == "some" and not (shape.distinct and len(shape.path) == 1):
                continue
            data = frame(api.request, api.high, shape)
            started = time.process_time()
            with holds(server) as found:
                answered(server, data)
            took = time.process_time() - started
            assert max(found) < HELD_S, (api.name, shape, max(found))
            assert took < 6, (api.name, shape, took)


def test_a_topic_asked_for_often_is_described_once(server: Serving) -> None:
    data = frame(KINDS[3], 8, Shape(("topics",), 7000))
    received = answered(server, data)
    assert received is not None
    assert len(MetadataResponse.decode(received, version=8, header=True).topics) == 1


# connections


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("secure")
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    (folder / "users").write_text("alice:sesame\n")
    (folder / "users").chmod(0o600)
    return {
        "tls.certificate": str(folder / "certificate.pem"), "tls.key": str(folder / "key.pem"),
        "sasl.users": str(folder / "users"), "sasl.sasl.enabled.mechanisms": ("PLAIN",),
    }  # fmt: skip


def users_of(secure: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in secure.items() if key.startswith("sasl")}


def log_in(wire: Wire) -> None:
    shake = sasl.SaslHandshakeRequest(mechanism="PLAIN")
    assert wire.ask(shake, sasl.SaslHandshakeResponse, 1).error_code == 0
    words = sasl.SaslAuthenticateRequest(auth_bytes=b"\0alice\0sesame")
    assert wire.ask(words, sasl.SaslAuthenticateResponse, 2).error_code == 0


def test_frames_before_the_login_are_small(
    maker: LakeMaker, secure: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(maker.root, users_of(secure)) as server:
        for size, good in ((8192, True), (8193, False)):
            with Wire(server.address) as wire:
                wire.send_bytes(struct.pack(">hhih", 18, 0, 1, -1).ljust(size, b"\0"))
                assert (wire.receive() is not None) == good
        with Wire(server.address) as wire:
            log_in(wire)
            wire.send_bytes(frame(KINDS[3], 8, Shape(("topics",), 7000)))
            assert wire.receive() is not None
    assert "a request has 8193 bytes, and the login limit is 8192" in caplog.text


@pytest.mark.rest
def test_silent_strangers_take_nothing_and_are_let_go(
    maker: LakeMaker, secure: dict[str, object]
) -> None:
    bounds = {"login_ms": 1500, "queued__max__request__bytes": 2**21}
    with serving(maker.root, users_of(secure), **bounds) as server:
        strangers = [Wire(server.address) for _ in range(200)]
        for number, wire in enumerate(strangers):
            wire.send_raw(struct.pack(">i", 8000) + bytes(number))
        with Wire(server.address) as wire:
            log_in(wire)
            wire.send_bytes(frame(KINDS[3], 8, Shape(("topics",), 7000)))
            assert wire.receive() is not None
            assert [each.receive() for each in strangers] == [None] * 200
            time.sleep(1.6)  # whoever has logged in may be silent for longer
            wire.send_bytes(frame(KINDS[3], 8, Shape(("topics",), 1)))
            assert wire.receive() is not None
        for wire in strangers:
            wire.close()


def test_connections_without_a_handshake_count_and_end(
    maker: LakeMaker, secure: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(maker.root, secure, max__connections=6, login_ms=1500) as server:
        counts = server.topics._counts
        silent = [Wire(server.address) for _ in range(3)]
        until(lambda: counts.open_connections == 3)
        with Wire(server.address) as more:
            assert more.receive() is None
        assert counts.refused_connections == 1
        assert [wire.receive() for wire in silent] == [None] * 3
        until(lambda: counts.open_connections == 0)
        for wire in silent:
            wire.close()
    assert "too many connections" in caplog.text
    assert "TLS handshake failed" in caplog.text


@pytest.mark.rest
@pytest.mark.parametrize("tls", rest_but([False, True], False))
def test_answers_in_memory_that_nobody_takes(
    maker: LakeMaker, secure: dict[str, object], tls: bool
) -> None:
    """They are dropped, also those too few to make a writer wait."""
    given = {key: value for key, value in secure.items() if key.startswith("tls") and tls}
    data = frame(KINDS[3], 8, Shape(("topics",), 8000, distinct=True))
    with serving(maker.root, given, connections__max__idle__ms=300) as server:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(server.address)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client = context.wrap_socket(raw) if tls else raw
        client.settimeout(1)
        with suppress(OSError):
            for _ in range(60):
                client.sendall(struct.pack(">i", len(data)) + data)
        counts = server.topics._counts
        until(lambda: bool(counts.requests["Metadata"]) and not counts.open_connections)
        client.close()


def test_what_a_client_sends_is_one_line_in_the_log(
    server: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "seglake.serve")
    name = "x\nERROR forged\x1b[2J" + "y" * 5000
    head = struct.pack(">hhih", 3, 99, 1, len(name.encode())) + name.encode()
    with Wire(server.address) as wire:
        wire.send_bytes(head)
        assert wire.receive() is None
    until(lambda: "Metadata has version 99" in caplog.text)
    with Wire(server.address) as wire:
        metadata_of(wire, [name], 9)
        join = consumer.JoinGroupRequest(
            group_id=name, session_timeout_ms=10_000, rebalance_timeout_ms=1000, member_id="",
            group_instance_id=name, protocol_type="consumer", protocols=[("range", b"")],
        )  # fmt: skip
        assert wire.ask(join, consumer.JoinGroupResponse, 5).error_code == 0
    until(lambda: "generation 1" in caplog.text)
    lines = [record.getMessage() for record in caplog.records]
    assert any("(x\\nERROR forged\\x1b[2Jyyy" in line for line in lines)
    assert all(line.isprintable() and len(line) < 500 for line in lines)


# at the start


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server.listen": "0.0.0.0:9092"}, "0.0.0.0, .* every address.*Set server.advertise"),
        ({"server.listen": "[::]:9092"}, "::, .* every address.*Set server.advertise"),
        ({"server.advertise": "0.0.0.0:9092"}, "advertise is 0.0.0.0, .* every address"),
        ({"server.queued.max.request.bytes": 2**20}, "2097152.*never be served"),
        ({"server.socket.request.max.bytes": 2**27}, "67108864 is below .* 134217728"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(None, changes)
    load(None, {"server.listen": "0.0.0.0:9092", "server.advertise": "lake.example:9092"})


def test_more_connections_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, asked = [(1024, 4096)], list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    raise_file_limit(100)
    assert asked == []
    raise_file_limit(3000)
    assert asked == [(3600, 4096)]
    with pytest.raises(ConfigError, match=r"4000 connections need 4600 open files.*ulimit -n"):
        raise_file_limit(4000)


def test_small_answers_are_sent_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that asyncio did not accept itself has Nagle's algorithm on."""
    options, opened = list[int](), Listener._opened

    async def noted(listener: Listener, accepted: socket.socket) -> Any:
        streams = await opened(listener, accepted)
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return streams

    monkeypatch.setattr(Listener, "_opened", noted)
    LakeMaker(tmp_path).run({0: [Event(0)]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        assert metadata_of(wire, None, 12).topics
    assert options == [1]
