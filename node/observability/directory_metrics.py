"""Metrics of a node's log directories for Prometheus: free space, loading, scrub, cleaner, open segments.

Not here: metrics of partitions (partition_metrics.py), what an operator does about them (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.maintenance import Maintenance


@dataclass(frozen=True, slots=True)
class DirectoryFigures:
    """State of one log directory that works. Sizes in bytes."""

    path: str
    logs: int
    free: int
    reserve: int
    below_reserve: bool
    loaded: int
    to_load: int
    open_segments: int
    missing: int
    """Logs with durable records for which no directory was found."""
    damaged: int
    """Open logs that have lost records."""
    scrubbed_bytes: int = 0
    scrubbed_segments: int = 0
    scrub_waiting: int = 0
    findings: Mapping[str, int] = field(default_factory=dict)
    """Scrub findings by kind, since the start of the process."""
    cleaned_bytes: int = 0
    cleaner_rounds: int = 0
    dirty_share: float = 0.0
    """The largest dirty share of a compacted log."""
    uncleanable: int = 0


def figures_of(
    directory: LogDirectory, maintenance: Maintenance | None, progress: LoadProgress | None
) -> DirectoryFigures:
    """The present state of the directory. maintenance, progress: None before they exist."""
    reserve = directory.reserve
    figures = DirectoryFigures(
        path=directory.path,
        logs=len(directory.logs),
        free=reserve.free,
        reserve=reserve.wanted,
        below_reserve=reserve.low,
        loaded=0 if progress is None else progress.done,
        to_load=0 if progress is None else progress.total,
        open_segments=len(directory.open_segments),
        missing=len(directory.missing),
        damaged=sum(log.damage is not None for log in list(directory.logs.values())),
    )
    if maintenance is None:
        return figures
    scrub, cleaning = maintenance.scrubs[directory], maintenance.cleanings[directory]
    return replace(
        figures,
        scrubbed_bytes=scrub.bytes_read,
        scrubbed_segments=scrub.segments_read,
        scrub_waiting=scrub.waiting,
        findings={kind.value: count for kind, count in scrub.findings.items()},
        cleaned_bytes=cleaning.bytes_worked,
        cleaner_rounds=cleaning.rounds,
        dirty_share=cleaning.cleaner.dirty_share,
        uncleanable=len(cleaning.cleaner.uncleanable),
    )


def collect(directories: Iterable[DirectoryFigures]) -> Iterator[Metric]:
    """All metrics of all directories."""
    directories = list(directories)
    named: tuple[tuple[str, str, Callable[[DirectoryFigures], float]], ...] = (
        ("tidelog_directory_logs", "Logs in the directory", lambda figures: figures.logs),
        ("tidelog_directory_free_bytes", "Free space of the directory's file system", lambda figures: figures.free),
        ("tidelog_directory_reserve_bytes", "Free space that appends do not use", lambda figures: figures.reserve),
        (
            "tidelog_directory_below_reserve",
            "1 while appends are rejected because free space is below the reserve",
            lambda figures: float(figures.below_reserve),
        ),
        ("tidelog_directory_logs_loaded", "Logs loaded so far at the start", lambda figures: figures.loaded),
        ("tidelog_directory_logs_to_load", "Logs to load at the start", lambda figures: figures.to_load),
        ("tidelog_directory_open_segments", "Closed segments with open files", lambda figures: figures.open_segments),
        ("tidelog_directory_logs_missing", "Logs that had records and are missing", lambda figures: figures.missing),
        ("tidelog_directory_logs_damaged", "Logs that have lost records", lambda figures: figures.damaged),
        ("tidelog_cleaner_dirty_share", "Largest dirty share of a log", lambda figures: figures.dirty_share),
        ("tidelog_cleaner_uncleanable", "Logs that cannot be compacted", lambda figures: figures.uncleanable),
        (
            "tidelog_scrub_segments_waiting",
            "Segments that the scrub has to read",
            lambda figures: figures.scrub_waiting,
        ),
    )
    for name, help_text, value in named:
        gauge = GaugeMetricFamily(name, help_text, labels=("directory",))
        for figures in directories:
            gauge.add_metric((figures.path,), value(figures))
        yield gauge
    counted: tuple[tuple[str, str, Callable[[DirectoryFigures], int]], ...] = (
        ("tidelog_cleaner_bytes", "Bytes read and written by compaction", lambda figures: figures.cleaned_bytes),
        ("tidelog_cleaner_rounds", "Completed rounds of compaction", lambda figures: figures.cleaner_rounds),
        ("tidelog_scrub_bytes", "Bytes read by the scrub", lambda figures: figures.scrubbed_bytes),
        ("tidelog_scrub_segments", "Segments read by the scrub", lambda figures: figures.scrubbed_segments),
    )
    for name, help_text, count in counted:
        counter = CounterMetricFamily(name, help_text, labels=("directory",))
        for figures in directories:
            counter.add_metric((figures.path,), count(figures))
        yield counter
    findings = CounterMetricFamily("tidelog_scrub_findings", "Damage found, by kind", labels=("directory", "kind"))
    for figures in directories:
        for kind, number in figures.findings.items():
            findings.add_metric((figures.path, kind), number)
    yield findings
