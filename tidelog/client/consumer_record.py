"""A record as the consumer returns it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.records.v2.record import Header
from tidelog.types import Millis, Offset, PartitionIndex, TopicPartition


class ConsumerRecord(NamedTuple):
    """One record and its position."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    timestamp: Millis | None
    """Milliseconds since 1970; None for a record without a timestamp (format v0)."""
    key: Any
    """Bytes or None, unless the consumer has a key_deserializer."""
    value: Any
    """Bytes or None, unless the consumer has a value_deserializer."""
    headers: tuple[Header, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, in the form that `seek` and `position` take."""
        return TopicPartition(self.topic, self.partition)
