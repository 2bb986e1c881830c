"""Fetch: batches as stored, a long poll at the end of the log (`ReplicaManager.fetchMessages`).

Fetch sessions are declined (KIP-227): every answer has session 0, so every request is a full one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from seglake.errors import MissingObject, SeglakeError, UnknownTopic, VersionExpired
from seglake.serve.api import Api
from seglake.serve.codes import Code
from seglake.serve.connection import Connection, Reply
from seglake.serve.reads.errors import code_of
from seglake.serve.reads.fetch_frame import Answer, TopicAnswer, frame_of, refusal
from seglake.serve.reads.offsets import epoch_error
from seglake.serve.records.taking import Taken
from seglake.serve.topics.catalog import Topic, Topics
from seglake.serve.topics.partition import Partition

_log = logging.getLogger(__name__)

_MEMORY_BYTES = 4 * 2**20  # of an answer whose records are not in local files
_NOTHING = Taken([], 0, -1)


class _Round(NamedTuple):
    """One look at every partition asked for."""

    topics: list[TopicAnswer]
    size: int
    failed: bool
    grows_in: float | None


class Fetching:
    """Answers Fetch. `fetch_bytes` bounds the records of an answer."""

    def __init__(self, topics: Topics, fetch_bytes: int) -> None:
        self._topics, self._fetch_bytes = topics, fetch_bytes

    def apis(self) -> list[Api]:
        """Fetch."""
        return [Api(FetchRequest, 4, 18, self._fetch)]

    async def _fetch(self, request: Any, connection: Connection) -> Reply:
        if connection.version >= 7 and request.session_id != 0:
            code = Code.FETCH_SESSION_ID_NOT_FOUND
            connection.count_error("Fetch", code)
            return refusal(connection.version, connection.correlation_id, code)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(0, request.max_wait_ms), 2**31) / 1000
        while True:
            change = self._topics.change
            found = await self._look(request, connection)
            left = deadline - loop.time()
            if found.failed or found.size >= request.min_bytes or left <= 0:
                break
            if not await self._wait(connection, change, left, found.grows_in):
                break
        self._count(found, connection)
        committed = request.isolation_level == 1
        return frame_of(found.topics, connection.version, connection.correlation_id, committed)

    async def _wait(
        self, connection: Connection, change: Any, left: float, grows_in: float | None
    ) -> bool:
        """Wait for more to read; False if another look is pointless.

        The client's next request ends the wait, so that it need not wait for this one.
        """
        behind = connection.next_request
        until = {change} if behind is None else {change, behind}
        timeout = left if grows_in is None else min(left, grows_in + 0.001)
        await asyncio.wait(until, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return change.done() or (grows_in is not None and not (behind and behind.done()))

    async def _look(self, request: Any, connection: Connection) -> _Round:
        room = min(max(0, request.max_bytes), self._fetch_bytes)
        answers, size, failed, waits = list[TopicAnswer](), 0, False, list[float]()
        for asked in request.topics:
            name, topic, wrong = await self._topic(asked, connection.version)
            parts = list[Answer]()
            for each in asked.partitions:
                if topic is None:
                    answer = Answer(each.partition, wrong, -1, -1, _NOTHING)
                else:
                    answer, wait = await self._partition(topic, each, room, size, connection)
                    if wait is not None:
                        waits.append(wait)
                size, room = size + answer.taken.size, max(0, room - answer.taken.size)
                failed |= answer.code != Code.NONE
                parts.append(answer)
            answers.append(TopicAnswer(name, asked.topic_id, parts))
        return _Round(answers, size, failed, min(waits, default=None))

    async def _topic(self, asked: Any, version: int) -> tuple[str, Topic | None, Code]:
        try:
            if version < 13:
                return asked.topic, await self._topics.find(asked.topic), Code.NONE
            topic = await self._topics.find_by_id(asked.topic_id)
        except SeglakeError as error:
            # the client then asks for metadata, whose answer says what is wrong with the name
            code_of(error)
            return asked.topic or "", None, Code.UNKNOWN_TOPIC_OR_PARTITION
        return (topic.name if topic else ""), topic, Code.UNKNOWN_TOPIC_ID

    async def _partition(
        self, topic: Topic, asked: Any, room: int, size: int, connection: Connection
    ) -> tuple[Answer, float | None]:
        number = asked.partition
        try:
            if not 0 <= number < len(topic.partitions):
                raise UnknownTopic(f"topic {topic.name!r} has no partition {number}")
            return await self._records(topic, asked, room, size, connection)
        except (VersionExpired, MissingObject) as error:
            await self._after_vacuum(error)
            code = Code.KAFKA_STORAGE_ERROR
        except SeglakeError as error:
            code = code_of(error)
        if code == Code.KAFKA_STORAGE_ERROR and connection.version < 6:
            code = Code.NOT_LEADER_OR_FOLLOWER
        return Answer(number, code, -1, -1, _NOTHING), None

    async def _after_vacuum(self, error: SeglakeError) -> None:
        """Look for a newer version: files of this one may be gone. The client tries again."""
        _log.warning("%s", error)
        try:
            await self._topics.refresh()
        except SeglakeError as worse:
            code_of(worse)

    async def _records(
        self, topic: Topic, asked: Any, room: int, size: int, connection: Connection
    ) -> tuple[Answer, float | None]:
        partition: Partition = topic.partitions[asked.partition]
        wait, start, end = partition.grows_in(), partition.start, partition.end()
        offset, version = asked.fetch_offset, connection.version
        code = epoch_error(asked.current_leader_epoch) if version >= 9 else Code.NONE
        if not code and not start <= offset <= end:
            code = Code.OFFSET_OUT_OF_RANGE
        if code:
            return Answer(asked.partition, code, -1, -1, _NOTHING), wait
        if offset == end:
            return Answer(asked.partition, code, start, end, _NOTHING), wait
        limit = min(max(0, asked.partition_max_bytes), room)
        if partition.remote:
            limit = min(limit, max(0, _MEMORY_BYTES - size))
        taken = await self._topics.taker.take(
            partition.runs(offset), offset, end, limit, whole_first=not size
        )
        if taken.zstd and version < 10:
            return Answer(
                asked.partition, Code.UNSUPPORTED_COMPRESSION_TYPE, start, end, _NOTHING
            ), wait
        connection.counts.fetched_bytes[topic.plain] += taken.size
        return Answer(asked.partition, Code.NONE, start, end, taken), wait

    def _count(self, found: _Round, connection: Connection) -> None:
        for topic in found.topics:
            for answer in topic.partitions:
                if answer.code:
                    connection.count_error("Fetch", answer.code)
