"""Fixtures of the tests that ask Kafka: one JVM for the session, the golden files, the marker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seglake.errors import SeglakeError
from tests.judges.kafka_judge import Kafka

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder `kafka`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka's classes. Skips only where the jars are not cached and cannot be fetched."""
    try:
        judge = Kafka()
    except SeglakeError as reason:
        pytest.skip(f"Kafka cannot judge: {reason}")
    with judge:
        yield judge
