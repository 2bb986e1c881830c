"""MirrorMaker 2 copies a topic of the server to a real broker, each record once."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglake.errors import SeglakeError
from seglake.session import find_java
from tests.harness.server_process import ServerProcess
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_jars import mirror_jars
from tests.makers.lakes import LakeMaker, Shape
from tests.makers.served import events, rich_lake

PARTITIONS, WAIT_S = 2, 300
TOPIC, COPY = "events", "lake.events"
SETTINGS = """\
clusters = lake, kafka
lake.bootstrap.servers = {lake}
kafka.bootstrap.servers = {kafka}
lake->kafka.enabled = true
lake->kafka.topics = events
kafka->lake.enabled = false
kafka->lake.emit.heartbeats.enabled = false
offset-syncs.topic.location = target
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
offset.flush.interval.ms = 500
replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
plugin.discovery = only_scan
"""


@contextmanager
def mirroring(settings: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """MirrorMaker 2 at work; it ends with SIGTERM, and commits before."""
    command = [
        str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
        os.pathsep.join(map(str, mirror_jars())), "org.apache.kafka.connect.mirror.MirrorMaker",
        str(settings),
    ]  # fmt: skip
    with log.open("ab") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(WAIT_S)


def counts(broker: Broker) -> list[int]:
    return [broker.end_offset(COPY, p) for p in range(PARTITIONS)]


def await_all(
    broker: Broker, maker: LakeMaker, process: subprocess.Popen[bytes], log: Path
) -> None:
    wanted, since = [len(maker.records(p)) for p in range(PARTITIONS)], time.monotonic()
    while counts(broker) < wanted:
        assert process.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() - since < WAIT_S, log.read_text()[-4000:]
        time.sleep(0.2)


@pytest.mark.rest
@pytest.mark.long
def test_each_record_comes_once(broker: Broker, tmp_path: Path) -> None:
    """Two lives: the second one goes on where the first one was, with what is new in the lake."""
    try:
        mirror_jars()
    except SeglakeError as reason:
        pytest.skip(f"MirrorMaker cannot judge: {reason}")
    maker = rich_lake(tmp_path / "lake", TOPIC, partitions=PARTITIONS)
    broker.create_topic(COPY, PARTITIONS, {})  # one of MirrorMaker would forget what is old
    settings, log = tmp_path / "mm2.properties", tmp_path / "mm2.log"
    with ServerProcess(maker.root, tmp_path) as server:
        settings.write_text(SETTINGS.format(lake=server.address, kafka=broker.address))
        with mirroring(settings, log) as process:
            await_all(broker, maker, process, log)
        maker.run({p: events(5) for p in range(PARTITIONS)}, Shape("zstd"))
        with mirroring(settings, log) as process:
            await_all(broker, maker, process, log)
    for partition in range(PARTITIONS):
        copied = [
            (r.timestamp, r.key, r.value, list(r.headers))
            for r in broker.consume_all(COPY, partition)
        ]
        assert copied == [
            (r.timestamp, r.key, r.value, r.headers) for r in maker.records(partition)
        ]
