"""kafka-python as a program of tests/clients/program.py."""

import logging
from typing import Any

from kafka.structs import OffsetAndMetadata

from kafka import KafkaConsumer, TopicPartition
from tests.clients.readers.answering import Answer, Request, Taken, answer


def opened(request: Request, *topics: str, **more: Any) -> KafkaConsumer:
    """A consumer; older ones have no isolation level."""
    settings = {**request.python_settings(), **more}
    settings["metrics_num_samples"] = 1  # with more, its two threads may meet an index too far
    if request.ca:
        settings["ssl_cafile"] = request.ca
    known = {name: each for name, each in settings.items() if name in KafkaConsumer.DEFAULT_CONFIG}
    return KafkaConsumer(*topics, **known)


def read(request: Request) -> Answer:
    """Each partition until the position is its end."""
    ends = {TopicPartition(request.topic, p): end for p, end in request.ends.items()}
    consumer, taken = opened(request, auto_offset_reset="none"), Taken()
    consumer.assign(list(ends))
    consumer.seek_to_beginning()
    while any(consumer.position(place) < end for place, end in ends.items()):
        request.check_time(taken.count)
        taken.take(consumer.poll(timeout_ms=100))
    consumer.close()
    return taken.hashed(request.ends)


def lookup(request: Request) -> Answer:
    """One request for each time."""
    consumer, offsets = opened(request), list[int]()
    for partition, time_ms in request.asked:
        place = TopicPartition(request.topic, partition)
        found = consumer.offsets_for_times({place: time_ms})[place]
        offsets.append(-1 if found is None else found.offset)
    consumer.close()
    return {"offsets": offsets}


def group(request: Request) -> Answer:
    """A member that commits what it has, once."""
    more = {"group_id": request.group, "auto_offset_reset": "earliest"}
    consumer, taken = opened(request, request.topic, **more), Taken()
    while taken.count < request.stop_after:
        request.check_time(taken.count)
        rest = min(500, request.stop_after - taken.count)
        taken.take(consumer.poll(timeout_ms=100, max_records=rest))
    consumer.commit(
        {TopicPartition(request.topic, p): _metadata(at) for p, at in taken.behind().items()}
    )
    consumer.close()
    return taken.bounds()


def _metadata(offset: int) -> OffsetAndMetadata:
    """Newer ones have a leader epoch, too."""
    return OffsetAndMetadata(offset, *(("", -1)[: len(OffsetAndMetadata._fields) - 1]))


def topics(request: Request) -> Answer:
    """All topics that the server lists."""
    consumer = opened(request)
    names = sorted(consumer.topics())
    return {"topics": {name: len(consumer.partitions_for_topic(name)) for name in names}}


if __name__ == "__main__":
    logging.disable()
    answer({"read": read, "lookup": lookup, "group": group, "topics": topics})
