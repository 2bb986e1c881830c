"""Export the figures of a lake as Prometheus metrics: as text, to a file, or to a push gateway.

The metric to alert on is `seglake_coverage_lag_seconds`: the time since the end of the closed
windows. It grows if runs fail or wait, or if their intervals leave a hole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seglake.errors import StoreError
from seglake.extras import extra
from seglake.reporting.alerts import SEVERITIES, topic_alerts
from seglake.reporting.figures import TopicFigures
from seglake.reporting.report import LakeReport

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_JOB = "seglake"
_PATIENCE_S = 10


def _samples(report: LakeReport) -> Iterator[tuple[str, str, dict[str, str], float | None]]:
    """Yield (name, meaning, labels, value) of each metric. Unknown values are None."""
    yield "version", "Version of the catalog", {}, report.version
    for figures in report.topics:
        topic = {"topic": figures.topic}
        for name, meaning, value in _of_topic(figures):
            yield name, meaning, topic, value
        for partition in figures.partitions:
            labels = {**topic, "partition": str(partition.partition)}
            yield "end_offset", "End offset", labels, partition.end_offset
            yield "log_start_offset", "Log start", labels, partition.log_start_offset
        found = topic_alerts(figures)
        for severity in SEVERITIES:
            count = sum(alert.severity == severity for alert in found)
            yield "alerts", "Alerts", {**topic, "severity": severity}, count


def _of_topic(figures: TopicFigures) -> Iterator[tuple[str, str, float | None]]:
    lag = figures.coverage.lag_ms(figures.now_ms)
    closed = figures.coverage.closed_until_ms
    holes = figures.coverage.holes
    newest = figures.newest_ms
    yield "coverage_lag_seconds", "Time since the end of the closed windows", _seconds(lag)
    yield "closed_until_timestamp_seconds", "Windows up to this time are closed", _seconds(closed)
    yield "coverage_holes", "Holes between declared intervals", len(holes)
    yield "coverage_hole_seconds", "Time in the holes", sum(e - s for s, e in holes) / 1000
    newest_s = _seconds(newest if newest >= 0 else None)
    yield "newest_event_timestamp_seconds", "Largest timestamp", newest_s
    yield "records", "Records", figures.records
    yield "segments", "Segments", figures.segments
    yield "tiny_segments", "Segments that a merge would join", figures.tiny_segments
    yield "log_bytes", "Size of logs", figures.log_bytes
    yield "index_bytes", "Size of index files", figures.index_bytes
    yield "open_rejects", "Rejected rows that were not redriven", figures.open_rejects
    latest = _seconds(max((run.lateness_ms for run in figures.lateness), default=None))
    yield "max_lateness_seconds", "Largest lateness of an event in the newest runs", latest
    runs = sorted(figures.committed, key=lambda run: run.finished_at_ms)
    for run in runs[-1:]:
        took = run.finished_at_ms - run.started_at_ms
        yield "last_run_timestamp_seconds", "End of the last run", _seconds(run.finished_at_ms)
        yield "last_run_duration_seconds", "Duration of the last run", _seconds(took)
        yield "last_run_records", "Records of the last run", run.records
        yield "last_run_rejected_rows", "Rejects of the last run", run.quarantined


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def prometheus_text(report: LakeReport) -> str:
    """Return the metrics as Prometheus text. Raises ConfigError without `seglake[metrics]`."""
    registry = _registry(report)
    from prometheus_client import generate_latest  # noqa: PLC0415  # an extra

    return generate_latest(registry).decode()


def write_file(report: LakeReport, path: Path) -> None:
    """Replace a file of the textfile collector by a rename. Raises StoreError and ConfigError."""
    registry = _registry(report)
    from prometheus_client import write_to_textfile  # noqa: PLC0415  # an extra

    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def push(report: LakeReport, gateway: str) -> None:
    """Push the metrics to a gateway, where they replace the earlier metrics of their group.

    A report about one topic has a separate group. Raises StoreError, and ConfigError without
    `seglake[metrics]`.
    """
    registry = _registry(report)
    from prometheus_client import push_to_gateway  # noqa: PLC0415  # an extra

    topics = [figures.topic for figures in report.topics]
    group = {"topic": topics[0]} if len(topics) == 1 else None
    try:
        push_to_gateway(gateway, _JOB, registry, group, timeout=_PATIENCE_S)
    except OSError as error:
        raise StoreError(f"the gateway {gateway} did not accept the metrics: {error}") from error


def _registry(report: LakeReport) -> CollectorRegistry:
    with extra("metrics", "an export of metrics"):
        from prometheus_client import CollectorRegistry, Gauge  # noqa: PLC0415  # an extra
    registry, gauges = CollectorRegistry(), dict[str, Gauge]()
    for name, meaning, labels, value in _samples(report):
        if value is None:
            continue
        if name not in gauges:
            gauges[name] = Gauge(f"seglake_{name}", meaning, list(labels), registry=registry)
        gauge = gauges[name].labels(**labels) if labels else gauges[name]
        gauge.set(value)
    return registry
