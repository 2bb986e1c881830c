"""DescribeLogDirs: the bytes of each partition, the first thing that a console shows.

All logs stand in one folder, the root of the lake. How much room it has is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

from seglake.errors import SeglakeError
from seglake.serve.api import Api, in_turns
from seglake.serve.codes import Code
from seglake.serve.connection import Connection
from seglake.serve.topics.catalog import ServedTopics

_DIR = DescribeLogDirsResponse.DescribeLogDirsResult
_TOPIC = _DIR.DescribeLogDirsTopic
_UNKNOWN = -1


class Sizes:
    """Answers DescribeLogDirs."""

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def apis(self) -> list[Api]:
        """DescribeLogDirs."""
        return [Api(DescribeLogDirsRequest, self._describe)]

    async def _describe(self, request: Any, _: Connection) -> Any:
        topics = list[Any]()
        async for name, numbers in in_turns(self._asked(request)):
            topics += await self._sizes(name, numbers)
        result = _DIR(
            error_code=Code.NONE, log_dir=self._topics.root, topics=topics, total_bytes=_UNKNOWN,
            usable_bytes=_UNKNOWN,
        )  # fmt: skip
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=Code.NONE, results=[result])

    def _asked(self, request: Any) -> Iterator[tuple[str, set[int] | None]]:
        """Each topic that is asked for, once, and its partitions; None for all."""
        if request.topics is None:
            yield from ((name, None) for name in self._topics.names())
            return
        asked = dict[str, set[int]]()
        for each in request.topics:
            asked.setdefault(each.topic, set()).update(each.partitions)
        yield from asked.items()

    async def _sizes(self, name: str, numbers: set[int] | None) -> list[Any]:
        """The topic with its sizes; what is not there is left out, as in Kafka."""
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
