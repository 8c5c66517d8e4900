"""Who is let in: every RPC by every kind of caller, as the table of docs/security.md says.

Each row of the table is a request and the permission that it needs; each further column is a kind of caller. The
requests are sent to a real node over gRPC. A caller is let in unless the answer, or each part of the answer, is that it
has no permission: any other error comes from behind the boundary.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from node.api.api import Audience
from node.api.caller import ANONYMOUS
from node.api.permissions import Permission
from node.api.table import APIS
from node.security.sasl_settings import SaslConfig
from testbed.topic_requests import altering, creating, deleting, growing
from tests.certificates import Authority
from tests.node.real_coordinators import errors_in, make_group_and_transaction
from tests.node.real_nodes import CALL_MS, OPERATOR, OUTSIDE, RealNodes, real_nodes
from tidelog.client.admin import Admin
from tidelog.errors import (
    ClusterAuthorizationFailed,
    ConnectionLost,
    GroupAuthorizationFailed,
    IllegalSaslState,
    SaslAuthenticationFailed,
    SaslSessionEnded,
    TidelogError,
    TlsHandshakeFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tidelog.protocol import methods, wire
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import CallKind, Method
from tidelog.protocol.sasl_client import SESSION_KEY, SaslClient
from tidelog.protocol.status import from_rpc_error
from tidelog.protocol.v1 import (
    acl_pb2,
    admin_pb2,
    controller_pb2,
    data_pb2,
    groups_pb2,
    remote_logs_pb2,
    sasl_pb2,
    transactions_pb2,
)
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import Record, build_batch
from tidelog.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.security.sasl_user import Sasl
from tidelog.security.scram import ScramClient
from tidelog.security.tls_files import Tls
from tidelog.types import INTERNAL_TOPICS, Endpoint, Millis, Offset, ScramMechanism

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"
TOPIC: Final = "orders"
SNAPSHOT: Final = "friday"
GROUP: Final = "readers"
TRANSACTIONAL_ID: Final = "billing"
NOT_THERE: Final = "-that-does-not-exist"
"""Behind the name of a group, where the request would delete it."""

NAMES: Final = {
    ResourceType.TOPIC: (TOPIC, PatternType.LITERAL),
    ResourceType.CLUSTER: (CLUSTER_NAME, PatternType.LITERAL),
    ResourceType.GROUP: (GROUP, PatternType.PREFIXED),
    ResourceType.TRANSACTIONAL_ID: (TRANSACTIONAL_ID, PatternType.LITERAL),
}
"""What the rules of callers are about."""

SCRAM: Final = ScramMechanism.SCRAM_SHA_256
FOLLOWER: Final = "Data.FetchStream of a follower"
"""The one row whose permission is not in the table of APIs: nodes need it too."""

OF_TRANSACTION: Final = "of a transaction"

MUTUAL: Final = "mutual"
"""The listener that requires certificates of clients."""

OPEN: Final = "open"
"""The listener with TLS whose callers need no certificate."""

WAYS: Final = ("certificates", "passwords")
"""How callers prove who they are."""

MADE_UP: Final = ((SESSION_KEY, "x" * 43),)
"""What a call carries that has the token of no session."""

NO_PERMISSION: Final = (
    TopicAuthorizationFailed,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

REFUSALS: Final = (
    *NO_PERMISSION,
    TlsHandshakeFailed,
    SaslAuthenticationFailed,
    SaslSessionEnded,
)

NO_CREDENTIALS, WRONG, WITHOUT_PERMISSION, WITH_PERMISSION, NODE = CALLERS = (
    "no credentials",
    "wrong credentials",
    "client without permission",
    "client with permission",
    "node",
)
"""Kinds of callers: the columns of the table."""

LISTS: Final = {"Groups.ListGroups": "groups", "Transactions.ListTransactions": "transactions"}
"""Requests that everyone may ask: this field of the answer has what the caller may describe."""

TRANSACTIONAL: Final = build_batch(
    [Record(Offset(0), Millis(0), b"key", b"value")],
    producer_id=77,
    producer_epoch=0,
    base_sequence=0,
    is_transactional=True,
)

IMPLYING: Final = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}


def table() -> list[dict[str, str]]:
    """The table of docs/security.md, a row for each request."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| request |"))
    header = [cell.strip() for cell in lines[first].strip("|").split("|")]
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        rows.append(dict(zip(header, cells, strict=True)))
    return rows


def shown(needed: Permission, variant: str) -> str:
    """A permission as the table shows it."""
    return ", and ".join(str(need) for need in needed.needs if need.variant in ("", variant)) or "none"


def variants(needed: Permission) -> tuple[str, ...]:
    """The kinds of requests that differ in their needs: "" is the one without a name."""
    named = tuple(dict.fromkeys(need.variant for need in needed.needs if need.variant))
    return ("", *named) if not named or any(not need.variant for need in needed.needs) else named


def needs(permission: str) -> list[set[tuple[ResourceType, AclOperation]]]:
    """The operations on resources of which each is enough, for each need."""
    return [_sufficient(need) for need in permission.split(", and ") if need != "none"]


def _sufficient(need: str) -> set[tuple[ResourceType, AclOperation]]:
    found = set()
    for part in need.split(", or "):
        operation, kind = re.fullmatch(  # type: ignore[union-attr]
            r"([A-Z_]+) of (?:the|each|every|any) (cluster|topic|group|transactional id)", part
        ).groups()
        resource = ResourceType[kind.upper().replace(" ", "_")]
        for each in (operation, *IMPLYING.get(operation, ())):
            if AclOperation[each] in OPERATIONS[resource]:
                found.add((resource, AclOperation[each]))
    return found


def attempts(
    permission: str,
) -> Iterator[tuple[set[tuple[ResourceType, AclOperation]], set[tuple[ResourceType, AclOperation]]]]:
    """What the client with permission has, and what the one without it lacks: every sufficient operation of each need
    is once the only one of the former, and every need once all that the latter lacks."""
    wanted = [sorted(need) for need in needs(permission)]
    for turn in range(max(map(len, wanted), default=1)):
        with_it = {need[turn % len(need)] for need in wanted}
        for lacking in wanted or [[]]:
            yield with_it, set(lacking)


def rule(principal: str, kind: ResourceType, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, *NAMES[kind], principal, "*", operation, AclPermission.ALLOW)


# --- requests ---------------------------------------------------------------------------------------------------------


def filled(message: Message) -> Message:
    """The message with an id of 16 bytes in each field of bytes and every message in it filled: well formed, and of
    another cluster."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            filled(getattr(message, field.name)).SetInParent()
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, bytes(16))
        elif field.name == "cluster_id":
            setattr(message, field.name, "of-another-cluster")
    return message


def request_of(row: str, topic_id: bytes, producer: transactions_pb2.InitTransactionalProducerResponse) -> Any:
    """A request about the topic that changes nothing in the cluster even if it is allowed."""
    place = {"topic_id": topic_id, "partition": 0}
    leader = remote_logs_pb2.RemoteLogLeader(topic_id=bytes(16))
    fetched = data_pb2.FetchPartition(fetch_id=1, current_leader_epoch=-1, last_fetched_epoch=-1, **place)  # type: ignore[arg-type]
    produced = ProduceRequest(
        acks=1,
        timeout_ms=CALL_MS,
        partitions=[ProduceBatch(correlation_id=1, topic_id=topic_id, partition=0, records=b"bad")],
    )
    transactional = ProduceRequest(
        acks=1,
        timeout_ms=CALL_MS,
        partitions=[ProduceBatch(correlation_id=1, topic_id=topic_id, partition=0, records=TRANSACTIONAL)],
        transactional_id=TRANSACTIONAL_ID,
        transaction_version=2,
    )
    replica = data_pb2.Replica(node_id=7, incarnation=bytes(16))
    described = admin_pb2.TopicPartitionId(topic=TOPIC, partition=0)
    own: dict[str, Any] = {
        "Sasl.Authenticate": sasl_pb2.AuthenticateRequest(
            mechanism=SCRAM.mechanism_name, auth_bytes=ScramClient(SCRAM, "with", "nonce").first()
        ),
        "Data.Produce": produced,
        "Data.ProduceStream": produced,
        f"Data.Produce {OF_TRANSACTION}": transactional,
        f"Data.ProduceStream {OF_TRANSACTION}": transactional,
        "Data.Fetch": data_pb2.FetchRequest(partitions=[fetched]),
        "Data.FetchStream": data_pb2.FetchRequest(partitions=[fetched]),
        FOLLOWER: data_pb2.FetchRequest(replica=replica, partitions=[fetched]),
        "Data.ListOffsets": data_pb2.ListOffsetsRequest(partitions=[data_pb2.ListOffsetsPartition(**place)]),  # type: ignore[arg-type]
        "Data.OffsetForLeaderEpoch": data_pb2.OffsetForLeaderEpochRequest(
            partitions=[data_pb2.EpochQuestion(**place)]  # type: ignore[arg-type]
        ),
        "Transactions.HoldCommits": transactions_pb2.HoldCommitsRequest(hold_id=bytes(16)),
        "RemoteLogs.BeginRemoteLog": remote_logs_pb2.BeginRemoteLogRequest(leader=leader),
        "RemoteLogs.BeginCopy": remote_logs_pb2.BeginCopyRequest(
            leader=leader, segment=remote_logs_pb2.RemoteSegment(segment_id=bytes(16), topic_id=bytes(16))
        ),
        "RemoteLogs.FinishCopy": remote_logs_pb2.FinishCopyRequest(leader=leader, segment_id=bytes(16)),
        "RemoteLogs.DeleteRemoteSegments": remote_logs_pb2.DeleteRemoteSegmentsRequest(leader=leader),
        "RemoteLogs.ListRemoteSegments": remote_logs_pb2.ListRemoteSegmentsRequest(topic_id=bytes(16)),
        "RemoteLogs.FindOrphans": remote_logs_pb2.FindOrphansRequest(),
        "RemoteLogs.FollowRemoteLogs": remote_logs_pb2.FollowRemoteLogsRequest(
            lists=[remote_logs_pb2.ListRemoteSegmentsRequest(topic_id=bytes(16))]
        ),
        "Controller.RecordTopicSnapshot": controller_pb2.RecordTopicSnapshotRequest(snapshot_id=bytes(16)),
        "Admin.CreateTopicSnapshot": admin_pb2.CreateTopicSnapshotRequest(name=SNAPSHOT, topics=[TOPIC], keep_ms=1),
        "Admin.DescribeTopicSnapshots": admin_pb2.DescribeTopicSnapshotsRequest(names=[SNAPSHOT]),
        "Admin.ExtendTopicSnapshot": admin_pb2.ExtendTopicSnapshotRequest(name=SNAPSHOT),
        "Admin.DeleteTopicSnapshot": admin_pb2.DeleteTopicSnapshotRequest(name=SNAPSHOT, snapshot_id=bytes(16)),
        "Admin.GetMetadata": admin_pb2.GetMetadataRequest(topics=[TOPIC]),
        "Admin.ExplainPartitions": admin_pb2.ExplainPartitionsRequest(partitions=[described]),
        "Admin.CreateTopics": creating(name=TOPIC, partitions=1, replication_factor=1),
        "Admin.DeleteTopics": deleting(name=TOPIC, topic_id=bytes(16)),
        "Admin.CreatePartitions": growing(topic=TOPIC, count=1),
        "Admin.IncrementalAlterConfigs": altering(topic=TOPIC),
        "Admin.DescribeConfigs of topics": describing(2, TOPIC),
        "Admin.DescribeConfigs of nodes": describing(4, "0"),
        "Admin.DescribeConfigs of groups": describing(32, GROUP),
        "Admin.AlterGroupConfigs": admin_pb2.AlterGroupConfigsRequest(group_id=GROUP),
        "Admin.ExplainAcl": admin_pb2.ExplainAclRequest(
            principal="User:a",
            host="::1",
            operation=acl_pb2.ACL_OPERATION_READ,
            resource_type=acl_pb2.RESOURCE_TYPE_TOPIC,
            resource_name=TOPIC,
        ),
    }
    own |= group_requests(producer) | transaction_requests(topic_id)
    return own[row] if row in own else filled(method_of(row).request())


def describing(kind: int, name: str) -> admin_pb2.DescribeConfigsRequest:
    return admin_pb2.DescribeConfigsRequest(resources=[admin_pb2.ConfigResource(type=kind, name=name)])


def group_requests(producer: transactions_pb2.InitTransactionalProducerResponse) -> dict[str, Message]:
    """About the group and the topic. None commits anything: the partition does not exist, the member is unknown.
    producer: of the transactional id."""
    heartbeat = groups_pb2.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="nobody",
        member_epoch=7,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=groups_pb2.TopicNames(names=[TOPIC]),
    )
    committed = [groups_pb2.OffsetToCommit(topic=TOPIC, partition=99, offset=1, leader_epoch=-1)]
    asked = [groups_pb2.NamedPartition(topic=TOPIC, partition=0)]
    transactions = groups_pb2.COORDINATOR_TYPE_TRANSACTION
    return {
        "Coordinators.FindCoordinator of groups": groups_pb2.FindCoordinatorRequest(keys=[GROUP]),
        "Coordinators.FindCoordinator of transactional ids": groups_pb2.FindCoordinatorRequest(
            type=transactions, keys=[TRANSACTIONAL_ID]
        ),
        "Groups.ConsumerGroupHeartbeat": heartbeat,
        "Groups.ConsumerGroupHeartbeatStream": heartbeat,
        "Groups.OffsetCommit": groups_pb2.OffsetCommitRequest(group_id=GROUP, member_epoch=-1, partitions=committed),
        "Groups.TxnOffsetCommit": groups_pb2.TxnOffsetCommitRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_version=2,
            group_id=GROUP,
            member_epoch=-1,
            partitions=committed,
        ),
        "Groups.OffsetFetch": groups_pb2.OffsetFetchRequest(
            group_id=GROUP, member_epoch=-1, partitions=groups_pb2.NamedPartitions(partitions=asked)
        ),
        "Groups.OffsetDelete": groups_pb2.OffsetDeleteRequest(
            group_id=GROUP, partitions=[groups_pb2.NamedPartition(topic=TOPIC, partition=99)]
        ),
        "Groups.DescribeGroups": groups_pb2.DescribeGroupsRequest(group_ids=[GROUP]),
        "Groups.DeleteGroups": groups_pb2.DeleteGroupsRequest(group_ids=[GROUP + NOT_THERE]),
    }


def transaction_requests(topic_id: bytes) -> dict[str, Message]:
    """About the transactional id and the topic, by a producer that does not exist."""
    producer: Any = {"transactional_id": TRANSACTIONAL_ID, "producer_id": 77}
    partition: Any = {"topic_id": topic_id, "partition": 0}
    asked = [groups_pb2.NamedPartition(topic=TOPIC, partition=0)]
    return {
        "Transactions.InitProducerId": transactions_pb2.InitTransactionalProducerRequest(**producer),
        "Transactions.AddPartitionsToTxn": transactions_pb2.AddPartitionsToTxnRequest(**producer, partitions=asked),
        "Transactions.AddOffsetsToTxn": transactions_pb2.AddOffsetsToTxnRequest(**producer, group_id=GROUP),
        "Transactions.EndTxn": transactions_pb2.EndTxnRequest(**producer, committed=True, transaction_version=2),
        "Transactions.DescribeTransactions": transactions_pb2.DescribeTransactionsRequest(
            transactional_ids=[TRANSACTIONAL_ID]
        ),
        "Data.DescribeProducers": data_pb2.DescribeProducersRequest(partitions=[data_pb2.PartitionId(**partition)]),
        "Data.AbortTransaction": data_pb2.AbortTransactionRequest(**partition, producer_id=77),
        "Data.DescribeRemoteLogs": data_pb2.DescribeRemoteLogsRequest(
            partitions=[data_pb2.RemoteLogQuestion(**partition, current_leader_epoch=-1)]
        ),
        "Data.DeleteRecords": data_pb2.DeleteRecordsRequest(partitions=[data_pb2.PartitionDeletion(**partition)]),
    }


def method_of(row: str) -> Method[Any, Any]:
    by_name = {str(method): method for method in methods.ALL}
    return by_name[row.partition(" ")[0]]


# --- outcomes ---------------------------------------------------------------------------------------------------------


async def let_in(transport: GrpcTransport, address: Endpoint, row: str, request: Any) -> bool:
    """Whether the request passes the boundary."""
    method = method_of(row)
    try:
        if method.kind is CallKind.UNARY:
            answer = await transport.call(address, method, request, timeout_ms=CALL_MS)
        else:
            stream = await transport.open_stream(address, method)
            try:
                await stream.send(request)
                answer = await stream.receive()
            except ConnectionLost:  # it was refused while the request was sent, so that gRPC does not tell why
                return await let_in(transport, address, row, request)
            finally:
                stream.close()
    except REFUSALS:
        return False
    except IllegalSaslState:  # no session where one is required; or SASL where none is required
        return method is methods.SASL_AUTHENTICATE
    except TidelogError:
        return True
    if row in LISTS:
        return bool(getattr(answer, LISTS[row]))
    refused = [isinstance(error, NO_PERMISSION) for error in errors_in(answer)]
    return not (refused and all(refused))


class World:
    """A real node with a topic, a group and a transactional id, an operator, and a caller of each kind.

    listeners: where callers connect, if not at the listener between nodes. producer: of the transactional id."""

    def __init__(
        self,
        nodes: RealNodes,
        admin: Admin,
        topic_id: bytes,
        callers: Mapping[str, GrpcTransport],
        listeners: Mapping[str, str],
        producer: transactions_pb2.InitTransactionalProducerResponse,
    ) -> None:
        self.nodes, self.admin, self.topic_id, self.producer = nodes, admin, topic_id, producer
        self._callers, self._listeners = callers, listeners

    def request_of(self, row: str) -> Any:
        return request_of(row, self.topic_id, self.producer)

    async def let_in(self, caller: str, row: str, request: Any) -> bool:
        listener = self._listeners.get(caller)
        address = self.nodes.addresses[0] if listener is None else self.nodes.further[listener][0]
        return await let_in(self._callers[caller], address, row, request)


@asynccontextmanager
async def world(home: Path, way: str) -> AsyncIterator[World]:
    own = Authority(home / "own")
    tls = {MUTUAL: own.node("mutual"), OPEN: own.node("open", requires=False), OUTSIDE: own.node(requires=False)}
    callers = with_certificates(home, own) if way == "certificates" else with_passwords(own)
    first, others = (OPEN, MUTUAL) if way == "certificates" else (OUTSIDE, OUTSIDE)
    listeners = {NO_CREDENTIALS: first, WRONG: others, WITHOUT_PERMISSION: others, WITH_PERMISSION: others}
    sasl = SaslConfig(failure_delay_ms=Millis(0))
    async with real_nodes(home, tls=tls, sasl=sasl) as nodes, Admin(str(nodes.further[OPERATOR][0])) as admin:
        try:
            for user in ("with", "without"):
                await admin.set_password(user, f"{user} password", iterations=4_096)
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1)
            await admin.create_topic_snapshot(SNAPSHOT, [TOPIC])
            described = await admin.describe_topic(TOPIC)
            producer = await make_group_and_transaction(nodes, GROUP, TRANSACTIONAL_ID, TOPIC)
            yield World(nodes, admin, described.topic_id.bytes, callers, listeners, producer)
        finally:
            for transport in callers.values():
                await transport.close()


def with_certificates(home: Path, own: Authority) -> dict[str, GrpcTransport]:
    """Wrong is one with the name of the client with permission that another authority has signed."""
    files = {
        NO_CREDENTIALS: Tls(own.ca),
        WRONG: replace(Authority(home / "stranger").client("with"), ca=own.ca),
        WITHOUT_PERMISSION: own.client("without"),
        WITH_PERMISSION: own.client("with"),
        NODE: None,
    }
    return {caller: GrpcTransport(tls=each) for caller, each in files.items()}


def with_passwords(own: Authority) -> dict[str, GrpcTransport]:
    """Wrong is another password than that of the client with permission."""

    def transport(user: str, password: str) -> GrpcTransport:
        return GrpcTransport(tls=Tls(own.ca), sasl=SaslClient(Sasl(user, password), random.Random(user)))

    return {
        NO_CREDENTIALS: GrpcTransport(tls=Tls(own.ca)),
        WRONG: transport("with", "without password"),
        WITHOUT_PERMISSION: transport("without", "without password"),
        WITH_PERMISSION: transport("with", "with password"),
        NODE: GrpcTransport(),
    }


@pytest.mark.parametrize("way", WAYS)
async def test_who_is_let_in_is_what_the_document_says(tmp_path: Path, way: str) -> None:
    """The client with permission has exactly the permission of the row, the one without has all others. The principal
    is the subject of a certificate, or the user of a session where the listener has SASL."""
    prefix = "User:CN=" if way == "certificates" else "User:"
    with_it, without_it = f"{prefix}with", f"{prefix}without"

    documented = {row["request"]: {name: row[name] for name in CALLERS} for row in table()}
    found: dict[str, dict[str, str]] = {}
    async with world(tmp_path, way) as here:
        nodes, admin = here.nodes, here.admin
        every = {each for kind in NAMES for each in product([kind], OPERATIONS[kind])}
        for row in table():
            request = here.request_of(row["request"])
            outcomes: dict[str, set[bool]] = {caller: set() for caller in CALLERS}
            for enough, lacking in attempts(row["permission"]):
                rules = [rule(who, *each) for who in (without_it, ANONYMOUS) for each in sorted(every - lacking)]
                await admin.create_acls([*rules, *(rule(with_it, *each) for each in sorted(enough))])
                for caller in CALLERS:
                    outcomes[caller].add(await here.let_in(caller, row["request"], request))
                await admin.delete_acls([AclFilter()])
            assert all(len(each) == 1 for each in outcomes.values()), f"{row['request']}: {outcomes}"
            found[row["request"]] = {caller: "yes" if True in each else "no" for caller, each in outcomes.items()}
            nodes.ensure_running()
        assert {topic.name for topic in await admin.list_topics()} - INTERNAL_TOPICS == {TOPIC}
        assert nodes.nodes[0].defects == []
    assert found == documented


async def test_a_token_of_no_session_opens_nothing(tmp_path: Path) -> None:
    """Every call and stream with it is refused, whatever it asks. Only who authenticates needs no session."""

    async def refusal(channel: grpc.aio.Channel, at: Endpoint, row: str, request: Any) -> str:
        method = method_of(row)
        try:
            if method.kind is CallKind.UNARY:
                ask: Any = channel.unary_unary(method.path, request_serializer=wire.writer(method.request))
                await ask(request, metadata=MADE_UP)
            else:
                open_stream: Any = channel.stream_stream(method.path)
                await open_stream(metadata=MADE_UP).read()
        except grpc.aio.AioRpcError as error:
            return type(from_rpc_error(error, address=at, phase=row)).__name__
        return "let in"

    async with world(tmp_path, "passwords") as here:
        at = here.nodes.outside[0]
        authority = grpc.ssl_channel_credentials((tmp_path / "own" / "ca.pem").read_bytes())
        async with grpc.aio.secure_channel(str(at), authority) as channel:
            asked = {row["request"]: here.request_of(row["request"]) for row in table()}
            found = {row: await refusal(channel, at, row, request) for row, request in asked.items()}
        assert found.pop("Sasl.Authenticate") == "let in"
        assert set(found.values()) == {"SaslSessionEnded"}


def test_the_document_has_every_request_with_its_permission_and_every_caller() -> None:
    """A new API without an RPC that does not say so, or without a row, fails here."""
    rpcs = {str(method) for method in methods.ALL}
    assert {name for name, api in APIS.items() if api.has_rpc} == rpcs, "node/api/table.py"
    rows = table()
    permissions = {
        f"{name} {variant}".rstrip(): shown(api.permission, variant)
        for name, api in APIS.items()
        for variant in variants(api.permission)
        if api.has_rpc
    }
    assert {row["request"]: row["permission"] for row in rows if row["request"] != FOLLOWER} == permissions
    assert {row["request"] for row in rows} == {*permissions, FOLLOWER}
    assert {name for row in rows for name in row} == {"request", "permission", *CALLERS}


def test_the_document_has_what_only_clients_of_kafka_ask() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").split("| request without an RPC | permission |")[1]
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text.split("\n\n")[0], re.MULTILINE))
    assert rows == {
        f"{name} {variant}".rstrip(): shown(api.permission, variant)
        for name, api in APIS.items()
        for variant in variants(api.permission)
        if not api.has_rpc
    }


def test_all_that_changes_the_cluster_for_an_operator_is_recorded() -> None:
    """What a node forwards is a change where it is asked, and at the controller: a node may ask in its own name."""
    recorded = {name for name, api in APIS.items() if api.audited and api.service in ("Admin", "Controller")}
    not_as_it_is = {
        "Controller.Envelope",
        "Admin.AlterConfigs",
        "Admin.AlterUsersOneByOne",
        "Admin.UpdateNamedFeatures",
        "Admin.AlterQuotasOneByOne",
        "Admin.AlterReplicaLogDirs",  # the node that is asked makes it
        "Admin.CreateTopicSnapshot",
    }
    assert recorded == {name for name, api in APIS.items() if api.is_forwarded} | not_as_it_is
    assert sum(api.is_forwarded for api in APIS.values()) == 17


def test_what_only_nodes_ask_needs_cluster_action() -> None:
    found = {
        name
        for name, api in APIS.items()
        if any(need.operation is AclOperation.CLUSTER_ACTION for need in api.permission.needs)
    }
    assert found == {name for name, api in APIS.items() if api.audience is Audience.NODES}
