"""CreateAclsRequest, versions 1 to 3. Generated from CreateAclsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_string,
    skip_tags,
)

_r_b = Struct(">b").unpack_from
_r_bb = Struct(">bb").unpack_from


class AclCreation(Structure):
    """A structure of CreateAclsRequest."""

    __slots__ = (
        "resource_type",
        "resource_name",
        "resource_pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )
    __match_args__ = (
        "resource_type",
        "resource_name",
        "resource_pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )

    def __init__(
        self,
        resource_type: int,
        resource_name: str,
        resource_pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission_type: int,
    ) -> None:
        # The type of the resource.
        self.resource_type: Final = resource_type
        # The resource name for the ACL.
        self.resource_name: Final = resource_name
        # The pattern type for the ACL.
        self.resource_pattern_type: Final = resource_pattern_type
        # The principal for the ACL.
        self.principal: Final = principal
        # The host for the ACL.
        self.host: Final = host
        # The operation type for the ACL (read, write, etc.).
        self.operation: Final = operation
        # The permission type for the ACL (allow, deny, etc.).
        self.permission_type: Final = permission_type


class CreateAclsRequest(Structure):
    """The message."""

    __slots__ = ("creations",)
    __match_args__ = ("creations",)

    def __init__(
        self,
        creations: tuple[AclCreation, ...],
    ) -> None:
        # The ACLs that we want to create.
        self.creations: Final = creations


def _read_acl_creation_1(data: Data, at: int) -> tuple[AclCreation, int]:
    (resource_type,) = _r_b(data, at)
    at += 1
    resource_name, at = read_string(data, at)
    (resource_pattern_type,) = _r_b(data, at)
    at += 1
    principal, at = read_string(data, at)
    host, at = read_string(data, at)
    operation, permission_type = _r_bb(data, at)
    at += 2
    return AclCreation(
        resource_type=resource_type,
        resource_name=resource_name,
        resource_pattern_type=resource_pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission_type,
    ), at


def _read_create_acls_request_1(data: Data, at: int) -> tuple[CreateAclsRequest, int]:
    creations, at = read_array(data, at, read_length, _read_acl_creation_1)
    return CreateAclsRequest(creations=creations), at


def _read_acl_creation_2(data: Data, at: int) -> tuple[AclCreation, int]:
    (resource_type,) = _r_b(data, at)
    at += 1
    resource_name, at = read_compact_string(data, at)
    (resource_pattern_type,) = _r_b(data, at)
    at += 1
    principal, at = read_compact_string(data, at)
    host, at = read_compact_string(data, at)
    operation, permission_type = _r_bb(data, at)
    at += 2
    at = skip_tags(data, at)
    return AclCreation(
        resource_type=resource_type,
        resource_name=resource_name,
        resource_pattern_type=resource_pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission_type,
    ), at


def _read_create_acls_request_2(data: Data, at: int) -> tuple[CreateAclsRequest, int]:
    creations, at = read_array(data, at, read_compact_length, _read_acl_creation_2)
    at = skip_tags(data, at)
    return CreateAclsRequest(creations=creations), at


CREATE_ACLS_REQUEST: Final = MessageCodec(
    CreateAclsRequest,
    30,
    readers={1: _read_create_acls_request_1, 2: _read_create_acls_request_2, 3: _read_create_acls_request_2},
    writers={},
    flexible_from=2,
)
