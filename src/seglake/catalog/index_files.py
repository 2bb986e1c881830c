"""The three files beside a segment's log, and what the catalog says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import crc32c

from seglake.format.segment import Sealed
from seglake.layout import Suffix
from seglake.store import Store


def index_files(sealed: Sealed) -> dict[Suffix, bytes]:
    """Their content, by suffix."""
    return {
        "index": sealed.offset_index,
        "timeindex": sealed.time_index,
        "zonemap": sealed.zone_map,
    }


def put_indexes(store: Store, key: Callable[[Suffix], str], sealed: Sealed) -> dict[str, Any]:
    """Write them where `key` says; returns the columns of a segment row that describe them."""
    columns: dict[str, Any] = {}
    for suffix, data in index_files(sealed).items():
        store.put(key(suffix), data)
        columns[f"{suffix}_bytes"] = len(data)
        columns[f"{suffix}_crc32c"] = crc32c.crc32c(data)
    return columns
