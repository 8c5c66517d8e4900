"""Access control lists: Kafka's model of principals, operations and resources.

An `AclBinding` allows or denies one principal one operation on the resources that a pattern names. The numbers of the
enumerations are Kafka's, on the wire and in the metadata log. This module imports only the standard library and
tidelog.errors: clients, nodes and the controller use it.
Not here: which binding decides on a request (node/security/acl_decisions.py).
Source: KIP-11, KIP-290 (prefixed patterns), Kafka's `org.apache.kafka.common.acl`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from tidelog.errors import InvalidRequest

WILDCARD: Final = "*"
"""As the host or the literal resource name of a binding: any."""

ANYONE: Final = "User:*"
"""As the principal of a binding: every principal, those that were not authenticated included."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER, as in Kafka."""

PRINCIPAL_LENGTH_MAX: Final = 1_024
NAME_LENGTH_MAX: Final = 512
"""Limits of bytes in UTF-8. A distinguished name of a certificate fits; a topic name has at most 249."""


class ResourceType(IntEnum):
    """What a binding protects."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    USER = 7


class PatternType(IntEnum):
    """How the resource name of a binding is compared. MATCH is for filters only: every pattern that contains a name."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What a principal does with a resource."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    """What a binding does. A denial is stronger than any number of permissions."""

    DENY = 2
    ALLOW = 3


_TOPIC: Final = frozenset(
    {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }
)
_CLUSTER: Final = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }
)
OPERATIONS: Final = {
    ResourceType.TOPIC: _TOPIC,
    ResourceType.GROUP: frozenset(
        {
            AclOperation.READ,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: _CLUSTER,
    ResourceType.TRANSACTIONAL_ID: frozenset({AclOperation.WRITE, AclOperation.DESCRIBE}),
    ResourceType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}
"""The operations that each resource type has, beside ALL. Source: Kafka's `AclEntry.supportedOperations`."""


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One rule: `permission` for `principal`, connected from `host`, to do `operation` with the resources that
    `resource_type`, `pattern_type` and `resource_name` name."""

    resource_type: ResourceType
    resource_name: str
    """With LITERAL one name, or `*` for all; with PREFIXED a prefix of names."""
    pattern_type: PatternType
    principal: str
    """`User:alice`, or `User:*` for everyone."""
    host: str
    """An IP address, or `*`."""
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        """`allow User:alice to READ topic "orders" (PREFIXED) from any host`. Names are escaped."""
        kind = self.resource_type.name.lower().replace("_", " ")
        prefixed = " (PREFIXED)" if self.pattern_type is PatternType.PREFIXED else ""
        where = "any host" if self.host == WILDCARD else self.host
        return (
            f"{self.permission.name.lower()} {shown(self.principal)} to {self.operation.name} {kind} "
            f"{shown(self.resource_name)}{prefixed} from {where}"
        )

    def applies_to(self, name: str) -> bool:
        """True if the pattern contains the resource of this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects bindings; None selects any value. pattern_type: MATCH selects every pattern that contains
    `resource_name`, the wildcard included."""

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern_type: PatternType | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None

    def selects(self, binding: AclBinding) -> bool:
        """True if the binding has every value of the filter."""
        if self.pattern_type is PatternType.MATCH:
            if self.resource_name is not None and not binding.applies_to(self.resource_name):
                return False
        elif self.pattern_type not in (None, binding.pattern_type):
            return False
        return (
            (self.resource_name in (None, binding.resource_name) or self.pattern_type is PatternType.MATCH)
            and self.resource_type in (None, binding.resource_type)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (None, binding.operation)
            and self.permission in (None, binding.permission)
        )


@dataclass(frozen=True, slots=True)
class AclDecision:
    """Whether a principal may do something, and why."""

    allowed: bool
    rule: AclBinding | None
    """The binding that decided; None if none did."""
    reason: str
    """The whole explanation, for people."""
    enforced: bool = True
    """Whether the node that decided refuses requests accordingly; without an authorizer it refuses none."""


def shown(name: str) -> str:
    """The name as text of one line, control characters escaped, in double quotes unless it is a plain word."""
    if re.fullmatch(r"[A-Za-z0-9._:*@/=,+-]+", name):
        return name
    return '"' + name.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def operation_named(word: str) -> AclOperation:
    """The operation with this name, as `read` or `alter-configs`. Raises InvalidRequest."""
    name = word.upper().replace("-", "_")
    if name not in AclOperation.__members__:
        valid = ", ".join(each.name.lower().replace("_", "-") for each in AclOperation)
        raise InvalidRequest(f"unknown operation {word!r}; valid operations: {valid}")
    return AclOperation[name]


def checked_binding(binding: AclBinding) -> AclBinding:
    """The binding, with its host in the usual form. Raises InvalidRequest if no request could ever meet it."""
    checked_principal(binding.principal)
    _checked_resource(binding)
    operations = OPERATIONS[binding.resource_type]
    if binding.operation is not AclOperation.ALL and binding.operation not in operations:
        valid = ", ".join(each.name for each in sorted(operations))
        raise InvalidRequest(
            f"operation {binding.operation.name} does not exist for a {binding.resource_type.name}; valid operations: "
            f"ALL, {valid}"
        )
    return replace(binding, host=checked_host(binding.host))


def checked_principal(principal: str) -> str:
    """The principal. Raises InvalidRequest unless it is `User:NAME`."""
    if not (principal.startswith("User:") and len(principal) > len("User:") and principal.isprintable()):
        raise InvalidRequest(f"principal {principal[:100]!r}: write User:NAME, for example User:alice or {ANYONE}")
    length = len(principal.encode())
    if length > PRINCIPAL_LENGTH_MAX:
        raise InvalidRequest(f"a principal has at most {PRINCIPAL_LENGTH_MAX} bytes, this one {length}")
    return principal


def checked_host(host: str) -> str:
    """The host in the usual form of its IP address, as listeners report it: an IPv4 address that is mapped to IPv6 is
    the IPv4 address. Raises InvalidRequest for anything but an address or `*`."""
    if host == WILDCARD:
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise InvalidRequest(f"host {host[:100]!r}: write one IP address, or * for any host") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _checked_resource(binding: AclBinding) -> None:
    name, pattern = binding.resource_name, binding.pattern_type
    if pattern is PatternType.MATCH:
        raise InvalidRequest("pattern type MATCH is for filters; a binding has LITERAL or PREFIXED")
    if not name or not name.isprintable() or len(name.encode()) > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"resource name {name[:100]!r}: it must have 1 to {NAME_LENGTH_MAX} bytes of printable characters; * "
            "stands for all names"
        )
    if pattern is PatternType.PREFIXED and name == WILDCARD:
        raise InvalidRequest("a PREFIXED pattern * would be the names that begin with *: use LITERAL for all names")
    if binding.resource_type is ResourceType.CLUSTER and (name, pattern) != (CLUSTER_NAME, PatternType.LITERAL):
        raise InvalidRequest(f"the resource of type CLUSTER is {CLUSTER_NAME}, LITERAL; not {name!r}")
