"""A run that sends metrics and lineage, where variables of the environment ask for them.

    SEGLAKE_METRICS_FILE          Prometheus text; {topic} in it stands for the topic
    SEGLAKE_PUSHGATEWAY           the URL of Prometheus' push gateway
    OPENLINEAGE_URL or _CONFIG    events of OpenLineage, whose other variables hold, too

A failure to send them is a warning in the log, and never changes the result of the run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from seglake.clock import now_ms
from seglake.config import Pipeline
from seglake.reporting import lineage, metrics
from seglake.reporting.report import LakeReport
from seglake.reporting.report import report as lake_report
from seglake.write.api import Interval
from seglake.write.driver.report import Report

FILE, GATEWAY = "SEGLAKE_METRICS_FILE", "SEGLAKE_PUSHGATEWAY"

_log = logging.getLogger(__name__)


class ReportedRun:
    """A run of a pipeline, and its report as soon as there is one."""

    report: Report


@contextmanager
def reported(pipeline: Pipeline, interval: Interval = (None, None)) -> Iterator[ReportedRun]:
    """The run that ingests in the block, and sets its report; then metrics and lineage are sent.

    An exception of the block is sent as the run's failure, and goes on.
    """
    run, started_ms = ReportedRun(), now_ms()
    try:
        yield run
    except Exception as error:
        failed = partial(lineage.failed, pipeline, interval, started_ms, error)
        _softly("OpenLineage", failed)
        raise
    _softly("OpenLineage", lambda: lineage.completed(pipeline, interval, started_ms, run.report))
    for what, tell in _metrics(pipeline):
        _softly(what, tell)


def _metrics(pipeline: Pipeline) -> Iterator[tuple[str, Callable[[], None]]]:
    """Where metrics of the topic go, and the calls that send them."""
    topic = pipeline.topic.name

    def figures() -> LakeReport:
        return lake_report(
            str(pipeline.root), topic, list_objects=False, storage_options=pipeline.storage
        )

    if file := os.environ.get(FILE):
        yield FILE, lambda: metrics.write_file(figures(), Path(file.replace("{topic}", topic)))
    if gateway := os.environ.get(GATEWAY):
        yield GATEWAY, lambda: metrics.push(figures(), gateway)


def _softly(what: str, tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception as error:  # of any library, and of whatever it calls
        _log.warning("the run cannot be sent to %s: %s", what, error)
