"""What producers and consumers count, under the names of Kafka's clients.

A total is since the client began. An average or a maximum is too, not of the last 30 seconds as in Kafka's clients: a
monitoring system takes differences of totals. NaN is the average or maximum of nothing, as there.
Source: Kafka 4.1, SenderMetricsRegistry and FetchMetricsRegistry.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.client.accumulator import Attempt, PendingBatch
from tidelog.client.cursor import Cursor
from tidelog.client.producer_events import Acknowledged, Finished, Lost, Refused
from tidelog.records import RecordBatch
from tidelog.types import Millis, TopicPartition

FETCHES: Final = "consumer-fetch-manager-metrics"

Metrics: TypeAlias = dict[str, dict[str, float]]
"""Values by group and name, as those of kafka-python."""


@dataclass(slots=True)
class Spread:
    """Number, sum and maximum of some values."""

    count: int = 0
    total: float = 0
    most: float = math.nan

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.total += value
        self.most = value if math.isnan(self.most) else max(self.most, value)

    def named(self, name: str) -> dict[str, float]:
        """Return `name`-avg and `name`-max."""
        return {f"{name}-avg": self.total / self.count if self.count else math.nan, f"{name}-max": self.most}


@dataclass(slots=True)
class _TopicCounts:
    records: int = 0
    """Sent for the first time."""
    again: int = 0
    """Sent again."""
    errors: int = 0
    size: int = 0
    """Bytes of batches, as sent, each time."""

    def named(self) -> dict[str, float]:
        return {
            "record-send-total": self.records,
            "record-retry-total": self.again,
            "record-error-total": self.errors,
            "byte-total": self.size,
        }


class ProducerMetrics:
    """The counts of one producer."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicCounts] = defaultdict(_TopicCounts)
        self._batches, self._queued, self._latency, self._records = Spread(), Spread(), Spread(), Spread()
        self._sent: dict[int, Millis] = {}
        """When the attempts under way were sent."""
        self._begun: set[PendingBatch] = set()
        """Batches that were sent and have no outcome."""

    def sent(self, attempt: Attempt, at: Millis) -> None:
        """Note that an attempt goes to the network."""
        batch = attempt.batch
        topic = self._topics[batch.queue.topic_partition.topic]
        self._sent[attempt.attempt_id] = at
        topic.size += len(batch.encoded)
        if batch in self._begun:
            topic.again += batch.count
            return
        self._begun.add(batch)
        topic.records += batch.count
        self._batches.add(len(batch.encoded))
        self._records.add(batch.count)
        self._queued.add(at - batch.created_ms)

    def answered(self, outcomes: Iterable[Acknowledged | Refused | Lost]) -> None:
        """Note the outcomes of attempts."""
        for outcome in outcomes:
            sent = self._sent.pop(outcome.attempt_id, None)
            if sent is not None and not isinstance(outcome, Lost):
                self._latency.add(outcome.at - sent)

    def finished(self, effect: Finished) -> None:
        """Note the outcome of a batch."""
        batch = effect.batch
        self._begun.discard(batch)
        failed = batch.outcome.records if effect.error is not None else len(batch.outcome.left_out)
        if failed:
            self._topics[batch.queue.topic_partition.topic].errors += failed

    def report(self, buffer_bytes: int, used_bytes: int, waiting: int) -> Metrics:
        """Return all values. waiting: number of calls that wait for memory or metadata."""
        topics = {name: topic.named() for name, topic in sorted(self._topics.items())}
        totals = {name: sum(topic[name] for topic in topics.values()) for name in _TopicCounts().named()}
        return {
            "producer-metrics": {
                **totals,
                **self._batches.named("batch-size"),
                **self._queued.named("record-queue-time"),
                **self._latency.named("request-latency"),
                "records-per-batch-avg": self._records.named("records")["records-avg"],
                "requests-in-flight": len(self._sent),
                "buffer-total-bytes": buffer_bytes,
                "buffer-available-bytes": buffer_bytes - used_bytes,
                "waiting-threads": waiting,
            },
            **{f"producer-topic-metrics.{name}": values for name, values in topics.items()},
        }


class ConsumerMetrics:
    """The counts of one consumer."""

    def __init__(self) -> None:
        self._records: dict[str, int] = defaultdict(int)
        self._bytes: dict[str, int] = defaultdict(int)
        self._sizes = Spread()

    def fetched(self, partition: TopicPartition, size: int, batches: Sequence[RecordBatch]) -> None:
        """Note the answer to a fetch of a partition: its bytes and its batches."""
        if not batches:
            return
        self._sizes.add(size)
        self._bytes[partition.topic] += size
        self._records[partition.topic] += sum(batch.count for batch in batches if not batch.is_control)

    def report(self, cursors: Mapping[TopicPartition, Cursor]) -> Metrics:
        """Return all values."""
        lags = {
            key: max(0, cursor.readable_end - cursor.position)
            for key, cursor in sorted(cursors.items())
            if cursor.position is not None and cursor.readable_end >= 0
        }
        found: Metrics = {
            FETCHES: {
                "records-consumed-total": sum(self._records.values()),
                "bytes-consumed-total": sum(self._bytes.values()),
                "fetch-total": self._sizes.count,
                **self._sizes.named("fetch-size"),
                "records-lag-max": max(lags.values(), default=math.nan),
            },
            "consumer-coordinator-metrics": {"assigned-partitions": len(cursors)},
        }
        for topic in sorted(self._records):
            found[f"{FETCHES}.{topic}"] = {
                "records-consumed-total": self._records[topic],
                "bytes-consumed-total": self._bytes[topic],
            }
        for key, lag in lags.items():  # a topic may have the name of a partition
            found.setdefault(f"{FETCHES}.{key}", {})["records-lag"] = lag
        return found
