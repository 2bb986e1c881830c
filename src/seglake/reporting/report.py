"""Report on a lake: figures and alerts, as JSON, or as one HTML page that needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seglake import clock
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.table import CatalogTable
from seglake.read.lake import open as open_lake
from seglake.reporting.alerts import Alert, severity_rank, topic_alerts
from seglake.reporting.figures import RetainedVersions, TopicFigures, topic_figures
from seglake.reporting.page.document import render_page
from seglake.store import open_store
from seglake.write.driver.report import Progress, silent

_JSON_RUNS = 1000


@dataclass(frozen=True)
class LakeReport:
    """A lake in one version, as seen at `made_ms`: its topics, the largest first."""

    root: str
    version: int
    made_ms: int
    topics: list[TopicFigures]
    versions: RetainedVersions

    @property
    def alerts(self) -> list[Alert]:
        """Return the alerts of all topics, the worst first."""
        all_alerts = [alert for topic in self.topics for alert in topic_alerts(topic)]
        return sorted(all_alerts, key=severity_rank)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, with at most the newest 1,000 runs of each topic."""
        return {
            "root": self.root,
            "version": self.version,
            "made_ms": self.made_ms,
            "alerts": [alert._asdict() for alert in self.alerts],
            "topics": [_plain(topic) for topic in self.topics],
            "versions": _plain(self.versions),
        }

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_html(self) -> str:
        """Return the report as an HTML page. Raises ConfigError without `seglake[report]`."""
        return render_page(self)


def report(
    root: str,
    topic: str | None = None,
    *,
    now_ms: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> LakeReport:
    """Return the report of a lake, or of one of its topics, from the catalog and some zone maps.

    Args:
        root: The root of the lake.
        topic: One topic; None reports on all topics.
        now_ms: The time of the report; default now.
        storage_options: Options of the object store.
        progress: Called with the name of each step.

    Raises:
        UsageError: There is no lake at `root`.
        UnknownTopic: The lake has no topic `topic`.
        StoreError: The object store failed.
        CorruptData: The catalog is damaged.

    Example:
        >>> [alert.kind for alert in seglake.report("lake").alerts]
        ['not closed']
    """
    made_ms = clock.now_ms() if now_ms is None else now_ms
    lake = open_lake(root, storage_options=storage_options)
    names = lake.topics() if topic is None else [lake.topic(topic).topic]
    table, topics = CatalogTable.open(open_store(root, storage_options)), list[TopicFigures]()
    quarantine = QuarantineTable(table.store)
    for at, name in enumerate(names, 1):
        progress(f"figures of {name}, topic {at:,} of {len(names):,}")
        topics.append(topic_figures(lake, name, made_ms, quarantine))
    topics.sort(key=lambda figures: (-figures.log_bytes, figures.topic))
    versions = RetainedVersions(table.log.commit_times(), table.handle.retention_ms())
    return LakeReport(root, lake.version, made_ms, topics, versions)


def _plain(value: Any) -> Any:
    """Convert dataclasses and named tuples to dictionaries."""
    if isinstance(value, TopicFigures):
        fields = {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
        coverage = {**fields["coverage"], "lag_ms": value.coverage.lag_ms(value.now_ms)}
        runs = [_plain(run) for run in value.runs[-_JSON_RUNS:]]
        return {**fields, "coverage": coverage, "runs": runs}
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if hasattr(value, "__dataclass_fields__"):
        row = asdict(value)
        return {**row, "report": json.loads(row["report"])} if "report" in row else row
    return [_plain(item) for item in value] if isinstance(value, list) else value
