"""The public names of `seglake`. `__init__.py` reads this list: one name a line."""

from seglake import errors as errors
from seglake.config.pipeline import Pipeline as Pipeline
from seglake.infer.append import append as append
from seglake.kafka.attach import attach_logs as attach_logs
from seglake.kafka.exporting import export_logs as export_logs
from seglake.kafka.importing import import_logs as import_logs
from seglake.log.execute import ReadStats as ReadStats
from seglake.log.reads import OffsetAndTimestamp as OffsetAndTimestamp
from seglake.maintain.compaction.compact import compact as compact
from seglake.maintain.erasure.erase import erase as erase
from seglake.maintain.expiry.retention import delete_records as delete_records
from seglake.maintain.expiry.retention import retain as retain
from seglake.maintain.health.reindex import reindex as reindex
from seglake.maintain.health.repair import rebuild_catalog as rebuild_catalog
from seglake.maintain.health.repair import repair_indexes as repair_indexes
from seglake.maintain.health.verify import verify as verify
from seglake.maintain.merge import merge as merge
from seglake.maintain.publish.publish import PublishResult as PublishResult
from seglake.maintain.publish.publish import publish as publish
from seglake.maintain.schedule import maintain_lake as maintain_lake
from seglake.maintain.tagging import tag as tag
from seglake.maintain.topic_settings import alter as alter
from seglake.maintain.topic_settings import describe as describe
from seglake.maintain.undo import replace as replace
from seglake.maintain.undo import undo as undo
from seglake.maintain.vacuum import vacuum as vacuum
from seglake.read.consumers import Lag as Lag
from seglake.read.field_list import FieldList as FieldList
from seglake.read.fields import Fields as Fields
from seglake.read.lake import Lake as Lake  # users write seglake.open
from seglake.read.lake import open as open  # noqa: A004  # users write seglake.open
from seglake.read.listings import Commits as Commits
from seglake.read.listings import SegmentList as SegmentList
from seglake.read.listings import Tags as Tags
from seglake.read.log import Log as Log
from seglake.read.record import Record as Record
from seglake.read.tables import TableStatus as TableStatus
from seglake.read.window.find import FindPlan as FindPlan
from seglake.read.window.reader import Plan as Plan
from seglake.read.window.reader import WindowReader as WindowReader
from seglake.replay.run import ReplayReport as ReplayReport
from seglake.replay.run import Tempo as Tempo
from seglake.replay.run import replay_window as replay_window
from seglake.replay.target import Target as Target
from seglake.reporting.report import LakeReport as LakeReport
from seglake.reporting.report import report as report
from seglake.serve.run import serve_lake as serve_lake
from seglake.times.instants import format_ms as format_ms
from seglake.write.api import ingest as ingest
from seglake.write.api import redrive_run as redrive_run
from seglake.write.api import run_pipeline as run_pipeline
from seglake.write.driver.redrive import RedriveReport as RedriveReport
from seglake.write.driver.report import Report as Report

__all__: list[str]
__version__: str
