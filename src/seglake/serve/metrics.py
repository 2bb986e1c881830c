"""Metrics of a running server for Prometheus, and a health page, on a separate port.

    GET /metrics   all counts, as Prometheus text
    GET /health    200 if the catalog was read recently, else 503; JSON

Neither needs a login, so open the port only to clients that may read them.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer

from seglake.clock import now_ms
from seglake.errors import ConfigError
from seglake.serve.api import ServerCounts
from seglake.serve.settings import Address

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from seglake.serve.topics.catalog import ServedTopics

_log = logging.getLogger(__name__)
_PATIENCE_S = 30.0

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class CountsCollector:
    """Collects the counts of a server for each request."""

    def __init__(self, counts: ServerCounts, topics: ServedTopics) -> None:
        self._counts, self._topics = counts, topics

    def collect(self) -> Iterator[Metric]:
        """Yield every metric. prometheus_client calls this in a separate thread."""
        counts = self._counts
        yield _gauge("version", "Version of the catalog that is served", self._topics.version)
        age = (now_ms() - self._topics.refreshed_ms) / 1000
        checked = "Time since the last successful check for a new version of the catalog"
        yield _gauge("refresh_age_seconds", checked, age)
        yield _gauge("open_connections", "Connections now", counts.open_connections)
        for name, meaning in _COUNTERS.items():
            yield _counter(name, meaning, [((), getattr(counts, name))])
        yield _counter("requests", "Requests by API", _labelled(counts.requests), "api")
        yield _counter("request_seconds", "Time in handlers", _labelled(counts.seconds), "api")
        errors = list(counts.errors.items())  # one step, because the server's thread keeps counting
        yield _counter("errors", "Errors in responses", errors, "api", "error")
        topics = _labelled(counts.fetched_bytes)
        yield _counter("fetched_bytes", "Bytes of records sent", topics, "topic")
        members = list(counts.group_members.values())
        yield _gauge("groups", "Consumer groups with members", len(members))
        yield _gauge("group_members", "Members of consumer groups", sum(members))


_COUNTERS = {
    "connections": "Connections accepted",
    "refused_connections": "Connections refused by the limits",
    "logins": "Logins that succeeded",
    "failed_logins": "Logins that failed",
    "malformed_requests": "Requests that cannot be decoded",
    "received_bytes": "Bytes received",
    "sent_bytes": "Bytes sent",
    "damaged_batches": "Record batches not sent because they are damaged",
    "refreshes": "Checks for a new version of the catalog",
    "failed_refreshes": "Failed checks for a new version of the catalog",
    "rebalances": "Generations of consumer groups",
    "offset_commits": "Commits of consumer groups",
}


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"seglake_serve_{name}", meaning, value)


def _counter(
    name: str, meaning: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str
) -> Metric:
    family = CounterMetricFamily(f"seglake_serve_{name}", meaning, labels=labels)
    for whose, value in values:
        family.add_metric(whose, value)
    return family


def _labelled(counted: dict[str, Any]) -> list[tuple[tuple[str, ...], float]]:
    return [((name,), value) for name, value in list(counted.items())]


class MetricsPage:
    """The two pages, served by separate threads until `close`."""

    def __init__(
        self, address: Address, refresh_ms: int, counts: ServerCounts, topics: ServedTopics
    ) -> None:
        """Start the pages. Raises ConfigError if nothing can listen at the address."""
        registry: Any = CollectorRegistry()
        registry.register(CountsCollector(counts, topics))
        patience_s = _PATIENCE_S + 3 * refresh_ms / 1000
        app = _pages(make_wsgi_app(registry), topics, patience_s)
        try:
            self._server = make_server(*address, app, ThreadingWSGIServer, _Quiet)
        except OSError as error:
            raise ConfigError(f"metrics.listen = {address} cannot be used: {error}") from error
        self.port = self._server.server_port
        place = address._replace(port=self.port)
        _log.info("metrics on http://%s/metrics, health checks on the same port", place)
        serve = self._server.serve_forever
        threading.Thread(target=serve, name="seglake metrics", daemon=True).start()

    def close(self) -> None:
        """Stop the pages."""
        self._server.shutdown()
        self._server.server_close()


def _pages(metrics: App, topics: ServedTopics, patience_s: float) -> App:
    def app(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, respond)
        if path != "/health":
            respond("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there are /metrics and /health\n"]
        age_s = (now_ms() - topics.refreshed_ms) / 1000
        well = age_s <= patience_s
        status = "200 OK" if well else "503 Service Unavailable"
        respond(status, [("Content-Type", "application/json")])
        state = {"healthy": well, "version": topics.version, "problem": topics.problem}
        return [json.dumps({**state, "refresh_age_seconds": round(age_s, 3)}).encode() + b"\n"]

    return app


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds for a request to arrive

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        """Log nothing, because requests for metrics would fill the log."""
