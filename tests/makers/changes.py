"""Requests that would change topics, and the error codes of their answers; settings of topics."""

import uuid
from collections.abc import Mapping
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
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from tests.harness.lake_server import Wire

_TOPIC = 2  # the kind of a resource


def create_topic(wire: Wire, name: str, configs: Mapping[str, str] | None = None) -> int:
    """Validate only."""
    kind = CreateTopicsRequest.CreatableTopic
    settings = [
        kind.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
    ]
    topic = kind(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=settings
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
    (answer,) = wire.ask(request, CreateTopicsResponse, 5).topics
    return int(answer.error_code)


def create_partitions(wire: Wire, name: str) -> int:
    """Validate only."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=99, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
    (answer,) = wire.ask(request, CreatePartitionsResponse, 2).results
    return int(answer.error_code)


def alter_configs(wire: Wire, name: str) -> int:
    return _altered(wire, name, AlterConfigsRequest, AlterConfigsResponse, 2)


def alter_some_configs(wire: Wire, name: str) -> int:
    kind = IncrementalAlterConfigsRequest
    return _altered(wire, name, kind, IncrementalAlterConfigsResponse, 1, config_operation=0)


def _altered(wire: Wire, name: str, kind: Any, answers: Any, version: int, **operation: int) -> int:
    """Validate only."""
    alter = kind.AlterConfigsResource
    configs = [alter.AlterableConfig(name="retention.ms", value="1", **operation)]
    resource = alter(resource_type=_TOPIC, resource_name=name, configs=configs)
    request = kind(resources=[resource], validate_only=True)
    (answer,) = wire.ask(request, answers, version).responses
    return int(answer.error_code)


def delete_topic(wire: Wire, name: str) -> int:
    """Delete a topic by its name."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
    (answer,) = wire.ask(request, DeleteTopicsResponse, 5).responses
    return int(answer.error_code)


def delete_topic_by_id(wire: Wire, topic_id: uuid.UUID) -> int:
    """Delete a topic by its id."""
    topic = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    request = DeleteTopicsRequest(topics=[topic], timeout_ms=1000)
    (answer,) = wire.ask(request, DeleteTopicsResponse, 6).responses
    return int(answer.error_code)


def delete_records(wire: Wire, name: str) -> int:
    """Delete no record: the offset is 0."""
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    one = kind.DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(topics=[kind(name=name, partitions=[one])], timeout_ms=1000)
    (answer,) = wire.ask(request, DeleteRecordsResponse, 2).topics
    return int(answer.partitions[0].error_code)


def settings_of(wire: Wire, name: str) -> dict[str, str]:
    """The settings that DescribeConfigs gives."""
    kind = DescribeConfigsRequest.DescribeConfigsResource
    one = kind(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
    (answer,) = wire.ask(
        DescribeConfigsRequest(resources=[one]), DescribeConfigsResponse, 4
    ).results
    return {each.name: each.value for each in answer.configs}


CHANGES = [
    create_topic, create_partitions, alter_configs, alter_some_configs, delete_topic,
    delete_records,
]  # fmt: skip
