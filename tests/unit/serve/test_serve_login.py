"""TLS and SASL: who gets in, who does not, and what is answered before."""

import asyncio
import base64
import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from scramp import ScramClient, ScramException

from seglake.errors import ConfigError
from seglake.serve import security
from seglake.serve.codes import Code
from seglake.serve.security.login import LoginFailed, Scram, Users, plain
from seglake.serve.settings import load
from tests.harness.lake_server import Serving, Wire, serving
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T, examples

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = MECHANISMS[1:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake, an authority, the server's certificate and key, and a file of users."""
    folder = tmp_path_factory.mktemp("secure")
    LakeMaker(folder / "lake").run({0: [Event(T + at, value=b"%d" % at) for at in range(20)]})
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(str(folder / "certificate.pem"), append=number > 0)
    users = folder / "users"
    users.write_text("# who may read\nalice:open sesame, with a comma=\n\nbob:colon:in it\n")
    users.chmod(0o600)
    return folder


def secured(folder: Path) -> dict[str, object]:
    return {
        "tls.certificate": str(folder / "certificate.pem"), "tls.key": str(folder / "key.pem"),
        "sasl.users": str(folder / "users"), "sasl.sasl.enabled.mechanisms": MECHANISMS,
    }  # fmt: skip


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    with serving(folder / "lake", secured(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def plain_server(folder: Path) -> Iterator[Serving]:
    """SASL without TLS, on loopback, so that a test sees what is on the wire."""
    settings = {k: v for k, v in secured(folder).items() if not k.startswith("tls.")}
    with serving(folder / "lake", settings) as running:
        yield running


# ---------------------------------------------------------------- clients


def librdkafka(server: Serving, folder: Path, mechanism: str, **more: str) -> list[bytes | None]:
    """Every value, as confluent-kafka reads it; what it calls an error is raised."""
    errors = list[Any]()
    consumer = Consumer(
        {
            "bootstrap.servers": str(server), "group.id": "g", "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "ca.pem"), "sasl.mechanism": mechanism,
            "sasl.username": "alice", "sasl.password": "open sesame, with a comma=",
            "enable.partition.eof": True, "error_cb": errors.append, "log_level": 0,
            "fetch.wait.max.ms": 50, **more,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("events", 0, 0)])
    found = list[bytes | None]()
    try:
        for _ in range(200):
            for message in consumer.consume(100, timeout=0.1):
                if message.error() is not None:
                    return found
                found.append(message.value())
            for error in errors:
                raise ConnectionError(error.name(), error.str())
    finally:
        consumer.close()
    raise TimeoutError


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_gets_in(server: Serving, folder: Path, mechanism: str) -> None:
    wanted = [b"%d" % at for at in range(20)]
    assert librdkafka(server, folder, mechanism) == wanted
    bob = {"sasl.username": "bob", "sasl.password": "colon:in it"}
    assert librdkafka(server, folder, mechanism, **bob) == wanted


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"sasl.password": "x"}, {"sasl.username": "eve"}])
def test_librdkafka_is_told_that_the_login_failed(
    server: Serving, folder: Path, mechanism: str, wrong: dict[str, str]
) -> None:
    with pytest.raises(ConnectionError, match=r"_AUTHENTICATION.*wrong user or password"):
        librdkafka(server, folder, mechanism, **wrong)


def test_librdkafka_checks_the_certificate(server: Serving, folder: Path, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with pytest.raises(ConnectionError, match="certificate verify failed"):
        librdkafka(server, folder, "PLAIN", **{"ssl.ca.location": str(tmp_path / "other.pem")})


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_gets_in(server: Serving, folder: Path, mechanism: str) -> None:
    async def read(password: str) -> list[bytes | None]:
        consumer = AIOKafkaConsumer(
            "events", bootstrap_servers=str(server), security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=str(folder / "ca.pem")),
            sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password=password,
            auto_offset_reset="earliest", group_id=None,
        )  # fmt: skip
        try:
            await consumer.start()
            return [(await consumer.getone()).value for _ in range(20)]
        finally:
            await consumer.stop()

    found = asyncio.run(asyncio.wait_for(read("open sesame, with a comma="), 30))
    assert found == [b"%d" % at for at in range(20)]
    with pytest.raises(Exception, match=r"(?i)authentication|connect"):
        asyncio.run(asyncio.wait_for(read("wrong"), 30))


# ---------------------------------------------------------------- the wire


def shake(wire: Wire, mechanism: str) -> Any:
    return wire.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)


def authenticate(wire: Wire, words: bytes, version: int = 2) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=words)
    return wire.ask(request, SaslAuthenticateResponse, version)


RIGHT = b"\0alice\0open sesame, with a comma="


def test_before_the_login_there_are_versions_and_the_login(plain_server: Serving) -> None:
    asked = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    for request, version in (
        (MetadataRequest(topics=None), 5), (FindCoordinatorRequest(key="g", key_type=0), 2),
        (ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]), 5),
    ):  # fmt: skip
        with Wire(plain_server.address) as wire:
            known = wire.ask(asked, ApiVersionsResponse, 3)
            assert {17, 36} < {each.api_key for each in known.api_keys}
            wire.send(request, version)
            assert wire.receive() is None


@pytest.mark.parametrize("version", range(3))
def test_the_login_opens_the_connection(plain_server: Serving, version: int) -> None:
    with Wire(plain_server.address) as wire:
        assert shake(wire, "PLAIN").error_code == Code.NONE
        assert authenticate(wire, RIGHT, version).error_code == Code.NONE
        wire.send(MetadataRequest(topics=None), 5)
        assert wire.receive() is not None
        assert authenticate(wire, RIGHT).error_code == Code.ILLEGAL_SASL_STATE


def test_a_failed_login_is_the_last_one(
    plain_server: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(plain_server.address) as wire, caplog.at_level(logging.WARNING):
        shake(wire, "PLAIN")
        answer = authenticate(wire, b"\0alice\0secret guess")
        assert answer.error_code == Code.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: wrong user or password"
        wire.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        assert wire.receive() is None
    assert "wrong password, or no user 'alice'" in caplog.text
    assert "secret guess" not in caplog.text


def test_turns_out_of_order(plain_server: Serving) -> None:
    with Wire(plain_server.address) as wire:
        assert authenticate(wire, RIGHT).error_code == Code.ILLEGAL_SASL_STATE
        answer = shake(wire, "GSSAPI")
        assert answer.error_code == Code.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == list(MECHANISMS)
        assert shake(wire, "SCRAM-SHA-256").error_code == Code.NONE
        assert shake(wire, "PLAIN").error_code == Code.ILLEGAL_SASL_STATE


def shake_as_of_old(wire: Wire, mechanism: str) -> None:
    answer = wire.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 0)
    assert (answer.error_code, answer.mechanisms) == (Code.NONE, [*MECHANISMS])


def test_plain_behind_a_handshake_of_version_0(plain_server: Serving) -> None:
    """Frames are then SASL's own tokens, and a broker says nothing to a wrong one."""
    with Wire(plain_server.address) as wire:
        shake_as_of_old(wire, "PLAIN")
        wire.send_bytes(RIGHT)
        assert wire.receive() == b""
        wire.send(MetadataRequest(topics=None), 5)
        assert wire.receive() is not None
        assert authenticate(wire, RIGHT).error_code == Code.ILLEGAL_SASL_STATE
    with Wire(plain_server.address) as wire:
        shake_as_of_old(wire, "PLAIN")
        wire.send_bytes(b"\0alice\0wrong")
        assert wire.receive() is None


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("password", ["open sesame, with a comma=", "wrong"])
def test_scram_behind_a_handshake_of_version_0(
    plain_server: Serving, mechanism: str, password: str
) -> None:
    client = ScramClient([mechanism], "alice", password)
    with Wire(plain_server.address) as wire:
        shake_as_of_old(wire, mechanism)
        wire.send_bytes(client.get_client_first().encode())
        client.set_server_first((wire.receive() or b"").decode())
        wire.send_bytes(client.get_client_final().encode())
        last = wire.receive()
        assert (last is None) == (password == "wrong")
        if last is not None:
            client.set_server_final(last.decode())
            wire.send(MetadataRequest(topics=None), 5)
            assert wire.receive() is not None


# ---------------------------------------------------------------- the exchanges

USERS = Users({"alice": "right", "bob": "also right"}, MECHANISMS)
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@examples(100)
@given(st.sampled_from(["alice", "bob", "eve"]), st.sampled_from(["right", "also right", "x"]),
       st.sampled_from(["", "alice", "root"]))  # fmt: skip
def test_plain_takes_the_right_password_alone(name: str, password: str, acts_for: str) -> None:
    right = {"alice": "right", "bob": "also right"}.get(name) == password
    words = f"{acts_for}\0{name}\0{password}".encode()
    if right and acts_for in ("", name):
        assert plain(USERS, words).name == name
    else:
        with pytest.raises(LoginFailed):
            plain(USERS, words)


@examples(60)
@given(st.sampled_from(SCRAM), WORDS, WORDS, WORDS)
def test_scram_takes_the_right_password_alone(
    mechanism: str, name: str, password: str, guess: str
) -> None:
    """Names with commas and equals signs among them; the client sees that the server knows, too."""
    users = Users({name: password}, (mechanism,))
    for tried in (password, guess):
        server, client = Scram(users, mechanism), ScramClient([mechanism], name, tried)
        client.set_server_first(server(client.get_client_first().encode()).answer.decode())
        last = client.get_client_final().encode()
        if tried == password:
            turn = server(last)
            client.set_server_final(turn.answer.decode())
            assert turn.name == name
        else:
            with pytest.raises(LoginFailed):
                server(last)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_stranger_is_answered_like_a_user(mechanism: str) -> None:
    """A salt that stays the same and as many iterations: names cannot be tried out."""
    salts = set[bytes]()
    for name in ("alice", "eve", "eve"):
        client, server = ScramClient([mechanism], name, "guess"), Scram(USERS, mechanism)
        first = server(client.get_client_first().encode()).answer.decode()
        fields = dict(field.split("=", 1) for field in first.split(","))
        assert fields["i"] == "4096"
        salts.add(base64.b64decode(fields["s"]))
        client.set_server_first(first)
        with pytest.raises(LoginFailed):
            server(client.get_client_final().encode())
    assert len(salts) == 2
    assert len({len(salt) for salt in salts}) == 1


def test_a_stranger_has_another_salt_for_another_mechanism() -> None:
    """As users have, whose salts are drawn for each."""
    assert len({USERS.verifier(mechanism, "eve").salt for mechanism in SCRAM}) == 2


@examples(200)
@given(st.sampled_from(MECHANISMS), st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_any_words_fail(mechanism: str, words: list[bytes]) -> None:
    exchange = partial(plain, USERS) if mechanism == "PLAIN" else Scram(USERS, mechanism)

    def talk() -> None:
        for each in [*words, b"", b""]:
            exchange(each)

    with pytest.raises(LoginFailed):
        talk()


def test_a_message_of_another_login_fails() -> None:
    """What was heard once is worth nothing."""
    first, client = Scram(USERS, SCRAM[0]), ScramClient([SCRAM[0]], "alice", "right")
    opening = client.get_client_first().encode()
    client.set_server_first(first(opening).answer.decode())
    last = client.get_client_final().encode()
    assert first(last).name == "alice"
    second = Scram(USERS, SCRAM[0])
    second(opening)
    with pytest.raises(LoginFailed):
        second(last)
    with pytest.raises(ScramException):
        client.set_server_final("v=" + base64.b64encode(bytes(32)).decode())


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("listen", "tls", "users", "insecure", "missing"),
    [
        ("127.0.0.1:1", False, False, False, None), ("[::1]:1", False, False, False, None),
        ("127.8.8.8:1", False, False, False, None), ("localhost:1", False, False, False, None),
        ("0.0.0.0:1", False, False, False, "no TLS and no users"),
        ("0.0.0.0:1", True, False, False, "no users"), ("[::]:1", False, True, False, "no TLS"),
        ("example.org:1", False, False, False, "no TLS and no users"),
        ("0.0.0.0:1", True, True, False, None), ("0.0.0.0:1", False, False, True, None),
    ],
)  # fmt: skip
def test_others_are_let_in_with_tls_and_users_alone(
    folder: Path, listen: str, tls: bool, users: bool, insecure: bool, missing: str | None
) -> None:
    parts = {"tls.": tls, "sasl.": users}
    given = {k: v for k, v in secured(folder).items() if parts[k[: k.index(".") + 1]]}
    given |= {"server.advertise": "lake.example:1"} if listen != "127.0.0.1:1" else {}
    settings = load(None, {"server.listen": listen, "server.insecure": insecure, **given})
    if missing is None:
        security.require_safe(settings)
    else:
        with pytest.raises(ConfigError, match=f"there is {missing}. .*--insecure"):
            security.require_safe(settings)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alice", "line 1 is not of the form name:password"), (":x", "line 1 is not of the form"),
        ("a:1\nb:\n", "line 2 is not of the form"), ("# none\n\n", "has no users"),
        ("a:1\na:2", "line 2 repeats the name"), ("ä:1", "printable ASCII"),
        ("a:\x7f", "printable ASCII"),
    ],
)  # fmt: skip
def test_users_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    file.chmod(0o600)
    monkeypatch.setenv("SEGLAKE_USERS", text)
    for place in ({"sasl.users": str(file)}, {"sasl.users_variable": "SEGLAKE_USERS"}):
        with pytest.raises(ConfigError, match=problem):
            Users.from_settings(load(None, place).sasl)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("[sasl]\nmechanisms = ['PLAIN']", "Did you mean sasl.enabled.mechanisms?"),
        ("[sasl]\n'enabled.mechanisms' = ['PLAIN']", "Did you mean sasl.enabled.mechanisms?"),
        ("[sasl]\nenabled.mechanisms = ['PLAIN']", "Did you mean sasl.enabled.mechanisms?"),
        ("[server]\nmax_connections = 1", "Did you mean max.connections?"),
        ("[sals]\nusers = 'u'", "Did you mean sasl?"),
    ],
)
def test_an_unknown_setting_gets_the_one_that_is_meant(
    tmp_path: Path, text: str, remedy: str
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"unknown .*\. {re.escape(remedy)}"):
        load(file, {})


def test_files_and_variables_that_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Users.from_settings(load(None, {"sasl.users": str(tmp_path / "none")}).sasl)
    with pytest.raises(ConfigError, match="the environment has no NO_SUCH_VARIABLE"):
        Users.from_settings(load(None, {"sasl.users_variable": "NO_SUCH_VARIABLE"}).sasl)
    with pytest.raises(ConfigError, match="Keep one"):
        Users.from_settings(load(None, {"sasl.users_variable": "X", "sasl.users": "x"}).sasl)
    open_file = tmp_path / "open"
    open_file.write_text("a:b")
    open_file.chmod(0o644)
    with pytest.raises(ConfigError, match="other users may access"):
        Users.from_settings(load(None, {"sasl.users": str(open_file)}).sasl)
    for certificate, key in (("key.pem", "key.pem"), ("certificate.pem", "none.pem")):
        tls = {"tls.certificate": str(folder / certificate), "tls.key": str(folder / key)}
        with pytest.raises(ConfigError, match="not a certificate chain and its key"):
            security.tls_context(load(None, tls))
    with pytest.raises(ConfigError, match="only one of certificate and key"):
        security.tls_context(load(None, {"tls.key": "key.pem"}))
