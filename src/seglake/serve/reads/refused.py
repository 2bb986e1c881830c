"""Requests that would change something: each is refused with an error code of Kafka and a text.

Produce is advertised all the same. librdkafka reads no record without it: it takes the message
format from the versions of Produce and Fetch together (KAFKA-18659), and old ones want version 0.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from seglake.serve.api import Api, Refused, in_turns
from seglake.serve.codes import Code
from seglake.serve.connection import Connection

WHY = "this server only reads: its lake changes by `seglake ingest` and by no Kafka client"


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


def _policy(connection: Connection, api: str) -> dict[str, Any]:
    connection.count_error(api, Code.POLICY_VIOLATION)
    return {"error_code": Code.POLICY_VIOLATION, "error_message": WHY}


async def _create_topics(request: Any, connection: Connection) -> Any:
    one, why = CreateTopicsResponse.CreatableTopicResult, _policy(connection, "CreateTopics")
    topics = [one(name=topic.name, **why) async for topic in in_turns(request.topics)]
    return CreateTopicsResponse(throttle_time_ms=0, topics=topics)


async def _delete_topics(request: Any, connection: Connection) -> Any:
    one, why = DeleteTopicsResponse.DeletableTopicResult, _policy(connection, "DeleteTopics")
    if connection.version >= 6:
        some = [
            one(name=each.name, topic_id=each.topic_id, **why)
            async for each in in_turns(request.topics)
        ]
    else:
        some = [one(name=name, **why) async for name in in_turns(request.topic_names)]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=some)


async def _create_partitions(request: Any, connection: Connection) -> Any:
    one = CreatePartitionsResponse.CreatePartitionsTopicResult
    why = _policy(connection, "CreatePartitions")
    some = [one(name=topic.name, **why) async for topic in in_turns(request.topics)]
    return CreatePartitionsResponse(throttle_time_ms=0, results=some)


async def _delete_records(request: Any, connection: Connection) -> Any:
    kind = DeleteRecordsResponse.DeleteRecordsTopicResult
    code = _policy(connection, "DeleteRecords")["error_code"]
    topics = [
        kind(
            name=topic.name,
            partitions=[
                kind.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=code
                )
                for each in topic.partitions
            ],
        )
        async for topic in in_turns(request.topics)
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _alter_configs(request: Any, connection: Connection) -> Any:
    incremental = isinstance(request, IncrementalAlterConfigsRequest)
    response = IncrementalAlterConfigsResponse if incremental else AlterConfigsResponse
    one = response.AlterConfigsResourceResponse
    why = _policy(connection, "IncrementalAlterConfigs" if incremental else "AlterConfigs")
    some = [
        one(resource_type=each.resource_type, resource_name=each.resource_name, **why)
        async for each in in_turns(request.resources)
    ]
    return response(throttle_time_ms=0, responses=some)


async def _describe_acls(_: Any, connection: Connection) -> Any:
    """There are none: whoever may connect may read everything. A broker says the same."""
    connection.count_error("DescribeAcls", Code.SECURITY_DISABLED)
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=Code.SECURITY_DISABLED, resources=[],
        error_message="No Authorizer is configured on the broker",
    )  # fmt: skip


APIS = [
    Api(DescribeAclsRequest, _describe_acls),
    Api(ProduceRequest, _produce),
    Api(CreateTopicsRequest, _create_topics),
    Api(DeleteTopicsRequest, _delete_topics),
    Api(CreatePartitionsRequest, _create_partitions),
    Api(DeleteRecordsRequest, _delete_records),
    Api(AlterConfigsRequest, _alter_configs),
    Api(IncrementalAlterConfigsRequest, _alter_configs),
]
