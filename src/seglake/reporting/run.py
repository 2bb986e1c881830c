"""Send metrics and lineage after a run, to the places that environment variables name.

    SEGLAKE_METRICS_FILE          path of a Prometheus text file; {topic} becomes the topic's name
    SEGLAKE_PUSHGATEWAY           URL of a Prometheus push gateway
    OPENLINEAGE_URL or _CONFIG    where OpenLineage events go; its other variables apply, too

A failure to send them is logged as a warning, and never changes the result of the run.
"""

# ruff: noqa: PLC0415  # the library for lineage is an extra

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.table import CatalogTable
from seglake.clock import now_ms
from seglake.config import Pipeline
from seglake.extras import extra
from seglake.reporting import metrics
from seglake.reporting.report import LakeReport
from seglake.reporting.report import report as lake_report
from seglake.store import open_store
from seglake.times.instants import format_ms, to_epoch_ms
from seglake.write.api import Interval
from seglake.write.driver.report import Report

FILE, GATEWAY = "SEGLAKE_METRICS_FILE", "SEGLAKE_PUSHGATEWAY"

_log = logging.getLogger(__name__)


class ReportedRun:
    """A run of a pipeline. The block of `report_run` sets `report` after the run."""

    report: Report


@contextmanager
def report_run(pipeline: Pipeline, interval: Interval = (None, None)) -> Iterator[ReportedRun]:
    """Yield a run, whose `report` the `with` block sets. Then send metrics and lineage.

    An exception of the block is sent as the failure of the run, and raised again.
    """
    run, send = ReportedRun(), partial(_send_lineage, pipeline, interval, now_ms())
    try:
        yield run
    except Exception as error:
        _log_errors("OpenLineage", partial(send, error=error))
        raise
    _log_errors("OpenLineage", partial(send, run.report))
    for what, tell in _metrics(pipeline):
        _log_errors(what, tell)


def _metrics(pipeline: Pipeline) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each variable that asks for metrics, with the function that sends them."""
    topic = pipeline.topic.name

    def figures() -> LakeReport:
        return lake_report(str(pipeline.root), topic, storage_options=pipeline.storage)

    if file := os.environ.get(FILE):
        yield FILE, lambda: metrics.write_file(figures(), Path(file.replace("{topic}", topic)))
    if gateway := os.environ.get(GATEWAY):
        yield GATEWAY, lambda: metrics.push(figures(), gateway)


def _log_errors(what: str, tell: Callable[[], None]) -> None:
    try:
        tell()
    # A library may raise any exception, and the run has already ended.
    except Exception as error:
        _log.warning("cannot send the run's lineage to %s: %s", what, error)


# ---------------- lineage
# OpenLineage events of a run: its input files, its interval, and the version that it committed.
#
# The library reads `OPENLINEAGE_URL` or `OPENLINEAGE_CONFIG`; without either, nothing is sent.
# Inputs are the files that the run read, or the paths of the pipeline if it read more than 100.
# `OPENLINEAGE_PARENT_ID` (namespace/job/run) names the parent run.

_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_PRODUCER = "urn:seglake"
_FILES = 100


def _send_lineage(
    pipeline: Pipeline,
    interval: Interval,
    started_ms: int,
    report: Report | None = None,
    error: Exception | None = None,
) -> None:
    """Send the events of a run. Without an error, the run is complete.

    Raises ConfigError without `seglake[lineage]`, and the exceptions of the library.
    """
    if not any(map(os.environ.get, _VARIABLES)):
        return
    with extra("lineage", "lineage"):
        from openlineage.client import OpenLineageClient, event_v2
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "seglake")
    run_id = report.attempt_id if report else str(uuid.uuid4())
    run = event_v2.Run(run_id, dict(_run_facets(interval, error)))
    job = event_v2.Job(namespace, f"{pipeline.name}.{pipeline.topic.name}")
    read = [event_v2.InputDataset(*_place(path)) for path in _files(pipeline, report)]
    written = [_output(pipeline, report)]
    end = event_v2.RunState.FAIL if error else event_v2.RunState.COMPLETE
    client = OpenLineageClient()
    times = {event_v2.RunState.START: started_ms, end: now_ms()}
    for state, at in times.items():
        client.emit(
            event_v2.RunEvent(
                eventType=state, eventTime=format_ms(at), run=run, job=job, inputs=read,
                outputs=written, producer=_PRODUCER,
            )
        )  # fmt: skip
    client.close(5)


def _files(pipeline: Pipeline, report: Report | None) -> list[str]:
    """Return the files that the run read, or the pipeline's paths if they are many or unknown."""
    if report and 0 < report.input_files <= _FILES:
        table = CatalogTable.open(open_store(str(pipeline.root), pipeline.storage))
        rows = table.rows.all(table.snapshot(), "source", report.topic)
        mine = rows.filter(pc.equal(rows["attempt_id"], pa.scalar(report.attempt_id)))
        paths: list[Any] = mine["path"].to_pylist()
        if paths:
            return sorted(paths)
    return list(pipeline.input.paths)


def _run_facets(interval: Interval, error: Exception | None) -> Iterator[tuple[str, Any]]:
    from openlineage.client.generated import error_message_run, nominal_time_run, parent_run

    start, end = interval
    if start is not None and end is not None:
        bounds = (format_ms(to_epoch_ms(bound)) for bound in (start, end))
        yield "nominalTime", nominal_time_run.NominalTimeRunFacet(*bounds)
    if error is not None:
        yield "errorMessage", error_message_run.ErrorMessageRunFacet(str(error), "python")
    parent = os.environ.get("OPENLINEAGE_PARENT_ID", "").rsplit("/", 2)
    if len(parent) == 3:
        namespace, name, run_id = parent
        run, job = parent_run.Run(run_id), parent_run.Job(namespace, name)
        yield "parent", parent_run.ParentRunFacet(run, job)


def _output(pipeline: Pipeline, report: Report | None) -> Any:
    from openlineage.client import event_v2
    from openlineage.client.generated import (
        dataset_version_dataset,
        output_statistics_output_dataset,
    )

    namespace, root = _place(str(pipeline.root))
    name = f"{root.rstrip('/')}/topics/{pipeline.topic.name}"
    if report is None:
        return event_v2.OutputDataset(namespace, name)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=report.records, size=report.output_bytes, fileCount=report.segments
    )
    facets: Any = {}
    if report.version >= 0:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(str(report.version))
        facets["version"] = version
    return event_v2.OutputDataset(namespace, name, {"outputStatistics": statistics}, facets=facets)


def _place(path: str) -> tuple[str, str]:
    """Return the OpenLineage namespace and name of a file or an object."""
    parts = urlsplit(path)
    if not parts.netloc:
        return "file", parts.path or path
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")
