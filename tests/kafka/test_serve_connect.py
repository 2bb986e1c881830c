"""Kafka Connect: its worker and its sink for files, on the server as on a broker."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from seglake.session import find_java
from tests.harness.ports import free_ports
from tests.harness.server_process import ServerProcess
from tests.judges.kafka_jars import connect_jars
from tests.makers.served import numbered_lake

pytestmark = pytest.mark.kafka
PARTITIONS, COUNT = 3, 200
WAIT_S = 120
LINES = sorted(f"{p}/{at}" for p in range(PARTITIONS) for at in range(COUNT))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_lake(tmp_path_factory.mktemp("lake"), PARTITIONS, COUNT)


def properties(path: Path, **settings: object) -> Path:
    path.write_text(
        "".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())
    )
    return path


@pytest.mark.rest
@pytest.mark.long
def test_a_sink_gets_every_record_once(root: Path, tmp_path: Path) -> None:
    """Two lives of one worker: the second goes on where the first one committed."""
    text, out = "org.apache.kafka.connect.storage.StringConverter", tmp_path / "out.txt"
    (port,) = free_ports(1)
    with ServerProcess(root, tmp_path) as server:
        worker = properties(
            tmp_path / "worker.properties", bootstrap_servers=str(server.address),
            key_converter=text, value_converter=text, listeners=f"http://127.0.0.1:{port}",
            offset_storage_file_filename=tmp_path / "offsets", offset_flush_interval_ms=500,
            consumer_auto_offset_reset="earliest", plugin_discovery="only_scan",
        )  # fmt: skip
        sink = properties(
            tmp_path / "sink.properties", name="sink", tasks_max=1, topics="events", file=out,
            connector_class="org.apache.kafka.connect.file.FileStreamSinkConnector",
        )  # fmt: skip
        for _ in range(2):
            run_until_written(worker, sink, out, tmp_path / "worker.log")
            assert sorted(out.read_text().split()) == LINES


def run_until_written(worker: Path, sink: Path, out: Path, log: Path) -> None:
    command = [
        str(find_java()), "-Xmx256m", "-cp", os.pathsep.join(map(str, connect_jars())),
        "org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink),
    ]  # fmt: skip
    lives = assignments(log)
    with log.open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            started = time.monotonic()
            while not (assignments(log) > lives and written(out) >= len(LINES)):
                assert process.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() - started < WAIT_S, log.read_text()[-4000:]
                time.sleep(0.2)
            time.sleep(5)  # the second time everything is there at once: nothing may be added
        finally:
            end(process)


def assignments(log: Path) -> int:
    """How often the workers of a log were given the partitions."""
    return log.read_text().count("Adding newly assigned partitions") if log.exists() else 0


def written(out: Path) -> int:
    return len(out.read_text().split()) if out.exists() else 0


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a worker as a manager of services does: what it wrote was committed long before."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
