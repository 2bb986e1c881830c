"""The topics of a server: those of the lake's newest version, and those that a name makes.

However many clients there are, one look every `refresh_ms` finds a new version of the catalog. It
wakes the requests that wait for records.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from seglake.catalog.rows import TopicRow
from seglake.errors import SeglakeError, UnknownTopic, UsageError
from seglake.layout import is_topic_name
from seglake.read.fetch.piece import Window
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.serve.counts import Counts
from seglake.serve.records.stretches import Stretches
from seglake.serve.records.taking import Taker
from seglake.serve.settings import Server
from seglake.serve.topics.clock import Clock, ReplayedPartition
from seglake.serve.topics.names import Derived, parse
from seglake.serve.topics.partition import Partition, WholePartition
from seglake.serve.topics.window import WindowPartition

_log = logging.getLogger(__name__)

# Of every partition, for ever: clients disregard metadata with a smaller epoch than a batch has
# (`Metadata.updateLatestMetadata`), and imported batches keep the epochs of their brokers.
LEADER_EPOCH = 2**30


class Topic(NamedTuple):
    """A topic as clients see it; `plain` is its name in the lake."""

    name: str
    id: uuid.UUID
    plain: str
    settings: TopicRow
    partitions: Sequence[Partition]


class Topics:
    """Every topic that a client can name. For the event loop alone."""

    def __init__(self, lake: Lake, settings: Server, counts: Counts) -> None:
        reads = lake.reads
        self._lake, self._reads, self._settings, self._counts = lake, reads, settings, counts
        self.stretches = Stretches(reads, self._count_damage)
        self.taker = Taker(self.stretches)
        root = reads.store.uri
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"seglake:{root}")
        self.cluster_id = base64.urlsafe_b64encode(self._namespace.bytes).decode().rstrip("=")
        self._derived = OrderedDict[str, asyncio.Future[Topic]]()
        self._ids = dict[uuid.UUID, str]()
        self._watching: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self.refreshed = time.time()
        self._new_version()

    # the lake

    @property
    def version(self) -> int:
        """The version of the catalog that is served."""
        return self._lake.version

    def names(self) -> list[str]:
        """The topics of the lake that are served; those that a name makes are not listed."""
        return sorted(self._topics)

    def partition_count(self, name: str) -> int | None:
        """The number of partitions of a topic that is known by now; None for any other."""
        if (topic := self._topics.get(name)) is not None:
            return len(topic.partitions)
        made = self._derived.get(name)
        if made is None or not made.done() or made.cancelled() or made.exception():
            return None
        return len(made.result().partitions)

    async def find(self, name: str) -> Topic:
        """The topic of a name. Raises UnknownTopic, UsageError, VersionExpired, StoreError."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if not is_topic_name(name):
            raise UsageError(f"{name!r} is no name of a topic")
        asked = parse(name)
        if asked is None or asked.topic not in self._topics:
            raise UnknownTopic(f"topic {name!r} is not in version {self.version} of the lake")
        made = self._derived.get(name)
        if made is None or (made.done() and (made.cancelled() or made.exception())):
            made = asyncio.ensure_future(self._made(name, asked))
            made.add_done_callback(_heard)
            self._derived[name] = made
            self._evict()
        self._derived.move_to_end(name)
        return await asyncio.shield(made)

    async def find_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic of an id, or None."""
        name = self._ids.get(topic_id)
        try:
            return None if name is None else await self.find(name)
        except UnknownTopic:
            return None

    @property
    def change(self) -> asyncio.Future[None]:
        """A future that is done as soon as there is a newer version."""
        return self._change

    async def refresh(self) -> None:
        """Look for a newer version now; calls meanwhile wait for the same look."""
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refreshed())
        try:
            await asyncio.shield(self._refreshing)
        finally:
            self._refreshing = None

    async def watch(self) -> None:
        """Look for newer versions, until it is cancelled."""
        failing = False
        while True:
            await asyncio.sleep(self._settings.refresh_ms / 1000)
            try:
                await self.refresh()
            except SeglakeError as error:
                self._counts.failed_refreshes += 1
                if not failing:
                    _log.error("no newer version can be read, version %d stays: %s",
                               self.version, error)  # fmt: skip
                failing = True
            else:
                if failing:
                    _log.info("newer versions can be read again")
                failing = False

    def close(self) -> None:
        """End its threads."""
        self.stretches.close()

    async def _refreshed(self) -> None:
        before = self.version
        await self.stretches.run(self._lake.refresh)
        self._counts.refreshes += 1
        self.refreshed = time.time()
        if self.version != before:
            _log.info("version %d of the catalog", self.version)
            change = self._change
            self._new_version()
            change.set_result(None)

    def _new_version(self) -> None:
        chosen = set(self._settings.topics)
        names = [name for name in self._lake.topics() if not chosen or name in chosen]
        self._topics = {name: self._whole(name, self._lake.topic(name)) for name in names}
        self._ids |= {topic.id: name for name, topic in self._topics.items()}
        self._change: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _whole(self, name: str, log: Log) -> Topic:
        partitions = _Lazily(log)
        return Topic(name, self._id(name), log.topic, log.settings, partitions)

    def _id(self, name: str) -> uuid.UUID:
        return uuid.uuid5(self._namespace, name)

    def _count_damage(self) -> None:
        self._counts.damaged_batches += 1

    # topics that a name makes

    async def _made(self, name: str, asked: Derived) -> Topic:
        log = self._lake.topic(asked.topic)
        made = await self.stretches.run(partial(self._windowed, log, name, asked))
        self._ids[made.id] = name
        _log.info("topic %s is of version %d", name, asked.version or log.version)
        return made

    def _windowed(self, newest: Log, name: str, asked: Derived) -> Topic:
        """The topic that a name makes. Runs on a thread: planning a window reads zone maps."""
        log = newest.at(asked.version)
        if asked.start_ms is None or asked.end_ms is None:
            return self._whole(name, log)._replace(plain=asked.topic)
        window = Window(asked.start_ms, asked.end_ms)
        windows = [WindowPartition(log.reader(p), self._reads, window) for p in log.partitions()]
        partitions: Sequence[Partition] = windows
        if asked.speed is not None:
            clock = Clock(asked.start_ms, asked.speed)
            partitions = [ReplayedPartition(each, clock) for each in windows]
        return Topic(name, self._id(name), asked.topic, log.settings, partitions)

    def _evict(self) -> None:
        while len(self._derived) > self._settings.windows:
            name, made = self._derived.popitem(last=False)
            self._ids.pop(self._id(name), None)
            if not made.done():
                made.cancel()


class _Lazily(Sequence[Partition]):
    """The partitions of a log, each made when it is first asked for."""

    def __init__(self, log: Log) -> None:
        self._log, self._count = log, log.settings.partitions
        self._made = dict[int, Partition]()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        if number not in self._made:
            self._made[number] = WholePartition(self._log.reader(number))
        return self._made[number]


def _heard(made: asyncio.Future[Topic]) -> None:
    """Take note of an error, which asyncio would log otherwise: whoever asked gets it."""
    if not made.cancelled():
        made.exception()
