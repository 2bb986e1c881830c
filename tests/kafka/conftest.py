"""Fixtures of the tests that ask Kafka: one JVM and one broker for the session."""

from collections.abc import Iterator

import pytest

from seglake.errors import SeglakeError
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Kafka
from tests.makers.lakes import LakeMaker
from tests.makers.served import folders, rich_lake


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka's classes. Skips only where the jars are not cached and cannot be fetched."""
    try:
        judge = Kafka()
    except SeglakeError as reason:
        pytest.skip(f"Kafka cannot judge: {reason}")
    with judge:
        yield judge


@pytest.fixture(scope="session")
def broker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker. It may be stopped and started again; a module's topics have names of their own."""
    with Broker.serve(kafka, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """A lake that has all that a client may meet; the fixture `server` serves it."""
    return rich_lake(tmp_path_factory.mktemp("lake"), partitions=2)


@pytest.fixture(scope="module")
def twin(
    kafka: Kafka, maker: LakeMaker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that has the files of the lake."""
    scratch = tmp_path_factory.mktemp("broker")
    with Broker.serve(kafka, scratch / "own", folders(maker, scratch / "logs")) as running:
        yield running
