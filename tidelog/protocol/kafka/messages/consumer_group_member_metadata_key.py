"""ConsumerGroupMemberMetadataKey, versions 0 to 0. Generated from ConsumerGroupMemberMetadataKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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


class ConsumerGroupMemberMetadataKey(Structure):
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


def _read_consumer_group_member_metadata_key_0(data: Data, at: int) -> tuple[ConsumerGroupMemberMetadataKey, int]:
    group_id, at = read_string(data, at)
    member_id, at = read_string(data, at)
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), at


def _write_consumer_group_member_metadata_key_0(out: Output, value: ConsumerGroupMemberMetadataKey) -> None:
    write_string(out, value.group_id)
    write_string(out, value.member_id)


CONSUMER_GROUP_MEMBER_METADATA_KEY: Final = MessageCodec(
    ConsumerGroupMemberMetadataKey,
    5,
    readers={0: _read_consumer_group_member_metadata_key_0},
    writers={0: _write_consumer_group_member_metadata_key_0},
)
