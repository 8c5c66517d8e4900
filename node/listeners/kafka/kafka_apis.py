"""The table of Kafka's requests that a listener serves: each row has the number, the versions, the codecs, the kind of
request to the boundary, and the conversions between messages and values.

ApiVersions, which tells clients this table, is not in it (api_versions.py), nor is SaslHandshake (kafka_sasl.py).
"""

from __future__ import annotations

from typing import Final

from node.listeners.kafka.exchange import KafkaApi
from node.listeners.kafka.kafka_acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from node.listeners.kafka.kafka_configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from node.listeners.kafka.kafka_consumer_groups import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from node.listeners.kafka.kafka_deletions import DELETE_RECORDS
from node.listeners.kafka.kafka_features import UPDATE_FEATURES
from node.listeners.kafka.kafka_fetch import FETCH
from node.listeners.kafka.kafka_group_admin import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from node.listeners.kafka.kafka_group_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from node.listeners.kafka.kafka_groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from node.listeners.kafka.kafka_log_dirs import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from node.listeners.kafka.kafka_metadata import DESCRIBE_CLUSTER, METADATA
from node.listeners.kafka.kafka_nodes import UNREGISTER_BROKER
from node.listeners.kafka.kafka_offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from node.listeners.kafka.kafka_partitions import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from node.listeners.kafka.kafka_produce import PRODUCE
from node.listeners.kafka.kafka_quorum import DESCRIBE_QUORUM
from node.listeners.kafka.kafka_quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from node.listeners.kafka.kafka_sasl import SASL_AUTHENTICATE
from node.listeners.kafka.kafka_topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from node.listeners.kafka.kafka_transaction_tools import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from node.listeners.kafka.kafka_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from node.listeners.kafka.kafka_users import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS

KAFKA_APIS: Final[tuple[KafkaApi, ...]] = (
    SASL_AUTHENTICATE,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ALTER_USER_SCRAM_CREDENTIALS,
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_QUORUM,
    UPDATE_FEATURES,
    UNREGISTER_BROKER,
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    FIND_COORDINATOR,
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_DELETE,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
    LIST_GROUPS,
    DESCRIBE_GROUPS,
    DELETE_GROUPS,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
