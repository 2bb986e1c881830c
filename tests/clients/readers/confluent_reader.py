"""confluent-kafka, which is librdkafka, as a program of tests/clients/program.py."""

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.clients.program import Record
from tests.clients.readers.answering import Answer, Request, Taken, answer

HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
BEGINNING = -2


def opened(request: Request, **more: Any) -> Consumer:
    """A consumer that gives up where it cannot log in."""
    settings = {
        "bootstrap.servers": request.servers, "group.id": request.group or "judge",
        "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 100,
        "error_cb": _failed, "log_level": 0, **request.librdkafka_settings(), **more,
    }  # fmt: skip
    return Consumer(settings)


def _failed(error: KafkaError) -> None:
    if error.code() in HOPELESS:
        raise KafkaException(error)


def take(taken: Taken, message: Any) -> None:
    """Take a message as a record."""
    headers = tuple((name, value) for name, value in message.headers() or [])
    _, timestamp = message.timestamp()
    record = Record(message.offset(), timestamp, message.key(), message.value(), headers)
    taken.add(message.partition(), record)


def read(request: Request) -> Answer:
    """Each partition until librdkafka says that its end is reached."""
    consumer = opened(request, **{"enable.partition.eof": True, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(request.topic, p, BEGINNING) for p in request.ends])
    taken, open_ends = Taken(), dict(request.ends)
    while open_ends:
        request.check_time(open_ends)
        for message in consumer.consume(1000, 0.2):
            if (error := message.error()) is None:
                take(taken, message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            else:
                _end(open_ends, message)
    consumer.close()
    return taken.hashed(request.ends)


def _end(open_ends: dict[int, int], message: Any) -> None:
    """The position of a partition is at an end."""
    if message.offset() >= open_ends.get(message.partition(), 0):
        open_ends.pop(message.partition(), None)


def lookup(request: Request) -> Answer:
    """One request for each time."""
    consumer, offsets = opened(request), []
    for partition, time_ms in request.asked:
        place = TopicPartition(request.topic, partition, time_ms)
        (found,) = consumer.offsets_for_times([place], timeout=60)
        if found.error:
            raise KafkaException(found.error)
        offsets.append(max(found.offset, -1))
    consumer.close()
    return {"offsets": offsets}


def group(request: Request) -> Answer:
    """A member that commits what it has, once."""
    consumer, taken = opened(request, **{"auto.offset.reset": "earliest"}), Taken()
    consumer.subscribe([request.topic])
    while taken.count < request.stop_after:
        request.check_time(taken.count)
        for message in consumer.consume(min(500, request.stop_after - taken.count), 0.2):
            if message.error():
                raise KafkaException(message.error())
            take(taken, message)
    places = [TopicPartition(request.topic, p, at) for p, at in taken.behind().items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    return taken.bounds()


def topics(request: Request) -> Answer:
    """All topics that the server lists."""
    found = opened(request).list_topics(timeout=60).topics
    return {"topics": {name: len(topic.partitions) for name, topic in found.items()}}


if __name__ == "__main__":
    answer({"read": read, "lookup": lookup, "group": group, "topics": topics})
