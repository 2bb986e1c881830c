"""Seekable, Kafka-format event logs on shared storage, written by Spark, catalogued in Delta.

    lake = seglake.open("s3://bucket/lake")
    log = lake.topic("events")
    log.offsets_for_times({0: "2026-11-20T01:00:00Z"})
    log.read_range("2026-11-20T01:00:00Z", "2026-11-20T01:00:10Z")

`open` and its results need no Spark; `ingest` writes a DataFrame with Spark, `run_pipeline` the
files of a pipeline; `errors` has the exceptions. `report` shows what a lake looks like.
`import_logs`, `attach_logs`, `export_logs`, `archive`, `replay_window` and `serve_lake` exchange
records with Kafka's brokers and clients. The others maintain a lake, each as the command of its
name: with `dry_run=True` they only say what they would do. Capital letters begin the types of
results and of arguments. Each name is imported at its first use.

Beside this package, `seglake.config`, `seglake.datasource`, `seglake.airflow` and `seglake.session`
are public, and the jobs in `seglake.jobs`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seglake import errors
    from seglake.config.pipeline import Pipeline
    from seglake.kafka.attach import attach_logs
    from seglake.kafka.exporting import Exported, export_logs
    from seglake.kafka.importing import Imported, import_logs
    from seglake.log.blocks.search import OffsetAndTimestamp
    from seglake.log.execute import ReadStats
    from seglake.maintain.compaction.compact import Compacted, compact
    from seglake.maintain.erasure.erase import Erased, erase
    from seglake.maintain.expiry.delete_records import Deleted, delete_records
    from seglake.maintain.expiry.retention import Retained, retain
    from seglake.maintain.health.reindex import Reindexed, reindex
    from seglake.maintain.health.repair import Rebuilt, Repaired, rebuild_catalog, repair_indexes
    from seglake.maintain.health.verify import Verification, verify
    from seglake.maintain.merge import Merged, merge
    from seglake.maintain.replace import replace
    from seglake.maintain.schedule import Maintained, maintain_lake
    from seglake.maintain.tagging import Tagged, tag
    from seglake.maintain.topic_settings import Altered, alter, describe
    from seglake.maintain.undo import Undone, undo
    from seglake.maintain.vacuum import Vacuumed, vacuum
    from seglake.read.consumers import Lag
    from seglake.read.field_list import FieldList
    from seglake.read.fields import Fields
    from seglake.read.lake import Lake, open  # noqa: A004  # users write seglake.open
    from seglake.read.listings import Commits, SegmentList, Tags
    from seglake.read.log import Log
    from seglake.read.record import Record
    from seglake.read.window.find import FindPlan
    from seglake.read.window.plan import Plan
    from seglake.read.window.reader import WindowReader
    from seglake.replay.report import ReplayReport
    from seglake.replay.run import replay_window
    from seglake.replay.target import Target
    from seglake.replay.tempo import Tempo
    from seglake.reporting.report import LakeReport, report
    from seglake.serve.run import serve_lake
    from seglake.times.instants import format_ms
    from seglake.write.api import ingest, redrive_run, run_pipeline
    from seglake.write.driver.redrive.redrive import RedriveReport
    from seglake.write.driver.report import Report
    from seglake.write.live.archive import Archive, archive

__all__ = [
    "Altered",
    "Archive",
    "Commits",
    "Compacted",
    "Deleted",
    "Erased",
    "Exported",
    "FieldList",
    "Fields",
    "FindPlan",
    "Imported",
    "Lag",
    "Lake",
    "LakeReport",
    "Log",
    "Maintained",
    "Merged",
    "OffsetAndTimestamp",
    "Pipeline",
    "Plan",
    "ReadStats",
    "Rebuilt",
    "Record",
    "RedriveReport",
    "Reindexed",
    "Repaired",
    "ReplayReport",
    "Report",
    "Retained",
    "SegmentList",
    "Tagged",
    "Tags",
    "Target",
    "Tempo",
    "Undone",
    "Vacuumed",
    "Verification",
    "WindowReader",
    "alter",
    "archive",
    "attach_logs",
    "compact",
    "delete_records",
    "describe",
    "erase",
    "errors",
    "export_logs",
    "format_ms",
    "import_logs",
    "ingest",
    "maintain_lake",
    "merge",
    "open",
    "rebuild_catalog",
    "redrive_run",
    "reindex",
    "repair_indexes",
    "replace",
    "replay_window",
    "report",
    "retain",
    "run_pipeline",
    "serve_lake",
    "tag",
    "undo",
    "vacuum",
    "verify",
]

_PUBLIC = {
    "seglake.kafka.attach": ("attach_logs",),
    "seglake.kafka.exporting": ("Exported", "export_logs"),
    "seglake.kafka.importing": ("Imported", "import_logs"),
    "seglake.config.pipeline": ("Pipeline",),
    "seglake.maintain.compaction.compact": ("Compacted", "compact"),
    "seglake.maintain.erasure.erase": ("Erased", "erase"),
    "seglake.maintain.expiry.delete_records": ("Deleted", "delete_records"),
    "seglake.maintain.expiry.retention": ("Retained", "retain"),
    "seglake.maintain.health.reindex": ("Reindexed", "reindex"),
    "seglake.maintain.health.repair": ("Rebuilt", "Repaired", "rebuild_catalog", "repair_indexes"),
    "seglake.maintain.health.verify": ("Verification", "verify"),
    "seglake.maintain.merge": ("Merged", "merge"),
    "seglake.maintain.replace": ("replace",),
    "seglake.maintain.schedule": ("Maintained", "maintain_lake"),
    "seglake.maintain.tagging": ("Tagged", "tag"),
    "seglake.maintain.topic_settings": ("Altered", "alter", "describe"),
    "seglake.maintain.undo": ("Undone", "undo"),
    "seglake.maintain.vacuum": ("Vacuumed", "vacuum"),
    "seglake.read.consumers": ("Lag",),
    "seglake.read.field_list": ("FieldList",),
    "seglake.read.fields": ("Fields",),
    "seglake.read.lake": ("Lake", "open"),
    "seglake.read.listings": ("Commits", "SegmentList", "Tags"),
    "seglake.read.log": ("Log",),
    "seglake.log.blocks.search": ("OffsetAndTimestamp",),
    "seglake.read.record": ("Record",),
    "seglake.log.execute": ("ReadStats",),
    "seglake.read.window.find": ("FindPlan",),
    "seglake.read.window.plan": ("Plan",),
    "seglake.read.window.reader": ("WindowReader",),
    "seglake.replay.report": ("ReplayReport",),
    "seglake.replay.run": ("replay_window",),
    "seglake.replay.target": ("Target",),
    "seglake.replay.tempo": ("Tempo",),
    "seglake.serve.run": ("serve_lake",),
    "seglake.times.instants": ("format_ms",),
    "seglake.reporting.report": ("LakeReport", "report"),
    "seglake.write.api": ("ingest", "redrive_run", "run_pipeline"),
    "seglake.write.driver.redrive.redrive": ("RedriveReport",),
    "seglake.write.driver.report": ("Report",),
    "seglake.write.live.archive": ("Archive", "archive"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("seglake.errors")
    if name == "__version__":
        return import_module("importlib.metadata").version("seglake")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'seglake' has no attribute {name!r}")
