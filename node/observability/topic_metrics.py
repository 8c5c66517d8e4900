"""Metrics of every topic with a replica on a node in Prometheus' text format, written in parts over several turns of
the loop as those of partitions are (partition_metrics.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Final

from node.observability.partition_metrics import AT_ONCE
from node.runtime.topic_meter import TopicMeter

_COUNTERS: Final[tuple[tuple[str, str, Callable[[TopicMeter], int]], ...]] = (
    ("tidelog_topic_bytes_in_total", "Bytes appended for producers", lambda meter: meter.bytes_in),
    ("tidelog_topic_bytes_out_total", "Bytes of records sent to consumers", lambda meter: meter.bytes_out),
    ("tidelog_topic_bytes_rejected_total", "Bytes rejected for their size", lambda meter: meter.bytes_rejected),
    ("tidelog_topic_messages_in_total", "Records appended for producers", lambda meter: meter.messages_in),
    (
        "tidelog_topic_failed_produce_requests_total",
        "Entries of produce requests answered with an error",
        lambda meter: meter.failed_produces,
    ),
    (
        "tidelog_topic_failed_fetch_requests_total",
        "Entries of fetch requests answered with an error",
        lambda meter: meter.failed_fetches,
    ),
    (
        "tidelog_topic_produce_message_conversions_total",
        "Records of producers converted to the topic's format",
        lambda meter: meter.conversions,
    ),
)


async def topic_text(topics: Iterator[tuple[str, TopicMeter]], turn: Callable[[], Awaitable[None]]) -> bytes:
    """The metrics of all topics. turn: awaited between two parts."""
    lines: list[list[str]] = [
        [f"# HELP {name} {help_text}\n# TYPE {name} counter\n"] for name, help_text, _ in _COUNTERS
    ]
    while lot := list(islice(topics, AT_ONCE)):
        await turn()
        for topic, meter in lot:
            for samples, (name, _, value) in zip(lines, _COUNTERS, strict=True):
                samples.append(f'{name}{{topic="{topic}"}} {value(meter)}.0\n')
    return "".join("".join(samples) for samples in lines).encode()
