"""DescribeConfigs: the settings of a topic that a broker has too, and two of the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from seglake.config.topic import DEFAULTS
from seglake.errors import SeglakeError
from seglake.serve.api import NODE, Api, in_turns
from seglake.serve.codes import Code
from seglake.serve.connection import Connection
from seglake.serve.reads.errors import code_of
from seglake.serve.topics.catalog import ServedTopics

TOPIC_RESOURCE, _BROKER = 2, 4  # kinds of resources
_DYNAMIC_TOPIC, _STATIC_BROKER = 1, 4  # where a value comes from
_STRING = 2

# What a broker knows too: MirrorMaker creates a topic with these settings.
_TOPIC_KEYS = (
    "cleanup.policy", "compression.gzip.level", "compression.type", "compression.zstd.level",
    "delete.retention.ms", "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.index.bytes", "segment.ms",
)  # fmt: skip


class Configs:
    """Answers DescribeConfigs."""

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def apis(self) -> list[Api]:
        """DescribeConfigs."""
        return [Api(DescribeConfigsRequest, self._describe)]

    async def _describe(self, request: Any, connection: Connection) -> Any:
        once = {
            (each.resource_type, each.resource_name, tuple(each.configuration_keys or ("",))): each
            for each in request.resources
        }
        results = [await self._result(each, connection) async for each in in_turns(once.values())]
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)

    async def _result(self, asked: Any, connection: Connection) -> Any:
        code, message, values = Code.NONE, None, dict[str, str]()
        try:
            values = await self._values(asked.resource_type, asked.resource_name)
        except SeglakeError as error:
            code, message = code_of(error), str(error)
        except ValueError as error:
            code, message = Code.INVALID_REQUEST, str(error)
        if code:
            connection.count_error("DescribeConfigs", code)
        names = asked.configuration_keys
        if names is not None:
            distinct = set(names)
            values = {name: value for name, value in values.items() if name in distinct}
        kind = DescribeConfigsResponse.DescribeConfigsResult
        source = _DYNAMIC_TOPIC if asked.resource_type == TOPIC_RESOURCE else _STATIC_BROKER
        configs = [
            kind.DescribeConfigsResourceResult(
                name=name, value=value, read_only=True, config_source=source, is_sensitive=False,
                synonyms=[], config_type=_STRING, documentation=None,
            )
            for name, value in values.items()
        ]  # fmt: skip
        return kind(
            error_code=code, error_message=message, resource_type=asked.resource_type,
            resource_name=asked.resource_name, configs=configs,
        )  # fmt: skip

    async def _values(self, kind: int, name: str) -> dict[str, str]:
        if kind == TOPIC_RESOURCE:
            settings = (await self._topics.find(name)).settings
            known: Mapping[str, Any] = {**DEFAULTS, **json.loads(settings.settings)}
            values = {key: str(known[key]) for key in _TOPIC_KEYS}
            if values["compression.type"] == "none":
                values["compression.type"] = "uncompressed"  # of a topic; "none" is a producer's
            return {"message.timestamp.type": settings.timestamp_type, **values}
        if kind == _BROKER and name in ("", str(NODE)):
            return {"auto.create.topics.enable": "false", "log.message.format.version": "3.0-IV1"}
        raise ValueError(f"a resource of kind {kind} named {name!r} has no settings here")
