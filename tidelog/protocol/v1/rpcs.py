"""Generated from proto/tidelog/protocol/v1 by `make proto`; never edited."""

from typing import Final

from tidelog import record_exchange
from tidelog.protocol.rpc import CallKind, Method
from tidelog.protocol.v1 import acl_pb2, data_pb2, admin_pb2, controller_pb2, quorum_pb2, sasl_pb2, groups_pb2, transactions_pb2, remote_logs_pb2

DATA: Final = "tidelog.v1.Data"
DATA_PRODUCE_STREAM: Final = Method(
    DATA, "ProduceStream", record_exchange.ProduceRequest, data_pb2.ProduceResponse, CallKind.STREAM
)
DATA_PRODUCE: Final = Method(
    DATA, "Produce", record_exchange.ProduceRequest, data_pb2.ProduceResponse, CallKind.UNARY
)
DATA_FETCH_STREAM: Final = Method(
    DATA, "FetchStream", data_pb2.FetchRequest, record_exchange.FetchAnswer, CallKind.STREAM
)
DATA_FETCH: Final = Method(
    DATA, "Fetch", data_pb2.FetchRequest, record_exchange.FetchAnswer, CallKind.UNARY
)
DATA_LIST_OFFSETS: Final = Method(
    DATA, "ListOffsets", data_pb2.ListOffsetsRequest, data_pb2.ListOffsetsResponse, CallKind.UNARY
)
DATA_OFFSET_FOR_LEADER_EPOCH: Final = Method(
    DATA, "OffsetForLeaderEpoch", data_pb2.OffsetForLeaderEpochRequest, data_pb2.OffsetForLeaderEpochResponse, CallKind.UNARY
)
DATA_GET_REPLICA_LOG_INFO: Final = Method(
    DATA, "GetReplicaLogInfo", data_pb2.GetReplicaLogInfoRequest, data_pb2.GetReplicaLogInfoResponse, CallKind.UNARY
)
DATA_INIT_PRODUCER_ID: Final = Method(
    DATA, "InitProducerId", data_pb2.InitProducerIdRequest, data_pb2.InitProducerIdResponse, CallKind.UNARY
)
DATA_WRITE_TXN_MARKERS: Final = Method(
    DATA, "WriteTxnMarkers", data_pb2.WriteTxnMarkersRequest, data_pb2.WriteTxnMarkersResponse, CallKind.UNARY
)
DATA_DESCRIBE_PRODUCERS: Final = Method(
    DATA, "DescribeProducers", data_pb2.DescribeProducersRequest, data_pb2.DescribeProducersResponse, CallKind.UNARY
)
DATA_ABORT_TRANSACTION: Final = Method(
    DATA, "AbortTransaction", data_pb2.AbortTransactionRequest, data_pb2.AbortTransactionResponse, CallKind.UNARY
)
DATA_DELETE_RECORDS: Final = Method(
    DATA, "DeleteRecords", data_pb2.DeleteRecordsRequest, data_pb2.DeleteRecordsResponse, CallKind.UNARY
)
DATA_LOOK_AT_ENDS: Final = Method(
    DATA, "LookAtEnds", data_pb2.LookAtEndsRequest, data_pb2.LookAtEndsResponse, CallKind.UNARY
)
DATA_DESCRIBE_REMOTE_LOGS: Final = Method(
    DATA, "DescribeRemoteLogs", data_pb2.DescribeRemoteLogsRequest, data_pb2.DescribeRemoteLogsResponse, CallKind.UNARY
)
ADMIN: Final = "tidelog.v1.Admin"
ADMIN_GET_METADATA: Final = Method(
    ADMIN, "GetMetadata", admin_pb2.GetMetadataRequest, admin_pb2.GetMetadataResponse, CallKind.UNARY
)
ADMIN_CREATE_TOPICS: Final = Method(
    ADMIN, "CreateTopics", admin_pb2.CreateTopicsRequest, admin_pb2.ChangedTopics, CallKind.UNARY
)
ADMIN_DELETE_TOPICS: Final = Method(
    ADMIN, "DeleteTopics", admin_pb2.DeleteTopicsRequest, admin_pb2.ChangedTopics, CallKind.UNARY
)
ADMIN_DESCRIBE_CLUSTER: Final = Method(
    ADMIN, "DescribeCluster", admin_pb2.DescribeClusterRequest, admin_pb2.DescribeClusterResponse, CallKind.UNARY
)
ADMIN_ELECT_LEADERS: Final = Method(
    ADMIN, "ElectLeaders", admin_pb2.ElectLeadersRequest, admin_pb2.ElectLeadersResponse, CallKind.UNARY
)
ADMIN_ALTER_PARTITION_REASSIGNMENTS: Final = Method(
    ADMIN, "AlterPartitionReassignments", admin_pb2.AlterPartitionReassignmentsRequest, admin_pb2.AlterPartitionReassignmentsResponse, CallKind.UNARY
)
ADMIN_LIST_PARTITION_REASSIGNMENTS: Final = Method(
    ADMIN, "ListPartitionReassignments", admin_pb2.ListPartitionReassignmentsRequest, admin_pb2.ListPartitionReassignmentsResponse, CallKind.UNARY
)
ADMIN_INCREMENTAL_ALTER_CONFIGS: Final = Method(
    ADMIN, "IncrementalAlterConfigs", admin_pb2.IncrementalAlterConfigsRequest, admin_pb2.ChangedTopics, CallKind.UNARY
)
ADMIN_CREATE_PARTITIONS: Final = Method(
    ADMIN, "CreatePartitions", admin_pb2.CreatePartitionsRequest, admin_pb2.ChangedTopics, CallKind.UNARY
)
ADMIN_UPDATE_FEATURES: Final = Method(
    ADMIN, "UpdateFeatures", admin_pb2.UpdateFeaturesRequest, admin_pb2.UpdateFeaturesResponse, CallKind.UNARY
)
ADMIN_EXPLAIN_PARTITIONS: Final = Method(
    ADMIN, "ExplainPartitions", admin_pb2.ExplainPartitionsRequest, admin_pb2.ExplainPartitionsResponse, CallKind.UNARY
)
ADMIN_ALTER_REPLICA_LOG_DIRS: Final = Method(
    ADMIN, "AlterReplicaLogDirs", admin_pb2.AlterReplicaLogDirsRequest, admin_pb2.AlterReplicaLogDirsResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_LOG_DIRS: Final = Method(
    ADMIN, "DescribeLogDirs", admin_pb2.DescribeLogDirsRequest, admin_pb2.DescribeLogDirsResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_REPLICA_LOGS: Final = Method(
    ADMIN, "DescribeReplicaLogs", admin_pb2.DescribeReplicaLogsRequest, admin_pb2.DescribeReplicaLogsResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_CONFIGS: Final = Method(
    ADMIN, "DescribeConfigs", admin_pb2.DescribeConfigsRequest, admin_pb2.DescribeConfigsResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_QUORUM: Final = Method(
    ADMIN, "DescribeQuorum", admin_pb2.DescribeQuorumRequest, admin_pb2.DescribeQuorumResponse, CallKind.UNARY
)
ADMIN_EXPLAIN_RESTART: Final = Method(
    ADMIN, "ExplainRestart", admin_pb2.ExplainRestartRequest, admin_pb2.ExplainRestartResponse, CallKind.UNARY
)
ADMIN_REMOVE_VOTER: Final = Method(
    ADMIN, "RemoveVoter", admin_pb2.RemoveVoterRequest, admin_pb2.RemoveVoterResponse, CallKind.UNARY
)
ADMIN_UNREGISTER_NODE: Final = Method(
    ADMIN, "UnregisterNode", admin_pb2.UnregisterNodeRequest, admin_pb2.UnregisterNodeResponse, CallKind.UNARY
)
ADMIN_ALTER_CORDON: Final = Method(
    ADMIN, "AlterCordon", admin_pb2.AlterCordonRequest, admin_pb2.AlterCordonResponse, CallKind.UNARY
)
ADMIN_CREATE_TOPIC_SNAPSHOT: Final = Method(
    ADMIN, "CreateTopicSnapshot", admin_pb2.CreateTopicSnapshotRequest, admin_pb2.CreateTopicSnapshotResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_TOPIC_SNAPSHOTS: Final = Method(
    ADMIN, "DescribeTopicSnapshots", admin_pb2.DescribeTopicSnapshotsRequest, admin_pb2.DescribeTopicSnapshotsResponse, CallKind.UNARY
)
ADMIN_EXTEND_TOPIC_SNAPSHOT: Final = Method(
    ADMIN, "ExtendTopicSnapshot", admin_pb2.ExtendTopicSnapshotRequest, admin_pb2.ExtendTopicSnapshotResponse, CallKind.UNARY
)
ADMIN_DELETE_TOPIC_SNAPSHOT: Final = Method(
    ADMIN, "DeleteTopicSnapshot", admin_pb2.DeleteTopicSnapshotRequest, admin_pb2.DeleteTopicSnapshotResponse, CallKind.UNARY
)
ADMIN_ALTER_USER_SCRAM_CREDENTIALS: Final = Method(
    ADMIN, "AlterUserScramCredentials", sasl_pb2.AlterUserScramCredentialsRequest, sasl_pb2.AlterUserScramCredentialsResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Method(
    ADMIN, "DescribeUserScramCredentials", sasl_pb2.DescribeUserScramCredentialsRequest, sasl_pb2.DescribeUserScramCredentialsResponse, CallKind.UNARY
)
ADMIN_CREATE_ACLS: Final = Method(
    ADMIN, "CreateAcls", admin_pb2.CreateAclsRequest, admin_pb2.CreateAclsResponse, CallKind.UNARY
)
ADMIN_DELETE_ACLS: Final = Method(
    ADMIN, "DeleteAcls", admin_pb2.DeleteAclsRequest, admin_pb2.DeleteAclsResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_ACLS: Final = Method(
    ADMIN, "DescribeAcls", admin_pb2.DescribeAclsRequest, admin_pb2.DescribeAclsResponse, CallKind.UNARY
)
ADMIN_EXPLAIN_ACL: Final = Method(
    ADMIN, "ExplainAcl", admin_pb2.ExplainAclRequest, admin_pb2.ExplainAclResponse, CallKind.UNARY
)
ADMIN_ALTER_GROUP_CONFIGS: Final = Method(
    ADMIN, "AlterGroupConfigs", admin_pb2.AlterGroupConfigsRequest, admin_pb2.AlterGroupConfigsResponse, CallKind.UNARY
)
ADMIN_ALTER_CLIENT_QUOTAS: Final = Method(
    ADMIN, "AlterClientQuotas", admin_pb2.AlterClientQuotasRequest, admin_pb2.AlterClientQuotasResponse, CallKind.UNARY
)
ADMIN_DESCRIBE_CLIENT_QUOTAS: Final = Method(
    ADMIN, "DescribeClientQuotas", admin_pb2.DescribeClientQuotasRequest, admin_pb2.DescribeClientQuotasResponse, CallKind.UNARY
)
CONTROLLER: Final = "tidelog.v1.Controller"
CONTROLLER_REGISTER_NODE: Final = Method(
    CONTROLLER, "RegisterNode", controller_pb2.RegisterNodeRequest, controller_pb2.RegisterNodeResponse, CallKind.UNARY
)
CONTROLLER_HEARTBEAT: Final = Method(
    CONTROLLER, "Heartbeat", controller_pb2.HeartbeatRequest, controller_pb2.HeartbeatResponse, CallKind.UNARY
)
CONTROLLER_ALTER_PARTITION: Final = Method(
    CONTROLLER, "AlterPartition", controller_pb2.AlterPartitionRequest, controller_pb2.AlterPartitionResponse, CallKind.UNARY
)
CONTROLLER_ALLOCATE_PRODUCER_IDS: Final = Method(
    CONTROLLER, "AllocateProducerIds", controller_pb2.AllocateProducerIdsRequest, controller_pb2.AllocateProducerIdsResponse, CallKind.UNARY
)
CONTROLLER_RECORD_TOPIC_SNAPSHOT: Final = Method(
    CONTROLLER, "RecordTopicSnapshot", controller_pb2.RecordTopicSnapshotRequest, controller_pb2.RecordTopicSnapshotResponse, CallKind.UNARY
)
CONTROLLER_ENVELOPE: Final = Method(
    CONTROLLER, "Envelope", controller_pb2.EnvelopeRequest, controller_pb2.EnvelopeResponse, CallKind.UNARY
)
QUORUM: Final = "tidelog.v1.Quorum"
QUORUM_INTRODUCE: Final = Method(
    QUORUM, "Introduce", quorum_pb2.IntroduceRequest, quorum_pb2.IntroduceResponse, CallKind.UNARY
)
QUORUM_FETCH_METADATA: Final = Method(
    QUORUM, "FetchMetadata", quorum_pb2.FetchMetadataRequest, quorum_pb2.FetchMetadataResponse, CallKind.UNARY
)
QUORUM_VOTE: Final = Method(
    QUORUM, "Vote", quorum_pb2.VoteRequest, quorum_pb2.VoteResponse, CallKind.UNARY
)
QUORUM_BEGIN_QUORUM_EPOCH: Final = Method(
    QUORUM, "BeginQuorumEpoch", quorum_pb2.BeginQuorumEpochRequest, quorum_pb2.LeaderAndEpoch, CallKind.UNARY
)
QUORUM_END_QUORUM_EPOCH: Final = Method(
    QUORUM, "EndQuorumEpoch", quorum_pb2.EndQuorumEpochRequest, quorum_pb2.LeaderAndEpoch, CallKind.UNARY
)
QUORUM_FETCH_SNAPSHOT: Final = Method(
    QUORUM, "FetchSnapshot", quorum_pb2.FetchSnapshotRequest, quorum_pb2.FetchSnapshotResponse, CallKind.UNARY
)
SASL: Final = "tidelog.v1.Sasl"
SASL_AUTHENTICATE: Final = Method(
    SASL, "Authenticate", sasl_pb2.AuthenticateRequest, sasl_pb2.AuthenticateResponse, CallKind.UNARY
)
COORDINATORS: Final = "tidelog.v1.Coordinators"
COORDINATORS_FIND_COORDINATOR: Final = Method(
    COORDINATORS, "FindCoordinator", groups_pb2.FindCoordinatorRequest, groups_pb2.FindCoordinatorResponse, CallKind.UNARY
)
GROUPS: Final = "tidelog.v1.Groups"
GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM: Final = Method(
    GROUPS, "ConsumerGroupHeartbeatStream", groups_pb2.ConsumerGroupHeartbeatRequest, groups_pb2.ConsumerGroupHeartbeatResponse, CallKind.STREAM
)
GROUPS_CONSUMER_GROUP_HEARTBEAT: Final = Method(
    GROUPS, "ConsumerGroupHeartbeat", groups_pb2.ConsumerGroupHeartbeatRequest, groups_pb2.ConsumerGroupHeartbeatResponse, CallKind.UNARY
)
GROUPS_OFFSET_COMMIT: Final = Method(
    GROUPS, "OffsetCommit", groups_pb2.OffsetCommitRequest, groups_pb2.OffsetCommitResponse, CallKind.UNARY
)
GROUPS_TXN_OFFSET_COMMIT: Final = Method(
    GROUPS, "TxnOffsetCommit", groups_pb2.TxnOffsetCommitRequest, groups_pb2.TxnOffsetCommitResponse, CallKind.UNARY
)
GROUPS_OFFSET_FETCH: Final = Method(
    GROUPS, "OffsetFetch", groups_pb2.OffsetFetchRequest, groups_pb2.OffsetFetchResponse, CallKind.UNARY
)
GROUPS_OFFSET_DELETE: Final = Method(
    GROUPS, "OffsetDelete", groups_pb2.OffsetDeleteRequest, groups_pb2.OffsetDeleteResponse, CallKind.UNARY
)
GROUPS_LIST_GROUPS: Final = Method(
    GROUPS, "ListGroups", groups_pb2.ListGroupsRequest, groups_pb2.ListGroupsResponse, CallKind.UNARY
)
GROUPS_DESCRIBE_GROUPS: Final = Method(
    GROUPS, "DescribeGroups", groups_pb2.DescribeGroupsRequest, groups_pb2.DescribeGroupsResponse, CallKind.UNARY
)
GROUPS_DELETE_GROUPS: Final = Method(
    GROUPS, "DeleteGroups", groups_pb2.DeleteGroupsRequest, groups_pb2.DeleteGroupsResponse, CallKind.UNARY
)
TRANSACTIONS: Final = "tidelog.v1.Transactions"
TRANSACTIONS_INIT_PRODUCER_ID: Final = Method(
    TRANSACTIONS, "InitProducerId", transactions_pb2.InitTransactionalProducerRequest, transactions_pb2.InitTransactionalProducerResponse, CallKind.UNARY
)
TRANSACTIONS_ADD_PARTITIONS_TO_TXN: Final = Method(
    TRANSACTIONS, "AddPartitionsToTxn", transactions_pb2.AddPartitionsToTxnRequest, transactions_pb2.AddPartitionsToTxnResponse, CallKind.UNARY
)
TRANSACTIONS_ADD_OFFSETS_TO_TXN: Final = Method(
    TRANSACTIONS, "AddOffsetsToTxn", transactions_pb2.AddOffsetsToTxnRequest, transactions_pb2.AddOffsetsToTxnResponse, CallKind.UNARY
)
TRANSACTIONS_END_TXN: Final = Method(
    TRANSACTIONS, "EndTxn", transactions_pb2.EndTxnRequest, transactions_pb2.EndTxnResponse, CallKind.UNARY
)
TRANSACTIONS_LIST_TRANSACTIONS: Final = Method(
    TRANSACTIONS, "ListTransactions", transactions_pb2.ListTransactionsRequest, transactions_pb2.ListTransactionsResponse, CallKind.UNARY
)
TRANSACTIONS_DESCRIBE_TRANSACTIONS: Final = Method(
    TRANSACTIONS, "DescribeTransactions", transactions_pb2.DescribeTransactionsRequest, transactions_pb2.DescribeTransactionsResponse, CallKind.UNARY
)
TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS: Final = Method(
    TRANSACTIONS, "AddOrVerifyPartitions", transactions_pb2.AddOrVerifyPartitionsRequest, transactions_pb2.AddOrVerifyPartitionsResponse, CallKind.UNARY
)
TRANSACTIONS_HOLD_COMMITS: Final = Method(
    TRANSACTIONS, "HoldCommits", transactions_pb2.HoldCommitsRequest, transactions_pb2.HoldCommitsResponse, CallKind.UNARY
)
REMOTE_LOGS: Final = "tidelog.v1.RemoteLogs"
REMOTE_LOGS_BEGIN_REMOTE_LOG: Final = Method(
    REMOTE_LOGS, "BeginRemoteLog", remote_logs_pb2.BeginRemoteLogRequest, remote_logs_pb2.RemoteLogChanged, CallKind.UNARY
)
REMOTE_LOGS_BEGIN_COPY: Final = Method(
    REMOTE_LOGS, "BeginCopy", remote_logs_pb2.BeginCopyRequest, remote_logs_pb2.RemoteLogChanged, CallKind.UNARY
)
REMOTE_LOGS_FINISH_COPY: Final = Method(
    REMOTE_LOGS, "FinishCopy", remote_logs_pb2.FinishCopyRequest, remote_logs_pb2.RemoteLogChanged, CallKind.UNARY
)
REMOTE_LOGS_DELETE_REMOTE_SEGMENTS: Final = Method(
    REMOTE_LOGS, "DeleteRemoteSegments", remote_logs_pb2.DeleteRemoteSegmentsRequest, remote_logs_pb2.RemoteLogChanged, CallKind.UNARY
)
REMOTE_LOGS_LIST_REMOTE_SEGMENTS: Final = Method(
    REMOTE_LOGS, "ListRemoteSegments", remote_logs_pb2.ListRemoteSegmentsRequest, remote_logs_pb2.RemoteSegmentsPage, CallKind.UNARY
)
REMOTE_LOGS_FIND_ORPHANS: Final = Method(
    REMOTE_LOGS, "FindOrphans", remote_logs_pb2.FindOrphansRequest, remote_logs_pb2.OrphansFound, CallKind.UNARY
)
REMOTE_LOGS_FOLLOW_REMOTE_LOGS: Final = Method(
    REMOTE_LOGS, "FollowRemoteLogs", remote_logs_pb2.FollowRemoteLogsRequest, remote_logs_pb2.RemoteSegmentsPages, CallKind.UNARY
)
