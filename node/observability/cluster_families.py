"""Metrics of the cluster: the node in it, the metadata quorum, the controller, partitions and nodes as it sees them."""

from __future__ import annotations

from typing import Final

from node.controller.controller_driver import REQUEST_S
from node.observability.metric_sources import ControllerFigures, MetricSources, QuorumFigures
from node.observability.metric_text import Alert, Distribution, Metric, MetricTable, no_labels
from tidelog.values import dataclass


@dataclass(slots=True)
class ClusterFigures:
    """What the active controller knows about partitions and nodes."""

    topics: int = 0
    partitions: int = 0
    without_leader: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    reassigning: int = 0
    queued_moves: int = 0
    not_preferred: int = 0
    active_nodes: int = 0
    draining_nodes: int = 0
    fenced_nodes: int = 0
    cordoned_nodes: int = 0
    topic_snapshots: int = 0
    cordoned_log_dirs: int = 0


NODE: Final = MetricTable[MetricSources](
    "The node",
    no_labels,
    Metric(
        "tidelog_build_info",
        "1, with the version of the node, of Python, and the event loop",
        lambda n: {} if n.build is None else {tuple(n.build): 1},
        "after an upgrade, count by (version): one value is left",
        unit="1",
        by=("version", "python", "loop"),
    ),
    Metric(
        "tidelog_cluster_info",
        "1, with the id of the cluster that the node belongs to",
        lambda n: {n.cluster_id: 1} if n.cluster_id else {},
        "two values among nodes that should be one cluster: a node was given directories or seeds of another one",
        unit="1",
        by=("cluster_id",),
        alerts=(
            Alert(
                "TidelogTwoClusters",
                "count(count by (cluster_id) (tidelog_cluster_info)) > 1",
                "nodes of {{ $value }} clusters are scraped as one",
                10,
                command="tidelog cluster status --bootstrap HOST:9192",
            ),
        ),
    ),
    Metric(
        "tidelog_ready",
        "1 while registered, unfenced and not being stopped",
        lambda n: n.ready,
        "0 for more than minutes: GET /readyz of the node says why",
        unit="0 or 1",
        alerts=(
            Alert(
                "TidelogNodeNotReady",
                "tidelog_ready == 0",
                "node {{ $labels.instance }} is not ready",
                5,
                command="curl http://HOST:9100/readyz",
            ),
            Alert(
                "TidelogNodeDown",
                'up{job="tidelog"} == 0',
                "node {{ $labels.instance }} does not answer",
                1,
                is_critical=True,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_metadata_offset",
        "Offset up to which the metadata log is applied",
        lambda n: n.metadata_offset,
        "a node far behind the others, or one that stands still while they move, does not reach the quorum",
        unit="offset",
    ),
    Metric(
        "tidelog_active_controller",
        "1 on the active controller",
        lambda n: n.is_controller,
        "the sum over all nodes is 1. 0: a majority of the voters does not run or does not reach each other; start "
        "what is down (`tidelog cluster status` names it)",
        unit="0 or 1",
        alerts=(
            Alert(
                "TidelogNoController",
                "sum(tidelog_active_controller) != 1",
                "{{ $value }} active controllers, not one: no topic, leader or in-sync set can change",
                1,
                is_critical=True,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_producers_forgotten_total",
        "Producer states dropped before their expiration because there were too many",
        lambda n: n.producers_forgotten,
        "reuse producers, lower `producer.id.expiration.ms`, or raise `memory.max.bytes`",
        alerts=(
            Alert(
                "TidelogProducersForgotten",
                "increase(tidelog_producers_forgotten_total[15m]) > 0",
                "node {{ $labels.instance }} forgets idempotent producers: their duplicates are not noticed",
                0,
                command="tidelog config describe --node N --changed",
            ),
        ),
    ),
)

QUORUM: Final = MetricTable[QuorumFigures](
    "The metadata quorum",
    no_labels,
    Metric(
        "tidelog_quorum_leader",
        "Node that leads the metadata quorum, as this node knows; -1: none",
        lambda q: q.leader_id,
        "nodes that name different leaders for more than seconds do not reach each other",
        unit="node id",
    ),
    Metric(
        "tidelog_quorum_epoch",
        "Epoch of the metadata quorum",
        lambda q: q.epoch,
        "each election takes the next. More than a few in an hour: voters are starved, or the network between them "
        "fails",
        unit="epoch",
        alerts=(
            Alert(
                "TidelogQuorumElections",
                "max(changes(tidelog_quorum_epoch[15m])) > 4",
                "the metadata quorum has elected {{ $value }} times in 15 minutes",
                0,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_quorum_voters",
        "Voters of the metadata quorum",
        lambda q: q.voters,
        "fewer than `controller.quorum.voter.count`: a voter was removed, and no node could take its place",
    ),
    Metric(
        "tidelog_quorum_is_voter",
        "1 if this node votes",
        lambda q: q.is_voter,
        "none: it tells which nodes a majority needs",
        unit="0 or 1",
    ),
    Metric(
        "tidelog_quorum_log_end",
        "Log end offset of this node's metadata log",
        lambda q: q.end,
        "far below the leader's: see `tidelog_quorum_replica_lag`",
        unit="offset",
    ),
    Metric(
        "tidelog_quorum_high_watermark",
        "One past the last committed offset of the metadata log, as this node knows",
        lambda q: q.high_watermark,
        "stays below `tidelog_quorum_log_end` on the leader: no majority confirms; start the missing voters",
        unit="offset",
    ),
    Metric(
        "tidelog_quorum_silence_seconds",
        "Time since this node has heard from a leader of the quorum",
        lambda q: q.silence_ms / 1_000,
        "more than 2 s on several nodes: no leader; on one: its network fails, or it is paused for long",
        alerts=(
            Alert(
                "TidelogQuorumSilent",
                "tidelog_quorum_silence_seconds > 10",
                "node {{ $labels.instance }} has heard no leader of the quorum for {{ $value }} s",
                1,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_quorum_replica_lag",
        "On the leader: records of the metadata log that a voter has not confirmed as durable",
        lambda q: q.lag,
        "rises without end: that voter is down, unreachable or has a slow disk; with one more loss there may be no "
        "majority",
        unit="records",
        by=("voter",),
        alerts=(
            Alert(
                "TidelogVoterLags",
                "tidelog_quorum_replica_lag > 1000",
                "voter {{ $labels.voter }} lags {{ $value }} metadata records behind",
                5,
                command="tidelog cluster status",
            ),
        ),
    ),
)

CONTROLLER: Final = MetricTable[ControllerFigures](
    "The controller of this process",
    no_labels,
    Metric(
        "tidelog_elections_total",
        "Leaders elected by this node's controller, by why: `preferred` back to the preferred leader, `reassigned` by "
        "a reassignment, `drained` the leader is being stopped, `failed` the leader's node, directory or log failed, "
        "`resigned` the leader gave the partition up, `returned` a partition without leader got one back, `unclean`",
        lambda c: {cause.value: count for cause, count in c.elections.items()},
        "`failed` without a known outage: look at the nodes that the log calls fenced; `resigned`: a leader found its "
        "log damaged or its disk full",
        unit="partitions",
        by=("kind",),
        alerts=(
            Alert(
                "TidelogElectionsByFailure",
                'sum(increase(tidelog_elections_total{kind=~"failed|resigned"}[15m])) > 0',
                "{{ $value }} partitions lost their leader in 15 minutes",
                0,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_unclean_elections_total",
        "Elections of a leader that may lack committed records, by this node's controller",
        lambda c: c.unclean_elections,
        "the controller's log names partition, leader and the replicas that had more; readers get `LogTruncated`",
        alerts=(
            Alert(
                "TidelogUncleanElection",
                "sum(increase(tidelog_unclean_elections_total[15m])) > 0",
                "{{ $value }} partitions are led by a replica that may lack acknowledged records",
                0,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    Metric(
        "tidelog_fencings_total",
        "Nodes that this node's controller fenced because of a failure: `session_ended` no heartbeat for a session, "
        "`refused` the address refuses connections, so the process has ended",
        lambda c: {cause.name.lower(): count for cause, count in c.fencings.items()},
        "the last lines of that node's log say why; without an outage: it is starved of processor time or memory",
        by=("cause",),
        alerts=(
            Alert(
                "TidelogNodeFlaps",
                "sum(increase(tidelog_fencings_total[1h])) > 3",
                "nodes were fenced {{ $value }} times in an hour",
                0,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_controller_requests_waiting",
        "Requests to the controller without an answer: they wait for a commit of the metadata log",
        lambda c: c.waiting,
        "stays high: the fsync of the voters is slow (`tidelog_disk_seconds`, operation `metadata_fsync`), or there is "
        "no majority",
        alerts=(
            Alert(
                "TidelogControllerQueue",
                "tidelog_controller_requests_waiting > 1000",
                "{{ $value }} requests wait for the controller on {{ $labels.instance }}",
                2,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_controller_oldest_request_seconds",
        "Age of the oldest of these requests; 0: there is none",
        lambda c: c.oldest_ms / 1_000,
        "more than a few seconds: as above",
    ),
    Metric(
        "tidelog_controller_request_seconds",
        "Time from the arrival of a request at the controller to its answer, with the commit",
        lambda c: Distribution(c.times.counts, c.times.total_s),
        "high: slow fsyncs or a slow network between the voters",
        bounds=REQUEST_S,
    ),
)

CLUSTER: Final = MetricTable[ClusterFigures](
    "The cluster, as its active controller knows it",
    no_labels,
    Metric("tidelog_cluster_topics", "Topics", lambda c: c.topics, "none: what else is compared with"),
    Metric(
        "tidelog_cluster_partitions",
        "Partitions",
        lambda c: c.partitions,
        "near `max.partitions`: delete topics, or raise it",
    ),
    Metric(
        "tidelog_cluster_offline_partitions",
        "Partitions without a leader, which nobody can write or read (Kafka's OfflinePartitionsCount)",
        lambda c: c.without_leader,
        "`tidelog partition why-unavailable TOPIC-N` says why, for each replica, and what to do",
        alerts=(
            Alert(
                "TidelogOfflinePartitions",
                "max(tidelog_cluster_offline_partitions) > 0",
                "{{ $value }} partitions have no leader",
                1,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    Metric(
        "tidelog_cluster_under_replicated_partitions",
        "Partitions with a replica that is not in sync, besides those that a reassignment adds",
        lambda c: c.under_replicated,
        "a node is down, or a follower does not keep up: `tidelog_partition_replica_lag` names it",
    ),
    Metric(
        "tidelog_cluster_under_min_isr_partitions",
        "Partitions with fewer in-sync replicas than `min.insync.replicas`, with or without a leader",
        lambda c: c.under_min_isr,
        "producers with acks=all are refused: start the nodes of the missing replicas",
    ),
    Metric(
        "tidelog_cluster_reassigning_partitions",
        "Partitions whose reassignment is not complete",
        lambda c: c.reassigning,
        "`tidelog partition moves` shows the progress. One that does not end: the new node lacks room or is down",
        alerts=(
            Alert(
                "TidelogReassignmentStuck",
                "min_over_time(tidelog_cluster_reassigning_partitions[6h]) > 0 and "
                "delta(tidelog_cluster_reassigning_partitions[6h]) == 0",
                "{{ $value }} partitions have been moving for six hours",
                0,
                command="tidelog partition moves",
            ),
        ),
    ),
    Metric(
        "tidelog_cluster_queued_moves",
        "Partitions with a queued move, which the controller begins once its new nodes have room for it",
        lambda c: c.queued_moves,
        "`tidelog cluster rebalance --status` says what they wait for: a node that is down, or moves in progress",
        alerts=(
            Alert(
                "TidelogQueuedMovesStuck",
                "min_over_time(tidelog_cluster_queued_moves[6h]) > 0 and delta(tidelog_cluster_queued_moves[6h]) == 0",
                "{{ $value }} queued moves have not begun for six hours",
                0,
                command="tidelog cluster rebalance --status",
            ),
        ),
    ),
    Metric(
        "tidelog_cluster_not_preferred_leaders",
        "Partitions that another replica than the preferred one leads (Kafka's PreferredReplicaImbalanceCount)",
        lambda c: c.not_preferred,
        "leaderships return every `leader.imbalance.check.interval.seconds`; `tidelog partition elect` does it at once",
        alerts=(
            Alert(
                "TidelogLeaderImbalance",
                "max(tidelog_cluster_not_preferred_leaders) / max(tidelog_cluster_partitions) > 0.2",
                "{{ $value | humanizePercentage }} of the partitions are not led by their preferred replica",
                60,
                command="tidelog partition elect",
            ),
        ),
    ),
    Metric(
        "tidelog_cluster_nodes",
        "Registered nodes now: `active` may lead, `draining` is being stopped, `fenced` is not running or not ready",
        lambda c: {"active": c.active_nodes, "draining": c.draining_nodes, "fenced": c.fenced_nodes},
        "fenced: start that node; the last lines of its log say why it ended",
        by=("state",),
        alerts=(
            Alert(
                "TidelogFencedNodes",
                'max(tidelog_cluster_nodes{state="fenced"}) > 0',
                "{{ $value }} nodes are fenced",
                10,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_cluster_cordoned_nodes",
        "Registered nodes now that get no new replicas, in whatever state",
        lambda c: c.cordoned_nodes,
        "`tidelog cluster status` names them. `tidelog node uncordon N` ends it, or a new topic may lack nodes",
    ),
    Metric(
        "tidelog_cluster_cordoned_log_dirs",
        "Log directories of registered nodes now that get no new replicas, each by itself; failed ones not counted",
        lambda c: c.cordoned_log_dirs,
        "`tidelog log-dirs` names them. `tidelog node uncordon N --log-dir PATH` ends it, or the other directories of "
        "the node fill up",
    ),
    Metric(
        "tidelog_cluster_topic_snapshots",
        "Snapshots of topics now, which keep the records of their topics from retention",
        lambda c: c.topic_snapshots,
        "`tidelog snapshot list` shows when they expire, `tidelog_directory_pinned_bytes` what they keep; "
        "`tidelog snapshot delete NAME` ends one",
    ),
)
