"""Answer requests of groups: convert kafka-python's requests to calls of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import groups as admin
from kafka.protocol.consumer import group as consumer
from kafka.protocol.metadata import find_coordinator as find

from seglake.serve.api import NODE, Api, in_turns
from seglake.serve.codes import Code
from seglake.serve.groups.coordinator import Coordinator, GroupListing
from seglake.serve.groups.group import JoinRequest, SyncRequest
from seglake.serve.groups.offsets import CommittedOffset, Where
from seglake.serve.settings import Address
from seglake.serve.topics.catalog import ServedTopics

if TYPE_CHECKING:
    from seglake.serve.connection import Connection

_GROUP, _TRANSACTION = 0, 1  # key types of FindCoordinator
_COORDINATOR_ERRORS = {_GROUP: Code.NONE, _TRANSACTION: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_NOTHING = CommittedOffset(-1)


class GroupApis:
    """Answers the requests of group members, and of clients that manage groups."""

    def __init__(
        self, groups: Coordinator, topics: ServedTopics, address: Address, metadata_bytes: int
    ) -> None:
        self._groups, self._topics, self._address = groups, topics, address
        self._metadata_bytes = metadata_bytes

    def apis(self) -> list[Api]:
        """Return the APIs of groups, each with its supported versions."""
        return [
            Api(find.FindCoordinatorRequest, 0, 6, self.find_coordinator),
            Api(consumer.JoinGroupRequest, 0, 9, self.join),
            Api(consumer.SyncGroupRequest, 0, 5, self.sync),
            Api(consumer.HeartbeatRequest, 0, 4, self.heartbeat),
            Api(consumer.LeaveGroupRequest, 0, 5, self.leave),
            Api(consumer.OffsetCommitRequest, 2, 9, self.commit),
            Api(consumer.OffsetFetchRequest, 1, 9, self.fetch),
            Api(consumer.OffsetDeleteRequest, 0, 0, self.forget),
            Api(admin.ListGroupsRequest, 0, 5, self.list),
            Api(admin.DescribeGroupsRequest, 0, 6, self.describe),
            Api(admin.DeleteGroupsRequest, 0, 2, self.delete),
        ]

    # ---------------------------------------------------------------- members

    async def find_coordinator(self, request: Any, connection: Connection) -> Any:
        """Answer FindCoordinator, versions 0 to 6: this server coordinates every group.

        Key types exist since version 1, several keys since version 4. For transactions the answer
        is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, for other key types INVALID_REQUEST.
        """
        code = _COORDINATOR_ERRORS.get(request.key_type, Code.INVALID_REQUEST)
        node_id, (host, port), why = NODE, self._address, None
        if code:
            node_id, host, port = -1, "", -1
            why = "this server is read-only and supports only consumer groups"
        if connection.version < 4:
            return find.FindCoordinatorResponse(
                error_code=code, error_message=why, node_id=node_id, host=host, port=port
            )
        keys = in_turns(request.coordinator_keys)
        return find.FindCoordinatorResponse(
            coordinators=[(key, node_id, host, port, code, why) async for key in keys]
        )

    async def join(self, request: Any, connection: Connection) -> Any:
        """Answer JoinGroup, versions 0 to 9. The answer is sent when the rebalance ends.

        Rebalance timeouts exist since version 1. Since 4 a new member joins twice (KIP-394).
        Static members exist since version 5, null protocols since 7, skipped assignments since 9.
        """
        version = connection.version
        ask = JoinRequest(
            request.member_id, request.group_instance_id, connection.client_id or "",
            f"/{connection.host}", request.session_timeout_ms, request.rebalance_timeout_ms,
            request.protocol_type,
            tuple((each.name, bytes(each.metadata)) for each in request.protocols),
            needs_member_id=version >= 4, can_skip_assignment=version >= 9,
        )  # fmt: skip
        answer = await self._groups.join(request.group_id, ask)
        connection.count_error(answer.code)
        protocol = answer.protocol if version >= 7 else answer.protocol or ""
        return consumer.JoinGroupResponse(
            error_code=answer.code, generation_id=answer.generation, protocol_name=protocol,
            protocol_type=answer.protocol_type, leader=answer.leader,
            skip_assignment=answer.skip_assignment, member_id=answer.member_id,
            members=[
                consumer.JoinGroupResponse.JoinGroupResponseMember(
                    member_id=member_id, group_instance_id=instance, metadata=metadata
                )
                for member_id, instance, metadata in answer.members
            ],
        )  # fmt: skip

    async def sync(self, request: Any, connection: Connection) -> Any:
        """Answer SyncGroup, versions 0 to 5, when the leader has sent assignments.

        Static members exist since version 3. Since version 5 the protocol is checked.
        """
        ask = SyncRequest(
            request.member_id, request.group_instance_id, request.generation_id,
            request.protocol_type, request.protocol_name,
            {each.member_id: bytes(each.assignment) for each in request.assignments},
        )  # fmt: skip
        answer = await self._groups.sync(request.group_id, ask)
        connection.count_error(answer.code)
        return consumer.SyncGroupResponse(
            error_code=answer.code, protocol_type=answer.protocol_type,
            protocol_name=answer.protocol, assignment=answer.assignment,
        )  # fmt: skip

    async def heartbeat(self, request: Any, connection: Connection) -> Any:
        """Answer Heartbeat, versions 0 to 4. Static members exist since version 3."""
        code = self._groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        connection.count_error(code)
        return consumer.HeartbeatResponse(error_code=code)

    async def leave(self, request: Any, connection: Connection) -> Any:
        """Answer LeaveGroup, versions 0 to 5. Since version 3, several members can leave."""
        if connection.version < 3:
            code = self._groups.leave(request.group_id, request.member_id, None)
            connection.count_error(code)
            return consumer.LeaveGroupResponse(error_code=code)
        members = [
            (each.member_id, each.group_instance_id,
             self._groups.leave(request.group_id, each.member_id, each.group_instance_id))
            async for each in in_turns(request.members)
        ]  # fmt: skip
        return consumer.LeaveGroupResponse(error_code=Code.NONE, members=members)

    # ---------------------------------------------------------------- offsets

    async def commit(self, request: Any, connection: Connection) -> Any:
        """Answer OffsetCommit, versions 2 to 9. Commit the valid offsets of a request in one step.

        Leader epochs exist since version 6, static members since version 7. Retention times, which
        end with version 4, have no effect. Offsets are kept until a client deletes them.
        """
        may = self._groups.may_commit(
            request.group_id, request.member_id, request.group_instance_id,
            request.generation_id_or_member_epoch,
        )  # fmt: skip
        codes = dict[Where, Code]()
        offsets = dict[Where, CommittedOffset]()
        async for topic in in_turns(request.topics):
            count = self._topics.partition_count(topic.name) or 0
            async for part in in_turns(topic.partitions):
                where, metadata = (topic.name, part.partition_index), part.committed_metadata or ""
                codes[where] = may or self._partition_code(where, count, metadata)
                if codes[where] is Code.NONE:
                    offsets[where] = CommittedOffset(
                        part.committed_offset, part.committed_leader_epoch, metadata
                    )
        code = await self._groups.commit(request.group_id, offsets)
        codes |= dict.fromkeys(offsets, code)
        for each in codes.values():
            connection.count_error(each)
        return consumer.OffsetCommitResponse(topics=_by_topic(codes))

    def _partition_code(self, where: Where, count: int, metadata: str) -> Code:
        if not 0 <= where[1] < count:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if len(metadata.encode()) > self._metadata_bytes:
            return Code.OFFSET_METADATA_TOO_LARGE
        return Code.NONE

    async def fetch(self, request: Any, connection: Connection) -> Any:
        """Answer OffsetFetch, versions 1 to 9. Since version 8, it can name several groups.

        Since version 2, null requests all topics.
        """
        response = consumer.OffsetFetchResponse
        if connection.version < 8:
            code, offsets = await self._fetched(request.group_id, request.topics)
            connection.count_error(code)
            topics = await _offsets(offsets, response.OffsetFetchResponseTopic)
            return response(error_code=code, topics=topics)
        groups = []
        once = {each.group_id: each for each in request.groups}
        async for each in in_turns(once.values()):
            code, offsets = await self._fetched(each.group_id, each.topics)
            connection.count_error(code)
            group = response.OffsetFetchResponseGroup
            topics = await _offsets(offsets, group.OffsetFetchResponseTopics)
            groups.append(group(group_id=each.group_id, topics=topics, error_code=code))
        return response(groups=groups)

    async def _fetched(
        self, group_id: str, asked: Any
    ) -> tuple[Code, dict[Where, CommittedOffset]]:
        """Return a code, and the requested committed offsets (-1 where a partition has none)."""
        wheres = asked and [(each.name, part) for each in asked for part in each.partition_indexes]
        offsets = await self._groups.committed(group_id)
        if isinstance(offsets, Code):
            return offsets, {}
        if wheres is not None:
            offsets = {where: offsets.get(where, _NOTHING) for where in wheres}
        async for where, each in in_turns(offsets.items()):
            # An erasure may have removed the last records of a window, so that it ends earlier.
            limit = None if each is _NOTHING else await self._topics.limit(*where)
            if limit is not None and each.offset > limit:
                offsets[where] = each._replace(offset=limit)
        return Code.NONE, offsets

    async def forget(self, request: Any, connection: Connection) -> Any:
        """Answer OffsetDelete, version 0. Refuse a group with members, see `Coordinator.forget`."""
        wheres = [(t.name, part.partition_index) for t in request.topics for part in t.partitions]
        code = await self._groups.forget(request.group_id, wheres)
        connection.count_error(code)
        done = dict.fromkeys(wheres, Code.NONE) if code is Code.NONE else {}
        return consumer.OffsetDeleteResponse(error_code=code, topics=_by_topic(done))

    # ---------------------------------------------------------------- administration

    async def list(self, request: Any, _: Connection) -> Any:
        """Answer ListGroups, versions 0 to 5.

        Version 4 added a filter of states, version 5 a filter of types. Every group is of the type
        "classic".
        """
        listed = await self._groups.listed()
        if isinstance(listed, Code):
            return admin.ListGroupsResponse(error_code=listed, groups=[])
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        one = admin.ListGroupsResponse.ListedGroup
        groups = [
            one(group_id=each.group_id, protocol_type=each.protocol_type,
                group_state=each.state, group_type="classic")
            async for each in in_turns(listed)
            if (not states or each.state.lower() in states) and (not types or "classic" in types)
        ]  # fmt: skip
        return admin.ListGroupsResponse(error_code=Code.NONE, groups=groups)

    async def describe(self, request: Any, connection: Connection) -> Any:
        """Answer DescribeGroups, versions 0 to 6. An unknown group is Dead, an error in 6."""
        listed, listings = await self._groups.listed(), dict[str, GroupListing]()
        missing = Code.GROUP_ID_NOT_FOUND if connection.version >= 6 else Code.NONE
        if isinstance(listed, Code):
            missing = listed
        else:
            listings = {each.group_id: each for each in listed}
        groups = [
            _described(each, listings.get(each), Code.NONE if each in listings else missing)
            async for each in in_turns(dict.fromkeys(request.groups))
        ]
        return admin.DescribeGroupsResponse(groups=groups)

    async def delete(self, request: Any, connection: Connection) -> Any:
        """Answer DeleteGroups, versions 0 to 2. A group that has members is not deleted."""
        results = [
            (each, await self._groups.forget(each, None))
            async for each in in_turns(dict.fromkeys(request.groups_names))
        ]
        for _, code in results:
            connection.count_error(code)
        return admin.DeleteGroupsResponse(results=results)


def _by_topic(codes: Mapping[Where, Code]) -> list[tuple[str, list[tuple[int, Code]]]]:
    topics = dict[str, list[tuple[int, Code]]]()
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append((partition, code))
    return list(topics.items())


async def _offsets(offsets: Mapping[Where, CommittedOffset], topic_class: Any) -> list[Any]:
    """Convert committed offsets to topics of a response. `topic_class` depends on the version."""
    part = getattr(topic_class, topic_class.__name__.replace("Topic", "Partition"))
    topics = dict[str, list[Any]]()
    async for (topic, partition), (offset, epoch, metadata) in in_turns(offsets.items()):
        row = part(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch,
            metadata=metadata, error_code=Code.NONE,
        )  # fmt: skip
        topics.setdefault(topic, []).append(row)
    return [
        topic_class(name=topic, partitions=rows) async for topic, rows in in_turns(topics.items())
    ]


def _described(group_id: str, listed: GroupListing | None, code: Code) -> Any:
    group = None if listed is None else listed.group
    response = admin.DescribeGroupsResponse.DescribedGroup
    settled = group is not None and group.state == "Stable"
    members = [
        response.DescribedGroupMember(
            member_id=each.member_id, group_instance_id=each.instance_id,
            client_id=each.client_id, client_host=each.client_host,
            member_metadata=each.metadata(group.protocol) if settled else b"",
            member_assignment=each.assignment,
        )
        for each in group.members.values()
    ] if group is not None else []  # fmt: skip
    return response(
        error_code=code, error_message=f"group {group_id} is unknown" if code else None,
        group_id=group_id, group_state="Dead" if listed is None else listed.state,
        protocol_type="" if listed is None else listed.protocol_type,
        protocol_data=group.protocol if group is not None and settled else "", members=members,
    )  # fmt: skip
