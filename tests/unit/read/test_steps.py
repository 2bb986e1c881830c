"""The steps of a window of one second, counted: Python calls, modules, and types of ours.

A window of a local lake takes less time than the calls around it, so the calls are what it costs.
Each number is a budget: lower it when the path gets shorter.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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
CALLS, MODULES, TYPES = 150, 17, 32


class Steps:
    """What Python called while it was traced."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.modules, self.types = set[str](), set[str]()

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        """Count a call, or the types of the values that a function of ours used."""
        module = frame.f_globals.get("__name__", "")
        if event == "call":
            self.calls[f"{module}.{frame.f_code.co_name}"] += 1
        if module.startswith("seglake."):
            self.modules.add(module)
            if event == "return":
                kinds = {type(value) for value in (result, *frame.f_locals.values())}
                self.types |= {
                    f"{kind.__module__}.{kind.__qualname__}"
                    for kind in kinds
                    if kind.__module__.startswith("seglake.")
                }


@contextmanager
def traced() -> Iterator[Steps]:
    """Trace this thread in a block."""
    steps = Steps()
    sys.setprofile(steps)
    try:
        yield steps
    finally:
        sys.setprofile(None)


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
    with traced() as steps:
        window = log.read_range(T + 160_000, T + 161_000).read_all()
    assert len(window) == PARTITIONS * 13
    assert steps.calls.total() <= CALLS, steps.calls.most_common(40)
    assert len(steps.modules) <= MODULES, sorted(steps.modules)
    assert len(steps.types) <= TYPES, sorted(steps.types)
