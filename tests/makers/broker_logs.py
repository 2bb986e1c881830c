"""What a real broker writes: transactions, codecs, compaction, deletions, a restart between."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seglake.format.codecs.compression import NAMES
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Kafka, Record
from tests.judges.kafka_producers import Committed, Producer, Producers
from tests.makers.strategies import T

CLEANING = {
    "log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01", "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0", "transaction.max.timeout.ms": "900000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}  # fmt: skip
COMPACTED = {
    "cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}  # fmt: skip
TOPICS = {
    "codecs": {"segment.bytes": "1048576"},
    "transactions": {"segment.bytes": "1048576"},
    "open": {},
    "compacted": COMPACTED,
    "compacted.transactions": COMPACTED,
    "deleted": {"segment.bytes": "1048576"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
PARTITIONS = 2
BIG = 40_000  # bytes of a value, so that a few dozen fill a segment


def some(chance: random.Random, count: int, *, size: int = 20, keys: int = 7) -> list[Record]:
    """Records with late times, null keys and values, and headers."""
    return [
        Record(
            -1,
            T + 100 * at - chance.choice((0, 0, 0, 950)),
            chance.choice((None, f"key-{chance.randrange(keys)}".encode())),
            chance.choice((None, b"", chance.randbytes(size), chance.randbytes(size))),
            (("h", b"1"), ("h", None)) if at % 5 == 0 else (),
        )
        for at in range(count)
    ]


def keyed(chance: random.Random, count: int, *, size: int = 20, keys: int = 9) -> list[Record]:
    """Records that all have a key."""
    made = some(chance, count, size=size)
    return [each._replace(key=f"key-{chance.randrange(keys)}".encode()) for each in made]


@contextmanager
def begun(kafka: Kafka, folder: Path) -> Iterator[tuple[Broker, Producers]]:
    """A running broker with the topics."""
    broker = Broker(kafka, folder, CLEANING)
    try:
        broker.start()
        for topic, settings in TOPICS.items():
            broker.create_topic(topic, PARTITIONS, settings)
        yield broker, Producers(kafka, broker)
    finally:
        broker.stop()


def write_all(producers: Producers, seed: int) -> None:
    """A part of each topic."""
    chance = random.Random(seed)
    plain = producers.open()
    for codec in NAMES:
        own = producers.open(compression_type=codec, batch_size="4000", linger_ms="20")
        own.send("codecs", 0, some(chance, 200))
        own.send("codecs", 1, some(chance, 12, size=BIG))
        own.close()
    one, other = (producers.open(transactional_id=f"t{seed}-{n}") for n in range(2))
    write_transactions(chance, "transactions", one, other, plain)
    for topic in ("compacted", "compacted.transactions"):
        plain.send(topic, 0, keyed(chance, 30, size=BIG))
        plain.send(topic, 1, keyed(chance, 50))
    write_transactions(chance, "compacted.transactions", one, other, plain)
    plain.send("compacted.transactions", 0, keyed(chance, 60, size=BIG))
    plain.send("compacted", 0, keyed(chance, 60, size=BIG))
    for partition in range(PARTITIONS):
        plain.send("deleted", partition, some(chance, 60, size=BIG))
        plain.send("stamped", partition, some(chance, 50))
    for each in (one, other, plain):
        each.close()


def write_transactions(
    chance: random.Random, topic: str, one: Producer, other: Producer, plain: Producer
) -> None:
    """Transactions of two producers, one within the other, commits and aborts, over segments."""
    for number in range(10):
        one.begin()
        one.send(topic, 0, keyed(chance, 8, size=BIG // 2))
        if number % 3 == 0:
            one.send(topic, 1, keyed(chance, 3))
        other.begin()
        other.send(topic, 0, keyed(chance, 5))
        one.send(topic, 0, keyed(chance, 4))
        plain.send(topic, 0, keyed(chance, 3))
        (one.abort if number % 2 else one.commit)()
        other.send(topic, 0, keyed(chance, 2))
        (other.abort if number % 3 == 0 else other.commit)()


def write_open(producers: Producers, seed: int) -> Producer:
    """A transaction that has no end yet, records before it and behind it."""
    chance = random.Random(seed)
    long = {"transactional_id": f"open-{seed}", "transaction_timeout_ms": "600000"}
    plain, own = producers.open(), producers.open(**long)
    plain.send("open", 0, some(chance, 20))
    own.begin()
    own.send("open", 0, some(chance, 5))
    plain.send("open", 0, some(chance, 7))
    plain.send("open", 1, some(chance, 7))
    plain.close()
    return own


def await_cleaning(folder: Path, topics: tuple[str, ...], *, behind: dict[str, int]) -> None:
    """Wait until the cleaner has gone beyond these offsets of partition 0."""
    deadline = time.monotonic() + 300  # on a loaded machine
    while time.monotonic() < deadline:
        note = folder / "cleaner-offset-checkpoint"
        rows = note.read_text().splitlines()[2:] if note.exists() else []
        reached = {row.rsplit(" ", 2)[0]: int(row.split()[-1]) for row in rows if " 0 " in row}
        if all(reached.get(topic, 0) > behind.get(topic, 0) for topic in topics):
            return
        time.sleep(0.1)
    raise AssertionError(f"the cleaner has not come behind {behind}")


def seen(producers: Producers) -> dict[tuple[str, int], Committed]:
    """Every partition, as its consumers see it."""
    return {
        (topic, partition): producers.committed(topic, partition)
        for topic in TOPICS
        for partition in range(PARTITIONS)
    }
