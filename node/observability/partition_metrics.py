"""Metrics of every replica of a node in Prometheus' text format, written in parts over several turns of the loop.

For 10,000 partitions each metric is a megabyte of text. Written at once it would block the loop for about 0.4 s. The
values of one scrape are therefore not all from the same instant.
Not here: all other metrics (metrics.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

AT_ONCE: Final = 200
"""Partitions per turn of the loop: about 3 ms."""


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """State of one replica on this node."""

    topic: str
    partition: int
    leads: bool
    isr_size: int
    """Members of the in-sync set, as known to this node."""
    replicas: int
    log_start: int
    log_end: int
    high_watermark: int
    durable_offset: int
    size: int = 0
    """Bytes of its log."""
    segments: int = 0
    undecided: int = 0
    """Committed records from the last stable offset on."""


_GAUGES: Final[tuple[tuple[str, str, Callable[[PartitionFigures], int]], ...]] = (
    ("tidelog_partition_isr", "In-sync replicas", lambda figures: figures.isr_size),
    ("tidelog_partition_log_start", "Log start offset", lambda figures: figures.log_start),
    ("tidelog_partition_log_end", "Log end offset, one past the last record", lambda figures: figures.log_end),
    ("tidelog_partition_high_watermark", "One past the last committed offset", lambda figures: figures.high_watermark),
    (
        "tidelog_partition_uncommitted",
        "Records not committed yet: log end minus high watermark",
        lambda figures: figures.log_end - figures.high_watermark,
    ),
    (
        "tidelog_partition_not_durable",
        "Records of this replica that are not durable yet: log end minus durable offset",
        lambda figures: figures.log_end - figures.durable_offset,
    ),
    (
        "tidelog_partition_last_stable_offset_lag",
        "Committed records not visible to read_committed: high watermark minus last stable offset",
        lambda figures: figures.undecided,
    ),
    ("tidelog_partition_size_bytes", "Bytes of this replica's log", lambda figures: figures.size),
    ("tidelog_partition_segments", "Segments of this replica's log", lambda figures: figures.segments),
)


async def partition_text(partitions: Iterator[PartitionFigures], turn: Callable[[], Awaitable[None]]) -> bytes:
    """The metrics of all partitions, and their sums. turn: awaited between two parts."""
    lines: list[list[str]] = [[] for _ in _GAUGES]
    replicas = leaders = under = 0
    while lot := list(islice(partitions, AT_ONCE)):
        if replicas:
            await turn()
        for figures in lot:
            replicas += 1
            leaders += figures.leads
            under += figures.leads and figures.isr_size < figures.replicas
            role = "leader" if figures.leads else "follower"
            labels = f'{{partition="{figures.partition}",role="{role}",topic="{figures.topic}"}}'
            for samples, (name, _, value) in zip(lines, _GAUGES, strict=True):
                samples.append(f"{name}{labels} {value(figures)}.0\n")
    pieces = [
        _gauge("tidelog_replicas", "Replicas on this node", [f"tidelog_replicas {replicas}.0\n"]),
        _gauge("tidelog_leaders", "Partitions that this node leads", [f"tidelog_leaders {leaders}.0\n"]),
        _gauge(
            "tidelog_under_replicated",
            "Partitions led here with fewer in-sync replicas than replicas",
            [f"tidelog_under_replicated {under}.0\n"],
        ),
    ]
    for samples, (name, help_text, _) in zip(lines, _GAUGES, strict=True):
        await turn()
        pieces.append(_gauge(name, help_text, samples))
    return b"".join(pieces)


def _gauge(name: str, help_text: str, samples: list[str]) -> bytes:
    """A gauge as text. A topic name has no character that needs escaping."""
    return "".join((f"# HELP {name} {help_text}\n# TYPE {name} gauge\n", *samples)).encode()
