"""Metrics of the replicas and topics on a node."""

from __future__ import annotations

from typing import Final

from node.observability.metric_sources import HostedPartition
from node.observability.metric_text import Alert, Metric, MetricTable, no_labels
from node.replicas.isr_changes import IsrChanges
from node.runtime.topic_meter import TopicMeter
from tidelog.types import NO_NODE

ISR_CHANGES: Final = MetricTable[IsrChanges](
    "Changes of in-sync sets",
    no_labels,
    Metric(
        "tidelog_isr_shrinks_total",
        "In-sync sets that lost a member, of partitions that this node leads since (Kafka's IsrShrinksPerSec)",
        lambda c: c.shrinks,
        "followed by expansions all the time: followers are too slow for `replica.lag.time.max.ms`, or a node is "
        "starved",
        unit="changes",
        alerts=(
            Alert(
                "TidelogIsrFlaps",
                "sum(increase(tidelog_isr_shrinks_total[30m])) > 3 * sum(tidelog_leaders)",
                "in-sync sets shrank {{ $value }} times in half an hour",
                0,
                command="tidelog top",
            ),
        ),
    ),
    Metric(
        "tidelog_isr_expansions_total",
        "In-sync sets that got a member (Kafka's IsrExpandsPerSec)",
        lambda c: c.expansions,
        "fewer than shrinks: replicas are still missing",
        unit="changes",
    ),
    Metric(
        "tidelog_isr_proposals_failed_total",
        "Changes of in-sync sets that the controller rejected or did not answer (Kafka's FailedIsrUpdatesPerSec)",
        lambda c: c.failed_proposals,
        "rises for minutes: no active controller, or this node's view of the cluster is old; see its log",
        unit="changes",
    ),
)

PARTITIONS: Final = MetricTable[HostedPartition](
    "Partitions",
    lambda e: {
        "partition": str(e.replica.name.partition),
        "role": "follower" if e.replica.leader is None else "leader",
        "topic": e.replica.name.topic,
    },
    Metric("tidelog_replicas", "Replicas on this node", lambda _each: 1, "none: load by node", is_sum=True),
    Metric(
        "tidelog_leaders",
        "Partitions that this node leads",
        lambda e: e.replica.leader is not None,
        "far fewer than on the others: leaderships return every `leader.imbalance.check.interval.seconds`",
        is_sum=True,
    ),
    Metric(
        "tidelog_offline_replicas",
        "Replicas on this node that cannot be used: their directory failed, or their log is damaged (Kafka's "
        "OfflineReplicaCount)",
        lambda e: e.replica.offline is not None,
        "`tidelog_directory_offline` and `tidelog_directory_logs_damaged` say which of the two",
        is_sum=True,
        alerts=(
            Alert(
                "TidelogOfflineReplicas",
                "tidelog_offline_replicas > 0",
                "{{ $value }} replicas of {{ $labels.instance }} cannot be used",
                5,
                command="tidelog log-dirs",
            ),
        ),
    ),
    Metric(
        "tidelog_leaderless",
        "Replicas on this node whose partition has no leader, as this node knows, also while there is no controller",
        lambda e: e.state is not None and e.state.leader == NO_NODE,
        "`tidelog partition why-unavailable TOPIC-N` says why, for each replica, and what to do",
        is_sum=True,
        alerts=(
            Alert(
                "TidelogLeaderless",
                "tidelog_leaderless > 0",
                "{{ $value }} partitions of {{ $labels.instance }} have no leader",
                2,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    Metric(
        "tidelog_under_replicated",
        "Partitions led here with a replica that is not in sync, besides those that a reassignment adds (Kafka's "
        "UnderReplicatedPartitions)",
        lambda e: e.is_under_replicated,
        "a node is down, or a follower does not keep up: `tidelog_partition_replica_lag` names it",
        is_sum=True,
        alerts=(
            Alert(
                "TidelogUnderReplicated",
                "sum(tidelog_under_replicated) > 0",
                "{{ $value }} partitions have a replica that is not in sync",
                10,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_under_min_isr",
        "Partitions led here with fewer in-sync replicas than `min.insync.replicas`: acks=all is refused (Kafka's "
        "UnderMinIsrPartitionCount)",
        lambda e: e.is_under_min_isr,
        "start the nodes of the missing replicas; `tidelog partition why-unavailable` names them",
        is_sum=True,
        alerts=(
            Alert(
                "TidelogUnderMinIsr",
                "sum(tidelog_under_min_isr) > 0",
                "{{ $value }} partitions refuse acks=all",
                1,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    Metric(
        "tidelog_at_min_isr",
        "Partitions led here with just `min.insync.replicas` in-sync replicas and more replicas (Kafka's "
        "AtMinIsrPartitionCount)",
        lambda e: e.is_at_min_isr,
        "one more loss refuses acks=all: do not restart another node now",
        is_sum=True,
    ),
    Metric(
        "tidelog_partition_isr",
        "In-sync replicas",
        lambda e: 0 if e.state is None else len(e.state.isr),
        "below the number of replicas: see `tidelog_under_replicated`",
    ),
    Metric(
        "tidelog_partition_log_start",
        "Log start offset",
        lambda e: e.replica.log.log_start_offset,
        "beyond the offsets of a group: it has lost records to retention",
        unit="offset",
    ),
    Metric(
        "tidelog_partition_log_end",
        "Log end offset, one past the last record",
        lambda e: e.replica.log.log_end_offset,
        "its rate is the records a second of the partition",
        unit="offset",
    ),
    Metric(
        "tidelog_partition_high_watermark",
        "One past the last committed offset",
        lambda e: e.replica.log.high_watermark,
        "stands while the log end moves: see `tidelog_partition_uncommitted`",
        unit="offset",
    ),
    Metric(
        "tidelog_partition_uncommitted",
        "Records not committed yet: log end minus high watermark",
        lambda e: e.replica.log.log_end_offset - e.replica.log.high_watermark,
        "grows on the leader: a follower or its disk is slow, or the in-sync set is too small",
        unit="records",
    ),
    Metric(
        "tidelog_partition_not_durable",
        "Records of this replica that are not durable yet: log end minus durable offset",
        lambda e: e.replica.log.log_end_offset - e.replica.log.durable_offset,
        "grows with `durability=fsync`: the disk is slow or full",
        unit="records",
    ),
    Metric(
        "tidelog_partition_last_stable_offset_lag",
        "Committed records not visible to read_committed: high watermark minus last stable offset",
        lambda e: e.replica.log.high_watermark - e.replica.log.last_stable_offset,
        "grows: a transaction stays open; `tidelog_transaction_oldest_seconds` of the coordinators, "
        "`kafka-transactions.sh find-hanging`",
        unit="records",
    ),
    Metric(
        "tidelog_partition_replica_lag",
        "On the leader: records that a follower has not fetched (Kafka's ConsumerLag of the fetchers)",
        lambda e: e.replica_lag,
        "grows for one follower everywhere: that node is slow; for one partition: its load exceeds one fetch stream",
        unit="records",
        by=("follower",),
        alerts=(
            Alert(
                "TidelogReplicaLag",
                "max by (follower) (tidelog_partition_replica_lag) > 100000",
                "node {{ $labels.follower }} lags up to {{ $value }} records behind the leaders",
                15,
                command="tidelog partition moves",
            ),
        ),
    ),
    Metric(
        "tidelog_partition_size_bytes",
        "Bytes of this replica's log",
        lambda e: e.replica.log.size,
        "the largest ones decide when a disk is full",
    ),
    Metric(
        "tidelog_partition_segments",
        "Segments of this replica's log",
        lambda e: len(e.replica.log.segments),
        "thousands: raise `segment.bytes` or `segment.ms` of the topic",
    ),
    names=("topic", "partition", "role"),
)

TOPICS: Final = MetricTable[tuple[str, TopicMeter]](
    "Topics",
    lambda t: {"topic": t[0]},
    Metric(
        "tidelog_topic_bytes_in_total",
        "Bytes appended for producers on this node, as stored, without replication and duplicates",
        lambda t: t[1].bytes_in,
        "0 while it should not be: its producers have stopped",
    ),
    Metric(
        "tidelog_topic_bytes_out_total",
        "Bytes of records sent to consumers",
        lambda t: t[1].bytes_out,
        "many times `bytes_in`: that many groups read it",
    ),
    Metric(
        "tidelog_topic_replication_bytes_in_total",
        "Bytes of records that this node fetched as a follower (Kafka's ReplicationBytesInPerSec)",
        lambda t: t[1].replication_bytes_in,
        "high without producers: a replica is refilled or moved",
    ),
    Metric(
        "tidelog_topic_replication_bytes_out_total",
        "Bytes of records sent to followers (Kafka's ReplicationBytesOutPerSec)",
        lambda t: t[1].replication_bytes_out,
        "as above, on the leader",
    ),
    Metric(
        "tidelog_topic_bytes_rejected_total",
        "Bytes rejected for their size",
        lambda t: t[1].bytes_rejected,
        "a producer's batches exceed `max.message.bytes` of the topic",
    ),
    Metric(
        "tidelog_topic_messages_in_total",
        "Records appended for producers",
        lambda t: t[1].messages_in,
        "0 while it should not be: its producers have stopped",
        unit="records",
    ),
    Metric(
        "tidelog_topic_failed_produce_requests_total",
        "Entries of produce requests answered with an error",
        lambda t: t[1].failed_produces,
        "`tidelog_request_errors_total` of the produce methods has the errors",
    ),
    Metric(
        "tidelog_topic_failed_fetch_requests_total",
        "Entries of fetch requests answered with an error",
        lambda t: t[1].failed_fetches,
        "`tidelog_request_errors_total` of the fetch methods has the errors",
    ),
    Metric(
        "tidelog_topic_produce_message_conversions_total",
        "Records of producers converted to the topic's format",
        lambda t: t[1].conversions,
        "old clients send formats before v2, which cost the node processor time: update them",
        unit="records",
    ),
    names=("topic",),
)
