"""A real Kafka broker that serves partition folders written by somebody else.

One KRaft node (broker and controller) on free loopback ports, with Kafka's own consumer and admin
client against it. A running broker adopts a partition that somebody else wrote: it makes a new
topic's partition from the segments that already lie in its folder. (Users stop their broker for
that, as docs/kafka.md says; test_import.py goes that way.)

Indexes that are missing there it writes anew, and checks every CRC meanwhile. Those that are there
answer as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from seglake.session import find_java
from tests.harness.ports import free_ports
from tests.judges.kafka_jars import class_path
from tests.judges.kafka_judge import JavaJudge, Kafka, Record, record_from_json

START_SECONDS = 300
STOP_SECONDS = 120
FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

_SMALL_JVM = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.enable=false
"""


class BrokerError(RuntimeError):
    """The broker did not start or stop; the message ends with its own words."""


class Broker(JavaJudge):
    """A broker under `folder`, and its clients. Made by `serve`."""

    java_class = "Client"
    java_options: Sequence[str] = _SMALL_JVM  # it starts fast; a benchmark wants others

    def __init__(
        self, kafka: Kafka, folder: Path, properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(kafka)
        self._data = folder.absolute() / "data"
        self._printed = folder / "broker.log"
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._port, controller = free_ports(2)
        self._data.mkdir(parents=True)
        more = "".join(f"{name}={value}\n" for name, value in (properties or {}).items())
        self._properties.write_text(
            _PROPERTIES.format(port=self._port, controller=controller, data=self._data) + more
        )
        self.call("format", str(self._properties))

    @classmethod
    @contextmanager
    def serve(
        cls, kafka: Kafka, folder: Path, logs: Mapping[tuple[str, int], Path] | None = None
    ) -> Iterator[Broker]:
        """A running broker whose partitions (topic, number) hold copies of the given folders.

        Args:
            kafka: The JVM in which the clients run.
            folder: A new folder for the broker's own files.
            logs: For each partition a folder with its segments.
        """
        broker = cls(kafka, folder)
        try:
            broker.start()
            broker.adopt(logs or {})
            yield broker
        finally:
            broker.stop()

    def adopt(
        self,
        logs: Mapping[tuple[str, int], Path],
        *,
        configs: Mapping[str, Mapping[str, str]] | None = None,
        rebuild_indexes: bool = False,
    ) -> None:
        """Makes topics whose partitions (topic, number) hold copies of the given folders.

        Args:
            logs: For each partition a folder with its segments.
            configs: Topic configs by topic, beside those that keep records for ever.
            rebuild_indexes: Leave the indexes out, so that the broker checks every batch and
                writes them anew; they are whole when it is stopped.
        """
        for (topic, number), segments in logs.items():
            _copy(segments, self.partition_folder(topic, number), indexes=not rebuild_indexes)
        for topic in sorted({topic for topic, _ in logs}):
            partitions = 1 + max(number for name, number in logs if name == topic)
            self.create_topic(topic, partitions, (configs or {}).get(topic, {}))
        deadline = time.monotonic() + START_SECONDS
        for (topic, number), segments in logs.items():
            while self.end_offset(topic, number) < _end_offset(segments):
                if time.monotonic() > deadline:
                    raise BrokerError(f"it serves less than there is:\n{self._last_words()}")

    # ---------------------------------------------------------------- the process

    def start(self) -> None:
        """Starts the broker and connects the clients once its port answers."""
        command = [str(find_java()), *self.java_options, "-cp", class_path(), "kafka.Kafka"]
        command.append(str(self._properties))
        with self._printed.open("ab") as printed:
            self._process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process = None
                raise BrokerError(f"the broker did not start:\n{self._last_words()}")
            time.sleep(0.05)
        self.call("connect", f"127.0.0.1:{self._port}")

    def stop(self) -> None:
        """Stops the broker cleanly, so that its files are whole; does nothing if it is stopped."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise BrokerError(f"the broker did not stop:\n{self._last_words()}") from None
        finally:
            self.call("close")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Its files are whole; afterwards it runs again, at the same port."""
        self.stop()
        yield
        self.start()

    def partition_folder(self, topic: str, partition: int) -> Path:
        """The broker's own folder of a partition; read it after `stop` only."""
        return self._data / f"{topic}-{partition}"

    def _last_words(self) -> str:
        return "\n".join(self._printed.read_text(errors="replace").splitlines()[-40:])

    # ---------------------------------------------------------------- clients

    @property
    def folder(self) -> Path:
        """The log.dir."""
        return self._data

    @property
    def printed(self) -> str:
        """All that the broker has logged."""
        return self._printed.read_text(errors="replace")

    def kill(self) -> None:
        """Ends the broker at once, as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_SECONDS)
            self.call("close")

    @property
    def address(self) -> str:
        """`host:port`, for other clients."""
        return f"127.0.0.1:{self._port}"

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic that keeps its records for ever unless `configs` says otherwise."""
        self.call("createTopic", topic, partitions, json.dumps({**FOR_EVER, **configs}))

    def beginning_offset(self, topic: str, partition: int) -> int:
        """The log start offset."""
        return int(self.call("beginningOffset", topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset after the last record that may be read."""
        return int(self.call("endOffset", topic, partition))

    def offsets_for_times(
        self, topic: str, timestamps: Mapping[int, int]
    ) -> dict[int, tuple[int, int] | None]:
        """KafkaConsumer.offsetsForTimes: by partition (timestamp, offset), or None."""
        text = self.call(
            "offsetsForTimes",
            topic,
            json.dumps(list(timestamps)),
            json.dumps(list(timestamps.values())),
        )
        found = [None if pair is None else (pair[1], pair[0]) for pair in json.loads(text)]
        return dict(zip(timestamps, found, strict=True))

    def find_by_timestamp(
        self, topic: str, partition: int, timestamps: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """`offsets_for_times` of one partition for each timestamp, a request each."""
        return [self.offsets_for_times(topic, {partition: t})[partition] for t in timestamps]

    def max_timestamp(self, topic: str, partition: int) -> tuple[int, int]:
        """Admin.listOffsets(MAX_TIMESTAMP): (timestamp, offset); (-1, -1) of an empty log."""
        offset, timestamp = json.loads(self.call("maxTimestamp", topic, partition))
        return timestamp, offset

    def consume_all(self, topic: str, partition: int) -> list[Record]:
        """Every record from the log start offset to the end offset, uncommitted ones included."""
        start, end = self.beginning_offset(topic, partition), self.end_offset(topic, partition)
        return _records(self.call("consume", topic, partition, start, end))

    def seek_and_poll(self, topic: str, partition: int, offset: int) -> list[Record]:
        """What the first poll with records yields after a seek; out of range is a KafkaError."""
        return _records(self.call("poll", topic, partition, offset))


def _records(text: str) -> list[Record]:
    return [record_from_json(record) for record in json.loads(text)]


def _copy(segments: Path, partition: Path, *, indexes: bool) -> None:
    """Makes a partition's folder as another broker leaves it."""
    partition.mkdir()
    for path in segments.iterdir():
        if indexes or path.suffix not in (".index", ".timeindex"):
            shutil.copy(path, partition)
    first = min(int(log.stem) for log in segments.glob("*.log"))
    (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {first}\n")


def _end_offset(segments: Path) -> int:
    """Behind the last record batch, whose header says where it ends."""
    log = max(segments.glob("*.log"))
    end = int(log.stem)
    with log.open("rb") as file:
        while len(header := file.read(27)) == 27:
            base_offset, size, last_delta = struct.unpack(">qi11xi", header)
            end = base_offset + last_delta + 1
            file.seek(size - 15, os.SEEK_CUR)
    return end


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
