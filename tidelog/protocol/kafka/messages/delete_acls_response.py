"""DeleteAclsResponse, versions 1 to 3. Generated from DeleteAclsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
_w_bb = Struct(">bb").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class DeleteAclsMatchingAcl(Structure):
    """A structure of DeleteAclsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "resource_type",
        "resource_name",
        "pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )
    __match_args__ = (
        "error_code",
        "error_message",
        "resource_type",
        "resource_name",
        "pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        resource_type: int,
        resource_name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission_type: int,
    ) -> None:
        # The deletion error code, or 0 if the deletion succeeded.
        self.error_code: Final = error_code
        # The deletion error message, or null if the deletion succeeded.
        self.error_message: Final = error_message
        # The ACL resource type.
        self.resource_type: Final = resource_type
        # The ACL resource name.
        self.resource_name: Final = resource_name
        # The ACL resource pattern type.
        self.pattern_type: Final = pattern_type
        # The ACL principal.
        self.principal: Final = principal
        # The ACL host.
        self.host: Final = host
        # The ACL operation.
        self.operation: Final = operation
        # The ACL permission type.
        self.permission_type: Final = permission_type


class DeleteAclsFilterResult(Structure):
    """A structure of DeleteAclsResponse."""

    __slots__ = ("error_code", "error_message", "matching_acls")
    __match_args__ = ("error_code", "error_message", "matching_acls")

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        matching_acls: tuple[DeleteAclsMatchingAcl, ...],
    ) -> None:
        # The error code, or 0 if the filter succeeded.
        self.error_code: Final = error_code
        # The error message, or null if the filter succeeded.
        self.error_message: Final = error_message
        # The ACLs which matched this filter.
        self.matching_acls: Final = matching_acls


class DeleteAclsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "filter_results")
    __match_args__ = ("throttle_time_ms", "filter_results")

    def __init__(
        self,
        throttle_time_ms: int,
        filter_results: tuple[DeleteAclsFilterResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The results for each filter.
        self.filter_results: Final = filter_results


def _write_delete_acls_matching_acl_1(out: Output, value: DeleteAclsMatchingAcl) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_string(out, value.resource_name)
    out += _w_b(value.pattern_type)
    write_string(out, value.principal)
    write_string(out, value.host)
    out += _w_bb(value.operation, value.permission_type)


def _write_delete_acls_filter_result_1(out: Output, value: DeleteAclsFilterResult) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    write_array(out, value.matching_acls, write_length, _write_delete_acls_matching_acl_1)


def _write_delete_acls_response_1(out: Output, value: DeleteAclsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.filter_results, write_length, _write_delete_acls_filter_result_1)


def _write_delete_acls_matching_acl_2(out: Output, value: DeleteAclsMatchingAcl) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_compact_string(out, value.resource_name)
    out += _w_b(value.pattern_type)
    write_compact_string(out, value.principal)
    write_compact_string(out, value.host)
    out += _w_bb(value.operation, value.permission_type)
    out.append(0)


def _write_delete_acls_filter_result_2(out: Output, value: DeleteAclsFilterResult) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.matching_acls, write_compact_length, _write_delete_acls_matching_acl_2)
    out.append(0)


def _write_delete_acls_response_2(out: Output, value: DeleteAclsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.filter_results, write_compact_length, _write_delete_acls_filter_result_2)
    out.append(0)


DELETE_ACLS_RESPONSE: Final = MessageCodec(
    DeleteAclsResponse,
    31,
    readers={},
    writers={1: _write_delete_acls_response_1, 2: _write_delete_acls_response_2, 3: _write_delete_acls_response_2},
    flexible_from=2,
)
