"""The table of all RPCs: path, message types, and whether the RPC is a stream.

gRPC handlers, channels and the simulated network are built from this table. A new RPC needs one line in the proto file
and one line here; `tests/node/test_methods.py` compares the two. ProduceRequest and FetchResponse are the classes of
`tidelog/protocol/wire.py`, which have protobuf's format but do not copy `records`.
"""

# ruff: noqa: N802 (the methods of a message are named as protobuf names them)

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final, Generic, Protocol, Self, TypeVar

from tidelog.protocol import wire
from tidelog.protocol.v1 import (
    admin_pb2,
    controller_pb2,
    data_pb2,
    groups_pb2,
    quorum_pb2,
    sasl_pb2,
    transactions_pb2,
)


class WireMessage(Protocol):
    """A message of a method: a protobuf class, or a class of `tidelog/protocol/wire.py`."""

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes, /) -> Self: ...


Request = TypeVar("Request", bound=WireMessage)
Answer = TypeVar("Answer", bound=WireMessage)


@cache
def _with_underscores(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class CallKind(Enum):
    """Message flow of a method."""

    UNARY = "one request, one answer"
    STREAM = "requests and answers on one open stream, independent of each other"


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """One RPC. `service` is the full name (`tidelog.v1.Data`), `name` is the one in the proto file (`FetchStream`)."""

    service: str
    name: str
    request: type[Request]
    answer: type[Answer]
    kind: CallKind = CallKind.UNARY

    @property
    def path(self) -> str:
        """gRPC path: `/tidelog.v1.Data/FetchStream`."""
        return f"/{self.service}/{self.name}"

    @property
    def attribute(self) -> str:
        """Name of the handler method on the service object: `fetch_stream`."""
        return _with_underscores(self.name)

    def __str__(self) -> str:
        return f"{self.service.rpartition('.')[2]}.{self.name}"


def _unary(service: str, request: type[Request], answer: type[Answer]) -> Method[Request, Answer]:
    """Return a unary method, which has the name of its request message without `Request`."""
    return Method(service, request.__name__.removesuffix("Request"), request, answer)


DATA: Final = "tidelog.v1.Data"
ADMIN: Final = "tidelog.v1.Admin"
CONTROLLER: Final = "tidelog.v1.Controller"
QUORUM: Final = "tidelog.v1.Quorum"
SASL: Final = "tidelog.v1.Sasl"
COORDINATORS: Final = "tidelog.v1.Coordinators"
GROUPS: Final = "tidelog.v1.Groups"
TRANSACTIONS: Final = "tidelog.v1.Transactions"

DATA_PRODUCE_STREAM: Final = Method(
    DATA, "ProduceStream", wire.ProduceRequest, data_pb2.ProduceResponse, CallKind.STREAM
)
DATA_PRODUCE: Final = _unary(DATA, wire.ProduceRequest, data_pb2.ProduceResponse)
DATA_FETCH_STREAM: Final = Method(DATA, "FetchStream", data_pb2.FetchRequest, wire.FetchResponse, CallKind.STREAM)
DATA_FETCH: Final = _unary(DATA, data_pb2.FetchRequest, wire.FetchResponse)
DATA_LIST_OFFSETS: Final = _unary(DATA, data_pb2.ListOffsetsRequest, data_pb2.ListOffsetsResponse)
DATA_OFFSET_FOR_LEADER_EPOCH: Final = _unary(
    DATA, data_pb2.OffsetForLeaderEpochRequest, data_pb2.OffsetForLeaderEpochResponse
)
DATA_INIT_PRODUCER_ID: Final = _unary(DATA, data_pb2.InitProducerIdRequest, data_pb2.InitProducerIdResponse)
DATA_GET_REPLICA_LOG_INFO: Final = _unary(DATA, data_pb2.GetReplicaLogInfoRequest, data_pb2.GetReplicaLogInfoResponse)
DATA_WRITE_TXN_MARKERS: Final = _unary(DATA, data_pb2.WriteTxnMarkersRequest, data_pb2.WriteTxnMarkersResponse)
DATA_DESCRIBE_PRODUCERS: Final = _unary(DATA, data_pb2.DescribeProducersRequest, data_pb2.DescribeProducersResponse)
DATA_ABORT_TRANSACTION: Final = _unary(DATA, data_pb2.AbortTransactionRequest, data_pb2.AbortTransactionResponse)

ADMIN_GET_METADATA: Final = _unary(ADMIN, admin_pb2.GetMetadataRequest, admin_pb2.GetMetadataResponse)
ADMIN_CREATE_TOPIC: Final = _unary(ADMIN, admin_pb2.CreateTopicRequest, admin_pb2.CreateTopicResponse)
ADMIN_DELETE_TOPIC: Final = _unary(ADMIN, admin_pb2.DeleteTopicRequest, admin_pb2.DeleteTopicResponse)
ADMIN_DESCRIBE_CLUSTER: Final = _unary(ADMIN, admin_pb2.DescribeClusterRequest, admin_pb2.DescribeClusterResponse)
ADMIN_ELECT_LEADERS: Final = _unary(ADMIN, admin_pb2.ElectLeadersRequest, admin_pb2.ElectLeadersResponse)
ADMIN_ALTER_PARTITION_REASSIGNMENTS: Final = _unary(
    ADMIN, admin_pb2.AlterPartitionReassignmentsRequest, admin_pb2.AlterPartitionReassignmentsResponse
)
ADMIN_LIST_PARTITION_REASSIGNMENTS: Final = _unary(
    ADMIN, admin_pb2.ListPartitionReassignmentsRequest, admin_pb2.ListPartitionReassignmentsResponse
)
ADMIN_INCREMENTAL_ALTER_CONFIGS: Final = _unary(
    ADMIN, admin_pb2.IncrementalAlterConfigsRequest, admin_pb2.IncrementalAlterConfigsResponse
)
ADMIN_CREATE_PARTITIONS: Final = _unary(ADMIN, admin_pb2.CreatePartitionsRequest, admin_pb2.CreatePartitionsResponse)
ADMIN_UPDATE_FEATURES: Final = _unary(ADMIN, admin_pb2.UpdateFeaturesRequest, admin_pb2.UpdateFeaturesResponse)
ADMIN_EXPLAIN_PARTITIONS: Final = _unary(ADMIN, admin_pb2.ExplainPartitionsRequest, admin_pb2.ExplainPartitionsResponse)
ADMIN_DESCRIBE_LOG_DIRS: Final = _unary(ADMIN, admin_pb2.DescribeLogDirsRequest, admin_pb2.DescribeLogDirsResponse)
ADMIN_EXPLAIN_RESTART: Final = _unary(ADMIN, admin_pb2.ExplainRestartRequest, admin_pb2.ExplainRestartResponse)
ADMIN_REMOVE_VOTER: Final = _unary(ADMIN, admin_pb2.RemoveVoterRequest, admin_pb2.RemoveVoterResponse)
ADMIN_ALTER_USER_SCRAM_CREDENTIALS: Final = _unary(
    ADMIN, sasl_pb2.AlterUserScramCredentialsRequest, sasl_pb2.AlterUserScramCredentialsResponse
)
ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS: Final = _unary(
    ADMIN, sasl_pb2.DescribeUserScramCredentialsRequest, sasl_pb2.DescribeUserScramCredentialsResponse
)
ADMIN_CREATE_ACLS: Final = _unary(ADMIN, admin_pb2.CreateAclsRequest, admin_pb2.CreateAclsResponse)
ADMIN_DELETE_ACLS: Final = _unary(ADMIN, admin_pb2.DeleteAclsRequest, admin_pb2.DeleteAclsResponse)
ADMIN_DESCRIBE_ACLS: Final = _unary(ADMIN, admin_pb2.DescribeAclsRequest, admin_pb2.DescribeAclsResponse)
ADMIN_EXPLAIN_ACL: Final = _unary(ADMIN, admin_pb2.ExplainAclRequest, admin_pb2.ExplainAclResponse)
ADMIN_ALTER_CLIENT_QUOTAS: Final = _unary(
    ADMIN, admin_pb2.AlterClientQuotasRequest, admin_pb2.AlterClientQuotasResponse
)
ADMIN_DESCRIBE_CLIENT_QUOTAS: Final = _unary(
    ADMIN, admin_pb2.DescribeClientQuotasRequest, admin_pb2.DescribeClientQuotasResponse
)

CONTROLLER_REGISTER_NODE: Final = _unary(
    CONTROLLER, controller_pb2.RegisterNodeRequest, controller_pb2.RegisterNodeResponse
)
CONTROLLER_HEARTBEAT: Final = _unary(CONTROLLER, controller_pb2.HeartbeatRequest, controller_pb2.HeartbeatResponse)
CONTROLLER_ALTER_PARTITION: Final = _unary(
    CONTROLLER, controller_pb2.AlterPartitionRequest, controller_pb2.AlterPartitionResponse
)
CONTROLLER_ALLOCATE_PRODUCER_IDS: Final = _unary(
    CONTROLLER, controller_pb2.AllocateProducerIdsRequest, controller_pb2.AllocateProducerIdsResponse
)
CONTROLLER_CREATE_TOPIC: Final = _unary(CONTROLLER, admin_pb2.CreateTopicRequest, admin_pb2.CreateTopicResponse)
CONTROLLER_DELETE_TOPIC: Final = _unary(CONTROLLER, admin_pb2.DeleteTopicRequest, admin_pb2.DeleteTopicResponse)
CONTROLLER_REMOVE_VOTER: Final = _unary(CONTROLLER, admin_pb2.RemoveVoterRequest, admin_pb2.RemoveVoterResponse)
CONTROLLER_ELECT_LEADERS: Final = _unary(CONTROLLER, admin_pb2.ElectLeadersRequest, admin_pb2.ElectLeadersResponse)
CONTROLLER_ALTER_PARTITION_REASSIGNMENTS: Final = _unary(
    CONTROLLER, admin_pb2.AlterPartitionReassignmentsRequest, admin_pb2.AlterPartitionReassignmentsResponse
)
CONTROLLER_INCREMENTAL_ALTER_CONFIGS: Final = _unary(
    CONTROLLER, admin_pb2.IncrementalAlterConfigsRequest, admin_pb2.IncrementalAlterConfigsResponse
)
CONTROLLER_CREATE_PARTITIONS: Final = _unary(
    CONTROLLER, admin_pb2.CreatePartitionsRequest, admin_pb2.CreatePartitionsResponse
)
CONTROLLER_UPDATE_FEATURES: Final = _unary(
    CONTROLLER, admin_pb2.UpdateFeaturesRequest, admin_pb2.UpdateFeaturesResponse
)
CONTROLLER_ALTER_USER_SCRAM_CREDENTIALS: Final = _unary(
    CONTROLLER, sasl_pb2.AlterUserScramCredentialsRequest, sasl_pb2.AlterUserScramCredentialsResponse
)
CONTROLLER_CREATE_ACLS: Final = _unary(CONTROLLER, admin_pb2.CreateAclsRequest, admin_pb2.CreateAclsResponse)
CONTROLLER_DELETE_ACLS: Final = _unary(CONTROLLER, admin_pb2.DeleteAclsRequest, admin_pb2.DeleteAclsResponse)
CONTROLLER_ALTER_CLIENT_QUOTAS: Final = _unary(
    CONTROLLER, admin_pb2.AlterClientQuotasRequest, admin_pb2.AlterClientQuotasResponse
)

QUORUM_INTRODUCE: Final = _unary(QUORUM, quorum_pb2.IntroduceRequest, quorum_pb2.IntroduceResponse)
QUORUM_FETCH_METADATA: Final = _unary(QUORUM, quorum_pb2.FetchMetadataRequest, quorum_pb2.FetchMetadataResponse)
QUORUM_VOTE: Final = _unary(QUORUM, quorum_pb2.VoteRequest, quorum_pb2.VoteResponse)
QUORUM_BEGIN_QUORUM_EPOCH: Final = _unary(QUORUM, quorum_pb2.BeginQuorumEpochRequest, quorum_pb2.LeaderAndEpoch)
QUORUM_END_QUORUM_EPOCH: Final = _unary(QUORUM, quorum_pb2.EndQuorumEpochRequest, quorum_pb2.LeaderAndEpoch)
QUORUM_FETCH_SNAPSHOT: Final = _unary(QUORUM, quorum_pb2.FetchSnapshotRequest, quorum_pb2.FetchSnapshotResponse)

SASL_AUTHENTICATE: Final = _unary(SASL, sasl_pb2.AuthenticateRequest, sasl_pb2.AuthenticateResponse)

COORDINATORS_FIND_COORDINATOR: Final = _unary(
    COORDINATORS, groups_pb2.FindCoordinatorRequest, groups_pb2.FindCoordinatorResponse
)

GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM: Final = Method(
    GROUPS,
    "ConsumerGroupHeartbeatStream",
    groups_pb2.ConsumerGroupHeartbeatRequest,
    groups_pb2.ConsumerGroupHeartbeatResponse,
    CallKind.STREAM,
)
GROUPS_CONSUMER_GROUP_HEARTBEAT: Final = _unary(
    GROUPS, groups_pb2.ConsumerGroupHeartbeatRequest, groups_pb2.ConsumerGroupHeartbeatResponse
)
GROUPS_OFFSET_COMMIT: Final = _unary(GROUPS, groups_pb2.OffsetCommitRequest, groups_pb2.OffsetCommitResponse)
GROUPS_TXN_OFFSET_COMMIT: Final = _unary(GROUPS, groups_pb2.TxnOffsetCommitRequest, groups_pb2.TxnOffsetCommitResponse)
GROUPS_OFFSET_FETCH: Final = _unary(GROUPS, groups_pb2.OffsetFetchRequest, groups_pb2.OffsetFetchResponse)
GROUPS_OFFSET_DELETE: Final = _unary(GROUPS, groups_pb2.OffsetDeleteRequest, groups_pb2.OffsetDeleteResponse)
GROUPS_LIST_GROUPS: Final = _unary(GROUPS, groups_pb2.ListGroupsRequest, groups_pb2.ListGroupsResponse)
GROUPS_DESCRIBE_GROUPS: Final = _unary(GROUPS, groups_pb2.DescribeGroupsRequest, groups_pb2.DescribeGroupsResponse)
GROUPS_DELETE_GROUPS: Final = _unary(GROUPS, groups_pb2.DeleteGroupsRequest, groups_pb2.DeleteGroupsResponse)

TRANSACTIONS_INIT_PRODUCER_ID: Final = Method(
    TRANSACTIONS,
    "InitProducerId",
    transactions_pb2.InitTransactionalProducerRequest,
    transactions_pb2.InitTransactionalProducerResponse,
)
TRANSACTIONS_ADD_PARTITIONS_TO_TXN: Final = _unary(
    TRANSACTIONS, transactions_pb2.AddPartitionsToTxnRequest, transactions_pb2.AddPartitionsToTxnResponse
)
TRANSACTIONS_ADD_OFFSETS_TO_TXN: Final = _unary(
    TRANSACTIONS, transactions_pb2.AddOffsetsToTxnRequest, transactions_pb2.AddOffsetsToTxnResponse
)
TRANSACTIONS_END_TXN: Final = _unary(TRANSACTIONS, transactions_pb2.EndTxnRequest, transactions_pb2.EndTxnResponse)
TRANSACTIONS_LIST_TRANSACTIONS: Final = _unary(
    TRANSACTIONS, transactions_pb2.ListTransactionsRequest, transactions_pb2.ListTransactionsResponse
)
TRANSACTIONS_DESCRIBE_TRANSACTIONS: Final = _unary(
    TRANSACTIONS, transactions_pb2.DescribeTransactionsRequest, transactions_pb2.DescribeTransactionsResponse
)
TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS: Final = _unary(
    TRANSACTIONS, transactions_pb2.AddOrVerifyPartitionsRequest, transactions_pb2.AddOrVerifyPartitionsResponse
)

ALL: Final[tuple[Method[WireMessage, WireMessage], ...]] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Method)
)
"""Every RPC of every service, in the order of the proto files."""


def of_service(service: str) -> tuple[Method[WireMessage, WireMessage], ...]:
    """Return the RPCs of one service, by its full name."""
    return tuple(method for method in ALL if method.service == service)
