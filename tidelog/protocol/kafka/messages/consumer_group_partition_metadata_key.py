"""ConsumerGroupPartitionMetadataKey, versions 0 to 0. Generated from ConsumerGroupPartitionMetadataKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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


class ConsumerGroupPartitionMetadataKey(Structure):
    """The message."""

    __slots__ = ("group_id",)
    __match_args__ = ("group_id",)

    def __init__(
        self,
        group_id: str,
    ) -> None:
        # The group id.
        self.group_id: Final = group_id


def _read_consumer_group_partition_metadata_key_0(data: Data, at: int) -> tuple[ConsumerGroupPartitionMetadataKey, int]:
    group_id, at = read_string(data, at)
    return ConsumerGroupPartitionMetadataKey(group_id=group_id), at


def _write_consumer_group_partition_metadata_key_0(out: Output, value: ConsumerGroupPartitionMetadataKey) -> None:
    write_string(out, value.group_id)


CONSUMER_GROUP_PARTITION_METADATA_KEY: Final = MessageCodec(
    ConsumerGroupPartitionMetadataKey,
    4,
    readers={0: _read_consumer_group_partition_metadata_key_0},
    writers={0: _write_consumer_group_partition_metadata_key_0},
)
