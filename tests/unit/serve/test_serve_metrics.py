"""The page of metrics and the health page of a server, as Prometheus and a probe see them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from seglake.clock import now_ms
from seglake.errors import ConfigError
from seglake.serve.api import ServerCounts
from seglake.serve.metrics import MetricsPage
from seglake.serve.settings import Address
from tests.harness.lake_server import serving, until
from tests.harness.ports import free_ports
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(port: int) -> dict[Any, float]:
    """Each value by its name and labels, as Prometheus's own parser reads them."""
    status, text = get(port, "/metrics")
    assert status == 200
    return {
        (each.name.removeprefix("seglake_serve_"), *each.labels.values()): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


NO_TOPICS: Any = SimpleNamespace()


@pytest.fixture
def page() -> Iterator[tuple[MetricsPage, ServerCounts, SimpleNamespace]]:
    counts = ServerCounts()
    topics: Any = SimpleNamespace(version=7, refreshed_ms=now_ms(), problem=None)
    made = MetricsPage(Address("127.0.0.1", 0), 1000, counts, topics)
    yield made, counts, topics
    made.close()


def test_every_count_is_a_metric(page: tuple[MetricsPage, ServerCounts, SimpleNamespace]) -> None:
    made, counts, _ = page
    for number, name in enumerate(vars(counts), 1):
        value = getattr(counts, name)
        if isinstance(value, int):
            setattr(counts, name, number)
        else:
            value[("Fetch", "NONE") if name == "errors" else "a"] = number
    found = samples(made.port)
    values = set(found.values())
    assert values >= {number for number, _ in enumerate(vars(counts), 1)}
    assert found["version",] == 7
    assert 0 <= found["refresh_age_seconds",] < 300


def test_health_follows_the_refreshes(
    page: tuple[MetricsPage, ServerCounts, SimpleNamespace],
) -> None:
    made, _, topics = page
    status, text = get(made.port, "/health")
    assert (status, json.loads(text)["healthy"], json.loads(text)["version"]) == (200, True, 7)
    topics.refreshed_ms -= 34_000
    status, text = get(made.port, "/health")
    assert (status, json.loads(text)["healthy"]) == (503, False)
    assert get(made.port, "/elsewhere")[0] == 404


def test_no_exception_ends_the_watch(tmp_path: Path) -> None:
    """What no code of ours raises, and a version that cannot be taken in, are told and passed."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T)]})
    (port,) = free_ports(1)
    with serving(tmp_path, {"metrics.listen": f"127.0.0.1:{port}"}, refresh_ms=10) as server:
        topics, lake = server.topics, server.topics._lake
        original = topics._new_version, lake.refresh
        topics._new_version = _failing  # type: ignore[method-assign]
        version = maker.run({0: [Event(T)]})
        until(lambda: "is foreign" in str(json.loads(get(port, "/health")[1])["problem"]))
        lake.refresh = _failing  # type: ignore[method-assign]
        assert topics.version < version
        topics._new_version, lake.refresh = original  # type: ignore[method-assign]
        until(lambda: json.loads(get(port, "/health")[1])["version"] == version)
        until(lambda: json.loads(get(port, "/health")[1])["problem"] is None)


def _failing(*_: object) -> Any:
    raise RuntimeError("this is foreign")


def test_a_port_that_is_taken(page: tuple[MetricsPage, ServerCounts, SimpleNamespace]) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listen = .* cannot be used"):
        MetricsPage(Address("127.0.0.1", page[0].port), 1000, ServerCounts(), NO_TOPICS)


def test_a_server_counts_what_a_client_does(tmp_path: Path) -> None:
    LakeMaker(tmp_path / "lake").run({0: [Event(T, value=b"x" * 500)] * 20})
    (port,) = free_ports(1)
    with serving(tmp_path / "lake", {"metrics.listen": f"127.0.0.1:{port}"}) as server:
        assert ("requests_total", "Fetch") not in samples(port)
        settings: Any = {"bootstrap.servers": str(server), "group.id": "g"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition("events", 0, 0)])
        read = 0
        while read < 20:
            read += len(consumer.consume(20, timeout=0.2))
        consumer.commit(offsets=[TopicPartition("events", 0, 20)], asynchronous=False)
        found = samples(port)
        consumer.close()
        assert found["requests_total", "Fetch"] >= 1
        assert found["request_seconds_total", "Fetch"] > 0
        assert found["fetched_bytes_total", "events"] >= 20 * 500
        assert found["offset_commits_total",] == 1
        assert found["open_connections",] >= 1
        assert get(port, "/health")[0] == 200
    with pytest.raises(OSError, match="refused"):
        get(port, "/health")
