"""Imported by the process that victims are forked from, so that each finds its kernels compiled.

Everything but the catalog runs once: a fork must not inherit the threads of a Delta library.
"""

import tempfile
from pathlib import Path

import pyarrow as pa

from seglake.ingest import plan
from seglake.ingest.engine import LocalEngine
from seglake.ingest.listing import list_inputs, plan_splits
from seglake.ingest.rebase import Move
from seglake.ingest.stages import WRITE_SCHEMA, Read, Write
from seglake.ingest.units import dump_unit, group_splits
from seglake.ingest.write import Piece
from seglake.layout import new_attempt
from tests.chaos import victim
from tests.raw_events import Line, T, pipeline_of, write_file

__all__ = ["victim"]


def _warm(folder: Path, order: str, clock: str) -> None:
    write_file(folder / "in.jsonl", [Line(T, key) for key in ("a", "b", None)])
    topic = {"message.timestamp.type": clock}
    settings = pipeline_of(folder / order, folder / "in.jsonl", order=order, topic=topic)
    units = group_splits(plan_splits(list_inputs(settings), settings), 2**20)
    table = pa.table({"unit": [dump_unit(unit) for unit in units]})
    with LocalEngine().map(Read(settings, T), table) as blobs:
        meta = blobs.meta()
        known = plan.Blobs.of(meta.filter(pa.compute.greater(meta["size_bytes"], 0)))
        cuts = plan.cut_partitions(known, 2**20)
        route = plan.route(known, plan.assign(known, cuts), len(cuts), 1)
        attempt = new_attempt()
        pieces = {
            number: (cut, Piece("events", cut.partition, attempt, 0, T))
            for number, cut in enumerate(cuts)
        }
        task = Write(settings, pieces, T, None)
        rows = task.rows(blobs.run_routed(task, WRITE_SCHEMA, route))
    Move(settings.root, {}, {0: 5}, new_attempt(), T + 1).run(LocalEngine(), rows)


with tempfile.TemporaryDirectory() as _folder:
    for _settings in (("time", "CreateTime"), ("arrival", "LogAppendTime")):
        _warm(Path(_folder), *_settings)
