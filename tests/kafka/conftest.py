"""Fixtures of the tests that ask Kafka: one JVM and one broker for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seglake.errors import SeglakeError
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Kafka


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
