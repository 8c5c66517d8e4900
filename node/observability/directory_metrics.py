"""Metrics of a node's log directories for Prometheus: free space, loading, scrub, cleaner, open segments.

Not here: metrics of partitions (partition_metrics.py), what an operator does about them (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.maintenance import Maintenance


def _gauge(name: str, help_text: str) -> Any:
    return field(default=0, metadata={"metric": (GaugeMetricFamily, name, help_text)})


def _counter(name: str, help_text: str) -> Any:
    return field(default=0, metadata={"metric": (CounterMetricFamily, name, help_text)})


@dataclass(frozen=True, slots=True)
class DirectoryFigures:
    """State of one log directory. Each field names its metric. Sizes in bytes."""

    path: str
    logs: int = _gauge("tidelog_directory_logs", "Logs in the directory")
    free: int = _gauge("tidelog_directory_free_bytes", "Free space of the directory's file system")
    reserve: int = _gauge("tidelog_directory_reserve_bytes", "Free space that appends do not use")
    below_reserve: bool = _gauge(
        "tidelog_directory_below_reserve", "1 while appends are rejected because free space is below the reserve"
    )
    loaded: int = _gauge("tidelog_directory_logs_loaded", "Logs loaded so far at the start")
    to_load: int = _gauge("tidelog_directory_logs_to_load", "Logs to load at the start")
    open_segments: int = _gauge("tidelog_directory_open_segments", "Closed segments with open files")
    missing: int = _gauge("tidelog_directory_logs_missing", "Logs that had records and are missing")
    damaged: int = _gauge("tidelog_directory_logs_damaged", "Logs that have lost records")
    dirty_share: float = _gauge("tidelog_cleaner_dirty_share", "Largest dirty share of a log")
    uncleanable: int = _gauge("tidelog_cleaner_uncleanable", "Logs that cannot be compacted")
    scrub_waiting: int = _gauge("tidelog_scrub_segments_waiting", "Segments that the scrub has to read")
    cleaned_bytes: int = _counter("tidelog_cleaner_bytes", "Bytes read and written by compaction")
    cleaner_rounds: int = _counter("tidelog_cleaner_rounds", "Completed rounds of compaction")
    scrubbed_bytes: int = _counter("tidelog_scrub_bytes", "Bytes read by the scrub")
    scrubbed_segments: int = _counter("tidelog_scrub_segments", "Segments read by the scrub")
    findings: Mapping[str, int] = field(default_factory=dict)
    """Scrub findings by kind, since the start of the process."""


def figures_of(
    directory: LogDirectory, maintenance: Maintenance | None, progress: LoadProgress | None
) -> DirectoryFigures:
    """The present state of the directory. maintenance, progress: None before they exist."""
    reserve = directory.reserve
    figures = DirectoryFigures(
        path=directory.path,
        logs=len(directory.logs),
        free=reserve.free,
        reserve=reserve.required,
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
        cleaned_bytes=cleaning.bytes_processed,
        cleaner_rounds=cleaning.rounds,
        dirty_share=cleaning.cleaner.dirty_share,
        uncleanable=len(cleaning.cleaner.uncleanable),
    )


def collect(directories: Iterable[DirectoryFigures]) -> Iterator[Metric]:
    """All metrics of all directories."""
    directories = list(directories)
    for each in fields(DirectoryFigures):
        if "metric" in each.metadata:
            family, name, help_text = each.metadata["metric"]
            metric = family(name, help_text, labels=("directory",))
            for figures in directories:
                metric.add_metric((figures.path,), float(getattr(figures, each.name)))
            yield metric
    findings = CounterMetricFamily("tidelog_scrub_findings", "Damage found, by kind", labels=("directory", "kind"))
    for figures in directories:
        for kind, number in figures.findings.items():
            findings.add_metric((figures.path, kind), number)
    yield findings
