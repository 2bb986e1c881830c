"""Fixtures of the tests that ask Kafka: one JVM for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seglake.errors import SeglakeError
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
