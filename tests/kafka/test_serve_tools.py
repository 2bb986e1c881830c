"""Kafka's command-line tools on the server, beside a broker that has the same files.

Those of offsets and topics are in test_serve_java.py, those of groups beside their clients.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

from seglake.serve.settings import Address
from tests.harness.lake_server import Serving, Wire, serving
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_tools import TOOLS, printed, run_tool
from tests.makers.lakes import Event, LakeMaker
from tests.makers.served import T

pytestmark = pytest.mark.rest
CONFIGS = "kafka.admin.ConfigCommand"
TOPIC = "events"


def test_log_dirs_are_those_of_a_broker(server: Serving, twin: Broker) -> None:
    ours, theirs = (log_dirs(each) for each in (server, twin.address))
    assert ours == theirs


def log_dirs(address: object) -> Any:
    """The answer without the folder."""
    tool = printed(TOOLS + "LogDirsCommand", address, "--describe", "--topic-list", TOPIC)
    told = json.loads(tool.splitlines()[-1])
    for each in told["brokers"]:
        for folder in each["logDirs"]:
            del folder["logDir"]
            folder["partitions"].sort(key=lambda partition: str(partition["partition"]))
    return told


def test_topics_are_those_of_a_broker(server: Serving, twin: Broker) -> None:
    ours, theirs = (
        printed(TOOLS + "TopicCommand", each, "--list") for each in (server, twin.address)
    )
    assert ours == theirs == f"{TOPIC}\n"


def test_settings_are_shown_and_stay(server: Serving) -> None:
    about = ("--entity-type", "topics", "--entity-name", TOPIC)
    told = printed(CONFIGS, server, "--describe", *about)
    assert "cleanup.policy=delete" in told
    refused = run_tool(CONFIGS, server, "--alter", *about, "--add-config", "retention.ms=1")
    assert refused.returncode == 1
    assert "INCREMENTAL_ALTER_CONFIGS API is not supported" in refused.stderr
    assert printed(CONFIGS, server, "--describe", *about) == told


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_a_broker_takes_the_settings_of_a_topic(tmp_path: Path, twin: Broker, codec: str) -> None:
    """MirrorMaker creates topics with them."""
    settings = {"compression.type": codec, "index.keys": True, "retention.ms": 5}
    LakeMaker(tmp_path, settings=settings).run({0: [Event(T)]})
    broker = Address("127.0.0.1", twin._port)
    with serving(tmp_path) as server, Wire(server.address) as wire, Wire(broker) as theirs:
        configs = settings_of(wire, TOPIC)
        assert configs["retention.ms"] == "5"
        assert create_topic(theirs, "copy", configs) == 0


def create_topic(wire: Wire, name: str, configs: dict[str, str]) -> int:
    """Validate only."""
    kind = CreateTopicsRequest.CreatableTopic
    settings = [kind.CreatableTopicConfig(name=key, value=configs[key]) for key in configs]
    topic = kind(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=settings
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
    (answer,) = wire.ask(request, CreateTopicsResponse, 5).topics
    return int(answer.error_code)


def settings_of(wire: Wire, name: str) -> dict[str, str]:
    """The settings that DescribeConfigs gives."""
    kind = DescribeConfigsRequest.DescribeConfigsResource
    one = kind(resource_type=2, resource_name=name, configuration_keys=None)
    (answer,) = wire.ask(
        DescribeConfigsRequest(resources=[one]), DescribeConfigsResponse, 4
    ).results
    return {each.name: each.value for each in answer.configs}


def test_the_cluster_is_the_lake(server: Serving) -> None:
    told = printed(TOOLS + "ClusterTool", server, "cluster-id")
    assert told.split() == ["Cluster", "ID:", server.topics.cluster_id]


def test_the_consumer_that_verifies(server: Serving, maker: LakeMaker) -> None:
    count = len(maker.records())
    told = printed(
        TOOLS + "VerifiableConsumer", server, "--topic", TOPIC, "--group-id", "verified",
        "--max-messages", str(count), "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in told.splitlines()]
    taken = [event for event in events if event["name"] == "records_consumed"]
    assert sum(part["count"] for event in taken for part in event["partitions"]) == count
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in commits)
    last = {row["partition"]: row["offset"] for event in commits for row in event["offsets"]}
    assert last == {p: maker.records(p)[-1].offset + 1 for p in range(2)}
