"""DescribeClusterResponse, versions 0 to 2. Generated from DescribeClusterResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
)

_w_t = Struct(">?").pack
_w_b = Struct(">b").pack
_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class DescribeClusterBroker(Structure):
    """A structure of DescribeClusterResponse."""

    __slots__ = ("broker_id", "host", "port", "rack", "is_fenced")
    __match_args__ = ("broker_id", "host", "port", "rack", "is_fenced")

    def __init__(
        self,
        broker_id: int,
        host: str,
        port: int,
        rack: str | None,
        is_fenced: bool = False,
    ) -> None:
        # The broker ID.
        self.broker_id: Final = broker_id
        # The broker hostname.
        self.host: Final = host
        # The broker port.
        self.port: Final = port
        # The rack of the broker, or null if it has not been assigned to a rack.
        self.rack: Final = rack
        # Whether the broker is fenced
        self.is_fenced: Final = is_fenced


class DescribeClusterResponse(Structure):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "cluster_id",
        "controller_id",
        "brokers",
        "cluster_authorized_operations",
        "endpoint_type",
    )
    __match_args__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "cluster_id",
        "controller_id",
        "brokers",
        "cluster_authorized_operations",
        "endpoint_type",
    )

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        cluster_id: str,
        controller_id: int,
        brokers: tuple[DescribeClusterBroker, ...],
        cluster_authorized_operations: int,
        endpoint_type: int = 1,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The top-level error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The top-level error message, or null if there was no error.
        self.error_message: Final = error_message
        # The cluster ID that responding broker belongs to.
        self.cluster_id: Final = cluster_id
        # The ID of the controller broker.
        self.controller_id: Final = controller_id
        # Each broker in the response.
        self.brokers: Final = brokers
        # 32-bit bitfield to represent authorized operations for this cluster.
        self.cluster_authorized_operations: Final = cluster_authorized_operations
        # The endpoint type that was described. 1=brokers, 2=controllers.
        self.endpoint_type: Final = endpoint_type


def _write_describe_cluster_broker_0(out: Output, value: DescribeClusterBroker) -> None:
    if value.is_fenced != False:
        raise inexpressible("DescribeClusterBroker.is_fenced")
    out += _w_i(value.broker_id)
    write_compact_string(out, value.host)
    out += _w_i(value.port)
    write_compact_string(out, value.rack)
    out.append(0)


def _write_describe_cluster_response_0(out: Output, value: DescribeClusterResponse) -> None:
    if value.endpoint_type != 1:
        raise inexpressible("DescribeClusterResponse.endpoint_type")
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.brokers, write_compact_length, _write_describe_cluster_broker_0)
    out += _w_i(value.cluster_authorized_operations)
    out.append(0)


def _write_describe_cluster_response_1(out: Output, value: DescribeClusterResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_b(value.endpoint_type)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.brokers, write_compact_length, _write_describe_cluster_broker_0)
    out += _w_i(value.cluster_authorized_operations)
    out.append(0)


def _write_describe_cluster_broker_2(out: Output, value: DescribeClusterBroker) -> None:
    out += _w_i(value.broker_id)
    write_compact_string(out, value.host)
    out += _w_i(value.port)
    write_compact_string(out, value.rack)
    out += _w_t(value.is_fenced)
    out.append(0)


def _write_describe_cluster_response_2(out: Output, value: DescribeClusterResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_b(value.endpoint_type)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.brokers, write_compact_length, _write_describe_cluster_broker_2)
    out += _w_i(value.cluster_authorized_operations)
    out.append(0)


DESCRIBE_CLUSTER_RESPONSE: Final = MessageCodec(
    DescribeClusterResponse,
    60,
    readers={},
    writers={
        0: _write_describe_cluster_response_0,
        1: _write_describe_cluster_response_1,
        2: _write_describe_cluster_response_2,
    },
    flexible_from=0,
)
