"""Polars and pandas take the buffers of a window as they are: the addresses are the same.

Polars keeps up to 12 bytes of an item beside its length; of longer ones it refers to the buffer.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import seglake
from tests.makers.lakes import Event, LakeMaker

T = 1_700_000_000_000
FIXED = ["partition", "offset", "timestamp", "timestamp_type"]


@pytest.fixture
def batch(tmp_path: Path) -> pa.RecordBatch:
    maker = LakeMaker(tmp_path)
    rows = [
        Event(T + i, b"a key that is long, %d" % i, b"and a long value, %d" % i) for i in range(500)
    ]
    maker.run({0: rows})
    reader = seglake.open(str(tmp_path)).topic("events").read_range(T, T + 500)
    (only,) = [each for each in reader if len(each)]
    return only


def addresses(array: Any) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None]


def test_polars_copies_neither_numbers_nor_bytes(batch: pa.RecordBatch) -> None:
    frame: Any = pl.from_arrow(batch)
    for name in FIXED:
        assert addresses(frame[name].to_arrow()) == addresses(batch[name])
    for name in ("key", "value"):
        views = frame[name].to_arrow(compat_level=pl.CompatLevel.newest())
        data: Any = batch[name].buffers()[2]
        assert addresses(views)[-1] == data.address


def test_pandas_copies_nothing(batch: pa.RecordBatch) -> None:
    frame = pa.Table.from_batches([batch]).to_pandas(types_mapper=pd.ArrowDtype)
    for name in [*FIXED, "key", "value"]:
        chunk = frame[name].array.__arrow_array__().chunk(0)
        assert addresses(chunk) == addresses(batch[name])
