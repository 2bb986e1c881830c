"""Planning: what the driver of a run of terabytes does between map and reduce, by rows alone.

One hot log partition, whose blobs overlap a little, is cut into pieces. Each run is a process of
its own, so that its memory can be told: `python -m tests.bench.planning BLOBS PIECES`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.write.driver import plan
from seglake.write.spool.spool import (
    RECORDS,
    SPOOLED,
    WITH_RECORDS,
    in_one,
    of_kinds,
    packed_rows,
    rows_at,
    unpacked_rows,
)
from tests.bench.measure import Goal, Section, Table, say
from tests.bench.memory import own_peak
from tests.bench.workbench import Workbench

BLOB_BYTES, OF_A_TASK = 256 * 1024, 512  # blobs of a map task: 128 MiB
PIECES = 4000
SHARES = (0.01, 0.1, 1.0)
SECONDS, MEGABYTES = 30, 2000

_TEXT = """\
Rows of blobs of 256 KiB, which is what the driver knows of them, and one hot log partition in
{pieces:,} pieces: everything from these rows to the work of each reduce task, without the counts of
blobs that lie in two pieces, which tasks make. Memory is that of the process, rows included.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    rows = []
    for share in SHARES:
        blobs = int(bench.sizes.blobs * share)
        say(f"  {blobs:,} blobs")
        rows.append(_measured(blobs, min(PIECES, blobs)))
    last = rows[-1]
    section = Section("planning", "Planning", _TEXT.format(pieces=PIECES))
    columns = ["blobs", "GB of records", "pieces", "blobs in two pieces", "s", "MB of memory"]
    section.tables = [Table("By number of blobs", columns, rows)]
    section.goals = [
        Goal(f"s to plan {last[0]:,} blobs", last[4], SECONDS, at_least=False),
        Goal(f"MB of memory to plan {last[0]:,} blobs", last[5], MEGABYTES, at_least=False),
    ]
    return section


def _measured(blobs: int, pieces: int) -> list[Any]:
    command = [sys.executable, "-m", "tests.bench.planning", str(blobs), str(pieces)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def planned(blobs: int, pieces: int) -> list[Any]:
    """The figures of one run, in this process."""
    told, size = _spooled(blobs), blobs * BLOB_BYTES
    begun = time.perf_counter()
    planned = handed_out(told, -(-size // pieces))
    seconds = time.perf_counter() - begun
    return [blobs, size / 1e9, planned.pieces, planned.straddling, seconds, own_peak() / 1e6]


class HandedOut(NamedTuple):
    """How many blobs were given to how many pieces, and how many of them to several."""

    blobs: int
    pieces: int
    straddling: int


def handed_out(told: list[bytes], piece_bytes: int) -> HandedOut:
    """Plan all that map tasks told, and make what each reduce task gets."""
    spooled = in_one(of_kinds(unpacked_rows(told), *WITH_RECORDS))
    known = plan.Blobs.of(spooled)
    cuts = plan.cut_partitions(known, piece_bytes)
    routes = plan.assign(known, cuts)
    straddling = plan.straddlers(routes)
    half = {(blob, piece): 1 for blob, members in straddling.items() for piece in members}
    plan.base_offsets(cuts, plan.count_records(known, routes, half), {})
    tasks = [
        [(len(members), packed_rows(rows_at(spooled, members))) for _, members in task]
        for task in plan.share_pieces(known, routes, len(cuts), PIECES)
    ]
    given = sum(count for task in tasks for count, _ in task)
    if given != len(routes.blobs):
        raise AssertionError(f"{given} blobs were given to pieces instead of {len(routes.blobs)}")
    return HandedOut(len(known), len(cuts), len(straddling))


def _spooled(blobs: int) -> list[bytes]:
    """Packed rows of SPOOLED as map tasks would have told them: nearly sorted by time.

    Each thousand tasks share a chunk, since the number of chunks is not what is measured.
    """
    step = 1000 * OF_A_TASK
    return [packed_rows(_told(first, min(first + step, blobs))) for first in range(0, blobs, step)]


def _told(begin: int, end: int) -> pa.Table:
    count, numbers = end - begin, np.arange(begin, end)
    first = numbers * 1000 + np.random.default_rng(begin).integers(0, 500, count)
    tasks = numbers // OF_A_TASK
    names = [f"attempts/{0:036}/blobs/{task:036}" for task in range(tasks[0], tasks[-1] + 1)]
    of_task: Any = pa.DictionaryArray.from_arrays(pa.array(tasks - tasks[0]), pa.array(names))
    nothing = np.zeros(count, np.int64)
    columns: dict[str, Any] = {
        "kind": np.full(count, RECORDS), "unit": tasks, "partition": nothing,
        "number": numbers % OF_A_TASK + 1, "records": np.full(count, 2000),
        "size_bytes": np.full(count, BLOB_BYTES), "sort_key": first, "tie_breaker": nothing,
        "last_sort_key": first + 1500, "last_tie_breaker": nothing,
        "text": pa.repeat(pa.scalar(""), count), "object": of_task.cast(pa.string()),
        "start": nothing, "end": nothing, "crc32c": nothing, "squeezed": nothing > 0,
    }  # fmt: skip
    arrays: list[Any] = [pa.array(columns[each.name]).cast(each.type) for each in SPOOLED]
    return pa.Table.from_arrays(arrays, schema=SPOOLED)


if __name__ == "__main__":
    print(json.dumps(planned(int(sys.argv[1]), int(sys.argv[2]))))
