"""What groups committed for topics of keys leaves with the erasure of the key.

The name of such a topic has the key in it, and the file of groups has the name. No erasure says
which keys it took, so that the history of a lake has none. So after an erasure in a topic the
server searches the topic for all keys that its file has. It forgets the names of those that no
record has any more. The file remembers the last erasure, so a server that did not run then does
the same at its start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from seglake.errors import SeglakeError, UsageError
from seglake.serve.codes import Code
from seglake.serve.groups.coordinator import Coordinator
from seglake.serve.topics.names import parse

_log = logging.getLogger(__name__)

_AGAIN_S = 60.0  # until it tries again after an error

Keyed = Mapping[str, bytes]  # the key of each name


class ErasedTopics(Protocol):
    """What it needs to know of a lake, in its newest version."""

    @property
    def change(self) -> asyncio.Future[None]:
        """A future that is done as soon as there is a newer version."""

    def every_name(self) -> Collection[str]:
        """All topics of the lake, also those that are not served."""

    async def last_erasure(self, topic: str) -> str:
        """A text that another erasure in the topic changes; "" if there was none."""

    async def keys_without_records(self, topic: str, keys: Collection[bytes]) -> set[bytes]:
        """Those of the keys that no record of a topic has. Raises StoreError, CorruptData."""

    def forget(self, names: Iterable[str]) -> None:
        """Let go of topics that these names made."""


class ErasedKeys:
    """Forgets committed offsets and starts of replays, see above. For the event loop alone."""

    def __init__(self, groups: Coordinator, topics: ErasedTopics) -> None:
        self._groups, self._topics = groups, topics

    async def watch(self) -> None:
        """Look after each change of the lake, until it is cancelled."""
        while True:
            change = self._topics.change
            worked = await self._looked()
            await asyncio.wait({change}, timeout=None if worked else _AGAIN_S)

    async def _looked(self) -> bool:
        """Whether a look worked. Nothing that it raises may end the watch."""
        try:
            names = await self._groups.topic_names()
            if isinstance(names, Code):
                return False
            done = [await self._look(*each) for each in self._by_topic(names).items()]
            return all(done)
        except SeglakeError as error:
            _log.error("offsets of erased keys: %s", error)
        except Exception:  # of any kind
            _log.exception("offsets of erased keys")
        return False

    def _by_topic(self, names: Iterable[str]) -> dict[str, dict[str, bytes]]:
        """The names with a key, by the topic of the lake that they are of."""
        keys, topics = dict[str, dict[str, bytes]](), self._topics.every_name()
        for name in {*names}.difference(topics):
            try:
                asked = parse(name, topics, tags=None)  # also one that is deleted by now
            except UsageError:  # of a server with another grammar
                continue
            if asked is not None and asked.key is not None and asked.topic in topics:
                keys.setdefault(asked.topic, {})[name] = asked.key
        return keys

    async def _look(self, topic: str, keyed: Keyed) -> bool:
        last = await self._topics.last_erasure(topic)
        if last == await self._groups.erasure_seen(topic):
            return True
        gone = await self._topics.keys_without_records(topic, {*keyed.values()})
        names = [name for name, key in keyed.items() if key in gone]
        self._topics.forget(names)
        done = await self._groups.erase(topic, names, last)
        if names and not done:
            _log.info("topic %s: offsets of %d topics of erased keys are gone", topic, len(names))
        return not done
