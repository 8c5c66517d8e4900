"""DescribeAclsRequest, versions 1 to 3. Generated from DescribeAclsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_nullable_compact_string,
    read_nullable_string,
    skip_tags,
)

_r_b = Struct(">b").unpack_from
_r_bb = Struct(">bb").unpack_from


class DescribeAclsRequest(Structure):
    """The message."""

    __slots__ = (
        "resource_type_filter",
        "resource_name_filter",
        "pattern_type_filter",
        "principal_filter",
        "host_filter",
        "operation",
        "permission_type",
    )
    __match_args__ = (
        "resource_type_filter",
        "resource_name_filter",
        "pattern_type_filter",
        "principal_filter",
        "host_filter",
        "operation",
        "permission_type",
    )

    def __init__(
        self,
        resource_type_filter: int,
        resource_name_filter: str | None,
        pattern_type_filter: int,
        principal_filter: str | None,
        host_filter: str | None,
        operation: int,
        permission_type: int,
    ) -> None:
        # The resource type.
        self.resource_type_filter: Final = resource_type_filter
        # The resource name, or null to match any resource name.
        self.resource_name_filter: Final = resource_name_filter
        # The resource pattern to match.
        self.pattern_type_filter: Final = pattern_type_filter
        # The principal to match, or null to match any principal.
        self.principal_filter: Final = principal_filter
        # The host to match, or null to match any host.
        self.host_filter: Final = host_filter
        # The operation to match.
        self.operation: Final = operation
        # The permission type to match.
        self.permission_type: Final = permission_type


def _read_describe_acls_request_1(data: Data, at: int) -> tuple[DescribeAclsRequest, int]:
    (resource_type_filter,) = _r_b(data, at)
    at += 1
    resource_name_filter, at = read_nullable_string(data, at)
    (pattern_type_filter,) = _r_b(data, at)
    at += 1
    principal_filter, at = read_nullable_string(data, at)
    host_filter, at = read_nullable_string(data, at)
    operation, permission_type = _r_bb(data, at)
    at += 2
    return DescribeAclsRequest(
        resource_type_filter=resource_type_filter,
        resource_name_filter=resource_name_filter,
        pattern_type_filter=pattern_type_filter,
        principal_filter=principal_filter,
        host_filter=host_filter,
        operation=operation,
        permission_type=permission_type,
    ), at


def _read_describe_acls_request_2(data: Data, at: int) -> tuple[DescribeAclsRequest, int]:
    (resource_type_filter,) = _r_b(data, at)
    at += 1
    resource_name_filter, at = read_nullable_compact_string(data, at)
    (pattern_type_filter,) = _r_b(data, at)
    at += 1
    principal_filter, at = read_nullable_compact_string(data, at)
    host_filter, at = read_nullable_compact_string(data, at)
    operation, permission_type = _r_bb(data, at)
    at += 2
    at = skip_tags(data, at)
    return DescribeAclsRequest(
        resource_type_filter=resource_type_filter,
        resource_name_filter=resource_name_filter,
        pattern_type_filter=pattern_type_filter,
        principal_filter=principal_filter,
        host_filter=host_filter,
        operation=operation,
        permission_type=permission_type,
    ), at


DESCRIBE_ACLS_REQUEST: Final = MessageCodec(
    DescribeAclsRequest,
    29,
    readers={1: _read_describe_acls_request_1, 2: _read_describe_acls_request_2, 3: _read_describe_acls_request_2},
    writers={},
    flexible_from=2,
)
