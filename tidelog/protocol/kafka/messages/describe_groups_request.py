"""DescribeGroupsRequest, versions 0 to 6. Generated from DescribeGroupsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_length,
    read_string,
    skip_tags,
)

_r_t = Struct(">?").unpack_from


class DescribeGroupsRequest(Structure):
    """The message."""

    __slots__ = ("groups", "include_authorized_operations")
    __match_args__ = ("groups", "include_authorized_operations")

    def __init__(
        self,
        groups: tuple[str, ...],
        include_authorized_operations: bool = False,
    ) -> None:
        # The names of the groups to describe.
        self.groups: Final = groups
        # Whether to include authorized operations.
        self.include_authorized_operations: Final = include_authorized_operations


def _read_describe_groups_request_0(data: Data, at: int) -> tuple[DescribeGroupsRequest, int]:
    groups, at = read_array(data, at, read_length, read_string)
    return DescribeGroupsRequest(groups=groups), at


def _read_describe_groups_request_3(data: Data, at: int) -> tuple[DescribeGroupsRequest, int]:
    groups, at = read_array(data, at, read_length, read_string)
    (include_authorized_operations,) = _r_t(data, at)
    at += 1
    return DescribeGroupsRequest(groups=groups, include_authorized_operations=include_authorized_operations), at


def _read_describe_groups_request_5(data: Data, at: int) -> tuple[DescribeGroupsRequest, int]:
    groups, at = read_array(data, at, read_compact_length, read_compact_string)
    (include_authorized_operations,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return DescribeGroupsRequest(groups=groups, include_authorized_operations=include_authorized_operations), at


DESCRIBE_GROUPS_REQUEST: Final = MessageCodec(
    DescribeGroupsRequest,
    15,
    readers={
        0: _read_describe_groups_request_0,
        1: _read_describe_groups_request_0,
        2: _read_describe_groups_request_0,
        3: _read_describe_groups_request_3,
        4: _read_describe_groups_request_3,
        5: _read_describe_groups_request_5,
        6: _read_describe_groups_request_5,
    },
    writers={},
    flexible_from=5,
)
