"""The state machine of a consumer group, under any order of joins, leaves and silences."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from seglake.limits import INT64_MAX
from seglake.serve.codes import Code
from seglake.serve.groups.group import (
    Group,
    JoinRequest,
    JoinResponse,
    Protocols,
    SyncRequest,
    SyncResponse,
)
from seglake.serve.settings import Groups
from tests.makers.strategies import examples

SESSION_MS, REBALANCE_MS = 10_000, 30_000
LIMITS = Groups.model_validate({"group.max.size": 6})
BOTH: Protocols = (("range", b"r"), ("sticky", b"s"))
PROTOCOLS: list[Protocols] = [BOTH, BOTH[::-1], (("range", b"r"),), (("range", b"other"),)]


def ask(
    member_id: str = "", instance_id: str | None = None, protocols: Protocols = BOTH, **how: Any
) -> JoinRequest:
    return JoinRequest(
        member_id, instance_id, "client", "/here", SESSION_MS, REBALANCE_MS, "consumer", protocols,
        **how,
    )  # fmt: skip


class Client:
    """A client as unreliable as a test wants it, which remembers what it was told."""

    def __init__(self, instance_id: str | None = None) -> None:
        self.instance_id, self.member_id, self.generation = instance_id, "", -1
        self.joined: JoinResponse | None = None
        self.synced: SyncResponse | None = None
        self.asked = self.answered = 0

    @property
    def waits(self) -> bool:
        return self.asked > self.answered

    def join(self, group: Group, now: int, protocols: Protocols = BOTH, **how: Any) -> None:
        self.asked, self.joined, self.synced = self.asked + 1, None, None
        group.join(ask(self.member_id, self.instance_id, protocols, **how), now, self._on_join)

    def sync(self, group: Group, now: int, assignments: Mapping[str, bytes]) -> None:
        self.asked, self.synced = self.asked + 1, None
        asked = SyncRequest(
            self.member_id, self.instance_id, self.generation, "consumer", None, assignments
        )
        group.sync(asked, now, self._on_sync)

    def assignments(self) -> dict[str, bytes]:
        """What a leader gives: to each its generation and who it is."""
        assert self.joined is not None
        return {
            member_id: f"{self.generation}/{instance or member_id}".encode()
            for member_id, instance, _ in self.joined.members
        }

    def heartbeat(self, group: Group, now: int) -> Code:
        return group.heartbeat(self.member_id, self.instance_id, self.generation, now)

    def _on_join(self, answer: JoinResponse) -> None:
        self.answered += 1
        self.joined = answer
        if answer.code in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = answer.member_id, answer.generation
        elif answer.code is Code.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", -1

    def _on_sync(self, answer: SyncResponse) -> None:
        self.answered += 1
        self.synced = answer


class AnyOrder(RuleBasedStateMachine):
    """Clients that join, sync, leave, go silent and come back, in any order."""

    @initialize()
    def begin(self) -> None:
        self.group, self.now = Group("g", LIMITS), 1_000_000
        self.clients: list[Client] = []
        self.given: dict[int, dict[str, bytes]] = {}  # by generation, what its leader assigned
        self.leaders: dict[int, set[str]] = {}
        self.protocols: dict[int, set[str | None]] = {}
        self.generation = 0

    def free(self) -> list[Client]:
        return [client for client in self.clients if not client.waits]

    @rule(static=st.sampled_from([None, None, "one", "two"]), twice=st.booleans(), data=st.data())
    def come(self, static: str | None, twice: bool, data: st.DataObject) -> None:
        if len(self.clients) < 12:
            client = Client(static)
            self.clients.append(client)
            client.join(
                self.group, self.now, data.draw(st.sampled_from(PROTOCOLS)), needs_member_id=twice
            )

    @precondition(lambda self: self.free())
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def join_again(self, data: st.DataObject, protocols: Protocols) -> None:
        data.draw(st.sampled_from(self.free())).join(self.group, self.now, protocols)

    @precondition(lambda self: any(c.joined for c in self.free()))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([c for c in self.free() if c.joined]))
        joined, given = client.joined, dict[str, bytes]()
        if joined is not None and joined.leader == joined.member_id and joined.code is Code.NONE:
            given = client.assignments()
            if not joined.skip_assignment and self.group.state == "CompletingRebalance":
                self.given.setdefault(client.generation, given)
        client.sync(self.group, self.now, given)

    @precondition(lambda self: self.free())
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.free()))
        code = client.heartbeat(self.group, self.now)
        if code is Code.NONE:
            assert client.member_id in self.group.members
            assert self.group.state in ("Stable", "CompletingRebalance")

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), by_instance=st.booleans())
    def leave(self, data: st.DataObject, by_instance: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        whose = "" if by_instance and client.instance_id else client.member_id
        self.group.leave(whose, client.instance_id, self.now)

    @precondition(lambda self: self.free())
    @rule(data=st.data())
    def fall_silent(self, data: st.DataObject) -> None:
        self.clients.remove(data.draw(st.sampled_from(self.free())))

    @rule(ms=st.sampled_from([1, 499, 500, 3_000, SESSION_MS, REBALANCE_MS, 10 * REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        end = self.now + ms
        for _ in range(200):
            self.now = max(self.now, min(end, self.group.deadline_ms))
            if self.group.deadline_ms > end:
                break
            self.group.advance(self.now)
            assert self.group.deadline_ms > self.now  # it does not spin
        else:
            raise AssertionError("no end")
        self.now = end

    @invariant()
    def one_generation_one_leader_one_protocol(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation
        for client in self.clients:
            joined = client.joined
            if joined is None or joined.code is not Code.NONE:
                continue
            if client.instance_id is None and joined.leader == joined.member_id:
                self.leaders.setdefault(joined.generation, set()).add(joined.leader)
                assert len(self.leaders[joined.generation]) == 1
            self.protocols.setdefault(joined.generation, set()).add(joined.protocol)
            assert len(self.protocols[joined.generation]) == 1

    @invariant()
    def everybody_gets_what_the_leader_gave_or_an_error(self) -> None:
        for client in self.clients:
            if client.synced is None or client.synced.code is not Code.NONE:
                continue
            own = f"{client.generation}/{client.instance_id or client.member_id}".encode()
            given = self.given.get(client.generation, {})
            assert client.synced.assignment == (own if own in given.values() else b"")

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        members = self.group.members.values()
        waiting = sum((m.joining is not None) + (m.syncing is not None) for m in members)
        assert waiting == sum(client.waits for client in self.clients)
        if waiting:
            assert self.group.deadline_ms < INT64_MAX

    @invariant()
    def the_protocols_of_all_members_are_counted(self) -> None:
        members = list(self.group.members.values())
        names = Counter(name for each in members for name in {name for name, _ in each.protocols})
        assert self.group._supported == names

    @invariant()
    def the_state_fits_the_members(self) -> None:
        group = self.group
        assert (group.state == "Empty") == (not group.members)
        assert len(group.members) + len(group._pending) <= LIMITS.max_members
        assert (group.leader in group.members) == bool(group.members)
        instances = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
        assert group._static == instances

    def teardown(self) -> None:
        for _ in range(30):
            self.time_passes(REBALANCE_MS)
        assert not any(client.waits for client in self.clients)
        assert self.group.idle


AnyOrder.TestCase.settings = settings(examples(300), stateful_step_count=60)
TestAnyOrder = AnyOrder.TestCase


class Cooperating(Client):
    """A client that does what clients do: join, sync, heartbeat, and begin again after an error."""

    def act(self, group: Group, now: int) -> None:
        if self.waits:
            return
        joined, synced = self.joined, self.synced
        if joined is None or joined.code is not Code.NONE:
            self.join(group, now)
        elif synced is None:
            leads = joined.leader == joined.member_id and not joined.skip_assignment
            self.sync(group, now, self.assignments() if leads else {})
        elif synced.code is not Code.NONE:
            self._begin_again(group, synced.code, now)
        else:
            code = self.heartbeat(group, now)
            if code is not Code.NONE:
                self._begin_again(group, code, now)

    def _begin_again(self, group: Group, code: Code, now: int) -> None:
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            self.member_id, self.generation = "", -1
        self.join(group, now)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.booleans()),
        st.tuples(st.sampled_from(["die", "leave", "restart"]), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.sampled_from([100, 600, 3000, 12_000, 40_000])),
    ),
    max_size=25,
)


@examples(300)
@given(STEPS)
def test_clients_that_cooperate_end_up_in_one_generation(  # noqa: C901
    steps: list[tuple[str, Any]],
) -> None:
    group, now, clients, made = Group("g", LIMITS), 0, [Cooperating()], 1

    def passes(ms: int) -> None:
        nonlocal now
        for _ in range(max(1, ms // 1000)):
            now += min(ms, 1000)
            group.advance(now)
            for client in clients:
                client.act(group, now)

    for what, how in steps:
        if what == "come" and len(clients) < LIMITS.max_members - 1:
            made += 1
            clients.append(Cooperating(f"instance-{made}" if how else None))
        elif what == "pass":
            passes(how)
        elif what in ("die", "leave") and clients:
            gone = clients.pop(how % len(clients))
            if what == "leave" and gone.member_id:
                group.leave(gone.member_id, gone.instance_id, now)
        elif what == "restart" and clients:  # a process that starts anew
            at = how % len(clients)
            clients[at] = Cooperating(clients[at].instance_id)
    passes(200_000)
    assert len(group.members) == len(clients)
    if not clients:
        assert group.state == "Empty"
        return
    assert group.state == "Stable"
    for client in clients:
        assert client.generation == group.generation
        assert client.synced is not None
        mine = f"/{client.instance_id or client.member_id}".encode()
        assert client.synced.assignment.endswith(mine)


# ---------------------------------------------------------------- rules of Kafka, one by one


def stable(*clients: Client) -> tuple[Group, int]:
    """A group of these clients with their assignments, and the time."""
    group, now = Group("g", LIMITS), 1000
    for _ in range(2):
        for client in clients:
            if not client.waits:
                client.join(group, now)
    group.advance(now := now + LIMITS.initial_delay_ms)
    for client in clients:
        leads = client.joined is not None and client.joined.members
        client.sync(group, now, client.assignments() if leads else {})
    assert group.state == "Stable"
    return group, now


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    first, second = Client(), Client()
    group, now = stable(first, second)
    first.join(group, now)
    second.join(group, now)
    follower = second if group.leader == first.member_id else first
    leader = first if follower is second else second
    leader.sync(group, now, leader.assignments())
    for at in range(now, now + REBALANCE_MS + 1, 1000):
        for client in (leader, follower):
            client.heartbeat(group, at)
        group.advance(at)
    assert follower.heartbeat(group, at) is Code.UNKNOWN_MEMBER_ID
    assert leader.heartbeat(group, at) is Code.REBALANCE_IN_PROGRESS


def alive(group: Group, now: int, ms: int, *clients: Client) -> int:
    """Time passes while these clients send heartbeats."""
    end = now + ms
    while now < end:
        now = min(end, now + 1000)
        for client in clients:
            client.heartbeat(group, now)
        group.advance(now)
        assert group.deadline_ms > now
    return now


def test_static_members_that_dawdle_keep_their_place_but_do_not_lead() -> None:
    """The leader is one of those who joined, as it is told so; the others are still members."""
    first, second = Client("one"), Client("two")
    group, now = stable(first, second)
    leader, follower = (first, second) if group.leader == first.member_id else (second, first)
    third = Client()
    third.join(group, now)
    third.join(group, now)
    follower.join(group, now)
    now = alive(group, now, REBALANCE_MS, leader)
    assert {follower.generation, third.generation} == {2}
    assert leader.member_id in group.members
    assert group.leader in (follower.member_id, third.member_id)
    told = [client.joined for client in (follower, third)]
    assert sum(bool(joined and joined.members) for joined in told) == 1


def test_a_rebalance_that_no_static_member_joins_goes_on() -> None:
    first, second, third = Client("one"), Client("two"), Client()
    group, now = stable(first, second)
    third.join(group, now)
    third.join(group, now)
    group.leave(third.member_id, None, now)
    now = alive(group, now, 2 * REBALANCE_MS, first, second)
    assert group.state == "PreparingRebalance"
    first.join(group, now)
    second.join(group, now)
    assert {first.generation, second.generation} == {2}


def test_rebalance_waits_for_a_member_that_was_given_an_id() -> None:
    first, second = Client(), Client()
    group, now = stable(first)
    second.join(group, now)
    first.join(group, now)
    assert first.waits
    second.join(group, now)
    assert {first.generation, second.generation} == {2}


def test_a_member_that_waited_long_for_its_assignment_is_not_gone() -> None:
    first, second, third = Client(), Client(), Client()
    group, now = stable(first, second)
    first.join(group, now)
    second.join(group, now)
    leads = group.leader == first.member_id
    leader, follower = (first, second) if leads else (second, first)
    follower.sync(group, now, {})
    now = alive(group, now, 2 * SESSION_MS, leader)
    assert follower.waits
    third.join(group, now)
    third.join(group, now)
    assert follower.synced == SyncResponse(Code.REBALANCE_IN_PROGRESS)
    group.advance(now + SESSION_MS - 1)
    assert follower.member_id in group.members


def test_a_member_that_wants_something_else_starts_a_rebalance() -> None:
    first, second = Client(), Client()
    group, now = stable(first, second)
    follower = second if group.leader == first.member_id else first
    follower.join(group, now, BOTH)
    assert not follower.waits  # its answer had got lost
    assert follower.generation == 1
    follower.join(group, now, BOTH[::-1])
    assert follower.waits
    assert group.state == "PreparingRebalance"
    assert {member.assignment for member in group.members.values()} == {b""}


def test_a_static_member_comes_back_to_its_place() -> None:
    first, second = Client("one"), Client("two")
    group, now = stable(first, second)
    for old in (first, second):
        new = Client(old.instance_id)
        new.join(group, now)
        assert new.joined is not None
        assert new.joined.code is Code.NONE
        assert new.generation == 1  # no rebalance
        assert new.joined.skip_assignment == bool(new.joined.members)
        new.sync(group, now, {})
        assert new.synced is not None
        assert old.synced is not None
        assert new.synced.assignment == old.synced.assignment
        assert old.heartbeat(group, now) is Code.FENCED_INSTANCE_ID
    assert group.state == "Stable"


def test_a_full_group_takes_nobody() -> None:
    clients = [Client() for _ in range(LIMITS.max_members)]
    group, now = stable(*clients)
    late = Client()
    late.join(group, now)
    assert late.joined == JoinResponse(Code.GROUP_MAX_SIZE_REACHED)


def test_the_protocol_that_most_like_best_is_taken() -> None:
    group, clients = Group("g", LIMITS), [Client() for _ in range(3)]
    for client, protocols in zip(clients, [BOTH[::-1], BOTH, BOTH[::-1]], strict=True):
        client.join(group, 0, protocols, needs_member_id=False)
    group.advance(LIMITS.initial_delay_ms)
    assert group.protocol == "sticky"
