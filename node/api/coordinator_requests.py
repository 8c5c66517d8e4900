"""Requests to coordinators. The values are those of the coordinators' state machines."""

from __future__ import annotations

from typing import Final

from node.api.api import Api
from replication.coordination import group_requests as groups
from replication.coordination import transaction_requests as transactions

COORDINATORS_FIND_COORDINATOR: Final = Api(
    "Coordinators.FindCoordinator", groups.FindCoordinatorRequest, groups.FindCoordinatorAnswer
)

GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM: Final = Api(
    "Groups.ConsumerGroupHeartbeatStream",
    groups.ConsumerGroupHeartbeat,
    groups.ConsumerGroupHeartbeatAnswer,
    is_stream=True,
)
GROUPS_CONSUMER_GROUP_HEARTBEAT: Final = Api(
    "Groups.ConsumerGroupHeartbeat", groups.ConsumerGroupHeartbeat, groups.ConsumerGroupHeartbeatAnswer
)
GROUPS_OFFSET_COMMIT: Final = Api("Groups.OffsetCommit", groups.OffsetCommit, groups.OffsetCommitAnswer)
GROUPS_TXN_OFFSET_COMMIT: Final = Api("Groups.TxnOffsetCommit", groups.TxnOffsetCommit, groups.TxnOffsetCommitAnswer)
GROUPS_OFFSET_FETCH: Final = Api("Groups.OffsetFetch", groups.OffsetFetch, groups.OffsetFetchAnswer)
GROUPS_OFFSET_DELETE: Final = Api("Groups.OffsetDelete", groups.OffsetDelete, groups.OffsetDeleteAnswer)
GROUPS_LIST_GROUPS: Final = Api("Groups.ListGroups", groups.ListGroups, groups.ListGroupsAnswer)
GROUPS_DESCRIBE_GROUPS: Final = Api("Groups.DescribeGroups", groups.DescribeGroups, groups.DescribeGroupsAnswer)
GROUPS_DELETE_GROUPS: Final = Api("Groups.DeleteGroups", groups.DeleteGroups, groups.DeleteGroupsAnswer)

TRANSACTIONS_INIT_PRODUCER_ID: Final = Api(
    "Transactions.InitProducerId",
    transactions.InitTransactionalProducer,
    transactions.InitTransactionalProducerAnswer,
)
TRANSACTIONS_ADD_PARTITIONS_TO_TXN: Final = Api(
    "Transactions.AddPartitionsToTxn", transactions.AddPartitionsToTxn, transactions.AddPartitionsToTxnAnswer
)
TRANSACTIONS_ADD_OFFSETS_TO_TXN: Final = Api(
    "Transactions.AddOffsetsToTxn", transactions.AddOffsetsToTxn, transactions.AddOffsetsToTxnAnswer
)
TRANSACTIONS_END_TXN: Final = Api("Transactions.EndTxn", transactions.EndTxn, transactions.EndTxnAnswer)
TRANSACTIONS_LIST_TRANSACTIONS: Final = Api(
    "Transactions.ListTransactions", transactions.ListTransactions, transactions.ListTransactionsAnswer
)
TRANSACTIONS_DESCRIBE_TRANSACTIONS: Final = Api(
    "Transactions.DescribeTransactions", transactions.DescribeTransactions, transactions.DescribeTransactionsAnswer
)
TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS: Final = Api(
    "Transactions.AddOrVerifyPartitions",
    transactions.AddOrVerifyPartitions,
    transactions.AddOrVerifyPartitionsAnswer,
)
