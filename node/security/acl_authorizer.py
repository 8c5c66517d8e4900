"""The authorizer that decides by the ACLs of the cluster.

Invariants:
  1. A request is allowed only if the present ACLs allow its principal what the permission of its API says, or the
     principal is a super user, or the request is one of nodes and the listener takes its caller for a node.
  2. Until the node knows the metadata of the cluster, only requests of super users and of nodes are allowed.
  3. Every refusal of something that the caller named is given to the audit log.
  4. The text of a refusal does not contain the name of a topic that the caller named by its id and may not describe.

Not here: who the principal is (node/listeners), which ACL decides (acl_decisions.py).
Source: Kafka's StandardAuthorizer and KafkaApis.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, Final

from node.api.api import Api
from node.api.caller import Caller
from node.api.fetch import FetchRequest
from node.api.permissions import Need, Scope
from node.api.table import APIS
from node.security.acl_decisions import AclDecisions
from node.security.audit_log import AuditLog
from node.security.authorizer import Authorizer
from node.security.security_settings import AuthorizerConfig
from replication.controller.image import ClusterImage
from replication.coordination.group_requests import EveryTopic, VisibleTopics
from tidelog.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    NodeNotAvailable,
    TidelogError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tidelog.security.acls import CLUSTER_NAME, AclOperation, ResourceType, shown

_TOPIC_OPERATIONS: Final = {
    name: need.operation
    for name, api in APIS.items()
    for each in api.permission.needs
    for need in (each, each.or_else)
    if need is not None and need.scope is Scope.EACH_TOPIC
}
"""What the caller must be allowed to do with each topic of a request, by the name of its API."""

_FOLLOWER: Final = Need(AclOperation.CLUSTER_ACTION)
"""What a fetch as a follower needs of a caller that is no node."""

_BY_NAME: Final[dict[ResourceType, tuple[type[TidelogError], str, str]]] = {
    ResourceType.GROUP: (GroupAuthorizationFailed, "group", "--group"),
    ResourceType.TRANSACTIONAL_ID: (TransactionalIdAuthorizationFailed, "transactional id", "--transactional-id"),
}
"""Resources that only their users name: the refusal, what it calls them, and the option of `tidelog acl add`."""


class AclAuthorizer(Authorizer):
    """Decides on every request of a node's listeners."""

    has_rules = True

    def __init__(self, config: AuthorizerConfig, audit: AuditLog) -> None:
        self._super_users = config.super_users
        self._decisions = AclDecisions(config)
        self._image: ClusterImage | None = None
        self._audit = audit

    def follow(self, image: ClusterImage) -> None:
        """Decide by the ACLs of this image from now on."""
        self._image = image
        self._decisions.follow(image.acls)

    def ensure_allowed(self, caller: Caller, api: Api[Any, Any], asked: Any) -> None:
        """As Authorizer's."""
        needed = api.permission
        if needed.asked_by_nodes and caller.for_nodes:
            return
        if isinstance(asked, FetchRequest) and asked.replica is not None and not caller.for_nodes:
            self._ensure(caller, api, _FOLLOWER, asked)
        for need in needed.needs:
            self._ensure(caller, api, need, asked)

    def topic_refusal(
        self, caller: Caller, api: Api[Any, Any], topic: str, *, by_id: bool = False
    ) -> TidelogError | None:
        """As Authorizer's."""
        return self.resource_refusal(caller, api, _TOPIC_OPERATIONS[api.name], ResourceType.TOPIC, topic, by_id=by_id)

    def topic_view(self, caller: Caller) -> VisibleTopics:
        """As Authorizer's."""
        return EveryTopic() if caller.principal in self._super_users else _PrincipalView(self._decisions, caller)

    def _ensure(self, caller: Caller, api: Api[Any, Any], need: Need, asked: Any) -> None:
        """Raises the refusal if the caller may not do this, nor what is sufficient instead."""
        if need.scope.by_handler or need.variant:
            return
        if need.or_else is not None:
            if not self.allows(caller, need.operation, need.scope.resource_type, self._name(need, asked)):
                self._ensure_alternative(caller, api, need, need.or_else, asked)
            return
        if need.names_of is not None:
            for each in need.names_of(asked):
                self._ensure_named(caller, api, need, each)
            return
        self._ensure_named(caller, api, need, self._name(need, asked))

    def _ensure_named(self, caller: Caller, api: Api[Any, Any], need: Need, name: str) -> None:
        refusal = self.resource_refusal(caller, api, need.operation, need.scope.resource_type, name)
        if refusal is not None:
            raise refusal

    def _ensure_alternative(self, caller: Caller, api: Api[Any, Any], need: Need, otherwise: Need, asked: Any) -> None:
        if otherwise.scope is not Scope.ANY_TOPIC:
            self._ensure(caller, api, otherwise, asked)
        elif self._image is None or not self._decisions.allows_any(
            caller.principal, caller.host, otherwise.operation, ResourceType.TOPIC
        ):
            self._ensure(caller, api, replace(need, or_else=None), asked)

    def _name(self, need: Need, asked: Any) -> str:
        assert (need.name_of is None) is (need.scope is Scope.CLUSTER), f"the table names the resource of {need}"
        return CLUSTER_NAME if need.name_of is None else need.name_of(asked)

    def allows(self, caller: Caller, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """As Authorizer's."""
        if self._image is None:
            return caller.principal in self._super_users
        return self._decisions.decide(caller.principal, caller.host, operation, resource_type, name).allowed

    def resource_refusal(
        self,
        caller: Caller,
        api: Api[Any, Any],
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        by_id: bool = False,
    ) -> TidelogError | None:
        """As Authorizer's. by_id: as of `topic_refusal`."""
        if self._image is None:
            if caller.principal in self._super_users:
                return None
            return NodeNotAvailable(
                f"{api}: the node is starting and does not know the ACLs of the cluster yet; use another node, or try "
                "again later"
            )
        decision = self._decisions.decide(caller.principal, caller.host, operation, resource_type, name)
        if decision.allowed:
            return None
        self._audit.denied(caller, api.name, operation, resource_type, name, decision.reason)
        if resource_type in _BY_NAME:
            refusal, kind, option = _BY_NAME[resource_type]
            return refusal(_text(caller, operation, f"{kind} {shown(name)}", f"{option} {_argument(name, 'NAME')}"))
        if resource_type is ResourceType.TOPIC:
            hidden = by_id and not self.allows(caller, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            topic = "a topic that the request does not name" if hidden else f"topic {shown(name)}"
            options = f"--topic {'NAME' if hidden else _argument(name, 'NAME')}"
            return TopicAuthorizationFailed(_text(caller, operation, topic, options))
        return ClusterAuthorizationFailed(_text(caller, operation, "the cluster", "--cluster"))


class _PrincipalView:
    """The topics that a principal may describe from its host."""

    __slots__ = ("_decisions", "_host", "_principal")

    def __init__(self, decisions: AclDecisions, caller: Caller) -> None:
        self._decisions, self._principal, self._host = decisions, caller.principal, caller.host

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PrincipalView) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, str]:
        return self._principal, self._host

    def shows(self, topic: str, /) -> bool:
        return self._decisions.decide(
            self._principal, self._host, AclOperation.DESCRIBE, ResourceType.TOPIC, topic
        ).allowed


_IMPLYING: Final = {
    "--topic": "; a client that reads or writes needs `-o read` or `-o write` instead, which imply it",
    "--group": "; a member, or a client that commits, needs `-o read` instead, which implies it",
    "--transactional-id": "; a producer needs `-o write` instead, which implies it",
}
"""By the option for the resource: which permission includes DESCRIBE."""


def _text(caller: Caller, operation: AclOperation, what: str, options: str) -> str:
    """options: of `tidelog acl add`, for the resource."""
    word = operation.name.lower().replace("_", "-")
    command = f"tidelog acl add --allow {_argument(caller.principal, 'User:NAME')} -o {word} {options}"
    implied = _IMPLYING.get(options.partition(" ")[0], "") if operation is AclOperation.DESCRIBE else ""
    return (
        f"{shown(caller.principal)} has no permission to {operation.name} {what} from {caller.host or 'its address'}"
        f": an operator can give it (`{command}`{implied}), or find out why (`tidelog acl test`)"
    )


def _argument(name: str, otherwise: str) -> str:
    """A name that callers chose, for a command that an operator copies to a shell."""
    return shlex.quote(name) if name.isprintable() and "`" not in name else otherwise
