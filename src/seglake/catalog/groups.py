"""Read the committed offsets of a broker's consumer groups that are stored with a topic.

Each group has one object per topic below `catalog/groups`, outside the catalog's versions, because
a group may commit offsets when no record is added. No offset is higher than the end of the log
partition at that time, so a consumer that continues from it misses no record.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from seglake import layout
from seglake.errors import CorruptData, MissingObject
from seglake.store import Reader, Store


class GroupOffset(NamedTuple):
    """The next offset that a group reads in a log partition, and the metadata of its client."""

    offset: int
    metadata: str = ""


class GroupInTopic(NamedTuple):
    """The offsets of a group in a topic, by partition. `lake` is the identity of the lake."""

    lake: str
    topic: str
    group: str
    offsets: dict[int, GroupOffset]


def group_offsets(store: Store, lake: str, group: str) -> list[GroupInTopic]:
    """Return the offsets of a group in each topic of a lake. Raises StoreError, CorruptData."""
    return _below(store, layout.group_folder(group), lake)


def topic_offsets(store: Store, lake: str, topic: str) -> list[GroupInTopic]:
    """Return the offsets of each group in a topic, sorted by group.

    Raises StoreError and CorruptData.
    """
    return [stood for stood in lake_offsets(store, lake) if stood.topic == topic]


def lake_offsets(store: Store, lake: str) -> list[GroupInTopic]:
    """Return the offsets of all groups, sorted by group and topic.

    Raises StoreError and CorruptData.
    """
    return _below(store, layout.GROUPS, lake)


def _below(store: Store, folder: str, lake: str) -> list[GroupInTopic]:
    keys = [item.key for item in store.list(folder) if layout.is_group_key(item.key)]
    groups = (_read(store, key, lake) for key in keys)
    return sorted((group for group in groups if group), key=lambda each: (each.group, each.topic))


def _read(store: Reader, key: str, lake: str) -> GroupInTopic | None:
    """Read an object. Return None if it does not exist, or is of another lake at this root."""
    try:
        document: Any = json.loads(bytes(store.read_all(key)))
        offsets = {int(p): GroupOffset(*each) for p, each in document["offsets"].items()}
        stood = GroupInTopic(document["lake"], document["topic"], document["group"], offsets)
    except MissingObject:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptData(
            f"this is not a list of a group's offsets ({error}). Delete it, or write it again",
            file=key,
        ) from error
    return stood if stood.lake == lake else None
