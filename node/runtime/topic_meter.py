"""Counters of the topics with replicas on this node: Kafka's BrokerTopicMetrics.

Invariants: a topic has a meter as long as the node has a replica of it. `bytes_in` and `bytes_out` are of producers and
consumers; replication is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.errors import RecordListTooLarge, RecordTooLarge, TidelogError


class TopicMeter:
    """The counters of one topic, of all its partitions on this node."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "conversions",
        "failed_fetches",
        "failed_produces",
        "messages_in",
        "replicas",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.replicas = 0
        self.bytes_in = 0
        """Bytes of records appended for producers, as stored."""
        self.bytes_out = 0
        """Bytes of records in answers to consumers."""
        self.bytes_rejected = 0
        """Bytes of records rejected for their size, as received."""
        self.messages_in = 0
        """Records appended for producers."""
        self.failed_produces = 0
        """Entries of produce requests that were answered with an error."""
        self.failed_fetches = 0
        """Entries of fetch requests that were answered with an error."""
        self.replication_bytes_in = 0
        """Bytes of records that this node fetched as a follower."""
        self.replication_bytes_out = 0
        """Bytes of records in answers to followers."""
        self.conversions = 0
        """Records that a produce request brought in another format than the topic's."""

    def appended(self, size: int, records: int, converted: int) -> None:
        """Count an append of a producer's records."""
        self.bytes_in += size
        self.messages_in += records
        self.conversions += converted

    def produce_failed(self, error: TidelogError, size: int) -> None:
        """Count an entry of a produce request that failed. size: of its records, in bytes."""
        self.failed_produces += 1
        if isinstance(error, RecordTooLarge | RecordListTooLarge):
            self.bytes_rejected += size


class TopicMeters:
    """The meters of a node by topic name."""

    def __init__(self) -> None:
        self._meters: dict[str, TopicMeter] = {}

    def add_replica(self, topic: str) -> TopicMeter:
        """The meter of the topic, for one more replica."""
        meter = self._meters.setdefault(topic, TopicMeter())
        meter.replicas += 1
        return meter

    def remove_replica(self, topic: str) -> None:
        """A replica is gone; with the last one the meter goes."""
        meter = self._meters[topic]
        meter.replicas -= 1
        if not meter.replicas:
            del self._meters[topic]

    def __iter__(self) -> Iterator[tuple[str, TopicMeter]]:
        return iter(list(self._meters.items()))
