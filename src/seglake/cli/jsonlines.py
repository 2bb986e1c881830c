"""Records as JSON lines, a whole record batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from seglake.catalog.version.snapshot import TIMESTAMP_TYPES
from seglake.format.records import Int32s, Spans
from seglake.text.json import base64, quoted
from seglake.text.spans import (
    constant,
    decimal_text,
    from_arrow,
    join_rows,
    nulls_as,
    where_null,
)
from seglake.text.utf8 import invalid_utf8


def json_lines(batch: pa.RecordBatch) -> bytes:
    """One line for each record, with exactly the fields of a record.

    Bytes that are not UTF-8 are written as {"base64": …}.
    """
    count = len(batch)
    if not count:
        return b""
    timestamps = batch["timestamp"].cast(pa.int64()).to_numpy()
    fields = {
        "topic": _text(batch["topic"]),
        "partition": decimal_text(batch["partition"].to_numpy()),
        "offset": decimal_text(batch["offset"].to_numpy()),
        "timestamp": decimal_text(timestamps),
        "timestamp_type": _types(batch["timestamp_type"].to_numpy()),
        "key": _text(batch["key"]),
        "value": _text(batch["value"]),
        "headers": _headers(batch["headers"]),
    }
    parts: list[Spans] = []
    for name, texts in fields.items():
        opening = "," if parts else "{"
        parts += [constant(f'{opening}"{name}":'.encode(), count), texts]
    return _bytes(join_rows([*parts, constant(b"}\n", count)]))


def _bytes(spans: Spans) -> bytes:
    end = int(spans.starts[-1] + spans.lengths[-1])
    return spans.data[:end].tobytes()


def _text(array: Any) -> Spans:
    """Each item as a JSON string, or as base64 in an object; null as the literal null."""
    spans = from_arrow(array)
    invalid = invalid_utf8(*spans)
    texts = quoted(where_null(spans, invalid))
    if invalid.any():
        count = len(spans)
        encoded = base64(where_null(spans, ~invalid))
        wrapped = join_rows([constant(b'{"base64":"', count), encoded, constant(b'"}', count)])
        plain = nulls_as(texts, b"")
        texts = join_rows([plain, where_null(wrapped, ~invalid)])
        return nulls_as(where_null(texts, spans.lengths < 0), b"null")
    return nulls_as(texts, b"null")


def _types(types: Int32s) -> Spans:
    names = [f'"{name}"'.encode() for name in TIMESTAMP_TYPES]
    both = Spans.of([b"".join(names) + bytes(64)])
    sizes = np.array([len(name) for name in names], np.int32)
    return Spans(both.data, np.array([0, sizes[0]])[types], sizes[types])


def _headers(lists: Any) -> Spans:
    """The headers of each record as a JSON list of objects."""
    firsts = lists.offsets.to_numpy().astype(np.int64)
    items = lists.values.slice(firsts[0], firsts[-1] - firsts[0])
    count, firsts = len(items), firsts - firsts[0]
    if not count:
        return constant(b"[]", len(lists))
    keys, values = _text(items.field("key")), _text(items.field("value"))
    labels = constant(b',{"key":', count), constant(b',"value":', count), constant(b"}", count)
    texts = join_rows([labels[0], keys, labels[1], values, labels[2]])
    ends = np.append(texts.starts, texts.starts[-1] + texts.lengths[-1])
    starts, stops = ends[firsts[:-1]], ends[firsts[1:]]
    some = starts < stops  # the first comma of a record's items goes
    inner = Spans(texts.data, starts + some, (stops - starts - some).astype(np.int32))
    return join_rows([constant(b"[", len(lists)), inner, constant(b"]", len(lists))])
