"""Offsets of consumer groups in a lake, written as docs/catalog.md says."""

from __future__ import annotations

import json
from collections.abc import Mapping

from seglake import layout
from seglake.catalog.table import CatalogTable


def store_offsets(
    table: CatalogTable, topic: str, group: str, offsets: Mapping[int, int], metadata: str = ""
) -> str:
    """Write the offsets of a group in a topic, and return the object's key."""
    document = {
        "lake": table.lake, "topic": topic, "group": group,
        "offsets": {str(partition): [offset, metadata] for partition, offset in offsets.items()},
    }  # fmt: skip
    key = f"{layout.group_folder(group)}/{topic}.json"
    table.store.put(key, json.dumps(document, ensure_ascii=False).encode())
    return key
