"""Well-formed requests with any values: each is answered with a code, none closes a connection."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.harness.lake_server import Serving, Wire, no_failure, serving
from tests.makers.fetches import topic_id
from tests.makers.lakes import Event, LakeMaker
from tests.makers.requests import any_request, messages
from tests.makers.strategies import T, examples

PRODUCE, VERSIONS = 0, 18
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NAMES = ["events", "events.v2", "empty", "group"]
MESSAGES = messages()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=2)
    maker.run({0: [Event(T + at, b"key", b"value") for at in range(50)]})
    maker.topic = "empty"
    maker.run({})
    settings = {
        "groups.group.initial.rebalance.delay.ms": 0, "groups.group.min.session.timeout.ms": 1,
    }  # fmt: skip
    with serving(maker.root, settings) as running:
        yield running


@pytest.fixture(scope="module")
def offered(server: Serving) -> list[Any]:
    with Wire(server.address) as wire:
        answer = wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    return [*answer.api_keys]


@pytest.fixture(scope="module")
def ids(server: Serving) -> list[uuid.UUID]:
    with Wire(server.address) as wire:
        return [topic_id(wire, name) for name in NAMES[:2]]


@given(data=st.data())
@examples(400)
def test_every_request_is_answered(
    data: st.DataObject, server: Serving, offered: list[Any], ids: list[uuid.UUID]
) -> None:
    api = data.draw(st.sampled_from(offered))
    version = data.draw(st.integers(api.min_version, api.max_version))
    kind, response = MESSAGES[api.api_key]
    request = data.draw(any_request(kind, version, NAMES, ids))
    with no_failure(), Wire(server.address, 60) as wire:
        if api.api_key == PRODUCE and request.acks == 0:
            wire.send(request, version)
            assert wire.receive() is None
        elif api.api_key == VERSIONS:  # kafka-python takes any error for one of version 0
            wire.send(request, version)
            assert wire.receive() is not None
        else:
            assert wire.ask(request, response, version) is not None


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("guarded")
    LakeMaker(folder / "lake").run({0: [Event(T)]})
    users = folder / "users"
    users.write_text("alice:open sesame\n")
    users.chmod(0o600)
    sasl = {"sasl.users": str(users), "sasl.sasl.enabled.mechanisms": MECHANISMS}
    with serving(folder / "lake", sasl) as running:
        yield running


HANDSHAKES = st.builds(
    SaslHandshakeRequest, mechanism=st.sampled_from([*MECHANISMS, "GSSAPI", "", "x" * 300])
)
SAID = st.sampled_from([
    b"n,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc", b"y,,n=al=2Cice,r=", b"n,,n=alice,r=\xff",
    b"c=biws,r=abc,p=AAAA", b"c=,r=,p=", b"\0alice\0wrong", b"\0\0", b"",
])  # fmt: skip
PROOFS = st.builds(SaslAuthenticateRequest, auth_bytes=SAID | st.binary(max_size=60))


@given(asked=st.lists(HANDSHAKES | PROOFS, min_size=1, max_size=4), version=st.integers(0, 1))
@examples(60)
def test_every_login_is_answered_or_ends(guarded: Serving, asked: list[Any], version: int) -> None:
    with no_failure(), Wire(guarded.address, 60) as wire:
        for request in asked:
            wire.send(request, version)
            if wire.receive() is None:
                break
    with Wire(guarded.address, 60) as wire:  # and others can connect
        assert wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys
