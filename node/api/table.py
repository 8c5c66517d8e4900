"""The table of APIs: every kind of request that a node serves, each declared once.

A listener, the authorizer, the audit log, quotas and metrics follow this table; docs/security.md shows its permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from node.api import admin_requests as admin
from node.api import config_requests as configs
from node.api import quorum_requests as quorum
from node.api import snapshot_requests as snapshots
from node.api.api import Answered, Api, Asked, Audience
from node.api.controller_requests import Envelope, EnvelopeAnswer
from node.api.deletions import DeleteRecordsAnswer, DeleteRecordsRequest
from node.api.fetch import FetchRequest
from node.api.marker_requests import (
    AbortTransactionAnswer,
    AbortTransactionRequest,
    DescribeProducersAnswer,
    DescribeProducersRequest,
    WriteTxnMarkersAnswer,
    WriteTxnMarkersRequest,
)
from node.api.metadata import GetMetadataAnswer, GetMetadataRequest
from node.api.offsets import (
    ListOffsetsAnswer,
    ListOffsetsRequest,
    OffsetForLeaderEpochAnswer,
    OffsetForLeaderEpochRequest,
    ReplicaLogInfo,
    ReplicaLogInfoRequest,
)
from node.api.permissions import Need, Permission, Scope
from node.api.produce import ProduceAnswer
from node.api.producers import InitProducerIdAnswer, InitProducerIdRequest
from node.api.remote_ranges import DescribeRemoteLogsAnswer, DescribeRemoteLogsRequest
from node.api.sasl_requests import AuthenticateAnswer, AuthenticateRequest
from replication.controller import events, snapshot_events
from replication.coordination import classic_requests as classic
from replication.coordination import group_requests as groups
from replication.coordination import remote_log_requests as remote_logs
from replication.coordination import transaction_requests as transactions
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.raft.quorum_events import LeaderAndEpoch, VoteAnswer
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.record_exchange import FetchAnswer, ProduceRequest
from tidelog.security.acls import AclDecision, AclOperation
from tidelog.types import QuotaType


def _subscribed_topics(asked: Any) -> Iterable[str]:
    names: Iterable[str] = asked.subscribed_topic_names or ()
    return names


def _all_of(*needs: Need) -> Permission:
    return Permission(needs)


def _each_topic(operation: AclOperation) -> Need:
    return Need(operation, Scope.EACH_TOPIC)


def _group(operation: AclOperation) -> Need:
    return Need(operation, Scope.GROUP, attrgetter("group_id"))


def _of_resources(operation: AclOperation) -> Permission:
    return _all_of(
        replace(_each_topic(operation), variant="of topics"),
        Need(operation, variant="of nodes"),
        Need(operation, Scope.EACH_GROUP, variant="of groups"),
    )


_TRANSACTION: Final = Need(AclOperation.WRITE, Scope.TRANSACTIONAL_ID, attrgetter("transactional_id"))
_PRODUCE: Final = _all_of(
    replace(_TRANSACTION, variant="of a transaction"),
    _each_topic(AclOperation.WRITE),
)
_HEARTBEAT: Final = _all_of(
    _group(AclOperation.READ), Need(AclOperation.DESCRIBE, Scope.EVERY_TOPIC, names_of=_subscribed_topics)
)
_DESCRIBE: Final = _all_of(Need(AclOperation.DESCRIBE))
_ALTER: Final = _all_of(Need(AclOperation.ALTER))
_NODES: Final = Permission((Need(AclOperation.CLUSTER_ACTION),), asked_by_nodes=True)


def _of_classic_members(name: str, asked: type[Asked], answered: type[Answered]) -> Api[Asked, Answered]:
    return Api(name, asked, answered, _all_of(_group(AclOperation.READ)), has_rpc=False)


def _for_nodes(
    name: str, asked: type[Asked], answered: type[Answered], *, audited: bool = False, wait: str = ""
) -> Api[Asked, Answered]:
    return Api(name, asked, answered, _NODES, audience=Audience.NODES, audited=audited, wait=wait)


def _change(
    name: str, asked: type[Asked], answered: type[Answered], permission: Permission, quota: QuotaType | None = None
) -> Api[Asked, Answered]:
    return Api(name, asked, answered, permission, audited=True, quota=quota, is_forwarded=True)


SASL_AUTHENTICATE: Final = Api(
    "Sasl.Authenticate", AuthenticateRequest, AuthenticateAnswer, Permission(()), audience=Audience.ANYONE
)

DATA_PRODUCE: Final = Api("Data.Produce", ProduceRequest, ProduceAnswer, _PRODUCE, quota=QuotaType.PRODUCER_BYTE_RATE)
DATA_PRODUCE_STREAM: Final = replace(DATA_PRODUCE, name="Data.ProduceStream", is_stream=True)
DATA_FETCH: Final = Api(
    "Data.Fetch",
    FetchRequest,
    FetchAnswer,
    _all_of(_each_topic(AclOperation.READ)),
    quota=QuotaType.CONSUMER_BYTE_RATE,
    wait="max_wait_ms",
)
DATA_FETCH_STREAM: Final = replace(DATA_FETCH, name="Data.FetchStream", wait="", is_stream=True)
DATA_LIST_OFFSETS: Final = Api(
    "Data.ListOffsets", ListOffsetsRequest, ListOffsetsAnswer, _all_of(_each_topic(AclOperation.DESCRIBE))
)
DATA_OFFSET_FOR_LEADER_EPOCH: Final = Api(
    "Data.OffsetForLeaderEpoch",
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochAnswer,
    _all_of(_each_topic(AclOperation.DESCRIBE)),
)
DATA_INIT_PRODUCER_ID: Final = Api(
    "Data.InitProducerId",
    InitProducerIdRequest,
    InitProducerIdAnswer,
    _all_of(Need(AclOperation.IDEMPOTENT_WRITE, or_else=Need(AclOperation.WRITE, Scope.ANY_TOPIC))),
)
DATA_GET_REPLICA_LOG_INFO: Final = _for_nodes(
    "Data.GetReplicaLogInfo", ReplicaLogInfoRequest, ReplicaLogInfo, wait="look_ms"
)
DATA_WRITE_TXN_MARKERS: Final = _for_nodes("Data.WriteTxnMarkers", WriteTxnMarkersRequest, WriteTxnMarkersAnswer)
DATA_DESCRIBE_PRODUCERS: Final = Api(
    "Data.DescribeProducers", DescribeProducersRequest, DescribeProducersAnswer, _all_of(_each_topic(AclOperation.READ))
)
DATA_ABORT_TRANSACTION: Final = Api(
    "Data.AbortTransaction", AbortTransactionRequest, AbortTransactionAnswer, _ALTER, audited=True
)
DATA_DELETE_RECORDS: Final = Api(
    "Data.DeleteRecords",
    DeleteRecordsRequest,
    DeleteRecordsAnswer,
    _all_of(_each_topic(AclOperation.DELETE)),
    audited=True,
    wait="max_wait_ms",
)
DATA_DESCRIBE_REMOTE_LOGS: Final = Api(
    "Data.DescribeRemoteLogs",
    DescribeRemoteLogsRequest,
    DescribeRemoteLogsAnswer,
    _all_of(_each_topic(AclOperation.READ)),
)
DATA_LOOK_AT_ENDS: Final = _for_nodes("Data.LookAtEnds", snapshots.LookAtEndsRequest, snapshots.LookAtEndsAnswer)

COORDINATORS_FIND_COORDINATOR: Final = Api(
    "Coordinators.FindCoordinator",
    groups.FindCoordinatorRequest,
    groups.FindCoordinatorAnswer,
    _all_of(
        Need(AclOperation.DESCRIBE, Scope.EACH_GROUP, variant="of groups"),
        Need(AclOperation.DESCRIBE, Scope.EACH_TRANSACTIONAL_ID, variant="of transactional ids"),
    ),
)

GROUPS_CONSUMER_GROUP_HEARTBEAT: Final = Api(
    "Groups.ConsumerGroupHeartbeat", groups.ConsumerGroupHeartbeat, groups.ConsumerGroupHeartbeatAnswer, _HEARTBEAT
)
GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM: Final = replace(
    GROUPS_CONSUMER_GROUP_HEARTBEAT, name="Groups.ConsumerGroupHeartbeatStream", is_stream=True
)
GROUPS_JOIN_GROUP: Final = replace(
    _of_classic_members("Groups.JoinGroup", classic.JoinGroup, classic.JoinGroupAnswer), waits_for_others=True
)
GROUPS_SYNC_GROUP: Final = replace(
    _of_classic_members("Groups.SyncGroup", classic.SyncGroup, classic.SyncGroupAnswer), waits_for_others=True
)
GROUPS_HEARTBEAT: Final = _of_classic_members(
    "Groups.Heartbeat", classic.ClassicHeartbeat, classic.ClassicHeartbeatAnswer
)
GROUPS_LEAVE_GROUP: Final = _of_classic_members("Groups.LeaveGroup", classic.LeaveGroup, classic.LeaveGroupAnswer)
GROUPS_OFFSET_COMMIT: Final = Api(
    "Groups.OffsetCommit",
    groups.OffsetCommit,
    groups.CommittedPartitions,
    _all_of(_group(AclOperation.READ), _each_topic(AclOperation.READ)),
)
GROUPS_TXN_OFFSET_COMMIT: Final = Api(
    "Groups.TxnOffsetCommit",
    groups.TxnOffsetCommit,
    groups.CommittedPartitions,
    _all_of(_TRANSACTION, _group(AclOperation.READ), _each_topic(AclOperation.READ)),
)
GROUPS_OFFSET_FETCH: Final = Api(
    "Groups.OffsetFetch",
    groups.OffsetFetch,
    groups.OffsetFetchAnswer,
    _all_of(_group(AclOperation.DESCRIBE), _each_topic(AclOperation.DESCRIBE)),
)
GROUPS_FETCH_OFFSETS_OF_GROUPS: Final = Api(
    "Groups.FetchOffsetsOfGroups",
    groups.FetchOffsetsOfGroups,
    groups.FetchOffsetsOfGroupsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_GROUP), _each_topic(AclOperation.DESCRIBE)),
    has_rpc=False,
)
GROUPS_OFFSET_DELETE: Final = Api(
    "Groups.OffsetDelete",
    groups.OffsetDelete,
    groups.CommittedPartitions,
    _all_of(_group(AclOperation.DELETE), _each_topic(AclOperation.READ)),
    audited=True,
)
GROUPS_LIST_GROUPS: Final = Api(
    "Groups.ListGroups",
    groups.ListGroups,
    groups.ListGroupsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, or_else=Need(AclOperation.DESCRIBE, Scope.EACH_GROUP))),
)
GROUPS_DESCRIBE_GROUPS: Final = Api(
    "Groups.DescribeGroups",
    groups.DescribeGroups,
    groups.DescribeGroupsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_GROUP)),
)
GROUPS_DESCRIBE_CLASSIC_GROUPS: Final = Api(
    "Groups.DescribeClassicGroups",
    classic.DescribeClassicGroups,
    classic.DescribeClassicGroupsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_GROUP)),
    has_rpc=False,
)
GROUPS_DESCRIBE_CONSUMER_GROUPS: Final = Api(
    "Groups.DescribeConsumerGroups",
    groups.DescribeConsumerGroups,
    groups.DescribeConsumerGroupsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_GROUP)),
    has_rpc=False,
)
GROUPS_DELETE_GROUPS: Final = Api(
    "Groups.DeleteGroups",
    groups.DeleteGroups,
    groups.DeleteGroupsAnswer,
    _all_of(Need(AclOperation.DELETE, Scope.EACH_GROUP)),
    audited=True,
)

TRANSACTIONS_INIT_PRODUCER_ID: Final = Api(
    "Transactions.InitProducerId",
    transactions.InitTransactionalProducer,
    TransactionalProducer,
    _all_of(_TRANSACTION),
)
TRANSACTIONS_ADD_PARTITIONS_TO_TXN: Final = Api(
    "Transactions.AddPartitionsToTxn",
    transactions.AddPartitionsToTxn,
    groups.CommittedPartitions,
    _all_of(_TRANSACTION, _each_topic(AclOperation.WRITE)),
)
TRANSACTIONS_ADD_OFFSETS_TO_TXN: Final = Api(
    "Transactions.AddOffsetsToTxn",
    transactions.AddOffsetsToTxn,
    transactions.AddOffsetsToTxnAnswer,
    _all_of(_TRANSACTION, _group(AclOperation.READ)),
)
TRANSACTIONS_END_TXN: Final = Api(
    "Transactions.EndTxn", transactions.EndTxn, TransactionalProducer, _all_of(_TRANSACTION)
)
TRANSACTIONS_LIST_TRANSACTIONS: Final = Api(
    "Transactions.ListTransactions",
    transactions.ListTransactions,
    transactions.ListTransactionsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_TRANSACTIONAL_ID)),
)
TRANSACTIONS_DESCRIBE_TRANSACTIONS: Final = Api(
    "Transactions.DescribeTransactions",
    transactions.DescribeTransactions,
    transactions.DescribeTransactionsAnswer,
    _all_of(Need(AclOperation.DESCRIBE, Scope.EACH_TRANSACTIONAL_ID)),
)
TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS: Final = _for_nodes(
    "Transactions.AddOrVerifyPartitions", transactions.AddOrVerifyPartitions, transactions.AddOrVerifyPartitionsAnswer
)
TRANSACTIONS_HOLD_COMMITS: Final = _for_nodes(
    "Transactions.HoldCommits", transactions.HoldCommits, transactions.HoldCommitsAnswer
)

REMOTE_LOGS_BEGIN_REMOTE_LOG: Final = _for_nodes(
    "RemoteLogs.BeginRemoteLog", remote_logs.BeginRemoteLog, remote_logs.RemoteLogChanged
)
REMOTE_LOGS_BEGIN_COPY: Final = _for_nodes("RemoteLogs.BeginCopy", remote_logs.BeginCopy, remote_logs.RemoteLogChanged)
REMOTE_LOGS_FINISH_COPY: Final = _for_nodes(
    "RemoteLogs.FinishCopy", remote_logs.FinishCopy, remote_logs.RemoteLogChanged
)
REMOTE_LOGS_DELETE_REMOTE_SEGMENTS: Final = _for_nodes(
    "RemoteLogs.DeleteRemoteSegments", remote_logs.DeleteRemoteSegments, remote_logs.RemoteLogChanged
)
REMOTE_LOGS_LIST_REMOTE_SEGMENTS: Final = _for_nodes(
    "RemoteLogs.ListRemoteSegments", remote_logs.ListRemoteSegments, remote_logs.RemoteSegmentsPage
)
REMOTE_LOGS_FIND_ORPHANS: Final = _for_nodes(
    "RemoteLogs.FindOrphans", remote_logs.FindOrphans, remote_logs.OrphansFound
)
REMOTE_LOGS_FOLLOW_REMOTE_LOGS: Final = _for_nodes(
    "RemoteLogs.FollowRemoteLogs", remote_logs.FollowRemoteLogs, remote_logs.RemoteSegmentsPages
)

ADMIN_GET_METADATA: Final = Api(
    "Admin.GetMetadata",
    GetMetadataRequest,
    GetMetadataAnswer,
    _all_of(_each_topic(AclOperation.DESCRIBE)),
    quota=QuotaType.CONTROLLER_MUTATION_RATE,  # it may create the topics that it names
)
ADMIN_CREATE_TOPICS: Final = _change(
    "Admin.CreateTopics",
    admin.CreateTopicsRequest,
    admin.ChangedTopics,
    _all_of(Need(AclOperation.CREATE, or_else=_each_topic(AclOperation.CREATE))),
    quota=QuotaType.CONTROLLER_MUTATION_RATE,
)
ADMIN_DELETE_TOPICS: Final = _change(
    "Admin.DeleteTopics",
    admin.DeleteTopicsRequest,
    admin.ChangedTopics,
    _all_of(_each_topic(AclOperation.DELETE)),
    quota=QuotaType.CONTROLLER_MUTATION_RATE,
)
ADMIN_CREATE_PARTITIONS: Final = _change(
    "Admin.CreatePartitions",
    admin.CreatePartitionsRequest,
    admin.ChangedTopics,
    _all_of(_each_topic(AclOperation.ALTER)),
    quota=QuotaType.CONTROLLER_MUTATION_RATE,
)
ADMIN_INCREMENTAL_ALTER_CONFIGS: Final = _change(
    "Admin.IncrementalAlterConfigs",
    admin.AlterConfigsRequest,
    admin.ChangedTopics,
    _all_of(_each_topic(AclOperation.ALTER_CONFIGS)),
)
ADMIN_DESCRIBE_CONFIGS: Final = Api(
    "Admin.DescribeConfigs",
    configs.DescribeConfigsRequest,
    configs.DescribeConfigsAnswer,
    _of_resources(AclOperation.DESCRIBE_CONFIGS),
)
ADMIN_ALTER_CONFIGS: Final = Api(
    "Admin.AlterConfigs",
    configs.AlterConfigsOfResources,
    admin.ChangedTopics,
    _of_resources(AclOperation.ALTER_CONFIGS),
    audited=True,
    has_rpc=False,
)
ADMIN_ALTER_GROUP_CONFIGS: Final = _change(
    "Admin.AlterGroupConfigs",
    events.AlterGroupConfigs,
    events.GroupConfigsAltered,
    _all_of(_group(AclOperation.ALTER_CONFIGS)),
)
ADMIN_LIST_CONFIG_RESOURCES: Final = Api(
    "Admin.ListConfigResources",
    configs.ListConfigResourcesRequest,
    configs.ListConfigResourcesAnswer,
    _all_of(Need(AclOperation.DESCRIBE_CONFIGS)),
    has_rpc=False,
)
ADMIN_DESCRIBE_CLUSTER: Final = Api(
    "Admin.DescribeCluster", admin.DescribeClusterRequest, ClusterDescription, _DESCRIBE
)
ADMIN_ELECT_LEADERS: Final = _change("Admin.ElectLeaders", admin.ElectLeadersRequest, admin.ChangedPartitions, _ALTER)
ADMIN_ALTER_PARTITION_REASSIGNMENTS: Final = _change(
    "Admin.AlterPartitionReassignments", admin.AlterReassignmentsRequest, admin.ChangedPartitions, _ALTER
)
ADMIN_LIST_PARTITION_REASSIGNMENTS: Final = Api(
    "Admin.ListPartitionReassignments", admin.ListReassignmentsRequest, admin.ListReassignmentsAnswer, _DESCRIBE
)
ADMIN_UPDATE_FEATURES: Final = _change("Admin.UpdateFeatures", events.UpdateFeatures, events.FeaturesUpdated, _ALTER)
ADMIN_UPDATE_NAMED_FEATURES: Final = Api(
    "Admin.UpdateNamedFeatures",
    admin.UpdateNamedFeatures,
    events.FeaturesUpdated,
    _ALTER,
    audited=True,
    has_rpc=False,
)
ADMIN_EXPLAIN_PARTITIONS: Final = Api(
    "Admin.ExplainPartitions",
    admin.ExplainPartitionsRequest,
    admin.ExplainPartitionsAnswer,
    _all_of(_each_topic(AclOperation.DESCRIBE)),
)
ADMIN_DESCRIBE_LOG_DIRS: Final = Api(
    "Admin.DescribeLogDirs",
    admin.DescribeLogDirsRequest,
    admin.DescribeLogDirsAnswer,
    Permission((Need(AclOperation.DESCRIBE),), asked_by_nodes=True),
)
ADMIN_ALTER_REPLICA_LOG_DIRS: Final = Api(
    "Admin.AlterReplicaLogDirs",
    admin.AlterReplicaLogDirsRequest,
    admin.ChangedPartitions,
    _ALTER,
    audited=True,
)
ADMIN_DESCRIBE_REPLICA_LOGS: Final = Api(
    "Admin.DescribeReplicaLogs",
    admin.DescribeReplicaLogsRequest,
    admin.DescribeReplicaLogsAnswer,
    Permission((Need(AclOperation.DESCRIBE),), asked_by_nodes=True),
)
ADMIN_DESCRIBE_QUORUM: Final = Api(
    "Admin.DescribeQuorum",
    admin.DescribeQuorumRequest,
    admin.DescribeQuorumAnswer,
    Permission((Need(AclOperation.DESCRIBE),), asked_by_nodes=True),
)
ADMIN_EXPLAIN_RESTART: Final = Api(
    "Admin.ExplainRestart", admin.ExplainRestartRequest, admin.ExplainRestartAnswer, _DESCRIBE
)
ADMIN_REMOVE_VOTER: Final = _change("Admin.RemoveVoter", events.RemoveVoter, events.VoterRemoved, _ALTER)
ADMIN_UNREGISTER_NODE: Final = _change("Admin.UnregisterNode", events.UnregisterNode, events.NodeUnregistered, _ALTER)
ADMIN_ALTER_CORDON: Final = _change("Admin.AlterCordon", events.AlterCordon, events.CordonAltered, _ALTER)
ADMIN_CREATE_TOPIC_SNAPSHOT: Final = Api(
    "Admin.CreateTopicSnapshot",
    snapshots.CreateTopicSnapshotRequest,
    snapshots.CreateTopicSnapshotAnswer,
    _all_of(_each_topic(AclOperation.ALTER_CONFIGS)),  # as for retention, which the snapshot suspends
    audited=True,
)
ADMIN_DESCRIBE_TOPIC_SNAPSHOTS: Final = Api(
    "Admin.DescribeTopicSnapshots",
    snapshots.DescribeTopicSnapshotsRequest,
    snapshots.DescribeTopicSnapshotsAnswer,
    _all_of(_each_topic(AclOperation.DESCRIBE)),
)
ADMIN_EXTEND_TOPIC_SNAPSHOT: Final = _change(
    "Admin.ExtendTopicSnapshot",
    snapshot_events.ExtendTopicSnapshot,
    snapshot_events.TopicSnapshotChanged,
    _all_of(_each_topic(AclOperation.ALTER_CONFIGS)),
)
ADMIN_DELETE_TOPIC_SNAPSHOT: Final = _change(
    "Admin.DeleteTopicSnapshot",
    snapshot_events.DeleteTopicSnapshot,
    snapshot_events.TopicSnapshotChanged,
    _all_of(_each_topic(AclOperation.ALTER_CONFIGS)),
)
ADMIN_CREATE_ACLS: Final = _change("Admin.CreateAcls", events.CreateAcls, events.AclsCreated, _ALTER)
ADMIN_DELETE_ACLS: Final = _change("Admin.DeleteAcls", events.DeleteAcls, events.AclsDeleted, _ALTER)
ADMIN_DESCRIBE_ACLS: Final = Api("Admin.DescribeAcls", admin.DescribeAclsRequest, admin.DescribeAclsAnswer, _DESCRIBE)
ADMIN_EXPLAIN_ACL: Final = Api("Admin.ExplainAcl", admin.AclQuestion, AclDecision, _DESCRIBE)
ADMIN_ALTER_USER_SCRAM_CREDENTIALS: Final = _change(
    "Admin.AlterUserScramCredentials", events.AlterScramCredentials, events.ScramCredentialsAltered, _ALTER
)
ADMIN_ALTER_USERS_ONE_BY_ONE: Final = Api(
    "Admin.AlterUsersOneByOne", admin.AlterUsersOneByOne, admin.ChangedParts, _ALTER, audited=True, has_rpc=False
)
ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Api(
    "Admin.DescribeUserScramCredentials",
    admin.DescribeScramCredentialsRequest,
    admin.DescribeScramCredentialsAnswer,
    _DESCRIBE,
)
ADMIN_ALTER_CLIENT_QUOTAS: Final = _change(
    "Admin.AlterClientQuotas",
    events.AlterClientQuotas,
    events.ClientQuotasAltered,
    _all_of(Need(AclOperation.ALTER_CONFIGS)),
)
ADMIN_ALTER_QUOTAS_ONE_BY_ONE: Final = Api(
    "Admin.AlterQuotasOneByOne",
    admin.AlterQuotasOneByOne,
    admin.ChangedParts,
    _all_of(Need(AclOperation.ALTER_CONFIGS)),
    audited=True,
    has_rpc=False,
)
ADMIN_DESCRIBE_CLIENT_QUOTAS: Final = Api(
    "Admin.DescribeClientQuotas",
    admin.DescribeClientQuotasRequest,
    admin.DescribeClientQuotasAnswer,
    _all_of(Need(AclOperation.DESCRIBE_CONFIGS)),
)

CONTROLLER_REGISTER_NODE: Final = _for_nodes("Controller.RegisterNode", events.RegisterNode, events.Registered)
CONTROLLER_HEARTBEAT: Final = _for_nodes("Controller.Heartbeat", events.Heartbeat, events.HeartbeatAnswer)
CONTROLLER_ALTER_PARTITION: Final = _for_nodes(
    "Controller.AlterPartition", events.AlterPartition, events.AlteredPartitions
)
CONTROLLER_ALLOCATE_PRODUCER_IDS: Final = _for_nodes(
    "Controller.AllocateProducerIds", events.AllocateProducerIds, events.ProducerIdBlock
)
CONTROLLER_RECORD_TOPIC_SNAPSHOT: Final = _for_nodes(
    "Controller.RecordTopicSnapshot", snapshot_events.RecordTopicSnapshot, snapshot_events.TopicSnapshotChanged
)
CONTROLLER_ENVELOPE: Final = _for_nodes("Controller.Envelope", Envelope, EnvelopeAnswer, audited=True)

QUORUM_INTRODUCE: Final = _for_nodes("Quorum.Introduce", quorum.IntroduceRequest, quorum.IntroduceAnswer)
QUORUM_FETCH_METADATA: Final = _for_nodes(
    "Quorum.FetchMetadata", quorum.FetchMetadataRequest, quorum.FetchMetadataAnswer, wait="max_wait_ms"
)
QUORUM_VOTE: Final = _for_nodes("Quorum.Vote", quorum.QuorumVoteRequest, VoteAnswer)
QUORUM_BEGIN_QUORUM_EPOCH: Final = _for_nodes("Quorum.BeginQuorumEpoch", quorum.BeginQuorumEpochRequest, LeaderAndEpoch)
QUORUM_END_QUORUM_EPOCH: Final = _for_nodes("Quorum.EndQuorumEpoch", quorum.EndQuorumEpochRequest, LeaderAndEpoch)
QUORUM_FETCH_SNAPSHOT: Final = _for_nodes(
    "Quorum.FetchSnapshot", quorum.FetchSnapshotRequest, quorum.FetchSnapshotAnswer
)

APIS: Final[Mapping[str, Api[Any, Any]]] = {
    each.name: each for each in tuple(globals().values()) if isinstance(each, Api)
}
"""Every API, by name."""
