"""Consumer groups of the server: Kafka's classic protocol, and committed offsets in one file."""

from __future__ import annotations

import base64
import os
import uuid
from pathlib import Path

from seglake.serve.api import ServerCounts
from seglake.serve.groups.coordinator import Coordinator
from seglake.serve.groups.offsets import OffsetStore
from seglake.serve.settings import Groups
from seglake.serve.topics.catalog import ServedTopics, is_removed


def open_groups(settings: Groups, counts: ServerCounts, topics: ServedTopics) -> Coordinator:
    """Return the groups of a server, with their stored offsets. Raises ConfigError."""
    store = OffsetStore(settings.file or _default_file(topics.root), topics.lake)
    every_name = topics.every_name()
    store.forget([name for name in store.topic_names() if is_removed(name, every_name)])
    return Coordinator(store, settings, counts)


def _default_file(root: str) -> Path:
    """Return the file for a root, in the folder with the state of this user's programs (XDG)."""
    made = uuid.uuid5(uuid.NAMESPACE_URL, f"seglake:{root}")
    name = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "seglake" / f"{name}.sqlite"
