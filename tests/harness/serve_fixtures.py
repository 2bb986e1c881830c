"""Fixtures of tests that ask a server: it serves the lake of the fixture `maker`."""

from collections.abc import Iterator

import pytest

from tests.harness.lake_server import Serving, Wire, serving
from tests.makers.lakes import LakeMaker


@pytest.fixture(scope="module")
def server(maker: LakeMaker) -> Iterator[Serving]:
    """A server with the default settings."""
    with serving(maker.root) as running:
        yield running


@pytest.fixture
def wire(server: Serving) -> Iterator[Wire]:
    """A connection to the server."""
    with Wire(server.address) as connection:
        yield connection
