"""What each request needs: API by API, the operation and the resource that the caller must have permission for.

The table is complete (`tests/node/test_permissions.py`): an API without an entry fails a test, and a node refuses it.
docs/security.md shows the table.
Not here: who has permission (acl_decisions.py).
Source: Kafka's security documentation, "Operations and Resources on Protocols".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from node.requests.types import admin_requests as admin
from node.requests.types import controller_requests as controller
from node.requests.types import quorum_requests as quorum
from node.requests.types.api import Api
from node.requests.types.fetch import DATA_FETCH, DATA_FETCH_STREAM
from node.requests.types.metadata import ADMIN_GET_METADATA
from node.requests.types.offsets import DATA_GET_REPLICA_LOG_INFO, DATA_LIST_OFFSETS, DATA_OFFSET_FOR_LEADER_EPOCH
from node.requests.types.produce import DATA_PRODUCE, DATA_PRODUCE_STREAM
from node.requests.types.producers import DATA_INIT_PRODUCER_ID
from node.requests.types.sasl_requests import SASL_AUTHENTICATE
from tidelog.security.acls import AclOperation


class Scope(Enum):
    """The resource of a request."""

    CLUSTER = "the cluster"
    TOPIC = "the topic that the request names"
    EACH_TOPIC = "each topic of the request, answered one by one"
    NOTHING = "nothing: everyone may ask"


@dataclass(frozen=True, slots=True)
class Permission:
    """The permission that a request needs.

    topic_of: with Scope.TOPIC, the name in the request. or_topic: what is sufficient instead, for the named topic or,
    without a name, for any topic. changes: an administrative change, which is recorded in the audit log.
    asked_by_nodes: a caller that its listener takes for a node needs no rule.
    """

    operation: AclOperation
    scope: Scope = Scope.CLUSTER
    topic_of: Callable[[Any], str] | None = None
    or_topic: AclOperation | None = None
    changes: bool = False
    asked_by_nodes: bool = False


def _name(asked: Any) -> str:
    name: str = asked.name
    return name


def _topic(asked: Any) -> str:
    topic: str = asked.topic
    return topic


def _each_topic(operation: AclOperation) -> Permission:
    return Permission(operation, Scope.EACH_TOPIC)


_DESCRIBE: Final = Permission(AclOperation.DESCRIBE)
_CHANGE: Final = Permission(AclOperation.ALTER, changes=True)
_NODES: Final = Permission(AclOperation.CLUSTER_ACTION, asked_by_nodes=True)

_NEEDED: Final[tuple[tuple[Api[Any, Any], Permission], ...]] = (
    (SASL_AUTHENTICATE, Permission(AclOperation.ALL, Scope.NOTHING)),  # before it, nobody is known
    (DATA_PRODUCE, _each_topic(AclOperation.WRITE)),
    (DATA_PRODUCE_STREAM, _each_topic(AclOperation.WRITE)),
    (DATA_FETCH, _each_topic(AclOperation.READ)),
    (DATA_FETCH_STREAM, _each_topic(AclOperation.READ)),
    (DATA_LIST_OFFSETS, _each_topic(AclOperation.DESCRIBE)),
    (DATA_OFFSET_FOR_LEADER_EPOCH, _each_topic(AclOperation.DESCRIBE)),
    (DATA_INIT_PRODUCER_ID, Permission(AclOperation.IDEMPOTENT_WRITE, or_topic=AclOperation.WRITE)),
    (DATA_GET_REPLICA_LOG_INFO, _NODES),
    (ADMIN_GET_METADATA, _each_topic(AclOperation.DESCRIBE)),
    (
        admin.ADMIN_CREATE_TOPIC,
        Permission(AclOperation.CREATE, topic_of=_name, or_topic=AclOperation.CREATE, changes=True),
    ),
    (admin.ADMIN_DELETE_TOPIC, Permission(AclOperation.DELETE, Scope.TOPIC, topic_of=_name, changes=True)),
    (admin.ADMIN_CREATE_PARTITIONS, Permission(AclOperation.ALTER, Scope.TOPIC, topic_of=_topic, changes=True)),
    (
        admin.ADMIN_INCREMENTAL_ALTER_CONFIGS,
        Permission(AclOperation.ALTER_CONFIGS, Scope.TOPIC, topic_of=_topic, changes=True),
    ),
    (admin.ADMIN_DESCRIBE_CLUSTER, _DESCRIBE),
    (admin.ADMIN_ELECT_LEADERS, _CHANGE),
    (admin.ADMIN_ALTER_PARTITION_REASSIGNMENTS, _CHANGE),
    (admin.ADMIN_LIST_PARTITION_REASSIGNMENTS, _DESCRIBE),
    (admin.ADMIN_UPDATE_FEATURES, _CHANGE),
    (admin.ADMIN_EXPLAIN_PARTITIONS, _each_topic(AclOperation.DESCRIBE)),
    (admin.ADMIN_DESCRIBE_LOG_DIRS, Permission(AclOperation.DESCRIBE, asked_by_nodes=True)),
    (admin.ADMIN_EXPLAIN_RESTART, _DESCRIBE),
    (admin.ADMIN_REMOVE_VOTER, _CHANGE),
    (admin.ADMIN_CREATE_ACLS, _CHANGE),
    (admin.ADMIN_DELETE_ACLS, _CHANGE),
    (admin.ADMIN_DESCRIBE_ACLS, _DESCRIBE),
    (admin.ADMIN_EXPLAIN_ACL, _DESCRIBE),
    (admin.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, _CHANGE),
    (admin.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS, _DESCRIBE),
    (admin.ADMIN_ALTER_CLIENT_QUOTAS, Permission(AclOperation.ALTER_CONFIGS, changes=True)),
    (admin.ADMIN_DESCRIBE_CLIENT_QUOTAS, Permission(AclOperation.DESCRIBE_CONFIGS)),
    (controller.CONTROLLER_REGISTER_NODE, _NODES),
    (controller.CONTROLLER_HEARTBEAT, _NODES),
    (controller.CONTROLLER_ALTER_PARTITION, _NODES),
    (controller.CONTROLLER_ALLOCATE_PRODUCER_IDS, _NODES),
    (controller.CONTROLLER_CREATE_TOPIC, _NODES),
    (controller.CONTROLLER_DELETE_TOPIC, _NODES),
    (controller.CONTROLLER_ELECT_LEADERS, _NODES),
    (controller.CONTROLLER_ALTER_PARTITION_REASSIGNMENTS, _NODES),
    (controller.CONTROLLER_INCREMENTAL_ALTER_CONFIGS, _NODES),
    (controller.CONTROLLER_CREATE_PARTITIONS, _NODES),
    (controller.CONTROLLER_UPDATE_FEATURES, _NODES),
    (controller.CONTROLLER_REMOVE_VOTER, _NODES),
    (controller.CONTROLLER_CREATE_ACLS, _NODES),
    (controller.CONTROLLER_DELETE_ACLS, _NODES),
    (controller.CONTROLLER_ALTER_CLIENT_QUOTAS, _NODES),
    (controller.CONTROLLER_ALTER_USER_SCRAM_CREDENTIALS, _NODES),
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
