"""Answers about groups: the list of all, and descriptions of some."""

from __future__ import annotations

from replication.coordination.classic_requests import (
    DescribeClassicGroups,
    DescribeClassicGroupsAnswer,
    DescribedClassicGroup,
    DescribedClassicMember,
)
from replication.coordination.group_requests import (
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    DescribeGroupsAnswer,
    ListGroups,
    ListGroupsAnswer,
)
from replication.coordination.groups.classic_group import ClassicGroup, ClassicMember
from replication.coordination.groups.classic_protocols import metadata_of
from replication.coordination.groups.classic_states import ClassicState
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState, group_not_found
from replication.coordination.groups.member import Member
from replication.coordination.groups.states import GroupState
from replication.coordination.groups.target_assignment import preferred_assignor
from tidelog.cluster_descriptions import GroupListing

CONSUMER = "consumer"
CLASSIC = "classic"


def list_groups(state: GroupsState, request: ListGroups) -> ListGroupsAnswer:
    """The groups in the states and of the types asked for; their case does not matter."""
    states = {each.lower() for each in request.states}
    types = {each.lower() for each in request.types}
    listed = (_listed(state, group_id) for group_id in state.group_ids())
    return ListGroupsAnswer(
        tuple(
            group
            for group in listed
            if (not states or group.state.lower() in states) and (not types or group.type in types)
        )
    )


def _listed(state: GroupsState, group_id: str) -> GroupListing:
    group, classic = state.consumer.get(group_id), state.classic.get(group_id)
    if group is not None:
        return GroupListing(group_id, CONSUMER, group.state().value, len(group.members))
    if classic is not None:
        return GroupListing(group_id, CLASSIC, classic.state.value, len(classic.members))
    return GroupListing(group_id, CLASSIC, GroupState.EMPTY.value, 0)


def described(
    state: GroupsState, config: GroupConfig, request: DescribeGroups | DescribeClassicGroups
) -> DescribeGroupsAnswer | DescribeClassicGroupsAnswer:
    """Each group, or why it cannot be described."""
    if isinstance(request, DescribeClassicGroups):
        return DescribeClassicGroupsAnswer(tuple(_in_bytes(state, group_id) for group_id in request.group_ids))
    return DescribeGroupsAnswer(tuple(_described(state, config, group_id) for group_id in request.group_ids))


def _described(state: GroupsState, config: GroupConfig, group_id: str) -> DescribedGroup:
    group, classic = state.consumer.get(group_id), state.classic.get(group_id)
    if group is not None:
        return _consumer_group(group, config)
    if classic is not None:
        return _classic_group(classic)
    if state.offsets.has(group_id):
        return DescribedGroup(group_id, None, CLASSIC, GroupState.EMPTY.value)
    return DescribedGroup(group_id, group_not_found(group_id), state=GroupState.DEAD.value)


def _consumer_group(group: ConsumerGroup, config: GroupConfig) -> DescribedGroup:
    return DescribedGroup(
        group.group_id,
        None,
        CONSUMER,
        group.state().value,
        group.epoch,
        group.assignment_epoch,
        preferred_assignor(group.subscriptions().values(), config.consumer_assignors),
        tuple(_member(group, group.members[member_id]) for member_id in sorted(group.members)),
    )


def _member(group: ConsumerGroup, member: Member) -> DescribedMember:
    """Describe a member. assignment: without the partitions that it has been asked to give up, as in Kafka."""
    said, current = member.metadata, member.assignment
    return DescribedMember(
        member.member_id,
        None if said is None else said.instance_id,
        None if said is None else said.rack_id,
        "" if said is None else said.client_id,
        "" if said is None else said.client_host,
        current.member_epoch,
        () if said is None else said.subscribed_topic_names,
        None if said is None else said.subscribed_topic_regex,
        current.assigned_partitions,
        group.target_of(member.member_id),
    )


def _classic_group(group: ClassicGroup) -> DescribedGroup:
    """The generation stands for the epochs. Subscriptions and assignments are bytes of the clients' protocol."""
    return DescribedGroup(
        group.group_id,
        None,
        CLASSIC,
        group.state.value,
        group.generation,
        group.generation,
        group.protocol or "",
        tuple(_classic_member(group.members[member_id], group.generation) for member_id in sorted(group.members)),
    )


def _classic_member(member: ClassicMember, generation: int) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        None,
        member.client_id,
        member.client_host,
        generation,
        (),
        None,
        (),
        (),
    )


def _in_bytes(state: GroupsState, group_id: str) -> DescribedClassicGroup:
    group = state.classic.get(group_id)
    if group is None or group_id in state.consumer:
        if group_id not in state.consumer and state.offsets.has(group_id):
            return DescribedClassicGroup(group_id, None, ClassicState.EMPTY.value)
        return DescribedClassicGroup(group_id, group_not_found(group_id))
    has_protocol = group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)
    protocol = group.protocol if has_protocol else None  # a rebalance may choose another one
    return DescribedClassicGroup(
        group_id,
        None,
        group.state.value,
        group.protocol_type,
        protocol or "",
        tuple(
            DescribedClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                metadata_of(member.protocols, protocol),
                member.assignment if has_protocol else b"",
            )
            for _, member in sorted(group.members.items())
        ),
    )
