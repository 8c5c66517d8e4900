"""ConsumerGroupCurrentMemberAssignmentKey, versions 0 to 0. Generated from ConsumerGroupCurrentMemberAssignmentKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_string,
    write_string,
)


class ConsumerGroupCurrentMemberAssignmentKey(Structure):
    """The message."""

    __slots__ = ("group_id", "member_id")
    __match_args__ = ("group_id", "member_id")

    def __init__(
        self,
        group_id: str,
        member_id: str,
    ) -> None:
        # The group id.
        self.group_id: Final = group_id
        # The member id.
        self.member_id: Final = member_id


def _read_consumer_group_current_member_assignment_key_0(
    data: Data, at: int
) -> tuple[ConsumerGroupCurrentMemberAssignmentKey, int]:
    group_id, at = read_string(data, at)
    member_id, at = read_string(data, at)
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), at


def _write_consumer_group_current_member_assignment_key_0(
    out: Output, value: ConsumerGroupCurrentMemberAssignmentKey
) -> None:
    write_string(out, value.group_id)
    write_string(out, value.member_id)


CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = MessageCodec(
    ConsumerGroupCurrentMemberAssignmentKey,
    8,
    readers={0: _read_consumer_group_current_member_assignment_key_0},
    writers={0: _write_consumer_group_current_member_assignment_key_0},
)
