"""ConsumerGroupMetadataValue, versions 0 to 0. Generated from ConsumerGroupMetadataValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    check_tag,
    read_tag,
    read_tag_count,
    write_tags,
)

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack
_r_q = Struct(">q").unpack_from
_w_q = Struct(">q").pack


class ConsumerGroupMetadataValue(Structure):
    """The message."""

    __slots__ = ("epoch", "metadata_hash")
    __match_args__ = ("epoch", "metadata_hash")

    def __init__(
        self,
        epoch: int,
        metadata_hash: int = 0,
    ) -> None:
        # The group epoch.
        self.epoch: Final = epoch
        # The hash of all topics in the group.
        self.metadata_hash: Final = metadata_hash


def _read_consumer_group_metadata_value_0(data: Data, at: int) -> tuple[ConsumerGroupMetadataValue, int]:
    (epoch,) = _r_i(data, at)
    at += 4
    metadata_hash: int = 0
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            (metadata_hash,) = _r_q(data, at)
            at += 8
        else:
            at = end
        check_tag(tag, at, end)
    return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash), at


def _write_consumer_group_metadata_value_0(out: Output, value: ConsumerGroupMetadataValue) -> None:
    out += _w_i(value.epoch)
    tags: list[tuple[int, Output]] = []
    if value.metadata_hash != 0:
        tagged = Output()
        tagged += _w_q(value.metadata_hash)
        tags.append((0, tagged))
    write_tags(out, tags)


CONSUMER_GROUP_METADATA_VALUE: Final = MessageCodec(
    ConsumerGroupMetadataValue,
    3,
    readers={0: _read_consumer_group_metadata_value_0},
    writers={0: _write_consumer_group_metadata_value_0},
)
