"""Requests about consumer groups, as a test makes them, and their answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from tests.harness.lake_server import Wire

Place = tuple[str, int]  # topic and partition


def join(
    wire: Wire, group: str, version: int, *, protocols: Mapping[str, bytes], member_id: str = "",
    instance: str | None = None, session_ms: int = 10_000, kind: str = "consumer",
) -> Any:  # fmt: skip
    """Return the answer to a join with these protocols and their metadata."""
    one = JoinGroupRequest.JoinGroupRequestProtocol
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=session_ms, rebalance_timeout_ms=10_000,
        member_id=member_id, group_instance_id=instance, protocol_type=kind, reason=None,
        protocols=[one(name=name, metadata=data) for name, data in protocols.items()],
    )  # fmt: skip
    return wire.ask(request, JoinGroupResponse, version)


def sync(
    wire: Wire, group: str, member_id: str, generation: int, version: int, *,
    given: Mapping[str, bytes], instance: str | None = None, kind: str = "consumer",
    name: str = "range",
) -> Any:  # fmt: skip
    """Return the answer to a sync. `given` are assignments by member id."""
    one = SyncGroupRequest.SyncGroupRequestAssignment
    request = SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance,
        protocol_type=kind, protocol_name=name,
        assignments=[one(member_id=member, assignment=data) for member, data in given.items()],
    )  # fmt: skip
    return wire.ask(request, SyncGroupResponse, version)


def heartbeat(
    wire: Wire, group: str, member_id: str, generation: int, version: int = 4,
    instance: str | None = None,
) -> int:  # fmt: skip
    """Return the error code of a heartbeat."""
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )
    return int(wire.ask(request, HeartbeatResponse, version).error_code)


def leave(wire: Wire, group: str, member_id: str, version: int, instance: str | None = None) -> Any:
    """Return the answer to one member's leave."""
    one = LeaveGroupRequest.MemberIdentity
    members = [one(member_id=member_id, group_instance_id=instance, reason=None)]
    request = LeaveGroupRequest(group_id=group, member_id=member_id, members=members)
    return wire.ask(request, LeaveGroupResponse, version)


def commit(
    wire: Wire, group: str, offsets: Mapping[Place, tuple[int, str | None]], version: int, *,
    member_id: str = "", generation: int = -1, instance: str | None = None, epoch: int = -1,
) -> dict[Place, int]:  # fmt: skip
    """Commit offsets with their metadata. Return the error codes."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition
    topics = [
        topic(name=name, partitions=[
            part(partition_index=number, committed_offset=offset, committed_leader_epoch=epoch,
                 committed_metadata=metadata)
        ])
        for (name, number), (offset, metadata) in offsets.items()
    ]  # fmt: skip
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
        group_instance_id=instance, topics=topics, retention_time_ms=-1,
    )  # fmt: skip
    answer = wire.ask(request, OffsetCommitResponse, version)
    return {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def fetch(wire: Wire, group: str, version: int, asked: list[int] | None) -> Any:
    """Return what is committed for partitions of the topic `events`, or for all of all topics."""
    if version < 8:
        one = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if asked is None else [one(name="events", partition_indexes=asked)]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=False)
        return wire.ask(request, OffsetFetchResponse, version)
    each = OffsetFetchRequest.OffsetFetchRequestGroup
    of_group = each.OffsetFetchRequestTopics
    topics = None if asked is None else [of_group(name="events", partition_indexes=asked)]
    groups = [each(group_id=group, topics=topics, member_id=None, member_epoch=-1)]
    request = OffsetFetchRequest(groups=groups, require_stable=False)
    (found,) = wire.ask(request, OffsetFetchResponse, version).groups
    return found


def describe(wire: Wire, group: str, version: int) -> Any:
    """Return the description of a group."""
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    (found,) = wire.ask(request, DescribeGroupsResponse, version).groups
    return found


def listed(
    wire: Wire, states: Sequence[str] = (), types: Sequence[str] = (), version: int = 5
) -> Any:
    """Return the groups that are listed."""
    request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
    return wire.ask(request, ListGroupsResponse, version).groups


def delete(wire: Wire, group: str) -> int:
    """Return the error code of a group's deletion."""
    request = DeleteGroupsRequest(groups_names=[group])
    return int(wire.ask(request, DeleteGroupsResponse, 2).results[0].error_code)
