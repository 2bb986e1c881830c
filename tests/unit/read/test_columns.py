"""Columns that are filled again and again: what they gave away stays as it is."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from seglake.format.codecs.payload import payload_of
from seglake.format.decode import scan_batches
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.records import Records, Spans, read_only
from seglake.format.sought_kernels import EVERY_KEY
from seglake.log import execute
from seglake.log.column_kernels import DecodeRoom
from seglake.log.execute import Columns, schema_of
from seglake.log.segment import ALL_RECORDS, window_limits
from tests.makers.strategies import examples

SCHEMA = schema_of(["key", "value"])
ROOM = 100_000
EVERYTHING = np.array([window_limits(ALL_RECORDS)])

steps = st.lists(
    st.tuples(st.lists(st.integers(0, 3000), max_size=30), st.booleans(), st.integers(0, 4)),
    max_size=25,
)


@pytest.fixture(autouse=True)
def _little_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_LEAST_LENT", 20_000)


def taken(made: Columns, keys: list[bytes | None], values: list[bytes | None]) -> pa.RecordBatch:
    """What comes of these records."""
    records = Records(np.arange(len(keys)), Spans.from_list(keys), Spans.from_list(values), None)
    bodies = encode_bodies(records, np.arange(len(keys)))
    encoded = encode_batches(records.timestamps, bodies, Encoding(None, 0, 2**30))
    data, table = read_only(encoded.data), scan_batches(encoded.data)
    owner_of, room = np.zeros(len(table), np.int32), DecodeRoom.new()
    done = made.fill(
        table, payload_of(data, table), False, 0, EVERYTHING, owner_of, EVERY_KEY, 2**30, room
    )
    assert done[0] == len(table)
    return made.take([], owner_of)


def address(batch: pa.RecordBatch) -> int:
    """Where the bytes of the values are."""
    data = batch.column("value").buffers()[2]
    assert data is not None
    return int(data.address)


@given(steps)
@examples(100)
def test_batches_keep_their_records(drawn: list[tuple[list[int], bool, int]]) -> None:
    """Whether they are kept whole, in part or not at all, in any order."""
    made = Columns(SCHEMA, 1000, ROOM)
    kept: list[tuple[Any, list[bytes | None]]] = []
    for number, (sizes, as_keys, forget) in enumerate(drawn):
        items: list[bytes | None] = [bytes([number, size % 251]) * (size // 2) for size in sizes]
        nothing: list[bytes | None] = [None] * len(items)
        batch = taken(made, items, nothing) if as_keys else taken(made, nothing, items)
        kept.append((batch.column("key" if as_keys else "value")[1:], items[1:]))
        del batch, kept[: forget % 3]
        for array, expected in kept:
            assert array.to_pylist() == expected


def test_memory_that_was_let_go_is_used_again() -> None:
    made = Columns(SCHEMA, 10, ROOM)
    places = {address(taken(made, [None], [b"a" * 60_000])) for _ in range(20)}
    assert len(places) <= 2


def test_memory_that_is_held_is_not() -> None:
    made = Columns(SCHEMA, 10, ROOM)
    held = [taken(made, [None], [b"a" * 60_000]) for _ in range(20)]
    assert len({address(batch) for batch in held}) == 20


def test_little_is_copied_and_pins_nothing() -> None:
    made = Columns(SCHEMA, 10, ROOM)
    held = [taken(made, [None], [b"a" * 100]) for _ in range(20)]
    assert len({address(batch) for batch in held}) == 20
    assert sum(batch.nbytes for batch in held) < ROOM
