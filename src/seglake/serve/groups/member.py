"""A member of a consumer group, its requests and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from seglake.limits import INT64_MAX
from seglake.serve.codes import Code

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first


class Join(NamedTuple):
    """JoinGroup. Times in ms; `needs_member_id`: from version 4 on a new member joins twice."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    can_skip_assignment: bool = True  # from version 9 on


class Joined(NamedTuple):
    """The answer to a join; the leader alone gets members: id, instance id, metadata."""

    code: Code
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class Sync(NamedTuple):
    """SyncGroup; assignments by member id come from the leader."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = {}


class Synced(NamedTuple):
    """The answer to a sync."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[Joined], None]
SyncReply = Callable[[Synced], None]


class Member:
    """A member: its ids, its timeouts, its assignment, and the answers that it waits for."""

    def __init__(self, member_id: str, ask: Join, now_ms: int) -> None:
        self.member_id, self.instance_id = member_id, ask.instance_id
        self.client_id, self.client_host = ask.client_id, ask.client_host
        self.take(ask)
        self.assignment = b""
        self.joining: JoinReply | None = None
        self.syncing: SyncReply | None = None
        self.synced = False  # in this generation
        self._seen_ms = now_ms

    def take(self, ask: Join) -> None:
        """Take over what a member may change when it joins again."""
        self.session_timeout_ms = ask.session_timeout_ms
        self.rebalance_timeout_ms = max(0, ask.rebalance_timeout_ms) or ask.session_timeout_ms
        self.protocols = ask.protocols

    @property
    def protocol_names(self) -> set[str]:
        """The names of its protocols."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def seen(self, now_ms: int) -> None:
        """Note a sign of life."""
        self._seen_ms = now_ms

    @property
    def expires_ms(self) -> int:
        """The time at which its session ends; INT64_MAX while it waits for an answer."""
        if self.joining is not None or self.syncing is not None:
            return INT64_MAX
        return self._seen_ms + self.session_timeout_ms

    def replace_joining(self, reply: JoinReply) -> None:
        """Wait with a new join; an older one is answered with an error."""
        self.answer_join(Joined(Code.UNKNOWN_MEMBER_ID, member_id=self.member_id))
        self.joining = reply

    def replace_syncing(self, reply: SyncReply) -> None:
        """Wait with a new sync; an older one is answered with an error."""
        self.answer_sync(Synced(Code.REBALANCE_IN_PROGRESS))
        self.syncing = reply

    def answer_join(self, answer: Joined) -> None:
        """Answer the join that waits, if one does."""
        reply, self.joining = self.joining, None
        if reply is not None:
            reply(answer)

    def answer_sync(self, answer: Synced) -> None:
        """Answer the sync that waits, if one does."""
        reply, self.syncing = self.syncing, None
        if reply is not None:
            reply(answer)

    def answer_all(self, code: Code) -> None:
        """Answer whatever waits with an error."""
        self.answer_join(Joined(code, member_id=self.member_id))
        self.answer_sync(Synced(code))
