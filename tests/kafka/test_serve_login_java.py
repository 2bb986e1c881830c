"""Kafka's own consumer over TLS and SASL, as a program with a file of settings."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.harness.server_process import ServerProcess
from tests.harness.tiers import rest_but
from tests.judges.kafka_tools import CONSOLE, run_tool
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T

LOGINS = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
COUNT = 20


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("secure")
    events = [Event(T + at, value=b"%d" % at) for at in range(COUNT)]
    LakeMaker(folder / "lake").run({0: events})
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    (folder / "users").write_text("alice:secret\n")
    (folder / "users").chmod(0o600)
    settings = (
        f'[tls]\ncertificate = "{folder}/both.pem"\nkey = "{folder}/both.pem"\n'
        f'[sasl]\nusers = "{folder}/users"\n'
        '"sasl.enabled.mechanisms" = ["PLAIN", "SCRAM-SHA-512"]\n'
    )
    with ServerProcess(folder / "lake", folder, settings=settings) as running:
        yield running


def consume(
    server: ServerProcess, authority: trustme.CA, folder: Path, mechanism: str, password: str
) -> subprocess.CompletedProcess[str]:
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    settings = folder / "client.properties"
    settings.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{LOGINS[mechanism]} required"
        f' username="alice" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\n"
    )
    return run_tool(
        CONSOLE, server.address, "--topic", "events", "--from-beginning", "--max-messages",
        str(COUNT), "--timeout-ms", "120000", "--command-config", str(settings),
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", rest_but(LOGINS, "SCRAM-SHA-512"))
def test_java_gets_in(
    server: ServerProcess, authority: trustme.CA, tmp_path: Path, mechanism: str
) -> None:
    done = consume(server, authority, tmp_path, mechanism, "secret")
    assert done.stdout.split() == [str(at) for at in range(COUNT)], done.stderr


@pytest.mark.parametrize("mechanism", rest_but(LOGINS, "PLAIN"))
def test_java_is_told_that_the_login_failed(
    server: ServerProcess, authority: trustme.CA, tmp_path: Path, mechanism: str
) -> None:
    done = consume(server, authority, tmp_path, mechanism, "wrong")
    assert done.stdout == ""
    assert "SaslAuthenticationException: Authentication failed: wrong user or password" in (
        done.stderr
    )
    assert "login failed" in server.told()
