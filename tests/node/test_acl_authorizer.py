"""The authorizer on the boundary: what it refuses, what it says, and what it tells the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from node.api.api import Api
from node.api.fetch import FetchingReplica, FetchRequest
from node.api.producers import InitProducerIdRequest
from node.api.table import (
    ADMIN_CREATE_ACLS,
    ADMIN_CREATE_TOPICS,
    ADMIN_DELETE_TOPICS,
    ADMIN_DESCRIBE_LOG_DIRS,
    CONTROLLER_HEARTBEAT,
    DATA_FETCH_STREAM,
    DATA_INIT_PRODUCER_ID,
    DATA_LIST_OFFSETS,
    DATA_WRITE_TXN_MARKERS,
    GROUPS_CONSUMER_GROUP_HEARTBEAT,
    GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM,
    GROUPS_DELETE_GROUPS,
    GROUPS_DESCRIBE_GROUPS,
    GROUPS_HEARTBEAT,
    GROUPS_JOIN_GROUP,
    GROUPS_LEAVE_GROUP,
    GROUPS_LIST_GROUPS,
    GROUPS_OFFSET_COMMIT,
    GROUPS_OFFSET_DELETE,
    GROUPS_OFFSET_FETCH,
    GROUPS_SYNC_GROUP,
    GROUPS_TXN_OFFSET_COMMIT,
    TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS,
    TRANSACTIONS_ADD_PARTITIONS_TO_TXN,
    TRANSACTIONS_LIST_TRANSACTIONS,
)
from node.listeners.grpc.connections import host_of
from node.requests.context import RequestContext
from node.security.acl_authorizer import AclAuthorizer
from node.security.audit_log import AuditLog
from node.security.security_settings import AuthorizerConfig
from replication.controller.image import EMPTY, TopicState
from replication.coordination import classic_requests as classic
from replication.coordination import group_requests as groups
from replication.coordination import transaction_requests as transactions
from tidelog.clock import MachineClock
from tidelog.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    NodeNotAvailable,
    TidelogError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tidelog.security.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import NO_PRODUCER_ID, Incarnation, Isolation, NodeId, ProducerId, TopicId

SECRET = TopicId(UUID(int=7))
IMAGE = replace(EMPTY, topics={SECRET: TopicState("secret", SECRET, {}, ())}, topic_ids={"secret": SECRET})
ALICE = RequestContext("client", "ipv4:10.0.0.1:40000", "User:alice", for_nodes=False, host="10.0.0.1")
ROOT = replace(ALICE, principal="User:root")


def rule(
    operation: AclOperation,
    name: str = "",
    *,
    permission: AclPermission = AclPermission.ALLOW,
    host: str = "*",
    prefixed: bool = False,
) -> AclBinding:
    """For alice; without a name, of the cluster."""
    kind = ResourceType.TOPIC if name else ResourceType.CLUSTER
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name or CLUSTER_NAME, pattern, "User:alice", host, operation, permission)


class World:
    """An authorizer, and the audit log that it writes."""

    def __init__(self, *rules: AclBinding, loaded: bool = True, everyone: bool = False) -> None:
        self.lines: list[str] = []
        audit = AuditLog(self.lines.append, clock=MachineClock(), node_id=3)
        config = AuthorizerConfig(enabled=True, super_users=frozenset({"User:root"}), allow_everyone=everyone)
        self.authorizer = AclAuthorizer(config, audit)
        if loaded:
            self.follow(*rules)

    def follow(self, *rules: AclBinding) -> None:
        self.authorizer.follow(replace(IMAGE, acls=frozenset(rules)))

    def ask(self, api: Api[Any, Any], asked: Any, context: RequestContext = ALICE) -> TidelogError | None:
        """The refusal; None if it is allowed."""
        try:
            self.authorizer.ensure_allowed(context, api, asked)
        except TidelogError as error:
            return error
        return None

    def ask_topic(
        self, api: Api[Any, Any], topic: str, context: RequestContext = ALICE, *, by_id: bool = False
    ) -> TidelogError | None:
        """As `ask`, for one of the topics of a request."""
        return self.ask(api, None, context) or self.authorizer.topic_refusal(context, api, topic, by_id=by_id)

    @property
    def denied(self) -> list[tuple[str, str]]:
        events = [json.loads(line) for line in self.lines]
        return [(event["operation"], event["resource"]) for event in events if event["event"] == "denied"]


def producer_id() -> InitProducerIdRequest:
    return InitProducerIdRequest(NO_PRODUCER_ID, -1)


def test_a_refusal_says_what_is_missing_and_what_to_do_and_is_recorded() -> None:
    world = World()
    refusal = world.ask_topic(ADMIN_CREATE_TOPICS, "orders")
    assert isinstance(refusal, TopicAuthorizationFailed)
    assert refusal.message == (
        "User:alice has no permission to CREATE topic orders from 10.0.0.1: an operator can give it (`tidelog acl add "
        "--allow User:alice -o create --topic orders`), or find out why (`tidelog acl test`)"
    )
    (line,) = world.lines
    event = json.loads(line)
    assert event["principal"] == "User:alice"
    assert event["address"] == "ipv4:10.0.0.1:40000"
    assert event["request"] == "Admin.CreateTopics"
    assert event["reason"] == "no ACL refers to the resource: denied by default"


def test_a_refusal_names_the_command_that_gives_the_permission() -> None:
    world = World()
    refusal = world.ask(DATA_INIT_PRODUCER_ID, producer_id())
    assert refusal is not None
    assert "(`tidelog acl add --allow User:alice -o idempotent-write --cluster`)" in refusal.message
    refusal = world.authorizer.topic_refusal(ALICE, DATA_LIST_OFFSETS, "orders")
    assert refusal is not None
    assert (
        "(`tidelog acl add --allow User:alice -o describe --topic orders`; a client that reads or writes needs "
        "`-o read` or `-o write` instead, which imply it)"
    ) in refusal.message


@pytest.mark.parametrize(
    ("principal", "topic", "options"),
    [
        ("User:CN=Jane Doe", "orders", "--allow 'User:CN=Jane Doe' -o create --topic orders"),
        ("User:$(reboot)", "a;reboot", "--allow 'User:$(reboot)' -o create --topic 'a;reboot'"),
        ("User:a\nb", "`reboot`", "--allow User:NAME -o create --topic NAME"),
    ],
)
def test_the_command_of_a_refusal_is_safe_to_copy(principal: str, topic: str, options: str) -> None:
    refusal = World().ask_topic(ADMIN_CREATE_TOPICS, topic, replace(ALICE, principal=principal))
    assert refusal is not None
    assert f"`tidelog acl add {options}`" in refusal.message


def test_topics_are_created_with_permission_for_the_cluster_or_for_their_names() -> None:
    """Who has none for the cluster is let in: each topic is decided by its name."""
    for given in (rule(AclOperation.CREATE), rule(AclOperation.CREATE, "orders")):
        world = World(given)
        assert world.ask(ADMIN_CREATE_TOPICS, None) is None
        assert world.denied == [], "what may be allowed in another way is not an event"
    assert world.ask_topic(ADMIN_CREATE_TOPICS, "orders") is None
    assert world.ask_topic(ADMIN_CREATE_TOPICS, "others") is not None


def test_a_producer_id_needs_idempotent_write_or_write_of_any_topic() -> None:
    asked = producer_id()
    for given in (rule(AclOperation.IDEMPOTENT_WRITE), rule(AclOperation.WRITE, "orders")):
        assert World(given).ask(DATA_INIT_PRODUCER_ID, asked) is None
    world = World(rule(AclOperation.READ, "orders"))
    assert isinstance(world.ask(DATA_INIT_PRODUCER_ID, asked), ClusterAuthorizationFailed)
    assert world.denied == [("IDEMPOTENT_WRITE", CLUSTER_NAME)]


def test_a_topic_that_is_named_by_its_id_is_decided_by_its_name_which_is_not_told() -> None:
    allowed = World(rule(AclOperation.DELETE, "secret"))
    assert allowed.ask_topic(ADMIN_DELETE_TOPICS, "secret", by_id=True) is None
    world = World(rule(AclOperation.DELETE, "orders"))
    refusal = world.ask_topic(ADMIN_DELETE_TOPICS, "secret", by_id=True)
    assert isinstance(refusal, TopicAuthorizationFailed)
    assert "DELETE a topic that the request does not name" in refusal.message
    assert "secret" not in refusal.message
    assert "-o delete --topic NAME`" in refusal.message
    assert world.denied == [("DELETE", "secret")], "the operator sees it"
    world.follow(rule(AclOperation.DESCRIBE, "secret"))
    refusal = world.ask_topic(ADMIN_DELETE_TOPICS, "secret", by_id=True)
    assert refusal is not None
    assert "DELETE topic secret" in refusal.message, "who may describe it knows its name"


@pytest.mark.parametrize("everyone", [False, True])
def test_only_super_users_are_let_in_before_the_node_knows_the_rules(everyone: bool) -> None:
    """Otherwise a node that starts would let in what a rule denies."""
    world = World(loaded=False, everyone=everyone)
    requests: list[tuple[Api[Any, Any], Any]] = [
        (ADMIN_CREATE_ACLS, None),
        (DATA_INIT_PRODUCER_ID, producer_id()),
        (CONTROLLER_HEARTBEAT, None),
    ]
    for api, asked in requests:
        assert isinstance(world.ask(api, asked), NodeNotAvailable), api
        assert world.ask(api, asked, ROOT) is None, api
    for api in (DATA_LIST_OFFSETS, ADMIN_CREATE_TOPICS, ADMIN_DELETE_TOPICS):
        assert isinstance(world.ask_topic(api, "orders"), NodeNotAvailable)
        assert world.ask_topic(api, "orders", ROOT) is None
    assert not world.authorizer.allows_topic(ALICE, AclOperation.DESCRIBE, "orders")
    assert world.authorizer.allows_topic(ROOT, AclOperation.DESCRIBE, "orders")
    assert world.lines == []


def test_a_caller_that_its_listener_takes_for_a_node_needs_no_rule_for_what_nodes_ask() -> None:
    """Also before the node knows any rule: it learns them from the quorum. For all else it is a caller like others."""
    world = World(loaded=False)
    inner = replace(ALICE, listener="inner", for_nodes=True)
    consumer = FetchRequest(None, 0, 0, Isolation.READ_UNCOMMITTED, ())
    follower = consumer._replace(replica=FetchingReplica(NodeId(1), Incarnation(UUID(int=1))))
    requests: list[tuple[Api[Any, Any], Any]] = [
        (CONTROLLER_HEARTBEAT, None),
        (ADMIN_DESCRIBE_LOG_DIRS, None),
        (DATA_FETCH_STREAM, follower),
    ]
    for api, asked in requests:
        assert world.ask(api, asked, inner) is None, api
        assert isinstance(world.ask(api, asked), NodeNotAvailable), api
    world.follow()
    for api, asked in requests:
        assert world.ask(api, asked, inner) is None, api
        assert isinstance(world.ask(api, asked), ClusterAuthorizationFailed), api
    assert world.ask(DATA_FETCH_STREAM, consumer) is None, "its topics are decided one by one"
    assert world.authorizer.topic_refusal(inner, DATA_FETCH_STREAM, "orders") is not None
    assert isinstance(world.ask(ADMIN_CREATE_ACLS, None, inner), ClusterAuthorizationFailed)


def test_a_changed_rule_holds_for_the_next_decision() -> None:
    world = World(rule(AclOperation.WRITE, "orders", prefixed=True))
    assert world.authorizer.allows_topic(ALICE, AclOperation.WRITE, "orders-1")
    world.follow(
        rule(AclOperation.WRITE, "orders", prefixed=True),
        rule(AclOperation.WRITE, "orders-1", permission=AclPermission.DENY, host="10.0.0.1"),
    )
    assert not world.authorizer.allows_topic(ALICE, AclOperation.WRITE, "orders-1")
    assert world.authorizer.allows_topic(ALICE, AclOperation.WRITE, "orders-2")
    elsewhere = replace(ALICE, host="10.0.0.2")
    assert world.authorizer.allows_topic(elsewhere, AclOperation.WRITE, "orders-1")
    assert world.lines == [], "what the caller did not name is not an event"


def test_a_name_cannot_forge_a_line_of_the_error_or_of_the_audit_log() -> None:
    world = World()
    refusal = world.ask_topic(ADMIN_CREATE_TOPICS, 'x\n{"event": "change"}\x1b[2J')
    assert refusal is not None
    assert refusal.message.isprintable()
    (line,) = world.lines
    assert "\n" not in line
    assert line.isascii()
    assert json.loads(line)["event"] == "denied"


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:40000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:40000", "::1"),
        ("ipv6:[2001:db8::7]:1", "2001:db8::7"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:40000", "10.0.0.1"),
        ("unix:/run/tidelog", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_caller_is_its_address_without_a_port(peer: str, host: str) -> None:
    assert host_of(peer) == host


# --- groups and transactional ids -------------------------------------------------------------------------------


def named(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW)


COMMIT = groups.TxnOffsetCommit("tx", ProducerId(1), 0, 2, "readers", "", -1, None, ())
READ_GROUP = named(ResourceType.GROUP, "readers", AclOperation.READ)
WRITE_ID = named(ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE)


def test_every_resource_of_a_request_is_checked_in_order() -> None:
    """Offsets of a transaction need its id, then the group; their topics are answered one by one."""
    world = World()
    refusal = world.ask(GROUPS_TXN_OFFSET_COMMIT, COMMIT)
    assert isinstance(refusal, TransactionalIdAuthorizationFailed)
    assert "WRITE transactional id tx" in refusal.message
    assert "`tidelog acl add --allow User:alice -o write --transactional-id tx`" in refusal.message
    world.follow(WRITE_ID)
    refusal = world.ask(GROUPS_TXN_OFFSET_COMMIT, COMMIT)
    assert isinstance(refusal, GroupAuthorizationFailed)
    assert "READ group readers" in refusal.message
    assert "`tidelog acl add --allow User:alice -o read --group readers`" in refusal.message
    world.follow(WRITE_ID, READ_GROUP)
    assert world.ask(GROUPS_TXN_OFFSET_COMMIT, COMMIT) is None
    assert world.denied == [("WRITE", "tx"), ("READ", "readers")]


@pytest.mark.parametrize(
    ("api", "operation"),
    [
        (GROUPS_OFFSET_COMMIT, AclOperation.READ),
        (GROUPS_OFFSET_FETCH, AclOperation.DESCRIBE),
        (GROUPS_OFFSET_DELETE, AclOperation.READ),
        (TRANSACTIONS_ADD_PARTITIONS_TO_TXN, AclOperation.WRITE),
    ],
    ids=str,
)
def test_topics_of_a_coordinators_request_have_an_operation_of_their_own(
    api: Api[Any, Any], operation: AclOperation
) -> None:
    """It may differ from the operation on the group."""
    world = World(named(ResourceType.TOPIC, "orders", operation))
    assert world.authorizer.topic_refusal(ALICE, api, "orders") is None
    refusal = world.authorizer.topic_refusal(ALICE, api, "payments")
    assert isinstance(refusal, TopicAuthorizationFailed)
    assert f"{operation.name} topic payments" in refusal.message


def test_a_member_must_be_allowed_to_describe_every_topic_that_it_names() -> None:
    """As in Kafka. A heartbeat without changes names none."""
    joins = groups.ConsumerGroupHeartbeat("readers", "m", 0, subscribed_topic_names=("orders", "payments"))
    world = World(READ_GROUP, named(ResourceType.TOPIC, "orders", AclOperation.READ))
    for api in (GROUPS_CONSUMER_GROUP_HEARTBEAT, GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM):
        refusal = world.ask(api, joins)
        assert isinstance(refusal, TopicAuthorizationFailed)
        assert "DESCRIBE topic payments" in refusal.message
        assert world.ask(api, replace(joins, subscribed_topic_names=("orders",))) is None
        assert world.ask(api, groups.ConsumerGroupHeartbeat("readers", "m", 1)) is None
        assert isinstance(world.ask(api, replace(joins, group_id="others")), GroupAuthorizationFailed)


@pytest.mark.parametrize(
    ("api", "request_of"),
    [
        (GROUPS_JOIN_GROUP, lambda group: classic.JoinGroup(group, "", None, "consumer", (), 10_000, 60_000)),
        (GROUPS_SYNC_GROUP, lambda group: classic.SyncGroup(group, "m", 1)),
        (GROUPS_HEARTBEAT, lambda group: classic.ClassicHeartbeat(group, "m", 1)),
        (GROUPS_LEAVE_GROUP, lambda group: classic.LeaveGroup(group, ())),
    ],
    ids=["join", "sync", "heartbeat", "leave"],
)
def test_a_member_of_a_classic_group_must_be_allowed_to_read_the_group(
    api: Api[Any, Any], request_of: Callable[[str], Any]
) -> None:
    """Its topics are in bytes that only members read: each offset that it commits or fetches is decided instead."""
    world = World(READ_GROUP)
    assert world.ask(api, request_of("readers")) is None
    assert isinstance(world.ask(api, request_of("others")), GroupAuthorizationFailed)


def test_single_groups_and_transactional_ids_are_refused_by_name() -> None:
    world = World(named(ResourceType.GROUP, "readers", AclOperation.DELETE))
    ask, api = world.authorizer.resource_refusal, GROUPS_DELETE_GROUPS
    assert ask(ALICE, api, AclOperation.DELETE, ResourceType.GROUP, "readers") is None
    assert isinstance(ask(ALICE, api, AclOperation.DELETE, ResourceType.GROUP, "others"), GroupAuthorizationFailed)
    assert world.authorizer.allows(ALICE, AclOperation.DESCRIBE, ResourceType.GROUP, "readers"), "DELETE implies it"
    assert not world.authorizer.allows(ALICE, AclOperation.DESCRIBE, ResourceType.GROUP, "others")
    assert world.denied == [("DELETE", "others")], "what a list leaves out is not an event"


def test_lists_of_groups_and_transactions_are_decided_by_their_handlers() -> None:
    world = World()
    assert world.ask(GROUPS_LIST_GROUPS, groups.ListGroups()) is None
    assert world.ask(TRANSACTIONS_LIST_TRANSACTIONS, transactions.ListTransactions()) is None
    assert world.denied == []


def test_only_nodes_write_markers_and_add_partitions_for_producers() -> None:
    world = World(
        named(ResourceType.TRANSACTIONAL_ID, "*", AclOperation.WRITE), named(ResourceType.TOPIC, "*", AclOperation.ALL)
    )
    inner = replace(ALICE, for_nodes=True)
    for api in (DATA_WRITE_TXN_MARKERS, TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS):
        assert isinstance(world.ask(api, None), ClusterAuthorizationFailed)
        assert world.ask(api, None, inner) is None


def test_a_group_id_is_quoted_for_the_shell() -> None:
    refusal = World().authorizer.resource_refusal(
        ALICE, GROUPS_DESCRIBE_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, "a b; rm -rf /"
    )
    assert refusal is not None
    assert "--group 'a b; rm -rf /'`" in refusal.message
