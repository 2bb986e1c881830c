"""Answer Metadata and requests for descriptions of logs and settings, as one broker."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kafka.protocol import admin
from kafka.protocol import metadata as schema

from seglake.config.topic import DEFAULTS
from seglake.errors import SeglakeError, UnknownTopic
from seglake.serve.api import NO_ID, NODE, Api, in_turns
from seglake.serve.codes import Code, error_code
from seglake.serve.connection import Connection
from seglake.serve.settings import Address
from seglake.serve.topics.catalog import LEADER_EPOCH, ServedTopics

_KEPT_PARTITIONS = 16  # cached lists: topics with equally many partitions share one

_DIR = admin.DescribeLogDirsResponse.DescribeLogDirsResult
_TOPIC = _DIR.DescribeLogDirsTopic
_UNKNOWN = -1

_TOPIC_RESOURCE, _BROKER = 2, 4  # kinds of resources
_DYNAMIC_TOPIC, _STATIC_BROKER = 1, 4  # where a value comes from
_STRING = 2

# Settings that a broker has, too. MirrorMaker creates a topic with them.
_TOPIC_KEYS = (
    "cleanup.policy", "compression.gzip.level", "compression.type", "compression.zstd.level",
    "delete.retention.ms", "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.index.bytes", "segment.ms",
)  # fmt: skip


class _NamedTopic(NamedTuple):
    name: str | None
    id: uuid.UUID
    code: Code
    partitions: int = 0


class MetadataHandler:
    """Answers requests about topics: their partitions, addresses, sizes and settings."""

    def __init__(self, topics: ServedTopics, address: Address) -> None:
        self._topics, self._address = topics, address

    def apis(self) -> list[Api]:
        """Return Metadata and the APIs that describe logs and settings."""
        return [
            Api(schema.MetadataRequest, 0, 13, self._metadata),
            Api(admin.DescribeLogDirsRequest, 1, 4, self._describe_log_dirs),
            Api(admin.DescribeConfigsRequest, 1, 4, self._describe_configs),
        ]

    async def _metadata(self, request: Any, connection: Connection) -> Any:
        """Answer Metadata, versions 0 to 13, with the requested topics, or all listed topics.

        In version 0 an empty list requests all topics, later null does. Since version 10 topics
        have ids, and since version 12 a request may have only the id. A request never creates a
        topic. An unknown topic is logged once per connection.
        """
        asked = request.topics
        if asked is None or (not asked and connection.version == 0):
            names = await self._topics.listed()
            lookups = [await self._named(name, connection) async for name in in_turns(names)]
        else:
            once = {(each.name, each.topic_id): each for each in asked}.values()  # as in Kafka
            lookups = [await self._requested(each, connection) async for each in in_turns(once)]
        response = schema.MetadataResponse
        kind = response.MetadataResponseTopic
        topics = [
            kind(
                error_code=each.code, name=each.name, topic_id=each.id, is_internal=False,
                partitions=_partitions(each.partitions),
            )
            async for each in in_turns(lookups)
        ]  # fmt: skip
        host, port = self._address
        broker = response.MetadataResponseBroker(node_id=NODE, host=host, port=port, rack=None)
        return response(
            brokers=[broker], cluster_id=self._topics.cluster_id, controller_id=NODE,
            topics=topics, error_code=Code.NONE,
        )  # fmt: skip

    async def _requested(self, asked: Any, connection: Connection) -> _NamedTopic:
        lookup = (
            await self._by_id(asked.topic_id)
            if asked.name is None
            else await self._named(asked.name, connection)
        )
        connection.count_error(lookup.code)
        return lookup

    async def _by_id(self, topic_id: uuid.UUID) -> _NamedTopic:
        try:
            topic = await self._topics.find_by_id(topic_id)
        except SeglakeError as error:
            return _NamedTopic(None, topic_id, error_code(error))
        if topic is None:
            return _NamedTopic(None, topic_id, Code.UNKNOWN_TOPIC_ID)
        return _NamedTopic(topic.name, topic_id, Code.NONE, len(topic.partitions))

    async def _named(self, name: str, connection: Connection) -> _NamedTopic:
        try:
            topic = await self._topics.find(name)
        except SeglakeError as error:
            if isinstance(error, UnknownTopic):
                connection.log_unknown(name, error)
            return _NamedTopic(name, NO_ID, error_code(error))
        return _NamedTopic(name, topic.id, Code.NONE, len(topic.partitions))

    async def _describe_log_dirs(self, request: Any, _: Connection) -> Any:
        """Answer DescribeLogDirs, versions 1 to 4: one folder, the root of the lake, has all logs.

        Its total and free space, which exist since version 4, are unknown (-1).
        """
        topics = list[Any]()
        async for name, numbers in in_turns(self._requested_topics(request)):
            topics += await self._sizes(name, numbers)
        result = _DIR(
            error_code=Code.NONE, log_dir=self._topics.root, topics=topics, total_bytes=_UNKNOWN,
            usable_bytes=_UNKNOWN,
        )  # fmt: skip
        return admin.DescribeLogDirsResponse(error_code=Code.NONE, results=[result])

    def _requested_topics(self, request: Any) -> Iterator[tuple[str, set[int] | None]]:
        """Yield each requested topic once, with its partitions, or None for all of them."""
        if request.topics is None:
            yield from ((name, None) for name in self._topics.names())
            return
        asked = dict[str, set[int]]()
        for each in request.topics:
            asked.setdefault(each.topic, set()).update(each.partitions)
        yield from asked.items()

    async def _sizes(self, name: str, numbers: set[int] | None) -> list[Any]:
        """Return the topic with its partitions' sizes. Skip missing partitions, as in Kafka."""
        try:
            partitions = (await self._topics.find(name)).partitions
        except SeglakeError:
            return []
        there = range(len(partitions))
        chosen = there if numbers is None else sorted(numbers.intersection(there))
        sizes = [
            _TOPIC.DescribeLogDirsPartition(
                partition_index=number, partition_size=partitions[number].log_bytes(),
                offset_lag=0, is_future_key=False,
            )
            for number in chosen
        ]  # fmt: skip
        return [_TOPIC(name=name, partitions=sizes)] if sizes else []

    async def _describe_configs(self, request: Any, connection: Connection) -> Any:
        """Answer DescribeConfigs, versions 1 to 4: a topic's settings, two of them Seglake's.

        All are read-only and have no synonyms. Other kinds of resources are INVALID_REQUEST.
        """
        once = {
            (each.resource_type, each.resource_name, tuple(each.configuration_keys or ("",))): each
            for each in request.resources
        }
        results = [await self._configs(each, connection) async for each in in_turns(once.values())]
        return admin.DescribeConfigsResponse(results=results)

    async def _configs(self, asked: Any, connection: Connection) -> Any:
        code, message, values = Code.NONE, None, dict[str, str]()
        try:
            values = await self._values(asked.resource_type, asked.resource_name)
        except SeglakeError as error:
            code, message = error_code(error), str(error)
        except ValueError as error:
            code, message = Code.INVALID_REQUEST, str(error)
        connection.count_error(code)
        names = values.keys() if asked.configuration_keys is None else {*asked.configuration_keys}
        kind = admin.DescribeConfigsResponse.DescribeConfigsResult
        source = _DYNAMIC_TOPIC if asked.resource_type == _TOPIC_RESOURCE else _STATIC_BROKER
        configs = [
            kind.DescribeConfigsResourceResult(
                name=name, value=value, read_only=True, config_source=source, is_sensitive=False,
                synonyms=[], config_type=_STRING, documentation=None,
            )
            for name, value in values.items()
            if name in names
        ]  # fmt: skip
        return kind(
            error_code=code, error_message=message, resource_type=asked.resource_type,
            resource_name=asked.resource_name, configs=configs,
        )  # fmt: skip

    async def _values(self, kind: int, name: str) -> dict[str, str]:
        if kind == _TOPIC_RESOURCE:
            settings = (await self._topics.find(name)).settings
            known: Mapping[str, Any] = {**DEFAULTS, **json.loads(settings.settings)}
            values = {key: str(known[key]) for key in _TOPIC_KEYS}
            if values["compression.type"] == "none":
                values["compression.type"] = "uncompressed"  # of a topic; "none" is a producer's
            return {"message.timestamp.type": settings.timestamp_type, **values}
        if kind == _BROKER and name in ("", str(NODE)):
            return {"auto.create.topics.enable": "false", "log.message.format.version": "3.0-IV1"}
        raise ValueError(f"a resource of kind {kind} named {name!r} has no settings here")


@lru_cache(_KEPT_PARTITIONS)
def _partitions(count: int) -> Sequence[Any]:
    """Return the part of an answer about `count` partitions, which is equal for all topics.

    The topics of an answer share it. Otherwise, with 10,000 topics, a garbage collection would scan
    some hundred thousand objects, and no client would be answered in the meantime.
    """
    return [
        schema.MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
            error_code=Code.NONE, partition_index=number, leader_id=NODE,
            leader_epoch=LEADER_EPOCH, replica_nodes=[NODE], isr_nodes=[NODE], offline_replicas=[],
        )
        for number in range(count)
    ]  # fmt: skip


# ---------------- API versions
# The first request of most clients (KIP-35, KIP-511).

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def _handle(request: Any, connection: Connection) -> Any:
    """Answer ApiVersions, versions 0 to 4, with the APIs of this server, even before a login.

    A version above 4 is answered in version 0 with UNSUPPORTED_VERSION (KIP-511). Since version 3
    a client sends its name and version, which must have the form of KIP-511.
    """
    error = Code.NONE
    if request is None:  # The version is above 4.
        error = Code.UNSUPPORTED_VERSION
    elif connection.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, names)):
            error = Code.INVALID_REQUEST
    connection.count_error(error)
    one = schema.ApiVersionsResponse.ApiVersion
    apis = connection.apis.values() if error != Code.INVALID_REQUEST else ()
    keys = [one(api_key=a.key, min_version=a.low, max_version=a.high) for a in apis]
    return schema.ApiVersionsResponse(error_code=error, api_keys=keys)


API = Api(schema.ApiVersionsRequest, 0, 4, _handle, before_login=True)
