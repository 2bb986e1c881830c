"""Every command that changes a lake which is there: each does its part in one story (`upkeep`).

Done again, each does nothing more. They know of the lake its root alone; the topic is `events`.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from seglake.engine import LocalEngine
from seglake.format.index import IndexPolicy
from seglake.kafka.importing import import_logs
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records, retain
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.merge import merge
from seglake.maintain.publish.publish import publish
from seglake.maintain.schedule import maintain_lake
from seglake.maintain.topic_settings import alter
from seglake.maintain.undo import replace_files, undo
from seglake.maintain.vacuum import vacuum
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.lakes import Event
from tests.makers.published import FIELDS
from tests.makers.raw_events import TINY, Line, T, pipeline_of, write_file

RUN, OTHER = "run", "other"  # two committed runs; the first one has rejects that can be redriven
CORRECTED_TIME = "when"  # the field that such rejects have instead of `ts`
HOPELESS = "no json"  # what other rejects are
ALTERED = {
    "retention.bytes": 100, "quarantine.retention.ms": 0, "min.cleanable.dirty.ratio": 0.0,
}  # fmt: skip


class Failed(AssertionError):
    """What `maintain` says of its parts that failed."""


def _redrive(lake: str) -> None:
    """Some rejects of a run have their time in another field."""
    time = {"field": CORRECTED_TIME, "format": "epoch_ms"}
    redrive(LocalEngine(), pipeline_of(lake, "any", name="web", timestamp=time, task=TINY), RUN)


def _replace(lake: str) -> None:
    """A corrected file takes the place of what the other run brought in."""
    folder = Path(tempfile.gettempdir()) / "seglake-corrected"
    path = write_file(folder / "corrected.jsonl", [Line(T + 10 * n, f"c{n % 3}") for n in range(9)])
    os.utime(path, (T // 1000, T // 1000))
    replace_files(LocalEngine(), pipeline_of(lake, folder, name="beside"), DeclaredRun(OTHER))


def _import(lake: str) -> None:
    """What a broker wrote, transactions in it, as a topic of its own."""
    folder = Path(tempfile.gettempdir()) / f"seglake-imported-{os.getpid()}"
    steps = [
        Step(-1, (Event(T, b"k"),) * 3), Step(1, (Event(T + 1, b"k"),) * 2), Step(1, commits=False),
        Step(2, (Event(T + 2, b"k"),) * 2, rolls=True), Step(2), Step(-1, (Event(T + 3),)),
    ]  # fmt: skip
    try:
        for number in range(2):
            BrokerLog(steps[number:]).write(folder / f"imported-{number}", epoch=1)
        import_logs(lake, [str(folder)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _maintain(lake: str, progress: Callable[[str], None] = lambda _part: None) -> None:
    """Raises Failed if one of its parts did."""
    report = maintain_lake(lake, grace_hours=0, progress=progress)
    if failed := [part.error for part in report.parts if part.error is not None]:
        raise Failed(failed)


VERBS: dict[str, Callable[..., Any]] = {
    "reindex": partial(reindex, topic="events", policy=IndexPolicy(180)),
    "repair": repair_indexes,
    "reindex again": partial(reindex, topic="events", policy=IndexPolicy(0)),
    "publish": partial(publish, topic="events", fields=FIELDS),
    "publish again": partial(publish, topic="events"),
    "replace": _replace,
    "undo": partial(undo, topic="events", run_id=OTHER),
    "delete-records": partial(delete_records, topic="events", before_offsets={0: 3, 1: 2}),
    "retain": partial(retain, topic="events"),
    "merge": partial(merge, topic="events", everything=True, rebatch=True),
    "compact": partial(compact, topic="events", now_ms=10**13, force=True),
    "redrive": _redrive,
    "erase": partial(
        erase, topic="events", keys=["a"], raw_containing=HOPELESS, vacuum=True, grace_hours=0
    ),
    "import": _import,
    "alter": partial(alter, topic="events", settings=ALTERED),
    "maintain": _maintain,
    "vacuum": partial(vacuum, dry_run=False, grace_hours=0, retention_hours=0),
    "rebuild": partial(rebuild_catalog, dry_run=False, force=True),
}
