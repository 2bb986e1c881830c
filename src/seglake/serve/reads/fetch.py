"""Answer Fetch: stored batches, a long poll at the log end (`ReplicaManager.fetchMessages`).

Batches may have lost all their records. Most clients skip such batches. A client that requests
their offset again gets the next records, or waits for some. kafka-go never gets such batches,
because it reads the log from offset 1 again if an early answer has no record, and stops after three
batches without records in a row.

Fetch sessions are declined (KIP-227): every answer has session 0, so every request must be full.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from seglake.errors import SeglakeError, VersionExpired
from seglake.serve.api import NO_ID, Api, in_turns
from seglake.serve.codes import Code, error_code
from seglake.serve.connection import Connection, Part, Reply
from seglake.serve.frames import varint
from seglake.serve.reads.offsets import epoch_error
from seglake.serve.records.batch_reader import BatchReader, FetchResult
from seglake.serve.topics.catalog import ServedTopic, ServedTopics

_MEMORY_BYTES = 4 * 2**20  # records of an answer that are not in local files
# kafka-go requests this version of Fetch. So do clients of Kafka 2.1, which are treated equally.
_KAFKA_GO = 10
_ROUNDED_S = 0.002  # kafka-go rounds its max_wait_ms down by less than this
_FRAMED_AT_ONCE = 1000  # an answer with more partitions and topics is framed on a thread
_FULL = (0, -1)  # session epochs of requests that name every partition


def _error_of(request: Any) -> Code:
    """Return the error of a whole request, or NONE."""
    if request.session_epoch not in _FULL:
        return Code.FETCH_SESSION_ID_NOT_FOUND
    if request.isolation_level not in (0, 1):
        return Code.UNKNOWN_SERVER_ERROR
    is_broker = request.replica_id >= 0
    return Code.NOT_LEADER_OR_FOLLOWER if is_broker else Code.NONE


def _unknown(version: int) -> Code:
    return Code.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else Code.UNKNOWN_TOPIC_ID


def _code_for(code: Code, version: int) -> Code:
    """Return the code, or a similar one that clients of an old version support."""
    is_too_new = code == Code.KAFKA_STORAGE_ERROR and version < 6
    return Code.NOT_LEADER_OR_FOLLOWER if is_too_new else code


class FetchHandler:
    """Answers Fetch. `fetch_bytes` bounds the records of an answer."""

    def __init__(self, topics: ServedTopics, fetch_bytes: int) -> None:
        self._topics, self._fetch_bytes = topics, fetch_bytes

    def apis(self) -> list[Api]:
        """Return the API Fetch."""
        return [Api(FetchRequest, 4, 18, self._fetch)]

    async def _fetch(self, request: Any, connection: Connection) -> Reply:
        """Answer Fetch, versions 4 to 18, with record batches as stored.

        Since version 7, a whole request can be refused: this server refuses the requests of
        sessions. Since version 9 a request has a leader epoch, and since version 13 it names topics
        by id. Followers, which are brokers, get NOT_LEADER_OR_FOLLOWER.
        """
        code = _error_of(request)
        if connection.version >= 7 and code not in (Code.NONE, Code.NOT_LEADER_OR_FOLLOWER):
            connection.count_error(code)
            return encode_frame([], connection.version, connection.correlation_id, code)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(0, request.max_wait_ms), 2**31) / 1000
        if connection.version == _KAFKA_GO:
            deadline += _ROUNDED_S
        while True:
            change = self._topics.change
            topics, size, ends, failed = await self._scan(request, connection)
            left = deadline - loop.time()
            if failed or size >= request.min_bytes or left <= 0:
                break
            # The next request ends the wait for a new version, so that this one does not delay it.
            behind = connection.next_request
            until: set[Any] = {change} if behind is None else {change, behind}
            await asyncio.wait(until, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not change.done():
                break
        connection.ends = ends
        async for topic in in_turns(topics):
            for answer in topic.partitions:
                connection.count_error(answer.code)
        framing = partial(
            encode_frame, topics, connection.version, connection.correlation_id,
            committed=request.isolation_level == 1,
        )  # fmt: skip
        partitions = sum(len(topic.partitions) for topic in topics)
        small = partitions + len(topics) <= _FRAMED_AT_ONCE
        return framing() if small else await self._topics.batch_ranges.run(framing)

    async def _scan(
        self, request: Any, connection: Connection
    ) -> tuple[list[TopicAnswer], int, dict[tuple[str, int], int], bool]:
        """Pass once over all requested partitions. Return (answers, bytes, ends, is one an error).

        The ends are the fetch offsets of the partitions whose answer has no record. For a client
        that cannot skip empty batches, the bytes exclude answers without a record.
        """
        room = min(request.max_bytes, self._fetch_bytes)
        wrong_request = _error_of(request)
        answers, size, failed = list[TopicAnswer](), 0, False
        ends, again = dict[tuple[str, int], int](), 0
        async for asked in in_turns(request.topics):
            name, topic, wrong = await self._topic(asked, connection.version)
            parts = list[PartitionAnswer]()
            async for each in in_turns(asked.partitions):
                if topic is None:
                    answer = PartitionAnswer(each.partition, wrong)
                elif wrong_request and 0 <= each.partition < len(topic.partitions):
                    answer = PartitionAnswer(each.partition, wrong_request)
                else:
                    try:
                        answer = await self._records(topic, each, room, size, connection)
                    except VersionExpired as error:
                        wrong, topic = await self._expired(topic, error, connection.version), None
                        answer = PartitionAnswer(each.partition, wrong)
                    except SeglakeError as error:
                        code = _code_for(error_code(error), connection.version)
                        answer = PartitionAnswer(each.partition, code)
                size += answer.taken.size
                room = max(min(room, 0), room - answer.taken.size)
                failed |= answer.code != Code.NONE
                if topic is not None and answer.taken.size and not answer.taken.has_records:
                    place, offset = (topic.name, each.partition), each.fetch_offset
                    ends[place] = offset
                    # These clients need records here, because they do not skip empty batches.
                    if connection.version == _KAFKA_GO or connection.ends.get(place) == offset:
                        again += answer.taken.size
                parts.append(answer)
            answers.append(TopicAnswer(name, asked.topic_id or NO_ID, parts))
        return answers, size - again, ends, failed

    async def _topic(self, asked: Any, version: int) -> tuple[str, ServedTopic | None, Code]:
        try:
            if version < 13:
                return asked.topic, await self._topics.find(asked.topic), Code.NONE
            topic = await self._topics.find_by_id(asked.topic_id)
        except SeglakeError as error:
            # The client then requests metadata, and that answer has the error.
            error_code(error)
            return asked.topic or "", None, _unknown(version)
        return (topic.name if topic else ""), topic, Code.UNKNOWN_TOPIC_ID

    async def _expired(self, topic: ServedTopic, error: VersionExpired, version: int) -> Code:
        """Return the code for a topic whose files were deleted with its version.

        For a lost topic, the client then requests metadata, which has the error. Else it retries.
        """
        if await self._topics.expired(topic.name, error):
            return _unknown(version)
        return _code_for(Code.KAFKA_STORAGE_ERROR, version)

    async def _records(
        self, topic: ServedTopic, asked: Any, room: int, size: int, connection: Connection
    ) -> PartitionAnswer:
        partition = topic.partition(asked.partition)
        start, end, offset = partition.start, partition.end, asked.fetch_offset
        code = epoch_error(asked.current_leader_epoch)
        if not code and not start <= offset <= end:
            code = Code.OFFSET_OUT_OF_RANGE
        if code:
            return PartitionAnswer(asked.partition, code)
        if offset == end:
            return PartitionAnswer(asked.partition, code, start, end)
        limit = min(asked.partition_max_bytes, room)
        if limit < 0:
            return PartitionAnswer(asked.partition, Code.UNKNOWN_SERVER_ERROR)
        if partition.remote:
            limit = min(limit, max(0, _MEMORY_BYTES - size))
        if not limit and size:  # the answer is full
            return PartitionAnswer(asked.partition, code, start, end)
        is_again = connection.ends.get((topic.name, asked.partition)) == offset
        reader = BatchReader(
            self._topics.batch_ranges, offset, end, limit, whole_first=not size,
            skip_empty=is_again, only_filled=connection.version == _KAFKA_GO,
        )  # fmt: skip
        taken = await reader.read(partition.byte_ranges(offset))
        connection.counts.fetched_bytes[topic.plain] += taken.size
        return PartitionAnswer(asked.partition, Code.NONE, start, end, taken)


# ---------------- fetch frame
# The frame of a Fetch response is encoded here, so that its records are never copied.
#
# kafka-python encodes the rest of the protocol.

_FLEXIBLE = 12
_NO_TAGS = b"\x00"


class PartitionAnswer(NamedTuple):
    """A partition of the answer: its error, where its log starts and ends, its records."""

    number: int
    code: Code
    start: int = -1
    end: int = -1
    taken: FetchResult = FetchResult()


class TopicAnswer(NamedTuple):
    """A topic of the answer. Versions below 13 have its name, later ones its id."""

    name: str
    id: uuid.UUID
    partitions: Sequence[PartitionAnswer]


def encode_frame(
    topics: Sequence[TopicAnswer],
    version: int,
    correlation_id: int,
    code: Code = Code.NONE,
    *,
    committed: bool = False,
) -> Reply:
    """Return the answer. Only versions since 7 have `code`, the error of the whole request.

    With `committed`, the client requested only committed records.
    """
    out = _ResponseFrame(version, correlation_id, code)
    out.count(len(topics))
    for topic in topics:
        out.topic(topic)
        out.count(len(topic.partitions))
        for answer in topic.partitions:
            out.partition(answer, committed)
        out.tags()
    out.tags()
    return out.reply()


class _ResponseFrame:
    def __init__(self, version: int, correlation_id: int, code: Code) -> None:
        self._version, self._flexible = version, version >= _FLEXIBLE
        self._parts, self._head = list[Part](), bytearray()
        self._put(">i", correlation_id)
        self.tags()  # of the header
        self._put(">i", 0)  # throttled for 0 ms
        if version >= 7:
            self._put(">hi", code, 0)  # no session

    def reply(self) -> Reply:
        self._flush()
        return Reply(self._parts)

    def tags(self) -> None:
        """Append an empty list of tagged fields, in versions that have such lists."""
        if self._flexible:
            self._head += _NO_TAGS

    def count(self, size: int, form: str = ">i") -> None:
        """Append the length of an array, or of a text. Null has the length -1."""
        if self._flexible:
            self._head += varint(size + 1)
        else:
            self._put(form, size)

    def topic(self, topic: TopicAnswer) -> None:
        """Append the name of a topic, or its id."""
        if self._version >= 13:
            self._head += topic.id.bytes
            return
        name = topic.name.encode()
        self.count(len(name), ">h")
        self._head += name

    def partition(self, answer: PartitionAnswer, committed: bool) -> None:
        """Append a partition with its records. Without a record, they are empty and not null."""
        self._put(">ihqq", answer.number, answer.code, answer.end, answer.end)
        if self._version >= 5:
            self._put(">q", answer.start)
        self.count(0 if committed else -1)  # the number of aborted transactions; -1 is a null list
        if self._version >= 11:
            self._put(">i", -1)  # no other replica to read from
        self.count(answer.taken.size)
        if answer.taken.size:
            self._flush()
            self._parts += answer.taken.parts
        self.tags()

    def _put(self, form: str, *values: int) -> None:
        self._head += struct.pack(form, *values)

    def _flush(self) -> None:
        if self._head:
            self._parts.append(self._head)
            self._head = bytearray()
