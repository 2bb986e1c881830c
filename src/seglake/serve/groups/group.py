"""One consumer group as a state machine: the classic protocol (KIP-62, 134, 345, 394).

It has no clock and no connection. Callers pass times, in ms of any monotonic clock. JoinGroup and
SyncGroup are answered, now or later, by one call of the request's `reply`. Rules and error codes
come from Kafka's `ClassicGroup` and `GroupMetadataManager`.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance
      ▲                 ▲      ▲                                            │ leader's assignment
      │ nobody left     │      └───── join, leave, session timeout ─────────┤
      └─────────────────┴──────────────────────────────────────── Stable ◀──┘
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from seglake.limits import INT64_MAX
from seglake.serve.codes import Code
from seglake.serve.settings import Groups


class Group:
    """The members of a group, and the requests that wait for an answer."""

    def __init__(self, group_id: str, limits: Groups) -> None:
        self.group_id, self._limits = group_id, limits
        self.state = "Empty"
        self.generation = self.logged_generation = 0  # The coordinator sets the second one.
        self.protocol_type = self.protocol = ""
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._supported = Counter[str]()  # members that support a protocol, by its name
        self._static: dict[str, str] = {}  # instance id: member id
        self._pending: dict[str, int] = {}  # id of a new member: when it expires
        self._rebalance_ends_ms = INT64_MAX
        self._waits_for_more = False  # The first rebalance lasts for the initial delay.
        self._latest_end_ms = 0  # the latest end of that rebalance, however many members join
        self._sync_ends_ms = INT64_MAX

    # ---------------------------------------------------------------- requests

    def join(self, ask: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        """Join a member. The answer is sent at the end of the rebalance that it starts or joins."""
        code = self._refusal(ask)
        if code is not Code.NONE:
            reply(JoinResponse(code, member_id=ask.member_id))
        elif ask.member_id:
            self._join_again(ask, now_ms, reply)
        elif ask.instance_id is not None:
            self._join_static(ask, now_ms, reply)
        elif ask.needs_member_id:  # KIP-394
            member_id = _new_id(ask.client_id)
            self._pending[member_id] = now_ms + ask.session_timeout_ms
            reply(JoinResponse(Code.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._add(_new_id(ask.client_id), ask, now_ms, reply)

    def sync(self, ask: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        """Request an assignment. The answer is sent when the leader has sent assignments."""
        code = self._sync_refusal(ask)
        if code is not Code.NONE:
            reply(SyncResponse(code))
            return
        member = self.members[ask.member_id]
        member.seen(now_ms)
        member.synced = True
        if self.state == "Stable":
            reply(self._assigned(member))
        else:
            member.replace_syncing(reply)
            if member.member_id == self.leader:
                self._assign(ask.assignments, now_ms)
        if all(each.synced for each in self.members.values()):
            self._sync_ends_ms = INT64_MAX

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Code:
        """Note that a member is alive. After REBALANCE_IN_PROGRESS it must join again."""
        code = self._not_ours(member_id, instance_id, generation)
        if code is Code.NONE:
            self.members[member_id].seen(now_ms)
            if self.state == "PreparingRebalance":
                return Code.REBALANCE_IN_PROGRESS
        return code

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> Code:
        """Remove one member, by its id, or only by its instance id."""
        if self._pending.pop(member_id, None) is not None:
            self._complete_if_all_joined(now_ms)
            return Code.NONE
        if instance_id is not None and not member_id:
            member_id = self._static.get(instance_id, "")
        code = self._not_ours(member_id, instance_id, None)
        if code is Code.NONE:
            self._remove(self.members[member_id], now_ms)
        return code

    def may_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Code:
        """Return NONE or an error. Members may commit. Without members, any client may commit."""
        if generation < 0 and not self.members:
            return Code.NONE
        code = self._not_ours(member_id, instance_id, generation)
        if code is not Code.NONE:
            return code
        self.members[member_id].seen(now_ms)
        return Code.REBALANCE_IN_PROGRESS if self.state == "CompletingRebalance" else Code.NONE

    # ---------------------------------------------------------------- time

    @property
    def deadline_ms(self) -> int:
        """Return the time at which to call `advance`, or INT64_MAX if no call is needed."""
        ends = [self._rebalance_ends_ms, self._sync_ends_ms, *self._pending.values()]
        ends += [member.expires_ms for member in self.members.values()]
        return min(ends)

    def advance(self, now_ms: int) -> None:
        """Remove members whose sessions expired, and end rebalances whose time is over."""
        for member_id in [each for each, end in self._pending.items() if end <= now_ms]:
            del self._pending[member_id]
        for member in [each for each in self.members.values() if each.expires_ms <= now_ms]:
            if member.member_id in self.members:
                self._remove(member, now_ms)
        if self._sync_ends_ms <= now_ms:
            self._sync_ends_ms = INT64_MAX
            for member in [each for each in self.members.values() if not each.synced]:
                self._remove(member, now_ms)
        if self._rebalance_ends_ms <= now_ms:
            self._complete(now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    @property
    def idle(self) -> bool:
        """Return whether the group has no members and no pending ids of new members."""
        return not self.members and not self._pending

    # ---------------------------------------------------------------- joining

    def _refusal(self, ask: JoinRequest) -> Code:
        if not self._limits.min_session_ms <= ask.session_timeout_ms <= self._limits.max_session_ms:
            return Code.INVALID_SESSION_TIMEOUT
        if not self._fits(ask):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        is_member = ask.member_id in self.members or ask.instance_id in self._static
        taken = len(self.members) + len(self._pending) - (ask.member_id in self._pending)
        if not is_member and taken >= self._limits.max_members:
            return Code.GROUP_MAX_SIZE_REACHED
        return Code.NONE

    def _fits(self, ask: JoinRequest) -> bool:
        """Return whether the joining member shares a protocol with all members."""
        if not ask.protocol_type or not ask.protocols:
            return False
        if not self.members:
            return True
        return ask.protocol_type == self.protocol_type and any(
            self._is_shared(name) for name, _ in ask.protocols
        )

    def _is_shared(self, protocol: str) -> bool:
        return self._supported[protocol] == len(self.members)

    def _join_again(self, ask: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        """Join with the id of a current member, or with the pending id of a new member."""
        if self._pending.pop(ask.member_id, None) is not None:
            self._add(ask.member_id, ask, now_ms, reply)
            return
        code = self._not_ours(ask.member_id, ask.instance_id, None)
        if code is not Code.NONE:
            reply(JoinResponse(code, member_id=ask.member_id))
            return
        member = self.members[ask.member_id]
        same = member.protocols == ask.protocols
        leads = member.member_id == self.leader
        settled = self.state == "Stable" and not leads
        self._count(member, -1)
        member.take(ask)
        self._count(member, 1)
        member.seen(now_ms)
        if same and (settled or self.state == "CompletingRebalance"):
            reply(self._joined(member))  # The first answer was lost.
            return
        member.replace_joining(reply)
        self._prepare(now_ms)

    def _join_static(self, ask: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        """Join a static member. A returning instance replaces its old member (KIP-345)."""
        instance = str(ask.instance_id)
        before = self.members.get(self._static.get(instance, ""))
        if before is None:
            self._add(_new_id(instance), ask, now_ms, reply)
            return
        after = Member(_new_id(instance), ask, now_ms)
        after.assignment, after.synced = before.assignment, before.synced
        led = self.leader == before.member_id
        del self.members[before.member_id]
        self._count(before, -1)
        self.members[after.member_id] = after
        self._count(after, 1)
        self._static[instance] = after.member_id
        before.answer_all(Code.FENCED_INSTANCE_ID)
        if led:
            self.leader = after.member_id
        if self.state == "Stable" and before.metadata(self.protocol) == after.metadata(
            self.protocol
        ):
            reply(self._joined_in_place(after, before, ask))
            return
        after.replace_joining(reply)
        self._prepare(now_ms)

    def _joined_in_place(self, after: Member, before: Member, ask: JoinRequest) -> JoinResponse:
        """Return the answer to a static member that joins again without any change (KIP-814)."""
        answer = self._joined(after)
        if self.leader != after.member_id or ask.can_skip_assignment:
            return answer._replace(skip_assignment=self.leader == after.member_id)
        return answer._replace(leader=before.member_id, members=())  # it must not assign

    def _add(self, member_id: str, ask: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        if not self.members:
            self.protocol_type = ask.protocol_type
        member = Member(member_id, ask, now_ms)
        self.members[member_id] = member
        self._count(member, 1)
        if ask.instance_id is not None:
            self._static[ask.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        member.replace_joining(reply)
        if self._waits_for_more:
            soon = now_ms + self._limits.initial_delay_ms
            self._rebalance_ends_ms = min(soon, self._latest_end_ms)
        self._prepare(now_ms)

    def _count(self, member: Member, by: int) -> None:
        """Count the protocols of a member that joins (1) or leaves (-1)."""
        for name in {name for name, _ in member.protocols}:
            self._supported[name] += by
            if not self._supported[name]:
                del self._supported[name]

    def _not_ours(self, member_id: str, instance_id: str | None, generation: int | None) -> Code:
        """Return NONE for a request of a member in this generation, else the error."""
        if instance_id is not None and instance_id in self._static:
            if self._static[instance_id] != member_id:
                return Code.FENCED_INSTANCE_ID
        elif instance_id is not None:
            return Code.UNKNOWN_MEMBER_ID
        if member_id not in self.members:
            return Code.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return Code.NONE

    # ---------------------------------------------------------------- rebalance

    def _prepare(self, now_ms: int) -> None:
        """Start a rebalance, unless one is in progress: wait for every member to join."""
        if self.state != "PreparingRebalance":
            for member in self.members.values():
                member.assignment = b""
                if member.syncing is not None:
                    member.seen(now_ms)
                    member.answer_sync(SyncResponse(Code.REBALANCE_IN_PROGRESS))
            timeout_ms = max(each.rebalance_timeout_ms for each in self.members.values())
            self._waits_for_more = self.state == "Empty"
            self._latest_end_ms = now_ms + timeout_ms
            delay_ms = min(timeout_ms, self._limits.initial_delay_ms)
            self._rebalance_ends_ms = now_ms + (delay_ms if self._waits_for_more else timeout_ms)
            self._sync_ends_ms = INT64_MAX
            self.state = "PreparingRebalance"
        self._complete_if_all_joined(now_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        if self.state != "PreparingRebalance" or self._waits_for_more:
            return
        if all(each.joining is not None for each in self.members.values()) and not self._pending:
            self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """End the rebalance with the members that joined. Static members stay members."""
        for member in [each for each in self.members.values() if each.joining is None]:
            if member.instance_id is None:
                self._forget(member)
        joined = [each for each in self.members.values() if each.joining is not None]
        if self.members and not joined:  # All members are static, and none has returned yet.
            timeout_ms = max(each.rebalance_timeout_ms for each in self.members.values())
            self._rebalance_ends_ms = now_ms + timeout_ms
            return
        if not joined:
            self._end_generation()
            return
        self._rebalance_ends_ms, self._waits_for_more = INT64_MAX, False
        self.generation += 1
        if self.leader not in {each.member_id for each in joined}:
            self.leader = joined[0].member_id
        self.protocol = self._voted()
        self.state = "CompletingRebalance"
        self._sync_ends_ms = now_ms + max(each.rebalance_timeout_ms for each in joined)
        for member in self.members.values():
            member.synced = False
        for member in joined:
            member.seen(now_ms)
            member.answer_join(self._joined(member))

    def _voted(self) -> str:
        """Return the protocol that most members prefer, among those that all members support."""
        votes = Counter(
            next(name for name, _ in each.protocols if self._is_shared(name))
            for each in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _joined(self, member: Member) -> JoinResponse:
        leads = member.member_id == self.leader
        members = [
            (each.member_id, each.instance_id, each.metadata(self.protocol))
            for each in self.members.values()
        ]
        return JoinResponse(
            Code.NONE, self.generation, self.protocol_type, self.protocol, self.leader or "",
            member.member_id, tuple(members) if leads else (),
        )  # fmt: skip

    # ---------------------------------------------------------------- assignment

    def _sync_refusal(self, ask: SyncRequest) -> Code:
        code = self._not_ours(ask.member_id, ask.instance_id, ask.generation)
        if code is not Code.NONE:
            return code
        if ask.protocol_type not in (None, self.protocol_type):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if ask.protocol not in (None, self.protocol):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.REBALANCE_IN_PROGRESS if self.state == "PreparingRebalance" else Code.NONE

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Send the leader's assignments. A member without an assignment gets an empty one."""
        self.state = "Stable"
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                member.seen(now_ms)
                member.answer_sync(self._assigned(member))

    def _assigned(self, member: Member) -> SyncResponse:
        return SyncResponse(Code.NONE, self.protocol_type, self.protocol, member.assignment)

    # ---------------------------------------------------------------- leaving

    def _forget(self, member: Member) -> None:
        del self.members[member.member_id]
        self._count(member, -1)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _remove(self, member: Member, now_ms: int) -> None:
        self._forget(member)
        member.answer_all(Code.UNKNOWN_MEMBER_ID)
        if self.state in ("Stable", "CompletingRebalance") and self.members:
            self._prepare(now_ms)
        elif not self.members and self.state != "Empty":
            self._end_generation()
        else:
            self._complete_if_all_joined(now_ms)

    def _end_generation(self) -> None:
        self.generation += 1
        self.state, self.protocol, self.leader = "Empty", "", None
        self._rebalance_ends_ms = self._sync_ends_ms = INT64_MAX
        self._waits_for_more = False


def _new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"


# ---------------- member
# A member of a consumer group, its requests and their answers.

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first


class JoinRequest(NamedTuple):
    """A JoinGroup request. Times are in ms. With `needs_member_id`, a new member joins twice."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    can_skip_assignment: bool = True  # since version 9


class JoinResponse(NamedTuple):
    """The answer to a join. Only the leader gets members: id, instance id, metadata."""

    code: Code
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup request. The leader's request has the assignments by member id."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncResponse(NamedTuple):
    """The answer to a sync."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinResponse], None]
SyncReply = Callable[[SyncResponse], None]


class Member:
    """A member: its ids, timeouts, assignment, and requests that wait for an answer."""

    def __init__(self, member_id: str, ask: JoinRequest, now_ms: int) -> None:
        self.member_id, self.instance_id = member_id, ask.instance_id
        self.client_id, self.client_host = ask.client_id, ask.client_host
        self.take(ask)
        self.assignment = b""
        self.joining: JoinReply | None = None
        self.syncing: SyncReply | None = None
        self.synced = False  # in this generation
        self._seen_ms = now_ms

    def take(self, ask: JoinRequest) -> None:
        """Replace the values that a member may change when it joins again."""
        self.session_timeout_ms = ask.session_timeout_ms
        self.rebalance_timeout_ms = max(0, ask.rebalance_timeout_ms) or ask.session_timeout_ms
        self.protocols = ask.protocols

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def seen(self, now_ms: int) -> None:
        """Note that the member is alive."""
        self._seen_ms = now_ms

    @property
    def expires_ms(self) -> int:
        """Return the time at which its session ends, INT64_MAX while it waits for an answer."""
        if self.joining is not None or self.syncing is not None:
            return INT64_MAX
        return self._seen_ms + self.session_timeout_ms

    def replace_joining(self, reply: JoinReply) -> None:
        """Keep a join until it is answered. Answer an older join that still waits with an error."""
        self.answer_join(JoinResponse(Code.UNKNOWN_MEMBER_ID, member_id=self.member_id))
        self.joining = reply

    def replace_syncing(self, reply: SyncReply) -> None:
        """Store a new sync until its answer. Answer an older waiting sync with an error."""
        self.answer_sync(SyncResponse(Code.REBALANCE_IN_PROGRESS))
        self.syncing = reply

    def answer_join(self, answer: JoinResponse) -> None:
        """Answer the waiting join, if any."""
        reply, self.joining = self.joining, None
        if reply is not None:
            reply(answer)

    def answer_sync(self, answer: SyncResponse) -> None:
        """Answer the waiting sync, if any."""
        reply, self.syncing = self.syncing, None
        if reply is not None:
            reply(answer)

    def answer_all(self, code: Code) -> None:
        """Answer the waiting requests with an error."""
        self.answer_join(JoinResponse(code, member_id=self.member_id))
        self.answer_sync(SyncResponse(code))
