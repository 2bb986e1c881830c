"""Metadata, DescribeTopicPartitions and DescribeCluster: one broker leads every partition."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from seglake.errors import SeglakeError, UnknownTopic
from seglake.serve.api import NO_ID, NODE, Api, in_turns
from seglake.serve.codes import Code
from seglake.serve.connection import Connection
from seglake.serve.reads.errors import code_of
from seglake.serve.settings import Address
from seglake.serve.topics.catalog import LEADER_EPOCH, ServedTopic, ServedTopics

_MOST_PARTITIONS = 2000  # of one answer of DescribeTopicPartitions, as in Kafka
_KEPT_PARTITIONS = 16  # lists of partitions: topics of one count share one

_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_DescribedPartition = _DescribedTopic.DescribeTopicPartitionsResponsePartition


class _NamedTopic(NamedTuple):
    name: str | None
    id: uuid.UUID
    code: Code
    topic: ServedTopic | None


class Describing:
    """Tells clients which partitions there are, and where."""

    def __init__(self, topics: ServedTopics, address: Address) -> None:
        self._topics, self._address = topics, address

    def apis(self) -> list[Api]:
        """Metadata, DescribeTopicPartitions and DescribeCluster."""
        return [
            Api(MetadataRequest, self._metadata),
            Api(DescribeTopicPartitionsRequest, self._describe_topics),
            Api(DescribeClusterRequest, self._describe_cluster),
        ]

    async def _metadata(self, request: Any, connection: Connection) -> Any:
        asked = request.topics
        if asked is None or (not asked and connection.version == 0):
            names = await self._topics.listed()
            lookups = [await self._named(name, connection) async for name in in_turns(names)]
        else:
            lookups = [await self._asked(each, connection) async for each in in_turns(_once(asked))]
        response = MetadataResponse
        host, port = self._address
        broker = response.MetadataResponseBroker(node_id=NODE, host=host, port=port, rack=None)
        return response(
            throttle_time_ms=0,
            brokers=[broker],
            cluster_id=self._topics.cluster_id,
            controller_id=NODE,
            topics=[
                self._described(response.MetadataResponseTopic, each)
                async for each in in_turns(lookups)
            ],
            error_code=Code.NONE,
        )

    async def _asked(self, each: Any, connection: Connection) -> _NamedTopic:
        if each.name is not None:
            lookup = await self._named(each.name, connection)
        else:
            lookup = await self._by_id(each.topic_id)
        if lookup.code:
            connection.count_error("Metadata", lookup.code)
        return lookup

    async def _by_id(self, topic_id: uuid.UUID) -> _NamedTopic:
        try:
            topic = await self._topics.find_by_id(topic_id)
        except SeglakeError as error:
            return _NamedTopic(None, topic_id, code_of(error), None)
        code = Code.UNKNOWN_TOPIC_ID if topic is None else Code.NONE
        return _NamedTopic(topic and topic.name, topic_id, code, topic)

    async def _named(self, name: str, connection: Connection) -> _NamedTopic:
        try:
            topic = await self._topics.find(name)
        except UnknownTopic as error:
            connection.tell_unknown(name, error)
            return _NamedTopic(name, NO_ID, code_of(error), None)
        except SeglakeError as error:
            return _NamedTopic(name, NO_ID, code_of(error), None)
        return _NamedTopic(name, topic.id, Code.NONE, topic)

    def _described(self, kind: Any, lookup: _NamedTopic) -> Any:
        count = 0 if lookup.topic is None else len(lookup.topic.partitions)
        return kind(
            error_code=lookup.code, name=lookup.name, topic_id=lookup.id, is_internal=False,
            partitions=_partitions(kind.MetadataResponsePartition, range(count)),
        )  # fmt: skip

    async def _describe_topics(self, request: Any, connection: Connection) -> Any:
        response = DescribeTopicPartitionsResponse
        names = sorted({each.name for each in request.topics}) or await self._topics.listed()
        cursor = request.cursor
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
        left = min(max(request.response_partition_limit, 1), _MOST_PARTITIONS)
        topics, following = [], None
        async for name in in_turns(names):
            lookup = await self._named(name, connection)
            count = 0 if lookup.topic is None else len(lookup.topic.partitions)
            at_cursor = cursor is not None and name == cursor.topic_name
            first = min(count, max(0, cursor.partition_index)) if at_cursor else 0
            if left <= 0:
                following = response.Cursor(topic_name=name, partition_index=first)
                break
            some = range(first, min(count, first + left))
            topics.append(_DescribedTopic(
                error_code=lookup.code, name=name, topic_id=lookup.id, is_internal=False,
                partitions=_partitions(_DescribedPartition, some),
            ))  # fmt: skip
            left -= len(some)
            if some.stop < count:
                following = response.Cursor(topic_name=name, partition_index=some.stop)
                break
        return response(throttle_time_ms=0, topics=topics, next_cursor=following)

    async def _describe_cluster(self, request: Any, connection: Connection) -> Any:
        response = DescribeClusterResponse
        if connection.version >= 1 and request.endpoint_type != 1:
            connection.count_error("DescribeCluster", Code.INVALID_REQUEST)
            return response(
                error_code=Code.INVALID_REQUEST, error_message="this server has no controllers",
                endpoint_type=request.endpoint_type, cluster_id="", controller_id=-1, brokers=[],
            )  # fmt: skip
        host, port = self._address
        broker = response.DescribeClusterBroker(
            broker_id=NODE, host=host, port=port, rack=None, is_fenced=False
        )
        return response(
            throttle_time_ms=0, error_code=Code.NONE, error_message=None, endpoint_type=1,
            cluster_id=self._topics.cluster_id, controller_id=NODE, brokers=[broker],
        )  # fmt: skip


def _once(asked: Sequence[Any]) -> list[Any]:
    """The topics asked for, each once, as in Kafka."""
    return list({(each.name, each.topic_id): each for each in asked}.values())


@lru_cache(_KEPT_PARTITIONS)
def _partitions(kind: Any, numbers: range) -> Sequence[Any]:
    """What an answer says of these partitions, which is the same of every topic.

    The topics of an answer share it: of 10,000 topics a garbage collection would else look through
    some hundred thousand objects, while no client is answered.
    """
    more: dict[str, Any] = {}
    if kind is _DescribedPartition:
        more = {"eligible_leader_replicas": [], "last_known_elr": []}  # null crashes Java's client
    return [
        kind(
            error_code=Code.NONE, partition_index=number, leader_id=NODE,
            leader_epoch=LEADER_EPOCH, replica_nodes=[NODE], isr_nodes=[NODE], offline_replicas=[],
            **more,
        )
        for number in numbers
    ]  # fmt: skip
