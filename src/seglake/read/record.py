"""Define one record, the result of `Log.record_at`."""

from __future__ import annotations

from typing import NamedTuple

from seglake.format.decode import Decoded
from seglake.format.records import Headers, Spans


class Record(NamedTuple):
    """One record. `timestamp` is in ms, or -1; its type is 0 (CreateTime) or 1 (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @staticmethod
    def of(topic: str, partition: int, batch: Decoded, row: int) -> Record:
        """Return the record at `row` of a decoded batch."""
        records = batch.records
        numbers = batch.offsets, records.timestamps, batch.timestamp_types
        offset, timestamp, timestamp_type = (int(column[row]) for column in numbers)
        key, value = _item(records.keys, row), _item(records.values, row)
        headers = _headers_of(records.headers, row)
        return Record(topic, partition, offset, timestamp, timestamp_type, key, value, headers)


def _headers_of(headers: Headers | None, row: int) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    items = range(int(headers.firsts[row]), int(headers.firsts[row + 1]))
    return [(_text(_item(headers.keys, i)), _item(headers.values, i)) for i in items]


def _item(spans: Spans, row: int) -> bytes | None:
    start, length = int(spans.starts[row]), int(spans.lengths[row])
    return None if length < 0 else spans.data[start : start + length].tobytes()


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
