"""The steps of a window of one second, counted: Python calls, modules, and types of ours.

A window of a local lake takes less time than the calls around it, so the calls are what it costs.
Each number is a budget: lower it when the path gets shorter.

A module is a step if it calls another module of ours on the walk, else a leaf. A generator is
called by the module that takes its next item. Kernels count as calls of the module that calls them.
Steps call each other in one direction.

A type carries data if a step makes its values from the caller's window, from rows of the catalog
or from bytes of the log, and the next step gets them. Other types of ours do not get into a record:
the log, its caches, stores and index files, locks, unused memory, the caller's object, errors,
counts and constants. Columns keep their arrays in a tuple, `Buffers`, which is the only kind of
object that a kernel takes; the two count as one. The carriers are:

    LogSegment              a row of the catalog, as object keys and sizes
    Window                  what is asked of it
    Piece                   which bytes of a segment can have a wanted record
    Chunk                   batches whose checksums and offsets were checked
    Payload                 where their records are
    Columns                 the wanted records, which become Arrow arrays
"""

import sys
from collections import Counter, defaultdict
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import seglake
from seglake.catalog import deletions
from seglake.format.index import IndexPolicy
from tests.makers.lakes import Event, LakeMaker, Shape

T, PARTITIONS = 1_700_000_000_000, 4
CALLS, STEPS, LEAVES, OTHER_TYPES = 134, 8, 7, 19
CARRIERS = {"LogSegment", "Window", "Piece", "Chunk", "Payload", "Columns"}
CACHED = {"CachedChunk", "CachedRecords"}  # instead of requests, if batches are cached


class Steps:
    """What Python called while it was traced."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.modules, self.types = set[str](), set[str]()
        self.edges = defaultdict[str, set[str]](set)

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        """Count a call, or the types of the values that a function of ours used."""
        module = frame.f_globals.get("__name__", "")
        if event == "call":
            self.calls[f"{module}.{frame.f_code.co_name}"] += 1
        if not module.startswith("seglake."):
            return
        self.modules.add(module)
        caller = frame.f_back
        while caller and not caller.f_globals["__name__"].startswith("seglake."):
            caller = caller.f_back
        if caller and event == "call" and caller.f_globals["__name__"] != module:
            self.edges[caller.f_globals["__name__"]].add(module)
        if event == "return":
            kinds = {type(value) for value in (result, *frame.f_locals.values())}
            self.types |= {
                kind.__qualname__ for kind in kinds if kind.__module__.startswith("seglake.")
            }


def test_a_window_takes_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "_LOCAL_S", 1e9)  # a check on time would count, too
    maker = LakeMaker(tmp_path, partitions=PARTITIONS)
    values = np.random.default_rng(1)
    events = [Event(T + 80 * n, b"key", values.bytes(100)) for n in range(3000)]
    shape = Shape("zstd", batch_bytes=16_384, policy=IndexPolicy(4096))
    maker.run(dict.fromkeys(range(PARTITIONS), events), shape)
    log = seglake.open(str(tmp_path)).topic(maker.topic)
    for second in range(5):  # reads zone maps, loads kernels
        log.read_range(T + 1000 * second, T + 1000 * second + 1000).read_all()
    for read in range(4):
        filling = read == 2  # the cache, which the fourth read uses
        steps = Steps()
        sys.setprofile(steps)
        try:
            window = log.read_range(T + 160_000, T + 161_000).read_all()
        finally:
            sys.setprofile(None)
        assert len(window) == PARTITIONS * 13
        assert read or steps.calls.total() <= CALLS, steps.calls.most_common(40)
        leaves = steps.modules - steps.edges.keys()
        assert len(steps.edges) <= STEPS + filling, dict(steps.edges)
        assert len(leaves) <= LEAVES, leaves
        TopologicalSorter(steps.edges).prepare()  # raises CycleError if there is a way back
        assert read or not CARRIERS - steps.types
        others = steps.types - CARRIERS - CACHED
        assert len(others) <= OTHER_TYPES + 2 * filling, others
