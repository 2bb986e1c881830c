"""Answer ListOffsets and OffsetForLeaderEpoch: starts and ends of logs, records by time.

Lookups that wait for an object store run on a thread. On a local disk a lookup takes less time than
passing it to a thread.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kafka.protocol import consumer

from seglake.errors import SeglakeError, VersionExpired
from seglake.log.reads import OffsetAndTimestamp
from seglake.serve.api import Api, in_turns
from seglake.serve.codes import Code, error_code
from seglake.serve.connection import Connection
from seglake.serve.topics.catalog import LEADER_EPOCH, ServedTopics
from seglake.serve.topics.partition import ServedPartition

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_EARLIEST_PENDING_UPLOAD = -6
_NONE = OffsetAndTimestamp(-1, -1)
# The first version of ListOffsets that has a special time.
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}


def epoch_error(epoch: int) -> Code:
    """Return the error for a request's current leader epoch, which is -1 if the client has none."""
    if epoch in (-1, LEADER_EPOCH):
        return Code.NONE
    return Code.FENCED_LEADER_EPOCH if epoch < LEADER_EPOCH else Code.UNKNOWN_LEADER_EPOCH


class OffsetsHandler:
    """Answers ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def apis(self) -> list[Api]:
        """Return the APIs ListOffsets and OffsetForLeaderEpoch."""
        return [
            Api(consumer.ListOffsetsRequest, 1, 11, self._list_offsets),
            Api(consumer.OffsetForLeaderEpochRequest, 2, 4, self._end_of_epoch),
        ]

    async def _list_offsets(self, request: Any, connection: Connection) -> Any:
        """Answer ListOffsets, versions 1 to 11: the start, the end, or the first record at a time.

        Special times have their own first version (`_SINCE`). Since version 4 requests have a
        leader epoch. Nothing is tiered, so "local" offsets are the log's, and "tiered" ones are
        -1. Lookups by time also find records that a broker overlooks (docs/lookups.md).
        """
        kind, topics = consumer.ListOffsetsResponse.ListOffsetsTopicResponse, []
        async for topic in in_turns(request.topics):
            partitions = [
                await self._offset(topic.name, each, request.isolation_level, connection)
                async for each in in_turns(topic.partitions)
            ]
            topics.append(kind(name=topic.name, partitions=partitions))
        return consumer.ListOffsetsResponse(topics=topics)

    async def _offset(self, topic: str, asked: Any, isolation: int, connection: Connection) -> Any:
        code, position = await self._looked_up(topic, asked, isolation, connection)
        connection.count_error(code)
        return consumer.ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=code, timestamp=position.timestamp,
            offset=position.offset, leader_epoch=LEADER_EPOCH if position.offset >= 0 else -1,
        )  # fmt: skip

    async def _looked_up(
        self, topic: str, asked: Any, isolation: int, connection: Connection
    ) -> tuple[Code, OffsetAndTimestamp]:
        if isolation not in (0, 1):
            return Code.UNKNOWN_SERVER_ERROR, _NONE
        time = asked.timestamp
        if time < _EARLIEST_PENDING_UPLOAD or connection.version < _SINCE.get(time, 1):
            return Code.UNSUPPORTED_VERSION, _NONE
        try:
            partition = (await self._topics.find(topic)).partition(asked.partition_index)
            if wrong := epoch_error(asked.current_leader_epoch):
                return wrong, _NONE
            return Code.NONE, await self._at(partition, time)
        except VersionExpired as error:
            gone = await self._topics.expired(topic, error)
            return error_code(error) if gone else Code.KAFKA_STORAGE_ERROR, _NONE
        except SeglakeError as error:
            return error_code(error), _NONE

    async def _at(self, partition: ServedPartition, time: int) -> OffsetAndTimestamp:
        if time in (_EARLIEST, _EARLIEST_LOCAL):
            return OffsetAndTimestamp(partition.start, -1)
        if time == _LATEST:
            return OffsetAndTimestamp(partition.end, -1)
        if time in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
            return _NONE
        lookup = partial(partition.at_time, time) if time >= 0 else partition.max_timestamp
        long = partition.remote or time < 0  # the largest timestamp of a window: many lookups
        run = partial(self._topics.batch_ranges.run, waits=partition.remote)
        record = await run(lookup) if long else lookup()
        return record or _NONE

    async def _end_of_epoch(self, request: Any, connection: Connection) -> Any:
        """Answer OffsetForLeaderEpoch, versions 2 to 4: every known epoch ends at the log end.

        No log of a lake is ever truncated, so a client never has to step back.
        """
        kind = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        async for topic in in_turns(request.topics):
            ends = [
                await self._epoch(topic.topic, each, kind, connection)
                async for each in in_turns(topic.partitions)
            ]
            topics.append(kind(topic=topic.topic, partitions=ends))
        return consumer.OffsetForLeaderEpochResponse(topics=topics)

    async def _epoch(self, topic: str, asked: Any, kind: Any, connection: Connection) -> Any:
        code, epoch, end = epoch_error(asked.current_leader_epoch), -1, -1
        try:
            partition = (await self._topics.find(topic)).partition(asked.partition)
            if not code and 0 <= asked.leader_epoch <= LEADER_EPOCH:
                epoch, end = asked.leader_epoch, partition.end  # no log was ever truncated
        except SeglakeError as error:
            code = error_code(error)
        connection.count_error(code)
        return kind.EpochEndOffset(
            error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end
        )
