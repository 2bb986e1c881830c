"""Kafka's clients in consumer groups of the server: rebalances, commits, kills, tools."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.harness.lake_server import until
from tests.harness.server_process import ServerProcess
from tests.judges.kafka_tools import CONSOLE, TOOLS, printed
from tests.makers.served import numbered_lake

PARTITIONS, COUNT = 4, 300
ALL = {(p, offset) for p in range(PARTITIONS) for offset in range(COUNT)}
GROUPS = f"{TOOLS}consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_lake(tmp_path_factory.mktemp("lake"), PARTITIONS, COUNT)


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(root, tmp_path) as running:
        yield running


class Member:
    """A consumer of a group on a thread of its own."""

    def __init__(self, server: ServerProcess, group: str, **settings: Any) -> None:
        self.seen = list[tuple[int, int]]()
        self.partitions = list[int]()
        self.failed: BaseException | None = None
        self._over = threading.Event()
        self._settings = {
            "bootstrap.servers": str(server.address), "group.id": group, "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500, "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200, "fetch.wait.max.ms": 50, **settings,
        }  # fmt: skip
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(["events"])
        try:
            while not self._over.is_set():
                for message in consumer.consume(100, timeout=0.1):
                    assert message.error() is None, message.error()
                    self.seen.append((message.partition() or 0, message.offset() or 0))
                self.partitions = sorted(each.partition for each in consumer.assignment())
        except BaseException as error:
            self.failed = error
        finally:
            consumer.close()

    def stop(self) -> None:
        """Leave the group, with a commit."""
        self._over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.failed is not None:
            raise self.failed


def console(server: ServerProcess, group: str, count: int, *more: str) -> list[str]:
    """So many values by Kafka's console consumer in a group, from where it committed."""
    return printed(
        CONSOLE, server.address, "--topic", "events", "--group", group, "--max-messages",
        str(count), "--timeout-ms", "20000", *more,
    ).split()  # fmt: skip


def described(server: ServerProcess, group: str) -> list[tuple[int, int, int, int, str]]:
    """What Kafka's tool says: partition, committed offset, end offset, lag, consumer id."""
    told = printed(GROUPS, server.address, "--describe", "--group", group)
    found = re.findall(rf"^{group} +events +(\d+) +(\d+) +(\d+) +(\d+) +(\S+)", told, re.MULTILINE)
    return sorted((int(p), int(at), int(end), int(lag), who) for p, at, end, lag, who in found)


@pytest.mark.rest
def test_two_members_share_and_one_takes_over(server: ServerProcess) -> None:
    """A rebalance when the second comes, and one when it goes: every record, none twice."""
    first = Member(server, "shared")
    until(lambda: len(first.partitions) == PARTITIONS)
    second = Member(server, "shared")
    until(lambda: len(first.partitions) == len(second.partitions) == PARTITIONS // 2)
    assert sorted(first.partitions + second.partitions) == list(range(PARTITIONS))
    until(lambda: len(first.seen) + len(second.seen) >= len(ALL))
    second.stop()
    until(lambda: len(first.partitions) == PARTITIONS)
    first.stop()
    assert sorted(first.seen + second.seen) == sorted(ALL)
    assert "group 'shared': generation 4 has 0 members" in server.told()


@pytest.mark.rest
def test_a_silent_member_loses_its_partitions(server: ServerProcess) -> None:
    first = Member(server, "silent")
    until(lambda: len(first.partitions) == PARTITIONS)
    lost = subprocess.Popen(
        [sys.executable, "-c", _SILENT.format(address=server.address)], stdout=subprocess.PIPE
    )
    until(lambda: len(first.partitions) == PARTITIONS // 2)
    lost.kill()
    lost.communicate()
    until(lambda: len(first.partitions) == PARTITIONS)
    first.stop()
    assert "timed out" in server.told()


_SILENT = """
from confluent_kafka import Consumer
consumer = Consumer({{"bootstrap.servers": "{address}", "group.id": "silent",
                      "session.timeout.ms": 6000, "heartbeat.interval.ms": 500}})
consumer.subscribe(["events"])
while True:
    consumer.poll(0.1)
"""


@pytest.mark.rest
def test_kafkas_console_consumer_goes_on_where_it_committed(server: ServerProcess) -> None:
    first = console(server, "console", 500, "--from-beginning")
    lags = {p: lag for p, _, _, lag, _ in described(server, "console")}
    assert sum(lags.values()) == len(ALL) - 500
    server.stop(signal.SIGKILL)
    server.start()
    second = console(server, "console", len(ALL) - 500, "--from-beginning")
    assert sorted(first + second) == sorted(f"{p}/{offset}" for p, offset in ALL)
    assert [row[1:4] for row in described(server, "console")] == [(COUNT, COUNT, 0)] * PARTITIONS


@pytest.mark.rest
def test_kafkas_group_tool_shows_moves_and_deletes(server: ServerProcess) -> None:
    member = Member(server, "tooled")
    until(lambda: len(member.seen) == len(ALL))
    time.sleep(0.5)
    rows = described(server, "tooled")
    assert [row[:4] for row in rows] == [(p, COUNT, COUNT, 0) for p in range(PARTITIONS)]
    assert {row[4][:8] for row in rows} == {"rdkafka-"}
    member.stop()
    assert printed(GROUPS, server.address, "--list").split() == ["tooled"]
    moved = ("--reset-offsets", "--group", "tooled", "--topic", "events", "--to-datetime")
    printed(GROUPS, server.address, *moved, "2023-11-14T22:13:20.100", "--execute")  # T + 100
    assert [row[1] for row in described(server, "tooled")] == [100] * PARTITIONS
    printed(GROUPS, server.address, "--delete", "--group", "tooled")
    assert printed(GROUPS, server.address, "--list").split() == []
