"""ConsumerGroupCurrentMemberAssignmentValue, versions 0 to 0. Generated from ConsumerGroupCurrentMemberAssignmentValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_compact_length,
    read_numbers,
    skip_tags,
    uuid_of,
    write_array,
    write_compact_length,
    write_numbers,
)
from tidelog.types import TopicPartitions

_r_u = Struct(">16s").unpack_from
_w_u = Struct(">16s").pack
_r_iib = Struct(">iib").unpack_from
_w_iib = Struct(">iib").pack


class ConsumerGroupCurrentMemberAssignmentValue(Structure):
    """The message."""

    __slots__ = (
        "member_epoch",
        "previous_member_epoch",
        "state",
        "assigned_partitions",
        "partitions_pending_revocation",
    )
    __match_args__ = (
        "member_epoch",
        "previous_member_epoch",
        "state",
        "assigned_partitions",
        "partitions_pending_revocation",
    )

    def __init__(
        self,
        member_epoch: int,
        previous_member_epoch: int,
        state: int,
        assigned_partitions: tuple[TopicPartitions, ...],
        partitions_pending_revocation: tuple[TopicPartitions, ...],
    ) -> None:
        # The current member epoch that is expected from the member in the heartbeat request.
        self.member_epoch: Final = member_epoch
        # If the last epoch bump is lost before reaching the member, the member will retry with the previous epoch.
        self.previous_member_epoch: Final = previous_member_epoch
        # The member state. See MemberState for the possible values.
        self.state: Final = state
        # The partitions assigned to (or owned by) this member.
        self.assigned_partitions: Final = assigned_partitions
        # The partitions that must be revoked by this member.
        self.partitions_pending_revocation: Final = partitions_pending_revocation


def _read_topic_partitions_0(data: Data, at: int) -> tuple[TopicPartitions, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return TopicPartitions(topic_id=topic_id, partitions=partitions), at


def _read_consumer_group_current_member_assignment_value_0(
    data: Data, at: int
) -> tuple[ConsumerGroupCurrentMemberAssignmentValue, int]:
    member_epoch, previous_member_epoch, state = _r_iib(data, at)
    at += 9
    assigned_partitions, at = read_array(data, at, read_compact_length, _read_topic_partitions_0)
    partitions_pending_revocation, at = read_array(data, at, read_compact_length, _read_topic_partitions_0)
    at = skip_tags(data, at)
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        state=state,
        assigned_partitions=assigned_partitions,
        partitions_pending_revocation=partitions_pending_revocation,
    ), at


def _write_topic_partitions_0(out: Output, value: TopicPartitions) -> None:
    out += _w_u(value.topic_id.bytes)
    write_numbers(out, value.partitions, write_compact_length, "i")
    out.append(0)


def _write_consumer_group_current_member_assignment_value_0(
    out: Output, value: ConsumerGroupCurrentMemberAssignmentValue
) -> None:
    out += _w_iib(value.member_epoch, value.previous_member_epoch, value.state)
    write_array(out, value.assigned_partitions, write_compact_length, _write_topic_partitions_0)
    write_array(out, value.partitions_pending_revocation, write_compact_length, _write_topic_partitions_0)
    out.append(0)


CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = MessageCodec(
    ConsumerGroupCurrentMemberAssignmentValue,
    8,
    readers={0: _read_consumer_group_current_member_assignment_value_0},
    writers={0: _write_consumer_group_current_member_assignment_value_0},
)
