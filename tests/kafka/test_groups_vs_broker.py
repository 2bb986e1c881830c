"""A broker and the server get the same requests of groups, and answer the same."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from seglake.serve.codes import Code
from seglake.serve.settings import Address
from tests.harness.lake_server import Wire, serving
from tests.judges.kafka_broker import Broker
from tests.makers import groups
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T


def _subscription(name: str) -> bytes:
    """A consumer's words for `events`, version 0: a broker never answers a join with others."""
    topic, said = b"events", name.encode()
    return struct.pack(f">hih{len(topic)}si{len(said)}s", 0, 1, len(topic), topic, len(said), said)


class Asking:
    """Asks one of the two, and notes what it answers, without what chance made."""

    def __init__(self, address: Address) -> None:
        self._wire, self.noted = Wire(address), list[Any]()

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def wait_for(self, group: str) -> None:
        """Until the group is coordinated: a new broker makes a topic for that, and loads it."""
        find = FindCoordinatorRequest(key="", key_type=0, coordinator_keys=[group])
        for _ in range(3000):
            found = self._wire.ask(find, FindCoordinatorResponse, 4).coordinators[0]
            if not found.error_code:
                code = groups.heartbeat(self._wire, group, "nobody", 1)
                if code == Code.UNKNOWN_MEMBER_ID:
                    return
            time.sleep(0.1)
        raise TimeoutError

    def join(
        self,
        group: str,
        member_id: str = "",
        version: int = 9,
        names: tuple[str, ...] = ("range", "sticky"),
        **more: Any,
    ) -> Any:
        protocols = {name: _subscription(name) for name in names}
        how = {"protocols": protocols, "member_id": member_id, **more}
        got = groups.join(self._wire, group, version, **how)
        self.noted.append((
            "join", got.error_code, got.generation_id, got.protocol_name, got.protocol_type,
            got.leader == got.member_id, bool(got.member_id), got.skip_assignment,
            [(each.group_instance_id, bytes(each.metadata)) for each in got.members],
        ))  # fmt: skip
        return got

    def sync(
        self, group: str, member_id: str, generation: int, version: int = 5, **more: Any
    ) -> None:
        more = {"given": {member_id: b"all of it"}, **more}
        got = groups.sync(self._wire, group, member_id, generation, version, **more)
        self.noted.append(
            ("sync", got.error_code, got.protocol_type, got.protocol_name, bytes(got.assignment))
        )

    def heartbeat(
        self, group: str, member_id: str, generation: int, instance: str | None = None
    ) -> None:
        code = groups.heartbeat(self._wire, group, member_id, generation, 4, instance)
        self.noted.append(("beat", code))

    def leave(self, group: str, member_id: str, instance: str | None = None) -> None:
        got = groups.leave(self._wire, group, member_id, 5, instance)
        codes = [(each.group_instance_id, each.error_code) for each in got.members]
        self.noted.append(("leave", got.error_code, codes))

    def commit(
        self, group: str, member_id: str = "", generation: int = -1, version: int = 9, **more: Any
    ) -> None:
        place = more.get("topic", "events"), more.get("partition", 0)
        offsets = {place: (more.get("offset", 3), more.get("metadata", "words"))}
        codes = groups.commit(
            self._wire, group, offsets, version, member_id=member_id, generation=generation,
            instance=more.get("instance"),
        )  # fmt: skip
        self.noted.append(("commit", codes))

    def fetch(self, group: str, version: int, asked: list[int] | None) -> None:
        found = groups.fetch(self._wire, group, version, asked)
        rows = [
            (t.name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata,
             p.error_code)
            for t in found.topics for p in t.partitions
        ]  # fmt: skip
        self.noted.append(("fetch", found.error_code, sorted(rows)))

    def describe(self, group: str, version: int) -> None:
        got = groups.describe(self._wire, group, version)
        members = [
            (m.group_instance_id, m.client_id, m.client_host, bytes(m.member_metadata),
             bytes(m.member_assignment))
            for m in got.members
        ]  # fmt: skip
        self.noted.append(
            (
                "describe",
                got.error_code,
                got.group_state,
                got.protocol_type,
                got.protocol_data,
                members,
            )
        )

    def list(self, prefix: str, states: list[str], types: list[str]) -> None:
        found = groups.listed(self._wire, states, types)
        ours = [each for each in found if each.group_id.startswith(prefix)]
        self.noted.append(
            sorted((g.group_id, g.group_state, g.group_type, g.protocol_type) for g in ours)
        )

    def delete(self, group: str) -> None:
        self.noted.append(("delete", groups.delete(self._wire, group)))


def strangers(asking: Asking) -> None:
    """Nobody is in the group that they ask for."""
    asking.heartbeat("none", "nobody", 1)
    asking.sync("none", "nobody", 1)
    asking.leave("none", "nobody")
    asking.leave("none", "", "no instance")
    asking.commit("none", "nobody", 1, 8)
    asking.fetch("none", 7, [0, 9])
    asking.fetch("none", 9, None)
    for version in (5, 6):
        asking.describe("none", version)
    asking.delete("none")
    asking.join("none", "nobody")
    asking.join("")
    asking.join("none", session_ms=5_999)
    asking.join("none", session_ms=1_800_001)
    asking.join("none", names=())
    asking.join("none", kind="")


def a_member(asking: Asking) -> None:
    """A dynamic one, from its first join to the end of its group."""
    first = asking.join("dynamic")
    joined = asking.join("dynamic", first.member_id)
    me, generation = joined.member_id, joined.generation_id
    asking.describe("dynamic", 6)
    asking.commit("dynamic", me, generation)
    asking.sync("dynamic", me, generation + 1)
    asking.sync("dynamic", "nobody", generation)
    asking.sync("dynamic", me, generation, kind="connect")
    asking.sync("dynamic", me, generation, name="sticky")
    asking.sync("dynamic", me, generation)
    asking.sync("dynamic", me, generation, given={})
    asking.sync("dynamic", me, generation, 3, given={})
    for who, when, instance in (
        (me, generation, None), (me, generation + 1, None), ("nobody", generation, None),
        (me, generation, "no instance"),
    ):  # fmt: skip
        asking.heartbeat("dynamic", who, when, instance)
        asking.commit("dynamic", who, when, 8, instance=instance)
    asking.join("dynamic", kind="connect")
    asking.join("dynamic", names=("other",))
    asking.commit("dynamic")
    asking.commit("dynamic", me, generation, topic="none")
    asking.commit("dynamic", me, generation, partition=2)
    asking.commit("dynamic", me, generation, partition=1, metadata="x" * 4096)
    asking.commit("dynamic", me, generation, partition=1, metadata="x" * 4097)
    asking.commit("dynamic", me, generation, partition=1, offset=8, metadata=None)
    for version in (1, 2, 5, 7, 8, 9):
        asking.fetch("dynamic", version, [0, 1])
    asking.fetch("dynamic", 7, None)
    asking.describe("dynamic", 6)
    asking.list("dyn", ["Stable"], [])
    asking.list("dyn", ["stable"], ["Classic"])
    asking.list("dyn", ["Empty"], [])
    asking.list("dyn", [], ["consumer"])
    asking.delete("dynamic")
    asking.join("dynamic", me)  # a leader that joins again starts a rebalance
    asking.heartbeat("dynamic", me, generation)
    asking.heartbeat("dynamic", me, generation + 1)
    asking.sync("dynamic", me, generation + 1)
    asking.leave("dynamic", me)
    asking.leave("dynamic", me)
    asking.describe("dynamic", 6)
    asking.commit("dynamic", offset=77)
    asking.fetch("dynamic", 8, None)
    asking.list("dyn", [], [])
    asking.delete("dynamic")
    asking.delete("dynamic")
    asking.fetch("dynamic", 8, None)


def a_static_member(asking: Asking) -> None:
    """It comes back under another id, in its old place, and the old one is fenced."""
    joined = asking.join("static", instance="one")
    me, generation = joined.member_id, joined.generation_id
    asking.sync("static", me, generation, instance="one")
    again = asking.join("static", instance="one")
    asking.sync("static", again.member_id, generation, instance="one", given={})
    asking.heartbeat("static", me, generation, "one")
    asking.sync("static", me, generation, instance="one", given={})
    asking.commit("static", me, generation, 8, instance="one")
    asking.join("static", me, instance="one")
    asking.heartbeat("static", again.member_id, generation, "one")
    old = asking.join("static", instance="one", version=8)  # knows no skip_assignment
    asking.heartbeat("static", old.member_id, generation, "one")
    asking.describe("static", 6)
    # a broker remembers a group without members for a while, the server one with offsets
    asking.commit("static", old.member_id, generation, 8, instance="one")
    asking.leave("static", "", "another")
    asking.leave("static", me, "one")
    asking.leave("static", "", "one")
    asking.describe("static", 6)


def an_old_client(asking: Asking) -> None:
    """Before version 4 one join is enough."""
    joined = asking.join("old", version=2)
    asking.sync("old", joined.member_id, joined.generation_id, 1)
    asking.heartbeat("old", joined.member_id, joined.generation_id)
    asking.join("old", joined.member_id, version=3)


@pytest.fixture(scope="module", autouse=True)
def _ready(broker: Broker) -> None:
    broker.create_topic("events", 2, {})
    with Asking(_address(broker)) as asking:
        for group in ("none", "dynamic", "static", "old"):
            asking.wait_for(group)


def _address(broker: Broker) -> Address:
    host, port = broker.address.split(":")
    return Address(host, int(port))


@pytest.mark.parametrize("story", [strangers, a_member, a_static_member, an_old_client])
def test_both_answer_the_same(broker: Broker, tmp_path: Path, story: Any) -> None:
    LakeMaker(tmp_path, partitions=2).run({p: [Event(T)] * 9 for p in range(2)})
    settings = {"groups.group.initial.rebalance.delay.ms": 0}
    with serving(tmp_path, settings) as server, Asking(server.address) as ours:
        story(ours)
    with Asking(_address(broker)) as theirs:
        story(theirs)
    assert ours.noted == theirs.noted
