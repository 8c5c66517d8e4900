"""AlterConfigsResponse, versions 0 to 2. Generated from AlterConfigsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_b = Struct(">b").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class AlterConfigsResourceResponse(Structure):
    """A structure of AlterConfigsResponse."""

    __slots__ = ("error_code", "error_message", "resource_type", "resource_name")
    __match_args__ = ("error_code", "error_message", "resource_type", "resource_name")

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        resource_type: int,
        resource_name: str,
    ) -> None:
        # The resource error code.
        self.error_code: Final = error_code
        # The resource error message, or null if there was no error.
        self.error_message: Final = error_message
        # The resource type.
        self.resource_type: Final = resource_type
        # The resource name.
        self.resource_name: Final = resource_name


class AlterConfigsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "responses")
    __match_args__ = ("throttle_time_ms", "responses")

    def __init__(
        self,
        throttle_time_ms: int,
        responses: tuple[AlterConfigsResourceResponse, ...],
    ) -> None:
        # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The responses for each resource.
        self.responses: Final = responses


def _write_alter_configs_resource_response_0(out: Output, value: AlterConfigsResourceResponse) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_string(out, value.resource_name)


def _write_alter_configs_response_0(out: Output, value: AlterConfigsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_length, _write_alter_configs_resource_response_0)


def _write_alter_configs_resource_response_2(out: Output, value: AlterConfigsResourceResponse) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_compact_string(out, value.resource_name)
    out.append(0)


def _write_alter_configs_response_2(out: Output, value: AlterConfigsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_compact_length, _write_alter_configs_resource_response_2)
    out.append(0)


ALTER_CONFIGS_RESPONSE: Final = MessageCodec(
    AlterConfigsResponse,
    33,
    readers={},
    writers={
        0: _write_alter_configs_response_0,
        1: _write_alter_configs_response_0,
        2: _write_alter_configs_response_2,
    },
    flexible_from=2,
)
