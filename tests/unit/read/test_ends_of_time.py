"""Records whose timestamps lie at the ends of int64 are in every read that should have them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.limits import INT64_MAX, INT64_MIN
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import examples

ENDS = st.sampled_from([INT64_MAX, INT64_MAX - 1, 5, 1, 0, -1, -2, INT64_MIN + 1, INT64_MIN])
MS = pa.timestamp("ms", "UTC")
STORED = ENDS.filter(lambda time: time >= -1)  # what the encoder writes


@given(st.lists(STORED, min_size=1, max_size=12), ENDS, ENDS)
@examples(30)
def test_reads_match_brute_force(times: list[int], one: int, two: int) -> None:
    start, end = sorted((one, two))
    with tempfile.TemporaryDirectory() as folder:
        LakeMaker(Path(folder)).run({0: [Event(time, b"k") for time in times]})
        log = seglake.open(folder).topic("events")
        every = list(range(len(times)))
        inside = [i for i, t in enumerate(times) if t >= 0 and start <= t < end]
        behind = [i for i, t in enumerate(times) if t >= max(start, 0)]
        for whole in (
            log.read_range(None, None), log.read_range(None, None, order="time"),
            log.find("k"), log.tail(len(times)), log.dataset().to_table(),
        ):  # fmt: skip
            table = whole if isinstance(whole, pa.Table) else whole.read_all()
            assert {*table["offset"].to_pylist()} == {*every}
            assert len(table) == len(every)
        assert log.read_range(start, end).read_all()["offset"].to_pylist() == inside
        assert log.read_range(start, None).read_all()["offset"].to_pylist() == behind
        assert log.find("k", start=start).read_all()["offset"].to_pylist() == behind
        later = pc.field("timestamp") >= pa.scalar(start, MS)
        found = log.dataset().to_table(columns=["offset"], filter=later)["offset"].to_pylist()
        assert found == [i for i, t in enumerate(times) if t >= start]
        around = log.read_around(
            pa.table({"at": [INT64_MAX]}), "at", before_ms=1, after_ms=1, columns=["offset"]
        )
        newest = [i for i, t in enumerate(times) if t >= INT64_MAX - 1]
        assert {*around.read_all()["offset"].to_pylist()} == {*newest}
