"""FindCoordinator, and the requests of members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A request waits for others on its own connection: clients have one of its own for their coordinator.
"""

from __future__ import annotations

from typing import Final

from node.api.table import (
    COORDINATORS_FIND_COORDINATOR,
    GROUPS_HEARTBEAT,
    GROUPS_JOIN_GROUP,
    GROUPS_LEAVE_GROUP,
    GROUPS_SYNC_GROUP,
)
from node.listeners.kafka.error_codes import NONE, code_of, coordinator_code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.coordination import classic_requests as classic
from replication.coordination.group_records import ClassicProtocol
from replication.coordination.group_requests import (
    CoordinatorType,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    FoundCoordinator,
)
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InconsistentGroupProtocol,
    InvalidRequest,
    RebalanceInProgress,
    TidelogError,
)
from tidelog.protocol.kafka.messages import find_coordinator_request as asked_coordinator
from tidelog.protocol.kafka.messages import heartbeat_request as asked_heartbeat
from tidelog.protocol.kafka.messages import join_group_request as asked_join
from tidelog.protocol.kafka.messages import leave_group_request as asked_leave
from tidelog.protocol.kafka.messages import sync_group_request as asked_sync
from tidelog.protocol.kafka.messages.find_coordinator_response import (
    FIND_COORDINATOR_RESPONSE,
    Coordinator,
    FindCoordinatorResponse,
)
from tidelog.protocol.kafka.messages.heartbeat_response import HEARTBEAT_RESPONSE, HeartbeatResponse
from tidelog.protocol.kafka.messages.join_group_response import (
    JOIN_GROUP_RESPONSE,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tidelog.protocol.kafka.messages.leave_group_response import (
    LEAVE_GROUP_RESPONSE,
    LeaveGroupResponse,
    MemberResponse,
)
from tidelog.protocol.kafka.messages.sync_group_response import SYNC_GROUP_RESPONSE, SyncGroupResponse
from tidelog.types import NO_NODE

# --- FindCoordinator ---

_MANY_FROM: Final = 4
"""Version from which a request names several keys."""


def _keys(message: asked_coordinator.FindCoordinatorRequest, version: int) -> tuple[str, ...]:
    return message.coordinator_keys if version >= _MANY_FROM else (message.key,)


def _read_find(message: asked_coordinator.FindCoordinatorRequest, version: int) -> FindCoordinatorRequest:
    if message.key_type not in tuple(CoordinatorType):
        raise InvalidRequest(f"coordinator type {message.key_type}: it must be 0 (groups) or 1 (transactions)")
    return FindCoordinatorRequest(CoordinatorType(message.key_type), _keys(message, version))


def _write_found(_message: object, answer: FindCoordinatorAnswer, version: int) -> FindCoordinatorResponse:
    found = tuple(map(_coordinator, answer.coordinators))
    if version >= _MANY_FROM:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(0, one.error_code, one.error_message, one.node_id, one.host, one.port)


def _coordinator(found: FoundCoordinator) -> Coordinator:
    if found.error is not None or found.node is None:
        error = found.error or CoordinatorNotAvailable("the coordinator has no address on this listener")
        return Coordinator(found.key, NO_NODE, "", -1, code_of(error), error.message)
    endpoint = found.node.endpoint
    return Coordinator(found.key, found.node.node_id, endpoint.host, endpoint.port, NONE, None)


def _refuse_find(
    message: asked_coordinator.FindCoordinatorRequest, error: TidelogError, version: int
) -> FindCoordinatorResponse:
    found = tuple(FoundCoordinator(key, error) for key in _keys(message, version))
    return _write_found(message, FindCoordinatorAnswer(found), version)


FIND_COORDINATOR: Final = KafkaApi(
    range(5),
    asked_coordinator.FIND_COORDINATOR_REQUEST,
    FIND_COORDINATOR_RESPONSE,
    COORDINATORS_FIND_COORDINATOR,
    _read_find,
    _write_found,
    _refuse_find,
)


# --- JoinGroup ---

_REBALANCE_TIMEOUT_FROM: Final = 1
_MEMBER_ID_FROM: Final = 4
_PROTOCOL_TYPE_FROM: Final = 7
_SKIPS_FROM: Final = 9
"""Versions that add what their names say."""


def _read_join(message: asked_join.JoinGroupRequest, version: int) -> classic.JoinGroup:
    session_ms = message.session_timeout_ms
    return classic.JoinGroup(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.protocol_type,
        tuple(ClassicProtocol(each.name, each.metadata) for each in message.protocols),
        session_ms,
        message.rebalance_timeout_ms if version >= _REBALANCE_TIMEOUT_FROM else session_ms,
        needs_member_id=version >= _MEMBER_ID_FROM,
        skips_assignment=version >= _SKIPS_FROM,
    )


def _write_joined(_message: object, answer: classic.JoinGroupAnswer, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        coordinator_code_of(answer.error),
        answer.generation,
        answer.protocol if version >= _PROTOCOL_TYPE_FROM else answer.protocol or "",
        answer.leader,
        answer.member_id,
        tuple(JoinGroupResponseMember(each.member_id, each.metadata, each.instance_id) for each in answer.members),
        0,
        answer.protocol_type,
        answer.skip_assignment,
    )


def _refuse_join(message: asked_join.JoinGroupRequest, error: TidelogError, version: int) -> JoinGroupResponse:
    return _write_joined(message, classic.JoinGroupAnswer(message.member_id, error=error), version)


JOIN_GROUP: Final = KafkaApi(
    range(10),
    asked_join.JOIN_GROUP_REQUEST,
    JOIN_GROUP_RESPONSE,
    GROUPS_JOIN_GROUP,
    _read_join,
    _write_joined,
    _refuse_join,
)


def _member_code(error: TidelogError, loads: int) -> int:
    """loads: the number in place of COORDINATOR_LOAD_IN_PROGRESS, which members do not know in this answer: after it
    the reads of aiokafka raise, and after SyncGroup those of Java."""
    return loads if isinstance(error, CoordinatorLoadInProgress) else coordinator_code_of(error)


# --- SyncGroup ---


_NAMES_FROM: Final = 5
"""Version from which a member names the protocol of its generation (KIP-559)."""


def _read_sync(message: asked_sync.SyncGroupRequest, version: int) -> classic.SyncGroup:
    if version >= _NAMES_FROM and (message.protocol_type is None or message.protocol_name is None):
        raise InconsistentGroupProtocol("name the protocol type and the protocol that the answer to JoinGroup had")
    return classic.SyncGroup(
        message.group_id,
        message.member_id,
        message.generation_id,
        message.group_instance_id,
        message.protocol_type,
        message.protocol_name,
        tuple(classic.MemberAssignment(each.member_id, each.assignment) for each in message.assignments),
    )


def _write_synced(_message: object, answer: classic.SyncGroupAnswer, _version: int) -> SyncGroupResponse:
    return SyncGroupResponse(NONE, answer.assignment, 0, answer.protocol_type, answer.protocol)


def _refuse_sync(_message: object, error: TidelogError, _version: int) -> SyncGroupResponse:
    # A member that joins again is right in any state of the loaded group. Kafka's brokers before 4.0 answer so.
    return SyncGroupResponse(_member_code(error, RebalanceInProgress.code), b"")


SYNC_GROUP: Final = KafkaApi(
    range(6),
    asked_sync.SYNC_GROUP_REQUEST,
    SYNC_GROUP_RESPONSE,
    GROUPS_SYNC_GROUP,
    _read_sync,
    _write_synced,
    _refuse_sync,
)


# --- Heartbeat ---


def _read_heartbeat(message: asked_heartbeat.HeartbeatRequest, _version: int) -> classic.ClassicHeartbeat:
    return classic.ClassicHeartbeat(
        message.group_id, message.member_id, message.generation_id, message.group_instance_id
    )


def _write_heartbeat(_message: object, _answer: object, _version: int) -> HeartbeatResponse:
    return HeartbeatResponse(NONE)


def _refuse_heartbeat(_message: object, error: TidelogError, _version: int) -> HeartbeatResponse:
    return HeartbeatResponse(_member_code(error, CoordinatorNotAvailable.code))


HEARTBEAT: Final = KafkaApi(
    range(5),
    asked_heartbeat.HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    GROUPS_HEARTBEAT,
    _read_heartbeat,
    _write_heartbeat,
    _refuse_heartbeat,
)


# --- LeaveGroup ---

_MEMBERS_FROM: Final = 3
"""Version from which a request names several members, each with its own outcome."""


def _read_leave(message: asked_leave.LeaveGroupRequest, version: int) -> classic.LeaveGroup:
    if version < _MEMBERS_FROM:
        return classic.LeaveGroup(message.group_id, (classic.LeavingMember(message.member_id),))
    leaving = (classic.LeavingMember(each.member_id, each.group_instance_id) for each in message.members)
    return classic.LeaveGroup(message.group_id, tuple(leaving))


def _write_left(_message: object, answer: classic.LeaveGroupAnswer, version: int) -> LeaveGroupResponse:
    if version < _MEMBERS_FROM:
        [one] = answer.members
        return LeaveGroupResponse(code_of(one.error))
    left = (MemberResponse(each.member_id, each.instance_id, code_of(each.error)) for each in answer.members)
    return LeaveGroupResponse(NONE, members=tuple(left))


def _refuse_leave(_message: object, error: TidelogError, _version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(coordinator_code_of(error))


LEAVE_GROUP: Final = KafkaApi(
    range(6),
    asked_leave.LEAVE_GROUP_REQUEST,
    LEAVE_GROUP_RESPONSE,
    GROUPS_LEAVE_GROUP,
    _read_leave,
    _write_left,
    _refuse_leave,
)
