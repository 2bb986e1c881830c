"""Where consumer groups of a broker stood in a topic that was archived from it.

Each group has one object per topic below `catalog/groups`, outside of the catalog's versions: a
group moves while no record comes. An archive replaces it as a whole. No offset lies above the end
that the log partition had then, so that a consumer which goes on from there misses nothing.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from seglake import layout
from seglake.errors import CorruptData, MissingObject
from seglake.store import Reader, Store


class GroupOffset(NamedTuple):
    """The next offset that a group reads in a log partition, and what its client wrote beside."""

    offset: int
    metadata: str = ""


class GroupInTopic(NamedTuple):
    """Where a group stood in a topic, by partition. `lake` is the identity of the lake."""

    lake: str
    topic: str
    group: str
    offsets: dict[int, GroupOffset]


def keep(store: Store, stood: GroupInTopic) -> None:
    """Write where a group stood. Partitions that are not among these stay as they are.

    Raises StoreError, CorruptData if what is there cannot be read.
    """
    key = layout.group_key(stood.group, stood.topic)
    before = _read(store, key, stood.lake)
    offsets = {**(before.offsets if before else {}), **stood.offsets}
    if before is None or before.offsets != offsets:
        document = {**stood._asdict(), "offsets": dict(sorted(offsets.items()))}
        store.put(key, json.dumps(document, ensure_ascii=False).encode())


def of_group(store: Store, lake: str, group: str) -> list[GroupInTopic]:
    """Where a group stood in each topic of a lake. Raises StoreError, CorruptData."""
    return _below(store, layout.group_folder(group), lake)


def of_topic(store: Store, lake: str, topic: str) -> list[GroupInTopic]:
    """Where each group stood in a topic, by name of the group. Raises StoreError, CorruptData."""
    return [stood for stood in of_lake(store, lake) if stood.topic == topic]


def of_lake(store: Store, lake: str) -> list[GroupInTopic]:
    """Where each group stood, by group and topic. Raises StoreError, CorruptData."""
    return _below(store, layout.GROUPS, lake)


def _below(store: Store, folder: str, lake: str) -> list[GroupInTopic]:
    keys = [item.key for item in store.list(folder) if layout.is_group_key(item.key)]
    groups = (_read(store, key, lake) for key in keys)
    return sorted((group for group in groups if group), key=lambda each: (each.group, each.topic))


def _read(store: Reader, key: str, lake: str) -> GroupInTopic | None:
    """What an object says; None if it does not exist, or is of another lake at the same root."""
    try:
        document: Any = json.loads(bytes(store.read_all(key)))
        offsets = {int(p): GroupOffset(*each) for p, each in document["offsets"].items()}
        stood = GroupInTopic(document["lake"], document["topic"], document["group"], offsets)
    except MissingObject:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptData(
            f"this is no position of a group ({error}): delete it, and archive again", file=key
        ) from error
    return stood if stood.lake == lake else None
