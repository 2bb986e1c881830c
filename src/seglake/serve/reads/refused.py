"""Requests that would change something: each is refused with an error code of Kafka and a text.

Produce is advertised all the same. librdkafka reads no record without it: it takes the message
format from the versions of Produce and Fetch together (KAFKA-18659), and old ones want version 0.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from seglake.errors import SeglakeError
from seglake.layout import is_topic_name
from seglake.serve.api import NO_ID, Api, Refused, in_turns
from seglake.serve.codes import Code, code_of
from seglake.serve.connection import Connection
from seglake.serve.reads.metadata import TOPIC_RESOURCE
from seglake.serve.topics.catalog import ServedTopics

WHY = "this server only reads: its lake changes by `seglake ingest` and by no Kafka client"
_IDS = count(1)  # of producers


async def _produce(request: Any, connection: Connection) -> Any:
    if request.acks == 0:  # such a producer waits for no answer
        raise Refused("a producer with acks=0; this server only reads")
    connection.count_error("Produce", Code.TOPIC_AUTHORIZATION_FAILED)
    kind = ProduceResponse.TopicProduceResponse
    topics = [
        kind(
            name=topic.name,
            partition_responses=[
                kind.PartitionProduceResponse(
                    index=each.index, error_code=Code.TOPIC_AUTHORIZATION_FAILED, base_offset=-1,
                    log_append_time_ms=-1, log_start_offset=-1, record_errors=[], error_message=WHY,
                )
                for each in topic.partition_data
            ],
        )
        async for topic in in_turns(request.topic_data)
    ]  # fmt: skip
    return ProduceResponse(responses=topics, throttle_time_ms=0)


async def _init_producer_id(request: Any, connection: Connection) -> Any:
    """Give a producer id, because frameworks open an idempotent producer that never sends a record.

    A transactional producer gets an error, as from a broker on which it has no right to its id.
    """
    version, code = connection.version, Code.NONE
    half_known = version >= 3 and (request.producer_id == -1) != (request.producer_epoch == -1)
    if half_known or request.transactional_id == "":
        code = Code.INVALID_REQUEST
    elif request.transactional_id is not None:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if code:
        connection.count_error("InitProducerId", code)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=code, producer_id=next(_IDS), producer_epoch=0)


async def _describe_acls(_: Any, connection: Connection) -> Any:
    """There are none: whoever may connect may read everything. A broker says the same."""
    connection.count_error("DescribeAcls", Code.SECURITY_DISABLED)
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=Code.SECURITY_DISABLED, resources=[],
        error_message="No Authorizer is configured on the broker",
    )  # fmt: skip


_NO_AUTHORIZER = {
    "error_code": Code.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured.",
}


async def _create_acls(request: Any, connection: Connection) -> Any:
    connection.count_error("CreateAcls", Code.SECURITY_DISABLED)
    one = CreateAclsResponse.AclCreationResult
    results = [one(**_NO_AUTHORIZER) async for _ in in_turns(request.creations)]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


async def _delete_acls(request: Any, connection: Connection) -> Any:
    connection.count_error("DeleteAcls", Code.SECURITY_DISABLED)
    one = DeleteAclsResponse.DeleteAclsFilterResult
    results = [one(matching_acls=[], **_NO_AUTHORIZER) async for _ in in_turns(request.filters)]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


class Refusals:
    """Answers requests that would change topics: POLICY_VIOLATION, or a broker's code.

    A broker's code says that a topic exists already, that there is none, or that its name is
    invalid.
    """

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def apis(self) -> list[Api]:
        """The APIs that would change topics, and those that need no topics."""
        return [
            Api(DescribeAclsRequest, _describe_acls),
            Api(CreateAclsRequest, _create_acls),
            Api(DeleteAclsRequest, _delete_acls),
            Api(ProduceRequest, _produce),
            Api(InitProducerIdRequest, _init_producer_id),
            Api(CreateTopicsRequest, self._create_topics),
            Api(DeleteTopicsRequest, self._delete_topics),
            Api(CreatePartitionsRequest, self._create_partitions),
            Api(DeleteRecordsRequest, self._delete_records),
            Api(AlterConfigsRequest, self._alter_configs),
            Api(IncrementalAlterConfigsRequest, self._alter_configs),
        ]

    async def _create_topics(self, request: Any, connection: Connection) -> Any:
        kind, topics = CreateTopicsResponse.CreatableTopicResult, []
        async for each in in_turns(request.topics):
            code, why = await self._refusal(each.name)
            if code == Code.POLICY_VIOLATION:
                code, why = Code.TOPIC_ALREADY_EXISTS, f"topic {each.name!r} exists; {WHY}"
            elif code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                code, why = Code.POLICY_VIOLATION, WHY
            connection.count_error("CreateTopics", code)
            topics.append(kind(name=each.name, error_code=code, error_message=why))
        return CreateTopicsResponse(throttle_time_ms=0, topics=topics)

    async def _delete_topics(self, request: Any, connection: Connection) -> Any:
        kind, topics = DeleteTopicsResponse.DeletableTopicResult, []
        if connection.version >= 6:
            asked = [(each.name, each.topic_id) for each in request.topics]
        else:
            asked = [(name, NO_ID) for name in request.topic_names]
        async for name, topic_id in in_turns(asked):
            code, why = Code.POLICY_VIOLATION, WHY
            if name is not None:
                code, why = await self._change(name)
            elif await self._topics.find_by_id(topic_id) is None:
                code, why = Code.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}"
            connection.count_error("DeleteTopics", code)
            topics.append(kind(name=name, topic_id=topic_id, error_code=code, error_message=why))
        return DeleteTopicsResponse(throttle_time_ms=0, responses=topics)

    async def _create_partitions(self, request: Any, connection: Connection) -> Any:
        kind, topics = CreatePartitionsResponse.CreatePartitionsTopicResult, []
        async for each in in_turns(request.topics):
            code, why = await self._change(each.name)
            connection.count_error("CreatePartitions", code)
            topics.append(kind(name=each.name, error_code=code, error_message=why))
        return CreatePartitionsResponse(throttle_time_ms=0, results=topics)

    async def _delete_records(self, request: Any, connection: Connection) -> Any:
        kind, topics = DeleteRecordsResponse.DeleteRecordsTopicResult, []
        async for topic in in_turns(request.topics):
            code, _ = await self._change(topic.name)
            connection.count_error("DeleteRecords", code)
            partitions = [
                kind.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=code
                )
                for each in topic.partitions
            ]
            topics.append(kind(name=topic.name, partitions=partitions))
        return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)

    async def _alter_configs(self, request: Any, connection: Connection) -> Any:
        incremental = isinstance(request, IncrementalAlterConfigsRequest)
        response = IncrementalAlterConfigsResponse if incremental else AlterConfigsResponse
        resources = []
        async for each in in_turns(request.resources):
            code, why = Code.POLICY_VIOLATION, WHY
            if each.resource_type == TOPIC_RESOURCE:
                code, why = await self._refusal(each.resource_name)
            connection.count_error(str(request.name).removesuffix("Request"), code)
            resources.append(response.AlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name,
                error_code=code, error_message=why,
            ))  # fmt: skip
        return response(throttle_time_ms=0, responses=resources)

    async def _change(self, name: str) -> tuple[Code, str]:
        """As `_refusal`, of a request for which an invalid name is an unknown one."""
        if not is_topic_name(name):
            return Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
        return await self._refusal(name)

    async def _refusal(self, name: str) -> tuple[Code, str]:
        """Return the code and text that refuse a change of a topic."""
        try:
            await self._topics.find(name)
        except SeglakeError as error:
            return code_of(error), str(error)
        return Code.POLICY_VIOLATION, WHY
