"""DescribeAclsResponse, versions 1 to 3. Generated from DescribeAclsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
_w_ih = Struct(">ih").pack


class AclDescription(Structure):
    """A structure of DescribeAclsResponse."""

    __slots__ = ("principal", "host", "operation", "permission_type")
    __match_args__ = ("principal", "host", "operation", "permission_type")

    def __init__(
        self,
        principal: str,
        host: str,
        operation: int,
        permission_type: int,
    ) -> None:
        # The ACL principal.
        self.principal: Final = principal
        # The ACL host.
        self.host: Final = host
        # The ACL operation.
        self.operation: Final = operation
        # The ACL permission type.
        self.permission_type: Final = permission_type


class DescribeAclsResource(Structure):
    """A structure of DescribeAclsResponse."""

    __slots__ = ("resource_type", "resource_name", "pattern_type", "acls")
    __match_args__ = ("resource_type", "resource_name", "pattern_type", "acls")

    def __init__(
        self,
        resource_type: int,
        resource_name: str,
        pattern_type: int,
        acls: tuple[AclDescription, ...],
    ) -> None:
        # The resource type.
        self.resource_type: Final = resource_type
        # The resource name.
        self.resource_name: Final = resource_name
        # The resource pattern type.
        self.pattern_type: Final = pattern_type
        # The ACLs.
        self.acls: Final = acls


class DescribeAclsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "resources")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "resources")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        resources: tuple[DescribeAclsResource, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The error message, or null if there was no error.
        self.error_message: Final = error_message
        # Each Resource that is referenced in an ACL.
        self.resources: Final = resources


def _write_acl_description_1(out: Output, value: AclDescription) -> None:
    write_string(out, value.principal)
    write_string(out, value.host)
    out += _w_bb(value.operation, value.permission_type)


def _write_describe_acls_resource_1(out: Output, value: DescribeAclsResource) -> None:
    out += _w_b(value.resource_type)
    write_string(out, value.resource_name)
    out += _w_b(value.pattern_type)
    write_array(out, value.acls, write_length, _write_acl_description_1)


def _write_describe_acls_response_1(out: Output, value: DescribeAclsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_string(out, value.error_message)
    write_array(out, value.resources, write_length, _write_describe_acls_resource_1)


def _write_acl_description_2(out: Output, value: AclDescription) -> None:
    write_compact_string(out, value.principal)
    write_compact_string(out, value.host)
    out += _w_bb(value.operation, value.permission_type)
    out.append(0)


def _write_describe_acls_resource_2(out: Output, value: DescribeAclsResource) -> None:
    out += _w_b(value.resource_type)
    write_compact_string(out, value.resource_name)
    out += _w_b(value.pattern_type)
    write_array(out, value.acls, write_compact_length, _write_acl_description_2)
    out.append(0)


def _write_describe_acls_response_2(out: Output, value: DescribeAclsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.resources, write_compact_length, _write_describe_acls_resource_2)
    out.append(0)


DESCRIBE_ACLS_RESPONSE: Final = MessageCodec(
    DescribeAclsResponse,
    29,
    readers={},
    writers={
        1: _write_describe_acls_response_1,
        2: _write_describe_acls_response_2,
        3: _write_describe_acls_response_2,
    },
    flexible_from=2,
)
