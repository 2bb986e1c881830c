"""One S3 server for all tests here; its keys are in the environment of these tests alone."""

import uuid
from collections.abc import Iterator

import pytest

from tests.harness.s3_server import BUCKET, NoServerError, Server, environment, s3_server
from tests.s3.proxy import Proxy, faulty


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server. Skips only where it is not cached and cannot be built."""
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except NoServerError as reason:
        pytest.skip(f"no S3 server: {reason}")


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server; the environment says where it is and holds its keys."""
    for name, value in environment(running).items():
        monkeypatch.setenv(name, value)
    return running


@pytest.fixture
def place(server: Server) -> str:
    """The URI of a prefix of its own."""
    return f"s3://{BUCKET}/{uuid.uuid4()}"


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy of the server, which lets everything pass until it is told otherwise."""
    with faulty(server.endpoint) as proxy:
        yield proxy
