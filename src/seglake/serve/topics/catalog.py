"""Find the topics that clients name: a topic of the lake, or one derived from its name.

A derived topic is a window, a version or a tag of a topic. The server scans for a new version of
the catalog every `refresh_ms`, once for all clients. A new version wakes requests that wait for
records.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import filter as matching
from functools import partial
from typing import Any, NamedTuple

from seglake.catalog.schema import TagRow, TopicRow
from seglake.catalog.tags import NAME
from seglake.clock import now_ms
from seglake.errors import SeglakeError, UnknownTopic, UsageError, VersionExpired
from seglake.layout import is_topic_name
from seglake.log.segment import Window
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.serve.api import ServerCounts, text_for_log
from seglake.serve.records.batch_ranges import BatchRanges
from seglake.serve.settings import ServerSettings
from seglake.serve.topics.partition import ServedPartition, WindowPartition
from seglake.times.instants import to_epoch_ms

_log = logging.getLogger(__name__)

# The constant leader epoch of every partition. Clients ignore metadata with a smaller epoch than
# that of a batch (`Metadata.updateLatestMetadata`), and imported batches keep their epochs.
LEADER_EPOCH = 2**30

_PLANS = 2  # windows that are planned at the same time
_BACKOFF_S = 10.0  # between scans of a catalog that cannot be read


class ServedTopic(NamedTuple):
    """A topic as clients see it. `plain` is its name in the lake, and `log` its log there."""

    name: str
    id: uuid.UUID
    plain: str
    settings: TopicRow
    partitions: Sequence[ServedPartition]
    log: Log

    def partition(self, number: int) -> ServedPartition:
        """Return a partition. Raises UnknownTopic if the topic has no such partition."""
        if not 0 <= number < len(self.partitions):
            raise UnknownTopic(f"topic {self.name!r} has no partition {number}")
        return self.partitions[number]


@dataclass(eq=False)
class _DerivedTopic:
    """A derived topic in memory: what its name selects, and the future of the planned topic.

    `tag` is a tag that keeps the version of the topic, or None. `size` is about how many bytes of
    memory the topic uses.
    """

    asked: DerivedName
    tag: TagRow | None
    topic: asyncio.Future[ServedTopic] = field(init=False)
    size: int = 0


class ServedTopics:
    """Every topic that a client can name. Only the event loop may call it.

    `version` is the version of the catalog that is served. `change` is a future that is done when
    a newer version is served.
    """

    def __init__(self, lake: Lake, settings: ServerSettings, counts: ServerCounts) -> None:
        reads = lake.reads
        self._lake, self._reads, self._settings, self._counts = lake, reads, settings, counts
        self.batch_ranges = BatchRanges(reads, counts)
        self._forgotten = reads.forgotten
        self.lake, self.root = lake.identity, reads.store.uri
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"seglake:{self.lake}")
        self.cluster_id = base64.urlsafe_b64encode(self._namespace.bytes).decode().rstrip("=")
        self._derived = OrderedDict[str, _DerivedTopic]()
        # Windows are planned on separate threads, so that slow plans do not delay fetches.
        self._planning = ThreadPoolExecutor(_PLANS, "seglake-plan")
        self._ids = dict[uuid.UUID, str]()
        self._refreshing: asyncio.Future[None] | None = None
        self.refreshed_ms = now_ms()
        self.problem: str | None = None  # why the last scan failed
        self._take(*self._new_version())

    # the lake

    def names(self) -> list[str]:
        """Return the topics of the lake that are served."""
        return sorted(self._topics)

    async def listed(self) -> list[str]:
        """Return the names that clients find in lists: `names`, and names from the setting `list`.

        At most `windows` names of the setting are listed, because no more are kept in memory.
        """
        found = [*self._topics]
        for name in self._listed[: self._settings.windows]:
            with suppress(SeglakeError):  # the version or tag does not exist
                found.append((await self.find(name)).name)
        return sorted({*found})

    def partition_count(self, name: str) -> int | None:
        """Return the partition count of a topic in memory, or None for any other topic."""
        if (topic := self._topics.get(name)) is not None:
            return len(topic.partitions)
        made = self._derived[name].topic if name in self._derived else None
        if made is None or not made.done() or made.cancelled() or made.exception():
            return None
        return len(made.result().partitions)

    async def limit(self, name: str, partition: int) -> int | None:
        """Return the end of a partition of a derived topic, or None for any other topic."""
        with suppress(SeglakeError):
            topic = await self.find(name)
            if name not in self._topics and 0 <= partition < len(topic.partitions):
                return topic.partitions[partition].end
        return None

    async def find(self, name: str) -> ServedTopic:
        """Return a topic by name.

        Raises UnknownTopic, UsageError, VersionExpired, StoreError.
        """
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if not is_topic_name(name):
            raise UsageError(f"'{text_for_log(name)}' is not the name of a topic")
        asked = parse_derived_name(name, self._topics, self._tags)
        if asked is None or asked.topic not in self._topics:
            raise self._unknown(name)
        made = self._derived.get(name)
        if made is None or _may_derive_again(made.topic, asked):
            made = self._derived[name] = _DerivedTopic(asked, self._tag_of(asked))
            made.topic = asyncio.ensure_future(self._made(name, made))
            made.topic.add_done_callback(_retrieve_exception)
            self._evict()
        self._derived.move_to_end(name)
        return await asyncio.shield(made.topic)

    async def expired(self, name: str, error: VersionExpired) -> bool:
        """Record that files of a topic were deleted with its version. Return whether it is lost.

        A topic is lost if its name has a version that no tag keeps. Then `find` raises the error
        from now on. Any other topic is derived again at the next request, from the newest version
        or from its tag.
        """
        _log.warning("topic %s: %s", name, error)
        made = self._derived.get(name)
        if name not in self._topics and made and made.asked.version is not None and not made.tag:
            made.topic, made.size = asyncio.get_running_loop().create_future(), 0
            made.topic.set_exception(error)
            _retrieve_exception(made.topic)
            return True
        self._derived.pop(name, None)
        with suppress(SeglakeError):  # `watch` logs it.
            await self.refresh()
        return False

    async def find_by_id(self, topic_id: uuid.UUID) -> ServedTopic | None:
        """Return the topic that has this id, or None."""
        name = self._ids.get(topic_id)
        try:
            topic = None if name is None else await self.find(name)
        except UnknownTopic:
            return None
        return topic if topic and topic.id == topic_id else None  # the tag may name another version

    async def refresh(self) -> None:
        """Scan for a newer version now. Calls at the same time share one scan."""
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refreshed())
        try:
            await asyncio.shield(self._refreshing)
        finally:
            self._refreshing = None

    async def watch(self) -> None:
        """Scan for newer versions, until it is cancelled."""
        pause_s = self._settings.refresh_ms / 1000
        failures = 0
        while True:
            await asyncio.sleep(min(pause_s * 2 ** min(failures, 20), max(pause_s, _BACKOFF_S)))
            try:
                await self.refresh()
            except Exception as error:  # Any error is logged, and the scan is tried again.
                failures += 1
                self._counts.failed_refreshes += 1
                if self.problem is None:
                    foreign = None if isinstance(error, SeglakeError) else error
                    _log.error("cannot read a newer version, so version %d is still served: %r",
                               self.version, error, exc_info=foreign)  # fmt: skip
                self.problem = f"{type(error).__name__}: {error}"
                continue
            if self.problem is not None:
                _log.info("newer versions can be read again")
            failures, self.problem = 0, None

    def close(self) -> None:
        """End the threads that plan windows, and the threads that read logs."""
        self._planning.shutdown(wait=False, cancel_futures=True)
        self.batch_ranges.close()

    async def _refreshed(self) -> None:
        try:
            await self.batch_ranges.run(self._lake.refresh)
        except VersionExpired:  # `seglake repair --catalog` rebuilt the catalog.
            await self.batch_ranges.run(self._lake.reopen)
            _log.info("the catalog was rebuilt")
        self._counts.refreshes += 1
        if self._reads.forgotten != self._forgotten:
            self._forgotten = self._reads.forgotten
            self.batch_ranges.forget()
        if self._lake.version != self.version:
            change = self.change
            self._take(*await self.batch_ranges.run(self._new_version))
            _log.info("version %d of the catalog", self.version)
            change.set_result(None)
        self.refreshed_ms = now_ms()

    def _new_version(self) -> tuple[int, dict[str, ServedTopic], dict[str, TagRow], list[str]]:
        """Return the version of the lake, its topics, tags and listed names. Runs on a thread."""
        version, chosen = self._lake.version, set(self._settings.topics)
        names = [name for name in self._lake.topics() if not chosen or name in chosen]
        topics = {name: self._whole(name, self._lake.topic(name)) for name in names}
        tags = {tag.name: tag for tag in self._lake.known_tags()}
        return version, topics, tags, _listed(self._settings.listed, topics, tags)

    def _take(
        self,
        version: int,
        topics: dict[str, ServedTopic],
        tags: dict[str, TagRow],
        listed: list[str],
    ) -> None:
        """Serve this version, with its topics and tags, from now on."""
        self._topics, self._tags, self._listed = topics, tags, listed
        self._drop_changed_tags()
        self._ids |= {topic.id: name for name, topic in topics.items()}
        self.change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.version = version  # last: a version is served when all of it is known

    def _whole(self, name: str, log: Log) -> ServedTopic:
        partitions = _LazyPartitions(log)
        return ServedTopic(name, self._id(name), log.topic, log.settings, partitions, log)

    def _unknown(self, name: str) -> UnknownTopic:
        what = f"is not in version {self.version} of the lake"
        return UnknownTopic(f"topic {name!r} {what}{explain_unknown_name(name, self._topics)}")

    def _id(self, name: str, tag: TagRow | None = None) -> uuid.UUID:
        """Return the id of a topic. With a tag, it differs for each version of the tag."""
        return uuid.uuid5(self._namespace, name if tag is None else f"{name}@{tag.version}")

    # derived topics

    async def _made(self, name: str, made: _DerivedTopic) -> ServedTopic:
        while True:
            made.tag = self._tag_of(made.asked)
            if made.tag is None and made.asked.tag is not None:
                raise self._unknown(name)
            plan = partial(self._planned, name, made.asked, made.tag)
            try:
                topic = await asyncio.get_running_loop().run_in_executor(self._planning, plan)
            except VersionExpired:  # The tag may have been deleted or changed since the last scan.
                if made.tag is None:
                    raise
                await self.refresh()
                if not self._changed(made):
                    raise
                continue
            if not self._changed(made):
                break
        if name in self._derived:
            self._ids[topic.id] = name
            made.size = sum(topic.partitions[p].held_bytes for p in range(len(topic.partitions)))
            self._evict()
        _log.info("topic %s is served from version %d", name, topic.log.version)
        return topic

    def _tag_of(self, asked: DerivedName) -> TagRow | None:
        """Return the tag in a name, or else a tag that keeps its version, or None."""
        if asked.tag is not None:
            return self._tags.get(asked.tag)
        return next((tag for tag in self._tags.values() if tag.version == asked.version), None)

    def _changed(self, made: _DerivedTopic) -> bool:
        """Return whether the tag was deleted or moved, or was changed by an erasure."""
        tag = self._tag_of(made.asked)
        return (tag and tag.attempt_id) != (made.tag and made.tag.attempt_id)

    def _drop_changed_tags(self) -> None:
        """Drop the derived topics whose tags changed. The next request derives them again."""
        for name, made in [*self._derived.items()]:
            # `_made` finds out itself while it plans the topic.
            if made.topic.done() and self._changed(made):
                tag = self._tag_of(made.asked)
                if made.asked.tag and not (tag and made.tag and tag.version == made.tag.version):
                    self._ids.pop(self._id(name, made.tag), None)
                del self._derived[name]

    def _planned(self, name: str, asked: DerivedName, tag: TagRow | None) -> ServedTopic:
        """Return the topic derived from a name.

        Runs on a thread, because planning a window reads zone maps.
        """
        if tag is None or asked.tag is None:
            log = self._lake.topic(asked.topic).at(asked.version)
        else:
            log = self._lake.topic_in(tag, asked.topic)
        topic = self._whole(name, log.detached())
        if asked.start_ms is not None and asked.end_ms is not None:
            window = Window.from_times(asked.start_ms, asked.end_ms)
            readers = (topic.log.reader(number) for number in log.partitions())
            windows = [WindowPartition(reader, self._reads, window) for reader in readers]
            topic = topic._replace(partitions=windows)
        return topic._replace(plain=asked.topic, id=self._id(name, tag if asked.tag else None))

    def _evict(self) -> None:
        """Drop the derived topics requested least recently. Always keep one topic, of any size."""
        most, most_bytes = self._settings.windows, self._settings.windows_bytes
        sizes = deque(each.size for each in self._derived.values())
        while len(sizes) > 1 and (len(sizes) > most or sum(sizes) > most_bytes):
            sizes.popleft()
            name, made = self._derived.popitem(last=False)
            self._ids.pop(self._id(name, made.tag if made.asked.tag else None), None)
            made.topic.cancel()


def _listed(given: Iterable[str], topics: Iterable[str], tags: Iterable[str]) -> list[str]:
    """Return the names in the setting `list`, and the names that its patterns match."""
    patterns = [name for name in given if {*name} & {*"*?"}]
    names = {name: None for name in given if name not in patterns}
    if patterns:
        tagged = [f"{topic}.{tag}" for topic in topics for tag in tags]
        names |= dict.fromkeys(name for each in patterns for name in matching(tagged, each))
    return [*names]


class _LazyPartitions(Sequence[ServedPartition]):
    """The partitions of a log. Each one is created when it is first requested."""

    def __init__(self, log: Log) -> None:
        self._log, self._count = log, log.settings.partitions
        self._made = dict[int, ServedPartition]()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        if number not in self._made:
            self._made[number] = ServedPartition(self._log.reader(number))
        return self._made[number]


def _may_derive_again(made: asyncio.Future[ServedTopic], asked: DerivedName) -> bool:
    """Return whether deriving a topic failed, but may succeed now.

    An expired version is lost, and the topics of a version or a tag never change.
    """
    if not made.done():
        return False
    if made.cancelled():
        return True
    error = made.exception()
    if asked.version is not None and isinstance(error, VersionExpired):
        return False
    is_fixed = asked.version is not None or asked.tag is not None
    return error is not None and not (is_fixed and isinstance(error, UnknownTopic))


def _retrieve_exception(made: asyncio.Future[ServedTopic]) -> None:
    """Retrieve an error, so that asyncio does not log it. The waiting requests also get it."""
    if not made.cancelled():
        made.exception()


# ---------------- names
# Names of derived topics: `TOPIC.START.END`, `TOPIC.v12`, `TOPIC.TAG`.
#
# START and END are times such as `20260601T120000.000Z`; the milliseconds may be left out. `.v12`
# is a version of the catalog, and `.q3-train` is the version of the tag `q3-train`. The parts have
# this order.

_TIME = r"\d{8}T\d{6}(?:\.\d{1,3})?Z"
_WINDOW = rf"(?P<topic>.+?)(?:\.(?P<start>{_TIME})\.(?P<end>{_TIME}))?"
_PLAIN = re.compile(_WINDOW + r"(?:\.v(?P<version>\d{1,18}))?")
_TAGGED = re.compile(rf"(?P<before>.+)\.(?P<tag>{NAME})")


class DerivedName(NamedTuple):
    """What a name selects: a whole topic or a window [start_ms, end_ms), in a version or a tag."""

    topic: str
    start_ms: int | None = None
    end_ms: int | None = None
    version: int | None = None
    tag: str | None = None


def parse_derived_name(
    name: str, topics: Container[str] = (), tags: Container[str] = ()
) -> DerivedName | None:
    """Parse a derived name. Return None for a plain name. Raises UsageError for impossible values.

    `topics` and `tags` are names that the lake has. A name that can be parsed without a tag, and
    then begins with a topic of the lake, has no tag.
    """
    asked, match = _parsed(name, name), _TAGGED.fullmatch(name)
    if match is None or match["tag"] not in tags or (asked and asked.topic in topics):
        return asked
    if match["before"] in topics:
        return DerivedName(match["before"], tag=match["tag"])
    before = _parsed(match["before"], name)
    return before._replace(tag=match["tag"]) if before and before.version is None else asked


def _parsed(text: str, name: str) -> DerivedName | None:
    """Parse a derived name, or return None for a plain name. `text` is the name without its tag."""
    match = _PLAIN.fullmatch(text)
    if match is None or (text == name and not match["start"] and not match["version"]):
        return None
    version = None if match["version"] is None else int(match["version"])
    if match["start"] is None:
        return DerivedName(match["topic"], version=version)
    start, end = _milliseconds(name, match["start"]), _milliseconds(name, match["end"])
    if end <= start:
        raise UsageError(f"{name}: the window ends at or before its start. Swap the times")
    return DerivedName(match["topic"], start, end, version)


def _milliseconds(name: str, text: str) -> int:
    try:
        return to_epoch_ms(text)
    except UsageError:
        what = f"{text} is not a time. Write 20260601T120000.000Z"
        raise UsageError(f"{name}: {what}") from None


def explain_unknown_name(name: str, topics: Container[str]) -> str:
    """Return why a name that begins with a topic is unknown, to append to a message, or ""."""
    parts = name.split(".")
    begins = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    topic = next((begin for begin in begins if begin in topics), None)
    if topic is None:
        return ""
    return (
        f": the text after {topic}. is not a window (as in "
        f"{topic}.20260601T120000Z.20260601T130000Z), a version or a tag"
    )
