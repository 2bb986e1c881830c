"""aiokafka as a program of tests/clients/program.py."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.helpers import create_ssl_context

from tests.clients.readers.answering import WAIT_S, Answer, Request, Taken, answer


@asynccontextmanager
async def opened(request: Request, *topics: str, **more: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A running consumer."""
    if request.ca:
        more["ssl_context"] = create_ssl_context(cafile=request.ca)
    consumer = AIOKafkaConsumer(*topics, **request.python_settings(), **more)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def read(request: Request) -> Answer:
    """Each partition until the position is its end."""
    ends = {TopicPartition(request.topic, p): end for p, end in request.ends.items()}
    taken = Taken()
    async with opened(request, auto_offset_reset="none") as consumer:
        consumer.assign(list(ends))
        await consumer.seek_to_beginning()
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            request.check_time(taken.count)
            taken.take(await consumer.getmany(timeout_ms=100))
    return taken.hashed(request.ends)


async def lookup(request: Request) -> Answer:
    """One request for each time."""
    offsets = list[int]()
    async with opened(request) as consumer:
        for partition, time_ms in request.asked:
            place = TopicPartition(request.topic, partition)
            found = (await consumer.offsets_for_times({place: time_ms}))[place]
            offsets.append(-1 if found is None else found.offset)
    return {"offsets": offsets}


async def group(request: Request) -> Answer:
    """A member that commits what it has, once."""
    taken, more = Taken(), {"group_id": request.group, "auto_offset_reset": "earliest"}
    async with opened(request, request.topic, **more) as consumer:
        while taken.count < request.stop_after:
            request.check_time(taken.count)
            rest = min(500, request.stop_after - taken.count)
            taken.take(await consumer.getmany(timeout_ms=100, max_records=rest))
        places = {TopicPartition(request.topic, p): at for p, at in taken.behind().items()}
        await consumer.commit(places)
    return taken.bounds()


async def topics(request: Request) -> Answer:
    """All topics that the server lists."""
    async with opened(request) as consumer:
        known = await consumer._client.fetch_all_metadata()  # as `consumer.topics` does
        names = sorted(known.topics())
        return {"topics": {name: len(known.partitions_for_topic(name)) for name in names}}


def waited(action: Callable[[Request], Awaitable[Answer]]) -> Callable[[Request], Answer]:
    """An action to its end, or to the end of patience."""

    async def run(request: Request) -> Answer:
        return await asyncio.wait_for(action(request), WAIT_S)

    return lambda request: asyncio.run(run(request))


if __name__ == "__main__":
    logging.disable()
    answer({each.__name__: waited(each) for each in (read, lookup, group, topics)})
