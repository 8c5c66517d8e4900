"""Metrics of the process: memory, event loop, garbage collector, and what the system counts."""

from __future__ import annotations

from typing import Final

from node.observability.metric_text import Alert, Distribution, Metric, MetricTable, no_labels
from node.runtime.gc_watch import GcWatch
from node.runtime.loop_watch import BOUNDS_S, LoopWatch
from node.runtime.memory_budget import MemoryFigures
from node.runtime.process_usage import ProcessUsage

PROCESS: Final = MetricTable[ProcessUsage](
    "The process",
    no_labels,
    Metric(
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
        lambda p: p.virtual_bytes,
        "none: mapped indexes are part of it",
    ),
    Metric(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        lambda p: p.resident_bytes,
        "near the limit of the container: lower `memory.max.bytes` or give it more (operations.md, Memory)",
    ),
    Metric(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        lambda p: p.started_s,
        "changes often: the node ends and is started again; its log says why",
        unit="seconds since 1970",
        alerts=(
            Alert(
                "TidelogRestarts",
                'changes(process_start_time_seconds{job="tidelog"}[30m]) > 2',
                "node {{ $labels.instance }} has started {{ $value }} times in 30 minutes",
                0,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        lambda p: p.cpu_s,
        "a rate near 1 with a high `tidelog_event_loop_lag_seconds`: this node needs another core, or the cluster "
        "another node",
    ),
    Metric(
        "process_open_fds",
        "Number of open file descriptors.",
        lambda p: p.open_files,
        "near half of `process_max_fds`: connections are refused; see `tidelog_connections`",
        alerts=(
            Alert(
                "TidelogOpenFiles",
                'process_open_fds{job="tidelog"} / process_max_fds{job="tidelog"} > 0.8',
                "node {{ $labels.instance }} has {{ $value | humanizePercentage }} of its files open",
                5,
                command="ss -tn sport = :PORT",
            ),
        ),
    ),
    Metric(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        lambda p: p.files_max,
        "raise the limit of open files of the service (`ulimit -n`, `LimitNOFILE`)",
    ),
)

LOOP: Final = MetricTable[LoopWatch](
    "The event loop",
    no_labels,
    Metric(
        "tidelog_event_loop_lag_seconds",
        "How late the event loop comes to a callback that is due, measured every 100 ms",
        lambda w: Distribution(w.lag.counts, w.lag.total_s),
        "a 99th percentile above 0.1 s: the node lacks processor time, or one callback holds it "
        "(`tidelog_event_loop_longest_callback_seconds`)",
        bounds=BOUNDS_S,
        alerts=(
            Alert(
                "TidelogLoopLag",
                "histogram_quantile(0.99, sum by (instance, le) (rate(tidelog_event_loop_lag_seconds_bucket[5m]))) > "
                "0.25",
                "the event loop of {{ $labels.instance }} is {{ $value }} s late",
                10,
                command="tidelog top",
            ),
        ),
    ),
    Metric(
        "tidelog_event_loop_longest_callback_seconds",
        "The longest time in the last one to two minutes for which the loop served nothing else, less at most 100 ms",
        lambda w: w.longest_s,
        "above half of a session (1 s): the node may be fenced. Swapping, a paused machine, or a defect worth a report",
    ),
)

GARBAGE: Final = MetricTable[GcWatch](
    "The garbage collector of Python",
    no_labels,
    Metric(
        "tidelog_gc_collections_total",
        "Collections of the garbage collector",
        lambda w: {str(number): count for number, count in enumerate(w.collections)},
        "none by itself",
        by=("generation",),
    ),
    Metric(
        "tidelog_gc_seconds_total",
        "Time that the process stood still for them",
        lambda w: {str(number): took_s for number, took_s in enumerate(w.seconds)},
        "a rate above 0.05 for generation 2: a defect worth a report",
        by=("generation",),
    ),
    Metric(
        "tidelog_gc_objects_collected_total",
        "Objects that they freed",
        lambda w: {str(number): count for number, count in enumerate(w.objects)},
        "none by itself",
        by=("generation",),
    ),
    Metric(
        "tidelog_gc_longest_seconds",
        "The longest collection since the start",
        lambda w: w.longest_s,
        "above 0.5 s: the node answers nothing meanwhile; fewer partitions for each node help",
    ),
)

MEMORY: Final = MetricTable[MemoryFigures](
    "Memory for records",
    no_labels,
    Metric(
        "tidelog_memory_limit_bytes",
        "Memory limit for records in transit",
        lambda m: m.limit,
        "`memory.max.bytes`; give a container four times as much",
    ),
    Metric(
        "tidelog_memory_used_bytes",
        "Memory in use for records in transit, by kind: `follower_fetch`, `produce`, `consumer_fetch`, "
        "`producer_state`",
        lambda m: {kind.value: size for kind, size in m.used.items()},
        "near the limit while `tidelog_memory_waiting` is above 0: as there",
        by=("kind",),
    ),
    Metric(
        "tidelog_memory_waiting",
        "Requests that wait for memory",
        lambda m: {kind.value: count for kind, count in m.waiting.items()},
        "`consumer_fetch`: they are served one after the other; raise `memory.max.bytes`, or lower their `max_bytes`. "
        "`produce`, `follower_fetch`: raise it",
        unit="requests",
        by=("kind",),
        alerts=(
            Alert(
                "TidelogMemoryWaits",
                'min_over_time(tidelog_memory_waiting{kind=~"produce|follower_fetch"}[5m]) > 0',
                "{{ $value }} requests ({{ $labels.kind }}) wait for memory on {{ $labels.instance }}",
                5,
                command="tidelog config describe --node N --changed",
            ),
        ),
    ),
)
