"""Metrics of the remote tier."""

from __future__ import annotations

from typing import Final

from node.observability.metric_text import Alert, Metric, MetricTable, no_labels
from node.tiering.remote_tier import TierFigures

TIER: Final = MetricTable[TierFigures](
    "Remote tier",
    no_labels,
    Metric(
        "tidelog_remote_copied_bytes_total",
        "Records that this node has copied to the object store; no remote tier: no sample",
        lambda t: t.copied.size,
        "none: load",
    ),
    Metric(
        "tidelog_remote_copied_segments_total",
        "Segments that this node has copied",
        lambda t: t.copied.segments,
        "none: load",
    ),
    Metric(
        "tidelog_remote_errors_total",
        "Attempts to copy, list or delete remote segments that failed",
        lambda t: t.copied.errors,
        "rises: the log names partition, cause and next step (tiering.md, Stores); local segments stay meanwhile",
    ),
    Metric(
        "tidelog_remote_read_errors_total",
        "Reads of remote segments that failed",
        lambda t: t.read_errors,
        "rises: the log names object, cause and next step (tiering.md, Stores); reads of what is on the nodes go on",
        alerts=(
            Alert(
                "TidelogRemoteReadsFail",
                "increase(tidelog_remote_read_errors_total[15m]) > 0",
                "{{ $value }} reads of {{ $labels.instance }} from the object store failed in 15 minutes",
                5,
                command="tidelog tier describe TOPIC",
            ),
        ),
    ),
    Metric(
        "tidelog_remote_failing_partitions",
        "Partitions whose last attempt failed; each is tried again, at the latest after a minute",
        lambda t: t.failing,
        "above 0 for long: as the errors",
        alerts=(
            Alert(
                "TidelogRemoteCopiesFail",
                "tidelog_remote_failing_partitions > 0",
                "{{ $value }} partitions of {{ $labels.instance }} are not copied to the object store: its disks fill",
                15,
                command="tidelog log-dirs",
            ),
        ),
    ),
    Metric(
        "tidelog_remote_waiting_segments",
        "Closed segments of led partitions that are not copied yet",
        lambda t: t.waiting_segments,
        "grows: the store fails, or `remote.log.manager.copy.max.bytes.per.second` is below what is produced",
    ),
    Metric(
        "tidelog_remote_waiting_bytes",
        "Bytes of these segments",
        lambda t: t.waiting_bytes,
        "grows: as the segments; they fill the disks of the nodes",
    ),
    Metric(
        "tidelog_remote_read_bytes_total",
        "Bytes that reads took from the object store",
        lambda t: t.read_bytes,
        "none: load; a store bills for it",
    ),
    Metric(
        "tidelog_remote_follower_starts_total",
        "Replicas that began behind the remote tier, or were so far behind that they did so again",
        lambda t: t.starts,
        "one for each replica that is added or lost; rises without that: followers are slower than local retention",
    ),
    Metric(
        "tidelog_remote_follower_start_errors_total",
        "Attempts of these that failed; each is repeated, at the latest after 30 s",
        lambda t: t.start_errors,
        "rises: the replica stays out of the in-sync set; the log names partition and cause (tiering.md, Stores)",
    ),
    Metric(
        "tidelog_remote_missing_offsets",
        "Offsets of led partitions that are on no node, and in no segment that the coordinator knows",
        lambda t: t.missing,
        "above 0: records are lost unless `__remote_log_metadata` is restored; the log names the offsets "
        "(tiering.md, Missing segments)",
        alerts=(
            Alert(
                "TidelogRemoteSegmentsMissing",
                "tidelog_remote_missing_offsets > 0",
                "{{ $value }} offsets of partitions led by {{ $labels.instance }} are on no node and in no segment",
                1,
                is_critical=True,
                command="tidelog tier describe TOPIC",
            ),
        ),
    ),
    Metric(
        "tidelog_remote_lost_segments",
        "Segments of led partitions that an unclean election has lost, and that are not deleted yet",
        lambda t: t.lost,
        "above 0: if the election was a mistake, there is time to undo it: the log names the partition, and `tidelog "
        "tier describe TOPIC` lists the segments, until when, and what to do (tiering.md, Lost epochs)",
        alerts=(
            Alert(
                "TidelogRemoteSegmentsLost",
                "tidelog_remote_lost_segments > 0",
                "{{ $value }} segments of partitions that {{ $labels.instance }} leads are lost, and will be deleted",
                0,
                command="tidelog tier describe TOPIC",
            ),
        ),
    ),
    Metric(
        "tidelog_remote_orphans_removed_total",
        "Objects without a segment that this node has removed from the object store",
        lambda t: t.orphans_removed,
        "none: uploads that ended late; one node sweeps for all",
    ),
    Metric(
        "tidelog_remote_doubtful_objects",
        "Objects without a segment that the last sweep of this node did not remove: most of their partition had none",
        lambda t: t.doubtful_objects,
        "above 0: records of `__remote_log_metadata` may be lost: tiering.md, Orphans",
        alerts=(
            Alert(
                "TidelogRemoteObjectsDoubtful",
                "tidelog_remote_doubtful_objects > 0",
                "{{ $value }} objects have no segment, by the sweep of {{ $labels.instance }}: its records may be lost",
                0,
                command="tidelog topic describe __remote_log_metadata",
            ),
        ),
    ),
    Metric(
        "tidelog_remote_foreign_objects",
        "Objects of no topic of this cluster, by the last sweep of this node: of other clusters, or of deleted topics",
        lambda t: t.foreign_objects,
        "none, unless the store has one cluster only: then they are left over, and can be removed by hand",
    ),
    Metric(
        "tidelog_remote_cache_bytes",
        "Memory that parts of remote segments use",
        lambda t: t.cached_bytes,
        "none: at most `remote.log.cache.max.bytes`",
    ),
    Metric(
        "tidelog_remote_cache_hits_total",
        "Parts of remote segments that reads found in memory",
        lambda t: t.cache_hits,
        "none: load",
    ),
    Metric(
        "tidelog_remote_cache_misses_total",
        "Parts of remote segments that were read from the object store",
        lambda t: t.cache_misses,
        "many for few hits: a larger `remote.log.cache.max.bytes`",
    ),
)
