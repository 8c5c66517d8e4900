"""Metrics of log directories: room, work, recovery, compaction and the scrub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from node.observability.metric_sources import DirectoryLogs, DirectoryUpkeep
from node.observability.metric_text import Alert, Distribution, Metric, MetricTable, no_labels
from node.runtime.disk_times import DiskOperation
from node.runtime.histogram import WORK_S, Histogram

OFFLINE: Final = MetricTable[Mapping[str, bool]](
    "Log directories",
    no_labels,
    Metric(
        "tidelog_directory_offline",
        "1 where a log directory is offline",
        lambda offline: offline,
        "the disk failed, or the directory was left out at the start: the log says which call failed. Repair or "
        "replace the disk, then restart the node",
        unit="0 or 1",
        by=("directory",),
        alerts=(
            Alert(
                "TidelogDirectoryOffline",
                "tidelog_directory_offline == 1",
                "{{ $labels.directory }} of {{ $labels.instance }} is offline",
                0,
                is_critical=True,
                command="tidelog log-dirs",
            ),
        ),
    ),
)

WORK: Final = MetricTable[tuple[DiskOperation, Histogram]](
    "Work on disks",
    lambda w: {"directory": w[0].directory, "operation": w[0].operation},
    Metric(
        "tidelog_disk_seconds",
        "Time of one piece of work on a log directory: `append` of a batch to the page cache, `fsync` of a log, `read` "
        "of records that the page cache does not have, `writer` checkpoints, new and removed files, `maintenance` "
        "compaction and scrub, `metadata_fsync` of the metadata log, a vote or a snapshot",
        lambda w: Distribution(w[1].counts, w[1].total_s),
        "`fsync` above 0.1 s at the 99th percentile: the disk is slow or shared; acks=all waits for it, and elections "
        "for `metadata_fsync`. `append`: the system writes pages back faster than the disk takes them",
        bounds=WORK_S,
        alerts=(
            Alert(
                "TidelogSlowDisk",
                "histogram_quantile(0.99, sum by (instance, directory, operation, le) "
                '(rate(tidelog_disk_seconds_bucket{operation=~"fsync|metadata_fsync"}[5m]))) > 0.5',
                "{{ $labels.operation }} in {{ $labels.directory }} of {{ $labels.instance }} takes {{ $value }} s",
                10,
                command="tidelog log-dirs",
            ),
        ),
    ),
    names=("directory", "operation"),
)

EXECUTORS: Final = MetricTable[tuple[str, Histogram]](
    "Work on other threads",
    lambda e: {"executor": e[0]},
    Metric(
        "tidelog_executor_seconds",
        "Time of one piece of work of a thread: `records` inspection of compressed batches, `passwords`, `keys`, "
        "`audit`, `certificates`, `metrics`",
        lambda e: Distribution(e[1].counts, e[1].total_s),
        "`records` near 1 s a second: producers send batches that must be recompressed; let their compression be the "
        "topic's",
        bounds=WORK_S,
    ),
    names=("executor",),
)

DIRECTORY: Final = MetricTable[DirectoryLogs](
    "Contents of log directories",
    lambda d: {"directory": d.directory.path},
    Metric(
        "tidelog_directory_logs",
        "Logs in the directory",
        lambda d: len(d.directory.logs),
        "near `max.broker.partitions`: add a node, and move replicas to it",
    ),
    Metric(
        "tidelog_directory_pinned_bytes",
        "Size of the logs in the directory whose topics are in a snapshot: retention removes nothing of them",
        lambda d: sum(
            log.size for log in list(d.directory.logs.values()) if log.pinned and not log.config.remote_storage
        ),
        "grows while free space shrinks: delete snapshots that are not needed (`tidelog snapshot list`)",
    ),
    Metric(
        "tidelog_directory_total_bytes",
        "Size of the directory's file system",
        lambda d: d.directory.reserve.total,
        "what free space is compared with",
    ),
    Metric(
        "tidelog_directory_free_bytes",
        "Free space of the directory's file system",
        lambda d: d.directory.reserve.free,
        "delete topics, lower `retention.ms` or `retention.bytes` of the largest (`tidelog_partition_size_bytes`), or "
        "make the disk larger before the reserve is reached",
        alerts=(
            Alert(
                "TidelogDiskFillsUp",
                "predict_linear(tidelog_directory_free_bytes[6h], 24 * 3600) < tidelog_directory_reserve_bytes and "
                "tidelog_directory_free_bytes / tidelog_directory_total_bytes < 0.4",
                "the disk of {{ $labels.directory }} on {{ $labels.instance }} will be full within a day",
                30,
                command="tidelog log-dirs",
            ),
        ),
    ),
    Metric(
        "tidelog_directory_reserve_bytes",
        "Free space that appends do not use",
        lambda d: d.directory.reserve.required,
        "`log.reserve.bytes`",
    ),
    Metric(
        "tidelog_directory_below_reserve",
        "1 while appends are rejected because free space is below the reserve",
        lambda d: d.directory.reserve.low,
        "make room as for `tidelog_directory_free_bytes`; appends are accepted again once a quarter of the reserve "
        "more is free",
        unit="0 or 1",
        alerts=(
            Alert(
                "TidelogDiskFull",
                "tidelog_directory_below_reserve == 1",
                "{{ $labels.directory }} of {{ $labels.instance }} refuses appends: its disk is full",
                0,
                is_critical=True,
                command="tidelog log-dirs",
            ),
        ),
    ),
    Metric(
        "tidelog_directory_logs_loaded",
        "Logs loaded so far at the start",
        lambda d: 0 if d.progress is None else d.progress.done,
        "below `tidelog_directory_logs_to_load` for long: recovery after a crash reads much; "
        "`log.flush.offset.checkpoint.interval.ms` and smaller segments bound it",
    ),
    Metric(
        "tidelog_directory_logs_to_load",
        "Logs to load at the start",
        lambda d: 0 if d.progress is None else d.progress.total,
        "none: as above",
    ),
    Metric(
        "tidelog_directory_open_segments",
        "Closed segments with open files, at most 1,000",
        lambda d: len(d.directory.open_segments),
        "none: part of `process_open_fds`",
    ),
    Metric(
        "tidelog_directory_logs_missing",
        "Logs that had records and are missing",
        lambda d: len(d.directory.missing),
        "check that the right volume was mounted; operations.md says how to accept the loss",
        alerts=(
            Alert(
                "TidelogLogsMissing",
                "tidelog_directory_logs_missing > 0",
                "{{ $value }} logs are missing in {{ $labels.directory }} of {{ $labels.instance }}",
                0,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    Metric(
        "tidelog_directory_logs_damaged",
        "Logs that have lost records",
        lambda d: sum(log.damage is not None for log in list(d.directory.logs.values())),
        "rot, or a lost file: check the disk (SMART). With other replicas in sync it is repaired from them; without, "
        "operations.md says how to restore or accept the loss",
        alerts=(
            Alert(
                "TidelogLogsDamaged",
                "tidelog_directory_logs_damaged > 0",
                "{{ $value }} logs in {{ $labels.directory }} of {{ $labels.instance }} have lost records",
                0,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    names=("directory",),
)

UPKEEP: Final = MetricTable[DirectoryUpkeep](
    "Compaction and scrub",
    lambda u: {"directory": u.directory.path},
    Metric(
        "tidelog_cleaner_dirty_share",
        "Largest dirty share of a compacted log",
        lambda u: u.cleaning.cleaner.dirty_share,
        "near 1 for hours: compaction does not keep up (`tidelog_cleaner_bytes_total`), or the log cannot be compacted",
        unit="0 to 1",
    ),
    Metric(
        "tidelog_cleaner_uncleanable",
        "Logs that cannot be compacted",
        lambda u: len(u.cleaning.cleaner.uncleanable),
        "the node's log names them and says why; they grow without end",
        unit="logs",
        alerts=(
            Alert(
                "TidelogUncleanable",
                "tidelog_cleaner_uncleanable > 0",
                "{{ $value }} logs in {{ $labels.directory }} of {{ $labels.instance }} are not compacted",
                60,
                command="tidelog log dump DIRECTORY --findings",
            ),
        ),
    ),
    Metric(
        "tidelog_cleaner_bytes_total",
        "Bytes read and written by compaction",
        lambda u: u.cleaning.bytes_processed,
        "at its limit for hours: raise `log.cleaner.io.max.bytes.per.second`",
    ),
    Metric(
        "tidelog_cleaner_rounds_total",
        "Completed rounds of compaction",
        lambda u: u.cleaning.rounds,
        "stands still while the dirty share rises: the node's log says why",
    ),
    Metric(
        "tidelog_scrub_segments_waiting",
        "Segments that the scrub has to read in this round",
        lambda u: u.scrub.waiting,
        "only rises: raise `log.scrub.bytes.per.second`, or accept a longer round",
        unit="segments",
    ),
    Metric(
        "tidelog_scrub_bytes_total",
        "Bytes read by the scrub",
        lambda u: u.scrub.bytes_read,
        "none: it shows that the scrub runs",
    ),
    Metric(
        "tidelog_scrub_segments_total",
        "Segments read by the scrub",
        lambda u: u.scrub.segments_read,
        "none: it shows that the scrub runs",
    ),
    Metric(
        "tidelog_scrub_findings_total",
        "Rot found in closed segments, by kind: `log`, `header`, `offset index`, `time index`, `transaction index`",
        lambda u: {kind.value: count for kind, count in u.scrub.findings.items()},
        "more than one in a month from one disk: replace the disk",
        by=("kind",),
        alerts=(
            Alert(
                "TidelogRot",
                "increase(tidelog_scrub_findings_total[1h]) > 0",
                "the scrub has found rot ({{ $labels.kind }}) in {{ $labels.directory }} of {{ $labels.instance }}",
                0,
                command="tidelog log dump DIRECTORY --findings",
            ),
        ),
    ),
    names=("directory",),
)
