"""Authorization: the one place where a request can be rejected because of its origin. And the audit trail."""

# ruff: noqa: ARG002 (the methods are an interface; what allows everything, or records nothing, uses no argument)

from __future__ import annotations

from typing import Any, ClassVar

from node.api.api import Api
from node.api.caller import Caller
from replication.coordination.group_requests import EveryTopic, VisibleTopics
from tidelog.errors import TidelogError
from tidelog.security.acls import AclOperation, ResourceType


class Authorizer:
    """Allows every request: `authorizer.class.name = "none"`. AclAuthorizer decides by the ACLs of the cluster."""

    has_rules: ClassVar[bool] = False
    """Whether it decides by ACLs."""

    def ensure_allowed(self, caller: Caller, api: Api[Any, Any], asked: Any) -> None:
        """Called with each request, and with each message of a stream, before its handler. Raises
        TopicAuthorizationFailed, GroupAuthorizationFailed, TransactionalIdAuthorizationFailed or
        ClusterAuthorizationFailed to reject it as a whole."""

    def topic_refusal(
        self, caller: Caller, api: Api[Any, Any], topic: str, *, by_id: bool = False
    ) -> TidelogError | None:
        """Called by the handlers of requests whose topics are answered one by one, for each topic: the operation is the
        one that the table of APIs has for the topics of this API. by_id: the request names the topic by its id,
        and may not learn its name. Returns the error to answer with, None if the request is allowed for this topic."""
        return None

    def resource_refusal(
        self, caller: Caller, api: Api[Any, Any], operation: AclOperation, resource_type: ResourceType, name: str
    ) -> TidelogError | None:
        """Called by the handlers for each group or transactional id that is answered by itself, or that only part of a
        request is about. Returns the error to answer with, None if the caller may do this with it."""
        return None

    def topic_view(self, caller: Caller) -> VisibleTopics:
        """The topics that the caller may describe, now and later."""
        return EveryTopic()

    def allows(self, caller: Caller, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller may do this with a resource that it did not name: a refusal is not an event."""
        return True

    def allows_topic(self, caller: Caller, operation: AclOperation, topic: str) -> bool:
        """As `allows`, for a topic."""
        return self.allows(caller, operation, ResourceType.TOPIC, topic)


class AuditTrail:
    """Records nothing; AuditLog does."""

    def authentication_failed(
        self, *, listener: str, address: str, mechanism: str, reason: str, claimed_user: str = ""
    ) -> None:
        """Called by a listener when a caller failed to authenticate. address: IP address and port. reason: for people,
        without any secret. claimed_user: whom the caller claims to be; empty if it names nobody."""

    def not_a_node(self, caller: Caller, request: str) -> None:
        """Called when a request that is for nodes only was refused to another caller."""

    def changed(self, caller: Caller, api: Api[Any, Any], asked: Any, outcome: Any) -> None:
        """Called when an administrative request has ended. outcome: its answer, or its error; None if it is unknown."""
