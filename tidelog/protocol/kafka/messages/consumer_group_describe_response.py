"""ConsumerGroupDescribeResponse, versions 0 to 1. Generated from ConsumerGroupDescribeResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_numbers,
)
from tidelog.types import PartitionIndex

_w_u = Struct(">16s").pack
_w_b = Struct(">b").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack
_w_ii = Struct(">ii").pack


class TopicPartitions(Structure):
    """A structure of ConsumerGroupDescribeResponse."""

    __slots__ = ("topic_id", "topic_name", "partitions")
    __match_args__ = ("topic_id", "topic_name", "partitions")

    def __init__(
        self,
        topic_id: UUID,
        topic_name: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The topic ID.
        self.topic_id: Final = topic_id
        # The topic name.
        self.topic_name: Final = topic_name
        # The partitions.
        self.partitions: Final = partitions


class Assignment(Structure):
    """A structure of ConsumerGroupDescribeResponse."""

    __slots__ = ("topic_partitions",)
    __match_args__ = ("topic_partitions",)

    def __init__(
        self,
        topic_partitions: tuple[TopicPartitions, ...],
    ) -> None:
        # The assigned topic-partitions to the member.
        self.topic_partitions: Final = topic_partitions


_ASSIGNMENT = Assignment(())


class Member(Structure):
    """A structure of ConsumerGroupDescribeResponse."""

    __slots__ = (
        "member_id",
        "instance_id",
        "rack_id",
        "member_epoch",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "assignment",
        "target_assignment",
        "member_type",
    )
    __match_args__ = (
        "member_id",
        "instance_id",
        "rack_id",
        "member_epoch",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "assignment",
        "target_assignment",
        "member_type",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        rack_id: str | None,
        member_epoch: int,
        client_id: str,
        client_host: str,
        subscribed_topic_names: tuple[str, ...],
        subscribed_topic_regex: str | None,
        assignment: Assignment,
        target_assignment: Assignment,
        member_type: int = -1,
    ) -> None:
        # The member ID.
        self.member_id: Final = member_id
        # The member instance ID.
        self.instance_id: Final = instance_id
        # The member rack ID.
        self.rack_id: Final = rack_id
        # The current member epoch.
        self.member_epoch: Final = member_epoch
        # The client ID.
        self.client_id: Final = client_id
        # The client host.
        self.client_host: Final = client_host
        # The subscribed topic names.
        self.subscribed_topic_names: Final = subscribed_topic_names
        # the subscribed topic regex otherwise or null of not provided.
        self.subscribed_topic_regex: Final = subscribed_topic_regex
        # The current assignment.
        self.assignment: Final = assignment
        # The target assignment.
        self.target_assignment: Final = target_assignment
        # -1 for unknown. 0 for classic member. +1 for consumer member.
        self.member_type: Final = member_type


class DescribedGroup(Structure):
    """A structure of ConsumerGroupDescribeResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "group_epoch",
        "assignment_epoch",
        "assignor_name",
        "members",
        "authorized_operations",
    )
    __match_args__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "group_epoch",
        "assignment_epoch",
        "assignor_name",
        "members",
        "authorized_operations",
    )

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        group_id: str,
        group_state: str,
        group_epoch: int,
        assignment_epoch: int,
        assignor_name: str,
        members: tuple[Member, ...],
        authorized_operations: int,
    ) -> None:
        # The describe error, or 0 if there was no error.
        self.error_code: Final = error_code
        # The top-level error message, or null if there was no error.
        self.error_message: Final = error_message
        # The group ID string.
        self.group_id: Final = group_id
        # The group state string, or the empty string.
        self.group_state: Final = group_state
        # The group epoch.
        self.group_epoch: Final = group_epoch
        # The assignment epoch.
        self.assignment_epoch: Final = assignment_epoch
        # The selected assignor.
        self.assignor_name: Final = assignor_name
        # The members.
        self.members: Final = members
        # 32-bit bitfield to represent authorized operations for this group.
        self.authorized_operations: Final = authorized_operations


class ConsumerGroupDescribeResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "groups")
    __match_args__ = ("throttle_time_ms", "groups")

    def __init__(
        self,
        throttle_time_ms: int,
        groups: tuple[DescribedGroup, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Each described group.
        self.groups: Final = groups


def _write_topic_partitions_0(out: Output, value: TopicPartitions) -> None:
    out += _w_u(value.topic_id.bytes)
    write_compact_string(out, value.topic_name)
    write_numbers(out, value.partitions, write_compact_length, "i")
    out.append(0)


def _write_assignment_0(out: Output, value: Assignment) -> None:
    write_array(out, value.topic_partitions, write_compact_length, _write_topic_partitions_0)
    out.append(0)


def _write_member_0(out: Output, value: Member) -> None:
    write_compact_string(out, value.member_id)
    write_compact_string(out, value.instance_id)
    write_compact_string(out, value.rack_id)
    out += _w_i(value.member_epoch)
    write_compact_string(out, value.client_id)
    write_compact_string(out, value.client_host)
    write_array(out, value.subscribed_topic_names, write_compact_length, write_compact_string)
    write_compact_string(out, value.subscribed_topic_regex)
    _write_assignment_0(out, value.assignment)
    _write_assignment_0(out, value.target_assignment)
    out.append(0)


def _write_described_group_0(out: Output, value: DescribedGroup) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.group_state)
    out += _w_ii(value.group_epoch, value.assignment_epoch)
    write_compact_string(out, value.assignor_name)
    write_array(out, value.members, write_compact_length, _write_member_0)
    out += _w_i(value.authorized_operations)
    out.append(0)


def _write_consumer_group_describe_response_0(out: Output, value: ConsumerGroupDescribeResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_compact_length, _write_described_group_0)
    out.append(0)


def _write_member_1(out: Output, value: Member) -> None:
    write_compact_string(out, value.member_id)
    write_compact_string(out, value.instance_id)
    write_compact_string(out, value.rack_id)
    out += _w_i(value.member_epoch)
    write_compact_string(out, value.client_id)
    write_compact_string(out, value.client_host)
    write_array(out, value.subscribed_topic_names, write_compact_length, write_compact_string)
    write_compact_string(out, value.subscribed_topic_regex)
    _write_assignment_0(out, value.assignment)
    _write_assignment_0(out, value.target_assignment)
    out += _w_b(value.member_type)
    out.append(0)


def _write_described_group_1(out: Output, value: DescribedGroup) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.group_state)
    out += _w_ii(value.group_epoch, value.assignment_epoch)
    write_compact_string(out, value.assignor_name)
    write_array(out, value.members, write_compact_length, _write_member_1)
    out += _w_i(value.authorized_operations)
    out.append(0)


def _write_consumer_group_describe_response_1(out: Output, value: ConsumerGroupDescribeResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_compact_length, _write_described_group_1)
    out.append(0)


CONSUMER_GROUP_DESCRIBE_RESPONSE: Final = MessageCodec(
    ConsumerGroupDescribeResponse,
    69,
    readers={},
    writers={0: _write_consumer_group_describe_response_0, 1: _write_consumer_group_describe_response_1},
    flexible_from=0,
)
