"""Which heartbeats are refused before any state is looked at. Source: KIP-848."""

from __future__ import annotations

from typing import Final

from replication.coordination.group_requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeat,
)
from tidelog.errors import GroupIdNotFound, InvalidGroupId, InvalidRequest, InvalidTopic, UnsupportedAssignor
from tidelog.types import TOPIC_NAME_RULE, is_topic_name

NAME_BYTES_MAX: Final = 32_767
"""The longest string that the classic records can hold."""


def check_group_id(group_id: str) -> None:
    """Raises InvalidGroupId."""
    if not group_id or len(group_id.encode()) > NAME_BYTES_MAX:
        what = f"has {len(group_id.encode())} bytes" if group_id else "is empty"
        raise InvalidGroupId(f"the group id {what}; use 1 to {NAME_BYTES_MAX} bytes of UTF-8")


def group_not_found(group_id: str) -> GroupIdNotFound:
    """The error of a group that does not exist."""
    return GroupIdNotFound(
        f"there is no group {group_id!r}: it never was, was deleted, or its last offset has expired; "
        "`tidelog group list` shows those that exist"
    )


def check_heartbeat(request: ConsumerGroupHeartbeat, assignors: tuple[str, ...]) -> None:
    """Raises InvalidGroupId, InvalidRequest, InvalidTopic or UnsupportedAssignor."""
    check_group_id(request.group_id)
    for what, name in (
        ("member id", request.member_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if name is not None and not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise InvalidRequest(f"the {what} of a heartbeat for group {request.group_id!r} is empty or too long")
    match request.member_epoch:
        case epoch if epoch == JOIN_EPOCH:
            _check_join(request)
        case epoch if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            raise InvalidRequest(
                f"member {request.member_id!r} leaves group {request.group_id!r} with epoch -2, but names no instance "
                "id: only static members may; send -1"
            )
        case epoch if epoch < 0 and epoch not in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            raise InvalidRequest(f"member epoch {epoch} is invalid; use 0 to join, -1 or -2 to leave")
    for name in request.subscribed_topic_names or ():
        if not is_topic_name(name):
            raise InvalidTopic(f"{name!r} is no topic name; {TOPIC_NAME_RULE}")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(f"unknown assignor {request.server_assignor!r}; known: {', '.join(assignors)}")


def _check_join(request: ConsumerGroupHeartbeat) -> None:
    reason = None
    if request.rebalance_timeout_ms <= 0:
        reason = "needs a rebalance timeout"
    elif request.topic_partitions:
        reason = "must not have partitions: give them up first"
    elif not request.subscribed_topic_names and not request.subscribed_topic_regex:
        reason = "needs topics: names or a pattern"
    if reason is not None:
        raise InvalidRequest(f"member {request.member_id!r} that joins group {request.group_id!r} {reason}")
