"""DescribeClusterRequest, versions 0 to 2. Generated from DescribeClusterRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    skip_tags,
)

_r_t = Struct(">?").unpack_from
_r_tb = Struct(">?b").unpack_from
_r_tbt = Struct(">?b?").unpack_from


class DescribeClusterRequest(Structure):
    """The message."""

    __slots__ = ("include_cluster_authorized_operations", "endpoint_type", "include_fenced_brokers")
    __match_args__ = ("include_cluster_authorized_operations", "endpoint_type", "include_fenced_brokers")

    def __init__(
        self,
        include_cluster_authorized_operations: bool,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        # Whether to include cluster authorized operations.
        self.include_cluster_authorized_operations: Final = include_cluster_authorized_operations
        # The endpoint type to describe. 1=brokers, 2=controllers.
        self.endpoint_type: Final = endpoint_type
        # Whether to include fenced brokers when listing brokers.
        self.include_fenced_brokers: Final = include_fenced_brokers


def _read_describe_cluster_request_0(data: Data, at: int) -> tuple[DescribeClusterRequest, int]:
    (include_cluster_authorized_operations,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return DescribeClusterRequest(include_cluster_authorized_operations=include_cluster_authorized_operations), at


def _read_describe_cluster_request_1(data: Data, at: int) -> tuple[DescribeClusterRequest, int]:
    include_cluster_authorized_operations, endpoint_type = _r_tb(data, at)
    at += 2
    at = skip_tags(data, at)
    return DescribeClusterRequest(
        include_cluster_authorized_operations=include_cluster_authorized_operations, endpoint_type=endpoint_type
    ), at


def _read_describe_cluster_request_2(data: Data, at: int) -> tuple[DescribeClusterRequest, int]:
    include_cluster_authorized_operations, endpoint_type, include_fenced_brokers = _r_tbt(data, at)
    at += 3
    at = skip_tags(data, at)
    return DescribeClusterRequest(
        include_cluster_authorized_operations=include_cluster_authorized_operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=include_fenced_brokers,
    ), at


DESCRIBE_CLUSTER_REQUEST: Final = MessageCodec(
    DescribeClusterRequest,
    60,
    readers={
        0: _read_describe_cluster_request_0,
        1: _read_describe_cluster_request_1,
        2: _read_describe_cluster_request_2,
    },
    writers={},
    flexible_from=0,
)
