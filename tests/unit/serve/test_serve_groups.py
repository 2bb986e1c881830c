"""Consumer groups over the wire: every version of every API, commits, restarts."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import (
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from seglake.errors import ConfigError
from seglake.maintain.health.repair import rebuild_catalog
from seglake.serve.api import ServerCounts
from seglake.serve.codes import Code
from seglake.serve.groups.coordinator import Coordinator
from seglake.serve.groups.group import Group, JoinRequest
from seglake.serve.groups.offsets import CommittedOffset, OffsetStore
from seglake.serve.settings import Groups
from tests.harness.lake_server import Serving, Wire, serving
from tests.makers import groups
from tests.makers.fetches import topic_id
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T, examples

Offsets = dict[groups.Place, tuple[int, str | None]]
QUICK = {"groups.group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    LakeMaker(folder, partitions=2).run({p: [Event(T + at) for at in range(9)] for p in range(2)})
    return folder


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Serving]:
    with serving(root, QUICK) as running:
        yield running


def join(wire: Wire, group: str, version: int) -> Any:
    """A member of a group that has joined; its id and generation in the answer."""
    protocols = {"range": b"likes"}
    answer = groups.join(wire, group, version, protocols=protocols)
    if version >= 4:
        assert answer.error_code == Code.MEMBER_ID_REQUIRED
        member_id = answer.member_id
        answer = groups.join(wire, group, version, protocols=protocols, member_id=member_id)
    assert answer.error_code == Code.NONE
    return answer


def sync(wire: Wire, group: str, joined: Any, version: int) -> Any:
    given = {each.member_id: b"yours" for each in joined.members}
    member = joined.member_id, joined.generation_id
    return groups.sync(wire, group, *member, version, given=given)


def commit(
    wire: Wire, group: str, offsets: Offsets, version: int = 8, joined: Any = None
) -> dict[groups.Place, int]:
    """Commit offset and metadata by topic and partition; the error codes."""
    who = {"member_id": joined.member_id, "generation": joined.generation_id} if joined else {}
    return groups.commit(wire, group, offsets, version, epoch=3, **who)


def fetch(wire: Wire, group: str, version: int, asked: list[int] | None) -> dict[int, Any]:
    """What is committed for partitions of the topic `events`, or for all."""
    topics = groups.fetch(wire, group, version, asked).topics
    return {p.partition_index: p for t in topics for p in t.partitions}


def leave(wire: Wire, group: str, member_id: str, version: int = 2) -> int:
    answer = groups.leave(wire, group, member_id, version)
    return answer.error_code or (answer.members[0].error_code if version >= 3 else 0)


@pytest.mark.parametrize("at", range(10))
def test_a_member_lives_in_every_version(wire: Wire, at: int) -> None:
    """From its coming to its going, with the version `at` of each API, or the newest there is."""
    group = f"life-{at}"

    def cap(newest: int) -> int:
        return min(at, newest)

    joined = join(wire, group, cap(9))
    assert joined.leader == joined.member_id
    assert [bytes(each.metadata) for each in joined.members] == [b"likes"]
    assert joined.protocol_name == "range"
    synced = sync(wire, group, joined, cap(5))
    assert (synced.error_code, bytes(synced.assignment)) == (Code.NONE, b"yours")
    member = joined.member_id, joined.generation_id
    assert groups.heartbeat(wire, group, *member, cap(4)) == Code.NONE
    version = max(2, cap(9))
    offsets: Any = {("events", 1): (7, "größe")}
    assert commit(wire, group, offsets, version, joined) == {("events", 1): Code.NONE}
    found = fetch(wire, group, max(1, cap(9)), [0, 1])
    assert [(found[p].committed_offset, found[p].metadata) for p in (0, 1)] == [
        (-1, ""), (7, "größe"),
    ]  # fmt: skip
    if at >= 6:
        assert found[1].committed_leader_epoch == 3
    described = groups.describe(wire, group, cap(6))
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [bytes(each.member_assignment) for each in described.members] == [b"yours"]
    assert described.members[0].client_host == "/127.0.0.1"
    listed = groups.listed(wire, ["stable"], ["classic"], cap(5))
    assert group in {each.group_id for each in listed}
    assert leave(wire, group, joined.member_id, cap(5)) == Code.NONE
    assert leave(wire, group, joined.member_id, cap(5)) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_this_server(server: Serving, wire: Wire, version: int) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])
    answer = wire.ask(request, FindCoordinatorResponse, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (Code.NONE, 1)
    assert (found.host, found.port) == server.address
    if version >= 1:
        request = FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=["t"])
        answer = wire.ask(request, FindCoordinatorResponse, version)
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "read-only" in found.error_message


def test_what_is_valid_in_a_commit_is_committed(wire: Wire) -> None:
    codes = commit(
        wire, "partly",
        {("events", 0): (1, None), ("events", 2): (1, ""), ("nothing", 0): (1, ""),
         ("events", 1): (1, "x" * 4097)},
    )  # fmt: skip
    assert codes == {
        ("events", 0): Code.NONE, ("events", 2): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("events", 1): Code.OFFSET_METADATA_TOO_LARGE,
    }  # fmt: skip
    assert {p: each.committed_offset for p, each in fetch(wire, "partly", 7, None).items()} == {
        0: 1
    }


def test_groups_are_deleted_when_nobody_is_in_them(wire: Wire) -> None:
    def delete(group: str) -> int:
        return groups.delete(wire, group)

    def delete_offset(group: str, partition: int) -> int:
        one = OffsetDeleteRequest.OffsetDeleteRequestTopic
        part = one.OffsetDeleteRequestPartition
        topics = [one(name="events", partitions=[part(partition_index=partition)])]
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        return int(wire.ask(request, OffsetDeleteResponse, 0).error_code)

    joined = join(wire, "going", 5)
    sync(wire, "going", joined, 3)
    commit(wire, "going", {("events", 0): (5, ""), ("events", 1): (6, "")}, 8, joined)
    assert (delete("going"), delete_offset("going", 0)) == (Code.NON_EMPTY_GROUP,) * 2
    leave(wire, "going", joined.member_id)
    assert delete_offset("going", 0) == Code.NONE
    assert sorted(fetch(wire, "going", 7, None)) == [1]
    assert delete("going") == Code.NONE
    assert (delete("going"), delete_offset("going", 0)) == (Code.GROUP_ID_NOT_FOUND,) * 2
    for version, code in ((5, Code.NONE), (6, Code.GROUP_ID_NOT_FOUND)):
        found = groups.describe(wire, "going", version)
        assert (found.group_state, found.error_code) == ("Dead", code)


def test_a_server_goes_on_where_groups_committed(root: Path, tmp_path: Path) -> None:
    settings = {**QUICK, "groups.file": str(tmp_path / "new" / "groups.sqlite")}
    with serving(root, settings) as server, Wire(server.address) as wire:
        commit(wire, "g", {("events", 0): (3, "a"), ("events", 1): (4, "b")})
        with (
            pytest.raises(ConfigError, match=r"a `seglake serve` of the same lake.* groups.file"),
            serving(root, settings),
        ):
            pass
    with serving(root, settings) as server, Wire(server.address) as wire:
        found = fetch(wire, "g", 7, None)
        assert [(p, each.committed_offset, each.metadata) for p, each in found.items()] == [
            (0, 3, "a"), (1, 4, "b"),
        ]  # fmt: skip
        (listed,) = groups.listed(wire)
        assert (listed.group_id, listed.group_state) == ("g", "Empty")


def test_a_stop_answers_who_waits(root: Path) -> None:
    """A join that would wait for a minute for others does not hold the server up."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=60_000, member_id="",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    with serving(root, {"groups.group.initial.rebalance.delay.ms": 60_000}) as server:
        wire = Wire(server.address)
        wire.send(request, 1)
        time.sleep(1)
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 30
    frame = wire.receive()
    assert frame is not None
    answer = JoinGroupResponse.decode(frame, version=1, header=True)
    assert answer.error_code == Code.COORDINATOR_NOT_AVAILABLE
    wire.close()


def test_there_are_only_so_many_groups(root: Path) -> None:
    with serving(root, {**QUICK, "groups.max_groups": 1}) as server, Wire(server.address) as wire:
        first = join(wire, "first", 5)
        answer = groups.join(wire, "second", 5, protocols={})
        assert answer.error_code == Code.COORDINATOR_NOT_AVAILABLE
        sync(wire, "first", first, 3)
        leave(wire, "first", first.member_id)
        join(wire, "second", 5)


def test_storage_trouble_is_an_error_that_clients_try_again_after(tmp_path: Path) -> None:
    async def asked() -> list[Any]:
        store = OffsetStore(tmp_path / "groups")
        coordinator = Coordinator(store, Groups(), ServerCounts())
        store._db.close()
        found = [
            await coordinator.commit("g", {("t", 0): CommittedOffset(1)}),
            await coordinator.committed("g"), await coordinator.listed(),
            await coordinator.forget("g", None),
        ]  # fmt: skip
        coordinator.close()
        return found

    assert asyncio.run(asked()) == [Code.COORDINATOR_NOT_AVAILABLE] * 4


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, and long enough to be seen as none " * 40)
    for file in (tmp_path / "text", tmp_path, tmp_path / "text" / "below"):
        with pytest.raises(ConfigError, match=r"groups\.file .* cannot be used"):
            OffsetStore(file)
    newer = OffsetStore(tmp_path / "newer")
    newer._db.execute("pragma user_version = 7")
    newer.close()
    with pytest.raises(ConfigError, match="has format 7"):
        OffsetStore(tmp_path / "newer")


def test_another_lake_at_the_root_has_no_offsets(tmp_path: Path) -> None:
    """Nor the topic ids of the first; a rebuilt one has both."""
    root, file = tmp_path / "lake", {"groups.file": str(tmp_path / "groups")}
    ids = list[Any]()
    for made, wanted in [("new", -1), ("same", 7), ("rebuilt", 7), ("new", -1)]:
        if made == "new":
            shutil.rmtree(root, ignore_errors=True)
            LakeMaker(root, partitions=2).run({0: [Event(T + at) for at in range(9)]})
        if made == "rebuilt":
            rebuild_catalog(str(root), force=True, dry_run=False)
        with serving(root, file) as server, Wire(server.address) as wire:
            assert fetch(wire, "readers", 5, [0])[0].committed_offset == wanted
            commit(wire, "readers", {("events", 0): (7, None)})
            ids.append(topic_id(wire, "events"))
    assert ids[0] == ids[1] == ids[2] != ids[3]


def test_a_timer_that_fails_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new member that never joins is forgotten, though the first look at it failed."""
    real, errors = Group.advance, [ValueError("foreign")]

    def advance(group: Group, now_ms: int) -> None:
        if errors:
            raise errors.pop()
        real(group, now_ms)

    async def gone() -> None:
        settings = Groups.model_validate(
            {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1}
        )
        coordinator = Coordinator(OffsetStore(Path(":memory:")), settings, ServerCounts())
        ask = JoinRequest("", None, "c", "host", 20, 20, "consumer", (("range", b""),))
        joined = await coordinator.join("g", ask)
        assert joined.code is Code.MEMBER_ID_REQUIRED
        async with asyncio.timeout(60):
            while coordinator._groups:
                await asyncio.sleep(0.02)
        coordinator.close()

    monkeypatch.setattr(Group, "advance", advance)
    asyncio.run(gone())
    assert not errors


PLACES = st.tuples(st.sampled_from(["a", "b", "ü"]), st.integers(0, 2))
COMMITS = st.dictionaries(
    PLACES,
    st.builds(CommittedOffset, st.integers(0, 2**63 - 1), st.integers(-1, 9), st.text(max_size=4)),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["g", "h"]), st.one_of(COMMITS, st.sets(PLACES), st.none())),
    max_size=12,
)


@examples(60)
@given(STEPS)
def test_the_store_is_a_map_of_maps(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    """Commits, removals of some offsets, removals of groups; the file is opened anew each time."""
    file, model = tmp_path_factory.mktemp("store") / "groups", dict[str, dict[Any, Any]]()
    for group, step in steps:
        store = OffsetStore(file)
        of_group = model.setdefault(group, {})
        if isinstance(step, dict):
            store.commit(group, step, 0)
            of_group |= step
        else:
            store.delete(group, step)
            for where in list(of_group) if step is None else step:
                of_group.pop(where, None)
        store.close()
        store = OffsetStore(file)
        assert [*store.groups()] == sorted(name for name, offsets in model.items() if offsets)
        assert {name: store.group_offsets(name) for name in model} == model
        store.close()


def test_a_group_without_members_is_still_of_their_kind(root: Path, tmp_path: Path) -> None:
    """Also after a restart, as with a broker; commits from outside change nothing of it."""
    kept = {**QUICK, "groups.file": str(tmp_path / "groups")}
    with serving(root, kept) as server, Wire(server.address) as wire:
        joined = join(wire, "left", 5)
        sync(wire, "left", joined, 3)
        commit(wire, "left", {("events", 0): (1, None)}, joined=joined)
        leave(wire, "left", joined.member_id)
        commit(wire, "outside", {("events", 0): (2, None)})
    with serving(root, kept) as server, Wire(server.address) as wire:
        commit(wire, "left", {("events", 0): (3, None)})
        assert kinds(wire) == {"left": "consumer", "outside": ""}
        groups.delete(wire, "left")
        commit(wire, "left", {("events", 0): (4, None)})
        assert kinds(wire) == {"left": "", "outside": ""}


def kinds(wire: Wire) -> dict[str, str]:
    """The protocol types of the groups that are listed."""
    return {each.group_id: each.protocol_type for each in groups.listed(wire)}
