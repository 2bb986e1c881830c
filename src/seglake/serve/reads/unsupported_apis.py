"""Refuse requests that would change something, with an error code of Kafka and a reason.

Produce is still advertised. Without it librdkafka reads no record, because it derives the message
format from the versions of Produce and Fetch (KAFKA-18659). Its old releases require version 0.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from kafka.protocol import admin, producer

from seglake.errors import SeglakeError
from seglake.layout import is_topic_name
from seglake.serve.api import NO_ID, Api, CloseConnection, in_turns
from seglake.serve.codes import Code, error_code
from seglake.serve.connection import Connection
from seglake.serve.reads.metadata import TOPIC_RESOURCE
from seglake.serve.topics.catalog import ServedTopics

WHY = "this server is read-only. To change its lake, use `seglake ingest`"
_IDS = count(1)  # ids of producers


async def _produce(request: Any, connection: Connection) -> Any:
    """Answer Produce, versions 0 to 9: TOPIC_AUTHORIZATION_FAILED for each partition.

    With acks=0 a producer reads no response, so the connection is closed.
    """
    if request.acks == 0:
        raise CloseConnection("a producer sends with acks=0, but this server is read-only")
    code, topics = Code.TOPIC_AUTHORIZATION_FAILED, []
    connection.count_error(code)
    kind = producer.ProduceResponse.TopicProduceResponse
    async for topic in in_turns(request.topic_data):
        partitions = [
            kind.PartitionProduceResponse(
                index=each.index, error_code=code, base_offset=-1, log_append_time_ms=-1,
                log_start_offset=-1, record_errors=[], error_message=WHY,
            )
            for each in topic.partition_data
        ]  # fmt: skip
        topics.append(kind(name=topic.name, partition_responses=partitions))
    return producer.ProduceResponse(responses=topics)


async def _init_producer_id(request: Any, connection: Connection) -> Any:
    """Answer InitProducerId, versions 0 to 5: give an id to an idempotent producer.

    Frameworks open such a producer even if it never sends a record. A transactional producer gets
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as from a broker where it may not use its id.
    """
    code = Code.NONE
    half_known = (request.producer_id == -1) != (request.producer_epoch == -1)
    if half_known or request.transactional_id == "":
        code = Code.INVALID_REQUEST
    elif request.transactional_id is not None:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    connection.count_error(code)
    if code:
        return producer.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return producer.InitProducerIdResponse(
        error_code=code, producer_id=next(_IDS), producer_epoch=0
    )


async def _describe_acls(_: Any, connection: Connection) -> Any:
    """Answer DescribeAcls, versions 1 to 3: SECURITY_DISABLED, as without an authorizer.

    Each client that may connect may read everything.
    """
    code, why = Code.SECURITY_DISABLED, "No Authorizer is configured on the broker"
    connection.count_error(code)
    return admin.DescribeAclsResponse(error_code=code, error_message=why, resources=[])


async def _change_acls(request: Any, connection: Connection) -> Any:
    """Answer CreateAcls and DeleteAcls, versions 1 to 3: SECURITY_DISABLED for each item."""
    code, why = Code.SECURITY_DISABLED, "No Authorizer is configured."
    connection.count_error(code)
    if isinstance(request, admin.CreateAclsRequest):
        return admin.CreateAclsResponse(results=[(code, why)] * len(request.creations))
    return admin.DeleteAclsResponse(filter_results=[(code, why, [])] * len(request.filters))


class UnsupportedApis:
    """Answers requests that would change topics: POLICY_VIOLATION, or a broker's code.

    A broker's code is used if a topic already exists, if it is missing, or if its name is invalid.
    """

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def apis(self) -> list[Api]:
        """Return the APIs that would change topics, and the refused APIs that need no topics."""
        return [
            Api(admin.DescribeAclsRequest, 1, 3, _describe_acls),
            Api(admin.CreateAclsRequest, 1, 3, _change_acls),
            Api(admin.DeleteAclsRequest, 1, 3, _change_acls),
            Api(producer.ProduceRequest, 0, 9, _produce),
            Api(producer.InitProducerIdRequest, 0, 5, _init_producer_id),
            Api(admin.CreateTopicsRequest, 2, 7, self._create_topics),
            Api(admin.DeleteTopicsRequest, 1, 6, self._delete_topics),
            Api(admin.CreatePartitionsRequest, 0, 3, self._create_partitions),
            Api(admin.DeleteRecordsRequest, 0, 2, self._delete_records),
            Api(admin.AlterConfigsRequest, 0, 2, self._alter_configs),
            Api(admin.IncrementalAlterConfigsRequest, 0, 1, self._alter_configs),
        ]

    async def _create_topics(self, request: Any, connection: Connection) -> Any:
        """Answer CreateTopics, versions 2 to 7: TOPIC_ALREADY_EXISTS, or POLICY_VIOLATION."""
        kind, topics = admin.CreateTopicsResponse.CreatableTopicResult, []
        async for each in in_turns(request.topics):
            code, why = await self._refusal(each.name)
            if code == Code.POLICY_VIOLATION:
                code, why = Code.TOPIC_ALREADY_EXISTS, f"topic {each.name!r} exists; {WHY}"
            elif code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                code, why = Code.POLICY_VIOLATION, WHY
            connection.count_error(code)
            topics.append(kind(name=each.name, error_code=code, error_message=why))
        return admin.CreateTopicsResponse(topics=topics)

    async def _delete_topics(self, request: Any, connection: Connection) -> Any:
        """Answer DeleteTopics, versions 1 to 6: POLICY_VIOLATION, or the code of an unknown topic.

        Since version 6 a topic is named by its name or its id.
        """
        kind, topics = admin.DeleteTopicsResponse.DeletableTopicResult, []
        asked = [(each.name, each.topic_id) for each in request.topics]
        asked += [(name, NO_ID) for name in request.topic_names]
        async for name, topic_id in in_turns(asked):
            code, why = Code.POLICY_VIOLATION, WHY
            if name is not None:
                code, why = await self._change(name)
            elif await self._topics.find_by_id(topic_id) is None:
                code, why = Code.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}"
            connection.count_error(code)
            topics.append(kind(name=name, topic_id=topic_id, error_code=code, error_message=why))
        return admin.DeleteTopicsResponse(responses=topics)

    async def _create_partitions(self, request: Any, connection: Connection) -> Any:
        """Answer CreatePartitions, versions 0 to 3, with the code of `_change`."""
        kind, topics = admin.CreatePartitionsResponse.CreatePartitionsTopicResult, []
        async for each in in_turns(request.topics):
            code, why = await self._change(each.name)
            connection.count_error(code)
            topics.append(kind(name=each.name, error_code=code, error_message=why))
        return admin.CreatePartitionsResponse(results=topics)

    async def _delete_records(self, request: Any, connection: Connection) -> Any:
        """Answer DeleteRecords, versions 0 to 2, with the code of `_change` for each partition."""
        kind, topics = admin.DeleteRecordsResponse.DeleteRecordsTopicResult, []
        async for topic in in_turns(request.topics):
            code, _ = await self._change(topic.name)
            connection.count_error(code)
            partitions = [
                kind.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=code
                )
                for each in topic.partitions
            ]
            topics.append(kind(name=topic.name, partitions=partitions))
        return admin.DeleteRecordsResponse(topics=topics)

    async def _alter_configs(self, request: Any, connection: Connection) -> Any:
        """Answer AlterConfigs (0 to 2) and IncrementalAlterConfigs (0 and 1), see `_refusal`."""
        incremental = isinstance(request, admin.IncrementalAlterConfigsRequest)
        response = (
            admin.IncrementalAlterConfigsResponse if incremental else admin.AlterConfigsResponse
        )
        resources = []
        async for each in in_turns(request.resources):
            code, why = Code.POLICY_VIOLATION, WHY
            if each.resource_type == TOPIC_RESOURCE:
                code, why = await self._refusal(each.resource_name)
            connection.count_error(code)
            resources.append(response.AlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name,
                error_code=code, error_message=why,
            ))  # fmt: skip
        return response(responses=resources)

    async def _change(self, name: str) -> tuple[Code, str]:
        """Return what `_refusal` returns, but treat an invalid name as an unknown topic."""
        if not is_topic_name(name):
            return Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
        return await self._refusal(name)

    async def _refusal(self, name: str) -> tuple[Code, str]:
        """Return the code and text that refuse a change of a topic."""
        try:
            await self._topics.find(name)
        except SeglakeError as error:
            return error_code(error), str(error)
        return Code.POLICY_VIOLATION, WHY
