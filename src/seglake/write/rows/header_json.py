"""Record headers written as JSON arrays, as Seglake prints them.

    [{"key": "a", "value": null}, {"key": "c", "value": {"base64": "/w=="}}]

Each text is parsed once, however many rows have it.
"""

import base64
import json
from itertools import chain
from typing import Any

import numpy as np

from seglake.format.records import Flags, Headers, Spans
from seglake.text.spans import to_arrow

Header = tuple[bytes, bytes | None]


def read_headers(texts: Spans) -> tuple[Headers, Flags]:
    """The headers in each text, and which texts are not such an array. Null: no headers."""
    encoded = to_arrow(texts).view("large_binary").dictionary_encode()
    parsed = [_parsed(text) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
    lists = [[] if header_list is None else header_list for header_list in [*parsed, []]]
    items = list(chain.from_iterable(lists))
    firsts = np.append(0, np.cumsum([len(header_list) for header_list in lists])).astype(np.int64)
    keys, values = Spans.of([key for key, _ in items]), Spans.of([value for _, value in items])
    bad = np.array([header_list is None for header_list in [*parsed, []]])
    return Headers(firsts, keys, values).take(codes.astype(np.int64)), bad[codes]


def _parsed(text: bytes) -> list[Header] | None:
    """The headers of one array; None if it is something else."""
    try:
        return [(header["key"].encode(), _value(header["value"])) for header in json.loads(text)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _value(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)
