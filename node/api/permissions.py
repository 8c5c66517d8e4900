"""What a request needs: operations on resources for which the caller must have permission.

Not here: what each API needs (table.py), who has permission (node/security/acl_decisions.py).
Source: Kafka's security documentation, "Operations and Resources on Protocols".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from tidelog.security.acls import AclOperation, ResourceType
from tidelog.values import dataclass


class Scope(Enum):
    """The resource that a need is about. Each: answered one by one. Every: one that is refused refuses the request."""

    CLUSTER = "the cluster"
    EACH_TOPIC = "each topic"
    EVERY_TOPIC = "every topic"
    ANY_TOPIC = "any topic"
    GROUP = "the group"
    EACH_GROUP = "each group"
    TRANSACTIONAL_ID = "the transactional id"
    EACH_TRANSACTIONAL_ID = "each transactional id"

    @property
    def resource_type(self) -> ResourceType:
        return _RESOURCE_TYPES[self]

    @property
    def by_handler(self) -> bool:
        """Decided by the handler of the request, which answers the resources one by one."""
        return self in _BY_HANDLER


_RESOURCE_TYPES: Final = {
    Scope.CLUSTER: ResourceType.CLUSTER,
    Scope.EACH_TOPIC: ResourceType.TOPIC,
    Scope.EVERY_TOPIC: ResourceType.TOPIC,
    Scope.ANY_TOPIC: ResourceType.TOPIC,
    Scope.GROUP: ResourceType.GROUP,
    Scope.EACH_GROUP: ResourceType.GROUP,
    Scope.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    Scope.EACH_TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_BY_HANDLER: Final = {Scope.EACH_TOPIC, Scope.EACH_GROUP, Scope.EACH_TRANSACTIONAL_ID}


@dataclass(frozen=True, slots=True)
class Need:
    """An operation that the caller must be allowed to do with a resource."""

    operation: AclOperation
    scope: Scope = Scope.CLUSTER
    name_of: Callable[[Any], str] | None = None
    """The name in the request, of a scope of one named resource."""
    names_of: Callable[[Any], Iterable[str]] | None = None
    """The names in the request, of Scope.EVERY_TOPIC."""
    or_else: Need | None = None
    """What is sufficient instead."""
    variant: str = ""
    """The kind of request that needs it, where others of the same API do not ("of a transaction"): its handler
    decides."""

    def __str__(self) -> str:
        """`CREATE of the cluster, or CREATE of the topic`, as in docs/security.md."""
        text = f"{self.operation.name} of {self.scope.value}"
        return text if self.or_else is None else f"{text}, or {self.or_else}"


@dataclass(frozen=True, slots=True)
class Permission:
    """What a request needs: all of `needs`, in the order in which they are checked; without any, everyone may ask."""

    needs: tuple[Need, ...]
    asked_by_nodes: bool = False
    """True if a caller that its listener takes for a node needs no rule."""
