"""DeleteGroupsResponse, versions 0 to 2. Generated from DeleteGroupsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
_w_i = Struct(">i").pack


class DeletableGroupResult(Structure):
    """A structure of DeleteGroupsResponse."""

    __slots__ = ("group_id", "error_code")
    __match_args__ = ("group_id", "error_code")

    def __init__(
        self,
        group_id: str,
        error_code: int,
    ) -> None:
        # The group id.
        self.group_id: Final = group_id
        # The deletion error, or 0 if the deletion succeeded.
        self.error_code: Final = error_code


class DeleteGroupsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results")
    __match_args__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[DeletableGroupResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The deletion results.
        self.results: Final = results


def _write_deletable_group_result_0(out: Output, value: DeletableGroupResult) -> None:
    write_string(out, value.group_id)
    out += _w_h(value.error_code)


def _write_delete_groups_response_0(out: Output, value: DeleteGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_deletable_group_result_0)


def _write_deletable_group_result_2(out: Output, value: DeletableGroupResult) -> None:
    write_compact_string(out, value.group_id)
    out += _w_h(value.error_code)
    out.append(0)


def _write_delete_groups_response_2(out: Output, value: DeleteGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_deletable_group_result_2)
    out.append(0)


DELETE_GROUPS_RESPONSE: Final = MessageCodec(
    DeleteGroupsResponse,
    42,
    readers={},
    writers={
        0: _write_delete_groups_response_0,
        1: _write_delete_groups_response_0,
        2: _write_delete_groups_response_2,
    },
    flexible_from=2,
)
