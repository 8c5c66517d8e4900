"""ListGroupsResponse, versions 0 to 5. Generated from ListGroupsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_h = Struct(">h").pack
_w_ih = Struct(">ih").pack


class ListedGroup(Structure):
    """A structure of ListGroupsResponse."""

    __slots__ = ("group_id", "protocol_type", "group_state", "group_type")
    __match_args__ = ("group_id", "protocol_type", "group_state", "group_type")

    def __init__(
        self,
        group_id: str,
        protocol_type: str,
        group_state: str = "",
        group_type: str = "",
    ) -> None:
        # The group ID.
        self.group_id: Final = group_id
        # The group protocol type.
        self.protocol_type: Final = protocol_type
        # The group state name.
        self.group_state: Final = group_state
        # The group type name.
        self.group_type: Final = group_type


class ListGroupsResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "groups", "throttle_time_ms")
    __match_args__ = ("error_code", "groups", "throttle_time_ms")

    def __init__(
        self,
        error_code: int,
        groups: tuple[ListedGroup, ...],
        throttle_time_ms: int = 0,
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # Each group in the response.
        self.groups: Final = groups
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms


def _write_listed_group_0(out: Output, value: ListedGroup) -> None:
    write_string(out, value.group_id)
    write_string(out, value.protocol_type)


def _write_list_groups_response_0(out: Output, value: ListGroupsResponse) -> None:
    out += _w_h(value.error_code)
    write_array(out, value.groups, write_length, _write_listed_group_0)


def _write_list_groups_response_1(out: Output, value: ListGroupsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.groups, write_length, _write_listed_group_0)


def _write_listed_group_3(out: Output, value: ListedGroup) -> None:
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.protocol_type)
    out.append(0)


def _write_list_groups_response_3(out: Output, value: ListGroupsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.groups, write_compact_length, _write_listed_group_3)
    out.append(0)


def _write_listed_group_4(out: Output, value: ListedGroup) -> None:
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.group_state)
    out.append(0)


def _write_list_groups_response_4(out: Output, value: ListGroupsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.groups, write_compact_length, _write_listed_group_4)
    out.append(0)


def _write_listed_group_5(out: Output, value: ListedGroup) -> None:
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.group_state)
    write_compact_string(out, value.group_type)
    out.append(0)


def _write_list_groups_response_5(out: Output, value: ListGroupsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.groups, write_compact_length, _write_listed_group_5)
    out.append(0)


LIST_GROUPS_RESPONSE: Final = MessageCodec(
    ListGroupsResponse,
    16,
    readers={},
    writers={
        0: _write_list_groups_response_0,
        1: _write_list_groups_response_1,
        2: _write_list_groups_response_1,
        3: _write_list_groups_response_3,
        4: _write_list_groups_response_4,
        5: _write_list_groups_response_5,
    },
    flexible_from=3,
)
