"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: members of consumer groups, and what they have (KIP-848).

Members share their groups with those of Tidelog's own client, which are told a new assignment on an open stream; here
they learn it with their next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from node.api.table import GROUPS_CONSUMER_GROUP_HEARTBEAT, GROUPS_DESCRIBE_CONSUMER_GROUPS
from node.listeners.kafka.error_codes import NONE, code_of, coordinator_code_of
from node.listeners.kafka.exchange import NO_OPERATIONS, KafkaApi
from replication.coordination.group_records import TopicPartitions as Assigned
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DescribeConsumerGroups,
    DescribeConsumerGroupsAnswer,
    DescribedGroup,
    DescribedMember,
)
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol.kafka.messages import consumer_group_describe_request as asked_describe
from tidelog.protocol.kafka.messages import consumer_group_describe_response as described
from tidelog.protocol.kafka.messages import consumer_group_heartbeat_request as asked_heartbeat
from tidelog.protocol.kafka.messages.consumer_group_heartbeat_response import (
    CONSUMER_GROUP_HEARTBEAT_RESPONSE,
    Assignment,
    ConsumerGroupHeartbeatResponse,
)

# --- ConsumerGroupHeartbeat ---

_OWN_ID_FROM: Final = 1
"""Version from which a member chooses its own id (KIP-1082). Before it, a new one may be given it."""


def _read_heartbeat(message: asked_heartbeat.ConsumerGroupHeartbeatRequest, version: int) -> ConsumerGroupHeartbeat:
    if version >= _OWN_ID_FROM and not message.member_id:
        raise InvalidRequest("the member id is empty: a member chooses a random one when it starts")
    return ConsumerGroupHeartbeat(
        message.group_id,
        message.member_id,
        message.member_epoch,
        message.instance_id,
        message.rack_id,
        message.rebalance_timeout_ms,
        message.subscribed_topic_names,
        message.subscribed_topic_regex,
        message.server_assignor,
        message.topic_partitions,
    )


def _write_heartbeat(
    _message: object, answer: ConsumerGroupHeartbeatAnswer, _version: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        0,
        NONE,
        None,
        answer.member_id,
        answer.member_epoch,
        answer.heartbeat_interval_ms,
        None if answer.assignment is None else Assignment(answer.assignment),
    )


def _refuse_heartbeat(_message: object, error: TidelogError, _version: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(0, coordinator_code_of(error), error.message, None, 0, 0, None)


CONSUMER_GROUP_HEARTBEAT: Final = KafkaApi(
    range(2),
    asked_heartbeat.CONSUMER_GROUP_HEARTBEAT_REQUEST,
    CONSUMER_GROUP_HEARTBEAT_RESPONSE,
    GROUPS_CONSUMER_GROUP_HEARTBEAT,
    _read_heartbeat,
    _write_heartbeat,
    _refuse_heartbeat,
)


# --- ConsumerGroupDescribe ---

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1
"""The types of members, which are told from version 1 on."""


def _read_describe(message: asked_describe.ConsumerGroupDescribeRequest, _version: int) -> DescribeConsumerGroups:
    return DescribeConsumerGroups(message.group_ids)


def _write_described(
    _message: object, answer: DescribeConsumerGroupsAnswer, _version: int
) -> described.ConsumerGroupDescribeResponse:
    groups = (_group(each, answer.topic_names) for each in answer.groups)
    return described.ConsumerGroupDescribeResponse(0, tuple(groups))


def _group(group: DescribedGroup, names: Mapping[UUID, str]) -> described.DescribedGroup:
    return described.DescribedGroup(
        code_of(group.error),
        None if group.error is None else group.error.message,
        group.group_id,
        group.state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor,
        tuple(_member(each, names) for each in group.members),
        NO_OPERATIONS,
    )


def _member(member: DescribedMember, names: Mapping[UUID, str]) -> described.Member:
    return described.Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        _assignment(member.assignment, names),
        _assignment(member.target, names),
        _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(topics: Iterable[Assigned], names: Mapping[UUID, str]) -> described.Assignment:
    """Without topics that were deleted since: they have no name."""
    return described.Assignment(
        tuple(
            described.TopicPartitions(each.topic_id, names[each.topic_id], each.partitions)
            for each in topics
            if each.topic_id in names
        )
    )


def _refuse_describe(
    message: asked_describe.ConsumerGroupDescribeRequest, error: TidelogError, version: int
) -> described.ConsumerGroupDescribeResponse:
    refused = tuple(DescribedGroup(group_id, error) for group_id in message.group_ids)
    return _write_described(message, DescribeConsumerGroupsAnswer(refused, {}), version)


CONSUMER_GROUP_DESCRIBE: Final = KafkaApi(
    range(2),
    asked_describe.CONSUMER_GROUP_DESCRIBE_REQUEST,
    described.CONSUMER_GROUP_DESCRIBE_RESPONSE,
    GROUPS_DESCRIBE_CONSUMER_GROUPS,
    _read_describe,
    _write_described,
    _refuse_describe,
)
