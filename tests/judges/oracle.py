"""What tests of reading share."""

import numpy as np
import pyarrow as pa
import pytest

from seglake.errors import OffsetNotFound, OffsetOutOfRange
from seglake.read.log import Log
from tests.makers.lakes import Written
from tests.makers.versions import first_reaching


def as_written(table: pa.Table) -> list[Written]:
    table = table.set_column(3, "timestamp", table["timestamp"].cast(pa.int64()))
    return [
        Written(
            row["partition"], row["offset"], row["timestamp"], row["timestamp_type"], row["key"],
            row["value"], [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in table.to_pylist()
    ]  # fmt: skip


def check_times(log: Log, partition: int, records: list[Written], wanted: list[int]) -> None:
    expected = [first_reaching(records, time) for time in wanted]
    assert [log.offsets_for_times({partition: t})[partition] for t in wanted] == expected
    offsets, stamps = log.offsets_for_times_array(partition, np.array(wanted))
    pairs = list(zip(offsets.tolist(), stamps.tolist(), strict=True))
    assert pairs == [answer or (-1, -1) for answer in expected]
    largest = max((r.timestamp for r in records), default=-1)
    newest = first_reaching(records, largest) if largest >= 0 else None
    assert log.max_timestamps([partition])[partition] == newest


def check_offset(
    log: Log, partition: int, offset: int, records: dict[int, Written], start: int, end: int
) -> None:
    if offset < 0:
        return
    if not start <= offset < end:
        with pytest.raises(OffsetOutOfRange):
            log.record_at(partition, offset)
    elif offset in records:
        assert log.record_at(partition, offset)[1:] == records[offset]
    else:
        with pytest.raises(OffsetNotFound):
            log.record_at(partition, offset)
    if start <= offset <= end:
        rest = [r for at, r in records.items() if at >= offset]
        assert as_written(log.read(partition, offset, max_records=7)) == rest[:7]
    else:
        with pytest.raises(OffsetOutOfRange):
            log.read(partition, offset)
