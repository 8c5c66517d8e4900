"""FindCoordinatorResponse, versions 0 to 6. Generated from FindCoordinatorResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    write_string,
)

_w_hi = Struct(">hi").pack
_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class Coordinator(Structure):
    """A structure of FindCoordinatorResponse."""

    __slots__ = ("key", "node_id", "host", "port", "error_code", "error_message")
    __match_args__ = ("key", "node_id", "host", "port", "error_code", "error_message")

    def __init__(
        self,
        key: str,
        node_id: int,
        host: str,
        port: int,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The coordinator key.
        self.key: Final = key
        # The node id.
        self.node_id: Final = node_id
        # The host name.
        self.host: Final = host
        # The port.
        self.port: Final = port
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The error message, or null if there was no error.
        self.error_message: Final = error_message


class FindCoordinatorResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "node_id", "host", "port", "coordinators")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "node_id", "host", "port", "coordinators")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: tuple[Coordinator, ...] = (),
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The error message, or null if there was no error.
        self.error_message: Final = error_message
        # The node id.
        self.node_id: Final = node_id
        # The host name.
        self.host: Final = host
        # The port.
        self.port: Final = port
        # Each coordinator result in the response.
        self.coordinators: Final = coordinators


def _write_find_coordinator_response_0(out: Output, value: FindCoordinatorResponse) -> None:
    if value.coordinators != ():
        raise inexpressible("FindCoordinatorResponse.coordinators")
    out += _w_hi(value.error_code, value.node_id)
    write_string(out, value.host)
    out += _w_i(value.port)


def _write_find_coordinator_response_1(out: Output, value: FindCoordinatorResponse) -> None:
    if value.coordinators != ():
        raise inexpressible("FindCoordinatorResponse.coordinators")
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_string(out, value.error_message)
    out += _w_i(value.node_id)
    write_string(out, value.host)
    out += _w_i(value.port)


def _write_find_coordinator_response_3(out: Output, value: FindCoordinatorResponse) -> None:
    if value.coordinators != ():
        raise inexpressible("FindCoordinatorResponse.coordinators")
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_i(value.node_id)
    write_compact_string(out, value.host)
    out += _w_i(value.port)
    out.append(0)


def _write_coordinator_4(out: Output, value: Coordinator) -> None:
    write_compact_string(out, value.key)
    out += _w_i(value.node_id)
    write_compact_string(out, value.host)
    out += _w_ih(value.port, value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_find_coordinator_response_4(out: Output, value: FindCoordinatorResponse) -> None:
    if value.error_code != 0:
        raise inexpressible("FindCoordinatorResponse.error_code")
    if value.node_id != 0:
        raise inexpressible("FindCoordinatorResponse.node_id")
    if value.host != "":
        raise inexpressible("FindCoordinatorResponse.host")
    if value.port != 0:
        raise inexpressible("FindCoordinatorResponse.port")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.coordinators, write_compact_length, _write_coordinator_4)
    out.append(0)


FIND_COORDINATOR_RESPONSE: Final = MessageCodec(
    FindCoordinatorResponse,
    10,
    readers={},
    writers={
        0: _write_find_coordinator_response_0,
        1: _write_find_coordinator_response_1,
        2: _write_find_coordinator_response_1,
        3: _write_find_coordinator_response_3,
        4: _write_find_coordinator_response_4,
        5: _write_find_coordinator_response_4,
        6: _write_find_coordinator_response_4,
    },
    flexible_from=3,
)
