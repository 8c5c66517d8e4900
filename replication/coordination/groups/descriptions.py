"""Answers about groups: the list of all, and descriptions of some."""

from __future__ import annotations

from replication.coordination.classic_requests import (
    DescribeClassicGroups,
    DescribeClassicGroupsAnswer,
    DescribedClassicGroup,
    DescribedClassicMember,
)
from replication.coordination.group_requests import (
    CLASSIC,
    CONSUMER,
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
from replication.coordination.groups.classic_subscriptions import partitions_of, topics_of
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.consumer_protocol import CONSUMER_PROTOCOL
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState, group_not_found
from replication.coordination.groups.member import Member
from replication.coordination.groups.states import GroupState
from replication.coordination.groups.target_assignment import preferred_assignor
from replication.coordination.groups.topic_catalog import TopicCatalog
from tidelog.cluster_descriptions import GroupListing


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
        return GroupListing(group_id, CONSUMER, group.state().value, len(group.members), CONSUMER_PROTOCOL)
    if classic is not None:
        return GroupListing(group_id, CLASSIC, classic.state.value, len(classic.members), classic.protocol_type)
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
        return _classic_group(classic, state.catalog)
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
        is_classic=said is not None and said.classic_member_metadata is not None,
    )


def _classic_group(group: ClassicGroup, catalog: TopicCatalog) -> DescribedGroup:
    """The generation stands for the epochs."""
    return DescribedGroup(
        group.group_id,
        None,
        CLASSIC,
        group.state.value,
        group.generation,
        group.generation,
        group.protocol or "",
        tuple(_classic_member(group, member, catalog) for _, member in sorted(group.members.items())),
    )


def _classic_member(group: ClassicGroup, member: ClassicMember, catalog: TopicCatalog) -> DescribedMember:
    """Describe a member. Its subscription and its assignment are empty if only the members know them."""
    assignment = partitions_of(group, member, catalog)
    return DescribedMember(
        member.member_id,
        member.instance_id,
        None,
        member.client_id,
        member.client_host,
        group.generation,
        topics_of(group, member) or (),
        None,
        assignment,
        assignment,
        is_classic=True,
    )


def _in_bytes(state: GroupsState, group_id: str) -> DescribedClassicGroup:
    group = state.classic.get(group_id)
    if group is None or group_id in state.consumer:
        if group_id not in state.consumer and state.offsets.has(group_id):
            return DescribedClassicGroup(group_id, None, ClassicState.EMPTY.value)
        return DescribedClassicGroup(group_id, group_not_found(group_id))
    protocol = group.protocol if group.state is ClassicState.STABLE else None  # a rebalance may choose another one
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
                member.assignment if protocol is not None else b"",
            )
            for _, member in sorted(group.members.items())
        ),
    )
