"""ListConfigResourcesResponse, versions 0 to 1. Generated from ListConfigResourcesResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
)

_w_b = Struct(">b").pack
_w_ih = Struct(">ih").pack


class ConfigResource(Structure):
    """A structure of ListConfigResourcesResponse."""

    __slots__ = ("resource_name", "resource_type")
    __match_args__ = ("resource_name", "resource_type")

    def __init__(
        self,
        resource_name: str,
        resource_type: int = 16,
    ) -> None:
        # The resource name.
        self.resource_name: Final = resource_name
        # The resource type.
        self.resource_type: Final = resource_type


class ListConfigResourcesResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "config_resources")
    __match_args__ = ("throttle_time_ms", "error_code", "config_resources")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        config_resources: tuple[ConfigResource, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # Each config resource in the response.
        self.config_resources: Final = config_resources


def _write_config_resource_0(out: Output, value: ConfigResource) -> None:
    write_compact_string(out, value.resource_name)
    out.append(0)


def _write_list_config_resources_response_0(out: Output, value: ListConfigResourcesResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.config_resources, write_compact_length, _write_config_resource_0)
    out.append(0)


def _write_config_resource_1(out: Output, value: ConfigResource) -> None:
    write_compact_string(out, value.resource_name)
    out += _w_b(value.resource_type)
    out.append(0)


def _write_list_config_resources_response_1(out: Output, value: ListConfigResourcesResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.config_resources, write_compact_length, _write_config_resource_1)
    out.append(0)


LIST_CONFIG_RESOURCES_RESPONSE: Final = MessageCodec(
    ListConfigResourcesResponse,
    74,
    readers={},
    writers={0: _write_list_config_resources_response_0, 1: _write_list_config_resources_response_1},
    flexible_from=0,
)
