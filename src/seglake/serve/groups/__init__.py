"""Consumer groups of the server: Kafka's classic protocol, and committed offsets in one file."""

from __future__ import annotations

import base64
import os
import uuid
from pathlib import Path

from seglake.serve.api import Api, ServerCounts
from seglake.serve.groups.apis import GroupApis, GroupTopics
from seglake.serve.groups.coordinator import Coordinator
from seglake.serve.groups.group import GroupLimits
from seglake.serve.groups.offsets import ArchivedGroups, OffsetStore
from seglake.serve.settings import Address, Groups
from seglake.serve.topics.catalog import holds_key

__all__ = ["GroupsPart", "open_groups"]


class GroupsPart:
    """The groups of one server. Made by `open_groups`."""

    def __init__(self, settings: Groups, coordinator: Coordinator, topics: GroupTopics) -> None:
        self._settings, self._coordinator, self._topics = settings, coordinator, topics

    def apis(self, address: Address) -> list[Api]:
        """The APIs; clients find the coordinator at `address`."""
        coordinator, metadata_bytes = self._coordinator, self._settings.metadata_bytes
        return GroupApis(coordinator, self._topics, address, metadata_bytes).all()

    def release(self) -> None:
        """Answer the members that wait for a rebalance, as the server stops."""
        self._coordinator.release()

    def close(self) -> None:
        """Close the file of committed offsets; no request may follow."""
        self._coordinator.close()


def open_groups(settings: Groups, counts: ServerCounts, topics: GroupTopics) -> GroupsPart:
    """The groups of a server, with what they committed before. Raises ConfigError."""
    limits = GroupLimits(
        settings.initial_delay_ms, settings.min_session_ms, settings.max_session_ms,
        settings.max_members,
    )  # fmt: skip
    store = OffsetStore(settings.file or _default_file(topics.root), topics.lake)
    every_name = topics.every_name()
    store.forget([name for name in store.topic_names() if holds_key(name, every_name)])
    archived = ArchivedGroups(topics.store, topics.lake, topics.end_offset)
    coordinator = Coordinator(store, limits, settings.max_groups, counts, archived)
    topics.starts = coordinator
    return GroupsPart(settings, coordinator, topics)


def _default_file(root: str) -> Path:
    """One file for each root, in the folder for the state of this user's programs (XDG)."""
    made = uuid.uuid5(uuid.NAMESPACE_URL, f"seglake:{root}")
    name = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "seglake" / f"{name}.sqlite"
