"""ConsumerGroupMetadataKey, versions 0 to 0. Generated from ConsumerGroupMetadataKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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


class ConsumerGroupMetadataKey(Structure):
    """The message."""

    __slots__ = ("group_id",)
    __match_args__ = ("group_id",)

    def __init__(
        self,
        group_id: str,
    ) -> None:
        # The group id.
        self.group_id: Final = group_id


def _read_consumer_group_metadata_key_0(data: Data, at: int) -> tuple[ConsumerGroupMetadataKey, int]:
    group_id, at = read_string(data, at)
    return ConsumerGroupMetadataKey(group_id=group_id), at


def _write_consumer_group_metadata_key_0(out: Output, value: ConsumerGroupMetadataKey) -> None:
    write_string(out, value.group_id)


CONSUMER_GROUP_METADATA_KEY: Final = MessageCodec(
    ConsumerGroupMetadataKey,
    3,
    readers={0: _read_consumer_group_metadata_key_0},
    writers={0: _write_consumer_group_metadata_key_0},
)
