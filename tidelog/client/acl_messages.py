"""Access control lists of the administration client: from checked arguments to messages, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tidelog.errors import InvalidRequest
from tidelog.protocol.v1 import acl_pb2, admin_pb2
from tidelog.security.acls import (
    AclBinding,
    AclDecision,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    checked_binding,
    checked_host,
    checked_principal,
)

_KINDS: dict[str, type[AclOperation | AclPermission | PatternType | ResourceType]] = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": AclOperation,
    "permission": AclPermission,
}


def binding_message(binding: object) -> acl_pb2.AclBinding:
    """Raises TypeError, InvalidRequest."""
    if not isinstance(binding, AclBinding):
        raise TypeError(f"an ACL must be an AclBinding, not {type(binding).__name__}: {binding!r}")
    _ensure_types(binding, optional=False)
    return acl_pb2.AclBinding(**_fields(checked_binding(binding)))


def filter_message(selecting: object) -> acl_pb2.AclFilter:
    """Raises TypeError, InvalidRequest."""
    if not isinstance(selecting, AclFilter):
        raise TypeError(f"a filter must be an AclFilter, not {type(selecting).__name__}: {selecting!r}")
    _ensure_types(selecting, optional=True)
    return acl_pb2.AclFilter(**_fields(selecting))


def question_message(
    principal: object, operation: object, resource_type: object, resource_name: object, host: object
) -> admin_pb2.ExplainAclRequest:
    """Raises TypeError, InvalidRequest."""
    given = {
        "principal": principal,
        "operation": operation,
        "resource_type": resource_type,
        "resource_name": resource_name,
        "host": host,
    }
    for name, value in given.items():
        _ensure_type(name, value)
    message: dict[str, Any] = {**given, "principal": checked_principal(str(principal)), "host": checked_host(str(host))}
    return admin_pb2.ExplainAclRequest(**message)


def binding_of(message: acl_pb2.AclBinding) -> AclBinding:
    """Raises InvalidRequest for a value that only newer versions know."""
    try:
        return AclBinding(
            ResourceType(message.resource_type),
            message.resource_name,
            PatternType(message.pattern_type),
            message.principal,
            message.host,
            AclOperation(message.operation),
            AclPermission(message.permission),
        )
    except ValueError as error:
        raise InvalidRequest(f"an ACL of the cluster is of a newer version ({error}): update this client") from None


def decision_of(message: admin_pb2.ExplainAclResponse) -> AclDecision:
    """The decision in an answer."""
    rule = binding_of(message.rule) if message.HasField("rule") else None
    return AclDecision(message.allowed, rule, message.reason, message.enforced)


def _fields(value: AclBinding | AclFilter) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _ensure_types(value: AclBinding | AclFilter, *, optional: bool) -> None:
    for name, given in _fields(value).items():
        if given is not None or not optional:
            _ensure_type(name, given)


def _ensure_type(name: str, given: object) -> None:
    kind = _KINDS.get(name, str)
    if not isinstance(given, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {type(given).__name__}: {given!r}")
    if isinstance(given, str) and not given.isprintable():
        raise InvalidRequest(f"{name}={given!r}: it has characters that are not printable")
