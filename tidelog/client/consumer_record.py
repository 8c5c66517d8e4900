"""A record as the consumer returns it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.records.v2.record import Header
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Millis, Offset, PartitionIndex, TimestampType, TopicPartition


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
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """Whether the producer or the log set the timestamp (`message.timestamp.type`); NO_TIMESTAMP_TYPE in format v0."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Epoch of the leader that appended the record; NO_LEADER_EPOCH if it is unknown (formats v0 and v1)."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, in the form that `seek` and `position` take."""
        return TopicPartition(self.topic, self.partition)
