"""What each request needs: API by API, the operation and the resource that the caller must have permission for.

The table is complete (`tests/node/test_permissions.py`): an API without an entry fails a test, and a node refuses it.
docs/security.md shows the table.
Not here: who has permission (acl_decisions.py).
Source: Kafka's security documentation, "Operations and Resources on Protocols".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from node.api import admin_requests as admin
from node.api import controller_requests as controller
from node.api import coordinator_requests as coordinator
from node.api import marker_requests as markers
from node.api import quorum_requests as quorum
from node.api.api import Api
from node.api.fetch import DATA_FETCH, DATA_FETCH_STREAM
from node.api.metadata import ADMIN_GET_METADATA
from node.api.offsets import DATA_GET_REPLICA_LOG_INFO, DATA_LIST_OFFSETS, DATA_OFFSET_FOR_LEADER_EPOCH
from node.api.produce import DATA_PRODUCE, DATA_PRODUCE_STREAM
from node.api.producers import DATA_INIT_PRODUCER_ID
from node.api.sasl_requests import SASL_AUTHENTICATE
from tidelog.security.acls import AclOperation, ResourceType


class Scope(Enum):
    """The resource that a need is about. Each: answered one by one. Every: one that is refused refuses the request."""

    CLUSTER = "the cluster"
    TOPIC = "the topic"
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
    Scope.TOPIC: ResourceType.TOPIC,
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
    """An operation that the caller must be allowed to do with a resource.

    name_of: the name in the request, of a scope of one named resource. names_of: the names, of Scope.EVERY_TOPIC.
    or_else: what is sufficient instead. variant: the kind of request that needs it, where others of the same API do not
    ("of a transaction"): its handler decides.
    """

    operation: AclOperation
    scope: Scope = Scope.CLUSTER
    name_of: Callable[[Any], str] | None = None
    names_of: Callable[[Any], Iterable[str]] | None = None
    or_else: Need | None = None
    variant: str = ""

    def __str__(self) -> str:
        """`CREATE of the cluster, or CREATE of the topic`, as in docs/security.md."""
        text = f"{self.operation.name} of {self.scope.value}"
        return text if self.or_else is None else f"{text}, or {self.or_else}"


@dataclass(frozen=True, slots=True)
class Permission:
    """What a request needs: all of `needs`, in the order in which they are checked; without any, everyone may ask.

    changes: an administrative change, which is recorded in the audit log. asked_by_nodes: a caller that its listener
    takes for a node needs no rule.
    """

    needs: tuple[Need, ...]
    changes: bool = False
    asked_by_nodes: bool = False

    @property
    def variants(self) -> tuple[str, ...]:
        """The kinds of requests that differ in their needs: "" is the one without a name."""
        named = tuple(dict.fromkeys(need.variant for need in self.needs if need.variant))
        return ("", *named) if not named or any(not need.variant for need in self.needs) else named

    def of_variant(self, variant: str) -> tuple[Need, ...]:
        """What requests of this kind need."""
        return tuple(need for need in self.needs if need.variant in ("", variant))


def _name(asked: Any) -> str:
    name: str = asked.name
    return name


def _topic(asked: Any) -> str:
    topic: str = asked.topic
    return topic


def _group_id(asked: Any) -> str:
    group_id: str = asked.group_id
    return group_id


def _transactional_id(asked: Any) -> str:
    transactional_id: str = asked.transactional_id
    return transactional_id


def _subscribed_topics(asked: Any) -> Iterable[str]:
    names: Iterable[str] = asked.subscribed_topic_names or ()
    return names


def _all_of(*needs: Need, changes: bool = False) -> Permission:
    return Permission(needs, changes=changes)


def _each_topic(operation: AclOperation) -> Need:
    return Need(operation, Scope.EACH_TOPIC)


def _topic_named(operation: AclOperation, name_of: Callable[[Any], str]) -> Need:
    return Need(operation, Scope.TOPIC, name_of)


def _group(operation: AclOperation) -> Need:
    return Need(operation, Scope.GROUP, _group_id)


_TRANSACTION: Final = Need(AclOperation.WRITE, Scope.TRANSACTIONAL_ID, _transactional_id)
_PRODUCE: Final = _all_of(
    replace(_TRANSACTION, variant="of a transaction"),
    _each_topic(AclOperation.WRITE),
)
_HEARTBEAT: Final = _all_of(
    _group(AclOperation.READ), Need(AclOperation.DESCRIBE, Scope.EVERY_TOPIC, names_of=_subscribed_topics)
)
_DESCRIBE: Final = _all_of(Need(AclOperation.DESCRIBE))
_CHANGE: Final = _all_of(Need(AclOperation.ALTER), changes=True)
_NODES: Final = Permission((Need(AclOperation.CLUSTER_ACTION),), asked_by_nodes=True)
_NODE_CHANGE: Final = replace(_NODES, changes=True)

_NEEDED: Final[tuple[tuple[Api[Any, Any], Permission], ...]] = (
    (SASL_AUTHENTICATE, Permission(())),  # before it, nobody is known
    (DATA_PRODUCE, _PRODUCE),
    (DATA_PRODUCE_STREAM, _PRODUCE),
    (DATA_FETCH, _all_of(_each_topic(AclOperation.READ))),
    (DATA_FETCH_STREAM, _all_of(_each_topic(AclOperation.READ))),
    (DATA_LIST_OFFSETS, _all_of(_each_topic(AclOperation.DESCRIBE))),
    (DATA_OFFSET_FOR_LEADER_EPOCH, _all_of(_each_topic(AclOperation.DESCRIBE))),
    (
        DATA_INIT_PRODUCER_ID,
        _all_of(Need(AclOperation.IDEMPOTENT_WRITE, or_else=Need(AclOperation.WRITE, Scope.ANY_TOPIC))),
    ),
    (DATA_GET_REPLICA_LOG_INFO, _NODES),
    (markers.DATA_WRITE_TXN_MARKERS, _NODES),
    (markers.DATA_DESCRIBE_PRODUCERS, _all_of(_each_topic(AclOperation.READ))),
    (markers.DATA_ABORT_TRANSACTION, _CHANGE),
    (
        coordinator.COORDINATORS_FIND_COORDINATOR,
        _all_of(
            Need(AclOperation.DESCRIBE, Scope.EACH_GROUP, variant="of groups"),
            Need(AclOperation.DESCRIBE, Scope.EACH_TRANSACTIONAL_ID, variant="of transactional ids"),
        ),
    ),
    (coordinator.GROUPS_CONSUMER_GROUP_HEARTBEAT, _HEARTBEAT),
    (coordinator.GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM, _HEARTBEAT),
    (coordinator.GROUPS_OFFSET_COMMIT, _all_of(_group(AclOperation.READ), _each_topic(AclOperation.READ))),
    (
        coordinator.GROUPS_TXN_OFFSET_COMMIT,
        _all_of(_TRANSACTION, _group(AclOperation.READ), _each_topic(AclOperation.READ)),
    ),
    (coordinator.GROUPS_OFFSET_FETCH, _all_of(_group(AclOperation.DESCRIBE), _each_topic(AclOperation.DESCRIBE))),
    (
        coordinator.GROUPS_OFFSET_DELETE,
        _all_of(_group(AclOperation.DELETE), _each_topic(AclOperation.READ), changes=True),
    ),
    (
        coordinator.GROUPS_LIST_GROUPS,
        _all_of(Need(AclOperation.DESCRIBE, or_else=Need(AclOperation.DESCRIBE, Scope.EACH_GROUP))),
    ),
    (coordinator.GROUPS_DESCRIBE_GROUPS, _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_GROUP))),
    (coordinator.GROUPS_DELETE_GROUPS, _all_of(Need(AclOperation.DELETE, Scope.EACH_GROUP), changes=True)),
    (coordinator.TRANSACTIONS_INIT_PRODUCER_ID, _all_of(_TRANSACTION)),
    (coordinator.TRANSACTIONS_ADD_PARTITIONS_TO_TXN, _all_of(_TRANSACTION, _each_topic(AclOperation.WRITE))),
    (coordinator.TRANSACTIONS_ADD_OFFSETS_TO_TXN, _all_of(_TRANSACTION, _group(AclOperation.READ))),
    (coordinator.TRANSACTIONS_END_TXN, _all_of(_TRANSACTION)),
    (
        coordinator.TRANSACTIONS_LIST_TRANSACTIONS,
        _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_TRANSACTIONAL_ID)),
    ),
    (
        coordinator.TRANSACTIONS_DESCRIBE_TRANSACTIONS,
        _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_TRANSACTIONAL_ID)),
    ),
    (coordinator.TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS, _NODES),
    (ADMIN_GET_METADATA, _all_of(_each_topic(AclOperation.DESCRIBE))),
    (
        admin.ADMIN_CREATE_TOPIC,
        _all_of(Need(AclOperation.CREATE, or_else=_topic_named(AclOperation.CREATE, _name)), changes=True),
    ),
    (admin.ADMIN_DELETE_TOPIC, _all_of(_topic_named(AclOperation.DELETE, _name), changes=True)),
    (admin.ADMIN_CREATE_PARTITIONS, _all_of(_topic_named(AclOperation.ALTER, _topic), changes=True)),
    (
        admin.ADMIN_INCREMENTAL_ALTER_CONFIGS,
        _all_of(_topic_named(AclOperation.ALTER_CONFIGS, _topic), changes=True),
    ),
    (admin.ADMIN_DESCRIBE_CLUSTER, _DESCRIBE),
    (admin.ADMIN_ELECT_LEADERS, _CHANGE),
    (admin.ADMIN_ALTER_PARTITION_REASSIGNMENTS, _CHANGE),
    (admin.ADMIN_LIST_PARTITION_REASSIGNMENTS, _DESCRIBE),
    (admin.ADMIN_UPDATE_FEATURES, _CHANGE),
    (admin.ADMIN_EXPLAIN_PARTITIONS, _all_of(_each_topic(AclOperation.DESCRIBE))),
    (admin.ADMIN_DESCRIBE_LOG_DIRS, Permission((Need(AclOperation.DESCRIBE),), asked_by_nodes=True)),
    (admin.ADMIN_EXPLAIN_RESTART, _DESCRIBE),
    (admin.ADMIN_REMOVE_VOTER, _CHANGE),
    (admin.ADMIN_CREATE_ACLS, _CHANGE),
    (admin.ADMIN_DELETE_ACLS, _CHANGE),
    (admin.ADMIN_DESCRIBE_ACLS, _DESCRIBE),
    (admin.ADMIN_EXPLAIN_ACL, _DESCRIBE),
    (admin.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, _CHANGE),
    (admin.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS, _DESCRIBE),
    (admin.ADMIN_ALTER_CLIENT_QUOTAS, _all_of(Need(AclOperation.ALTER_CONFIGS), changes=True)),
    (admin.ADMIN_DESCRIBE_CLIENT_QUOTAS, _all_of(Need(AclOperation.DESCRIBE_CONFIGS))),
    (controller.CONTROLLER_REGISTER_NODE, _NODES),
    (controller.CONTROLLER_HEARTBEAT, _NODES),
    (controller.CONTROLLER_ALTER_PARTITION, _NODES),
    (controller.CONTROLLER_ALLOCATE_PRODUCER_IDS, _NODES),
    (controller.CONTROLLER_CREATE_TOPIC, _NODE_CHANGE),
    (controller.CONTROLLER_DELETE_TOPIC, _NODE_CHANGE),
    (controller.CONTROLLER_ELECT_LEADERS, _NODE_CHANGE),
    (controller.CONTROLLER_ALTER_PARTITION_REASSIGNMENTS, _NODE_CHANGE),
    (controller.CONTROLLER_INCREMENTAL_ALTER_CONFIGS, _NODE_CHANGE),
    (controller.CONTROLLER_CREATE_PARTITIONS, _NODE_CHANGE),
    (controller.CONTROLLER_UPDATE_FEATURES, _NODE_CHANGE),
    (controller.CONTROLLER_REMOVE_VOTER, _NODE_CHANGE),
    (controller.CONTROLLER_CREATE_ACLS, _NODE_CHANGE),
    (controller.CONTROLLER_DELETE_ACLS, _NODE_CHANGE),
    (controller.CONTROLLER_ALTER_CLIENT_QUOTAS, _NODE_CHANGE),
    (controller.CONTROLLER_ALTER_USER_SCRAM_CREDENTIALS, _NODE_CHANGE),
    (quorum.QUORUM_INTRODUCE, _NODES),
    (quorum.QUORUM_FETCH_METADATA, _NODES),
    (quorum.QUORUM_VOTE, _NODES),
    (quorum.QUORUM_BEGIN_QUORUM_EPOCH, _NODES),
    (quorum.QUORUM_END_QUORUM_EPOCH, _NODES),
    (quorum.QUORUM_FETCH_SNAPSHOT, _NODES),
)

PERMISSIONS: Final[Mapping[str, Permission]] = {api.name: needed for api, needed in _NEEDED}
"""The permission that each request needs, by the name of its API."""

CHANGES: Final = frozenset(name for name, needed in PERMISSIONS.items() if needed.changes)
"""The APIs whose requests are recorded in the audit log."""

TOPIC_OPERATIONS: Final[Mapping[str, AclOperation]] = {
    name: need.operation
    for name, needed in PERMISSIONS.items()
    for need in needed.needs
    if need.scope is Scope.EACH_TOPIC
}
"""What the caller must be allowed to do with each topic of a request, by the name of its API."""
