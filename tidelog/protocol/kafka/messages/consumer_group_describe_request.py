"""ConsumerGroupDescribeRequest, versions 0 to 1. Generated from ConsumerGroupDescribeRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    skip_tags,
)

_r_t = Struct(">?").unpack_from


class ConsumerGroupDescribeRequest(Structure):
    """The message."""

    __slots__ = ("group_ids", "include_authorized_operations")
    __match_args__ = ("group_ids", "include_authorized_operations")

    def __init__(
        self,
        group_ids: tuple[str, ...],
        include_authorized_operations: bool,
    ) -> None:
        # The ids of the groups to describe.
        self.group_ids: Final = group_ids
        # Whether to include authorized operations.
        self.include_authorized_operations: Final = include_authorized_operations


def _read_consumer_group_describe_request_0(data: Data, at: int) -> tuple[ConsumerGroupDescribeRequest, int]:
    group_ids, at = read_array(data, at, read_compact_length, read_compact_string)
    (include_authorized_operations,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return ConsumerGroupDescribeRequest(
        group_ids=group_ids, include_authorized_operations=include_authorized_operations
    ), at


CONSUMER_GROUP_DESCRIBE_REQUEST: Final = MessageCodec(
    ConsumerGroupDescribeRequest,
    69,
    readers={0: _read_consumer_group_describe_request_0, 1: _read_consumer_group_describe_request_0},
    writers={},
    flexible_from=0,
)
