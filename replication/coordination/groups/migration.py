"""Groups that change between the classic protocol and that of KIP-848 while their members go on (online migration).

A classic group of consumers becomes a consumer group by the first heartbeat that joins it. Its members stay: they speak
the classic protocol further (classic_consumers.py), in the epoch that was their generation, with the assignment of
that. A consumer group whose members all speak the classic protocol becomes a classic group, and its members are to join
its next generation: the partitions of the member that left are then assigned.

Rules: Kafka 4.1, GroupMetadataManager.validateOnlineUpgrade, convertToConsumerGroup, validateOnlineDowngrade... and
convertToClassicGroup; ConsumerGroup.fromClassicGroup; ClassicGroup.fromConsumerGroup.

Differences to Kafka 4.1: a consumer group becomes a classic one by a decision of its own, after the one that removed
its last member of the consumer protocol; the members of that classic group have in its record what they own, not what
was their target, since another one may not have given that up; and it waits for them to join again also at a
coordinator that takes over. A partition that a leader has assigned twice stays with the first of its members. A group
that becomes a consumer group during a rebalance gets another target assignment also if a static member only takes its
own place.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from replication.coordination.coordinator_machine import Decision, Instant
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import ClassicMemberMetadata, GroupMetadataKey, GroupRecord
from replication.coordination.groups.assignments import AssignedTopics, as_sets, as_topics
from replication.coordination.groups.classic_group import ClassicGroup, ClassicMember
from replication.coordination.groups.classic_protocols import elected
from replication.coordination.groups.classic_rebalances import rebalances
from replication.coordination.groups.classic_states import ClassicState
from replication.coordination.groups.classic_step import ClassicStep
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL,
    assignment_bytes,
    assignment_in,
    existing,
    subscription_in,
)
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import change
from replication.coordination.groups.member import CurrentAssignment, Member, MemberMetadata
from replication.coordination.groups.membership import (
    assignment_epoch_record,
    current_record,
    epoch_record,
    group_tombstones,
    metadata_record,
    target_record,
)
from replication.coordination.groups.states import MemberState
from replication.coordination.groups.topic_catalog import TopicCatalog
from tidelog.errors import GroupIdNotFound

# --- to a consumer group ----------------------------------------------------------------------------------------------


def upgraded(
    classic: ClassicGroup, config: GroupConfig, catalog: TopicCatalog
) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """The consumer group that a classic group becomes, and its records. Raises GroupIdNotFound if it must not."""
    if obstacle := _obstacle(classic, config):
        raise GroupIdNotFound(
            f"group {classic.group_id!r} is a classic group with {len(classic.members)} members, and does not become a "
            f"consumer group (KIP-848): {obstacle}; stop its members first, or use another group id"
        )
    members = dict(_members(classic, catalog))
    group = ConsumerGroup(classic.group_id, {})
    # Above all generations that the coordinator before this one may have begun: no member may take an epoch for one.
    epoch = classic.generation + classic.lost_generations
    topics = {name for metadata, _ in members.values() for name in metadata.subscribed_topic_names}
    records = [
        *(metadata_record(group.group_id, member_id, metadata) for member_id, (metadata, _) in members.items()),
        # Partitions of members that have left await the next generation: the member that joins may not raise the epoch.
        epoch_record(group.group_id, epoch + (classic.state is not ClassicState.STABLE), catalog.hash_of(topics)),
        *(target_record(group.group_id, member_id, assigned) for member_id, (_, assigned) in members.items()),
        assignment_epoch_record(group.group_id, epoch),
        *(
            current_record(group.group_id, member_id, _stable(classic.generation, assigned))
            for member_id, (_, assigned) in members.items()
        ),
    ]
    for record in records:
        change(group, record)
    return group, [CoordinatorRecord(GroupMetadataKey(group.group_id), None), *records]


def _obstacle(classic: ClassicGroup, config: GroupConfig) -> str:
    """Why a group must stay a classic one; empty: it need not."""
    if not config.migration_policy.upgrades:
        return f"group.consumer.migration.policy is {config.migration_policy.value!r}"
    if classic.protocol_type != CONSUMER_PROTOCOL:
        return f"its protocol type is {classic.protocol_type!r}, not {CONSUMER_PROTOCOL!r}"
    if len(classic.members) > config.consumer_max_size:
        return f"group.consumer.max.size allows {config.consumer_max_size}"
    return ""


def _members(
    classic: ClassicGroup, catalog: TopicCatalog
) -> Iterator[tuple[str, tuple[MemberMetadata, AssignedTopics]]]:
    """What each member subscribes to and has been assigned, by its bytes."""
    taken: dict[UUID, frozenset[int]] = {}
    for member in classic.members.values():
        subscription = subscription_in(member.protocols[0].metadata)  # they are the same for all protocols of a member
        assignment = assignment_in(member.assignment)
        if subscription is None or (assignment is None and member.assignment):
            raise GroupIdNotFound(
                f"group {classic.group_id!r} is a classic group, and does not become a consumer group (KIP-848): what "
                f"its member {member.member_id!r} subscribes to, or was assigned, is malformed; stop that member first"
            )
        named = existing(() if assignment is None else assignment.assigned_partitions, catalog)
        free = {topic: own - taken.get(topic, frozenset()) for topic, own in as_sets(named).items()}
        taken.update((topic, taken.get(topic, frozenset()) | own) for topic, own in free.items())
        metadata = MemberMetadata(
            member.instance_id,
            subscription.rack_id or None,
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            None,
            member.rebalance_timeout_ms,
            None,
            ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        )
        yield member.member_id, (metadata, as_topics(free))


def _stable(generation: int, assigned: AssignedTopics) -> CurrentAssignment:
    return CurrentAssignment(generation, generation, MemberState.STABLE, assigned, ())


def waiting_are_refused(classic: ClassicGroup, now: Instant) -> tuple[object, ...]:
    """The answers of the requests that wait in a classic group: it is a consumer group, which they have to join. The
    group itself is left as it is, in case that the change cannot be recorded."""
    step = ClassicStep(now.wall_ms)
    for ticket in (*classic.joining.values(), *classic.syncing.values()):
        step.answer(ticket, rebalances(classic))
    return step.decided().effects


# --- to a classic group -----------------------------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, config: GroupConfig) -> bool:
    """Whether a group is to become a classic one: all its members speak that protocol."""
    return config.migration_policy.downgrades and 0 < len(group.members) == group.classic_members <= config.max_size


def downgraded(group: ConsumerGroup, catalog: TopicCatalog, now: Instant) -> Decision[None] | None:
    """The decision that makes a group a classic one; None if its members have no protocol in common, which only a log
    of others can contain."""
    classic = ClassicGroup(group.group_id)
    classic.protocol_type = CONSUMER_PROTOCOL
    # The epoch that members have reached: they are told to join again, and not fenced. The next generation is above.
    classic.generation = group.assignment_epoch
    assignments: dict[str, bytes] = {}
    for member_id, member in sorted(group.members.items()):
        found = _classic_member(member)
        classic.add(found)
        current = member.assignment
        owned = as_topics(as_sets((*current.assigned_partitions, *current.partitions_pending_revocation)))
        assignments[member_id] = assignment_bytes(owned, found.protocols[0].metadata, catalog)
    common = classic.common_protocols
    if not common:
        return None
    classic.protocol = elected((member.protocols for member in classic.members.values()), common)
    return Decision(
        None,
        (*group_tombstones(group), classic.record(assignments, now.wall_ms)),
        notice=f"group {group.group_id!r} is a classic group from now on: none of its {len(group.members)} members "
        "speaks the consumer protocol (KIP-848)",
    )


def _classic_member(member: Member) -> ClassicMember:
    said, classic = member.metadata, member.classic
    assert said is not None and classic is not None, "may_downgrade"
    return ClassicMember(
        member.member_id,
        said.instance_id,
        said.client_id,
        said.client_host,
        classic.session_timeout_ms,
        said.rebalance_timeout_ms,
        classic.supported_protocols,
    )
