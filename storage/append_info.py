"""The result of one append. Source: Kafka's LogAppendInfo."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Millis, Offset


class Origin(Enum):
    """The source of an append. It decides which checks apply."""

    CLIENT = "client"
    """A producer: its records are validated in full."""
    REPLICATION = "replication"
    """A follower's fetch: the leader has validated the records."""
    COORDINATOR = "coordinator"
    """The node itself: transaction markers and metadata records."""


class LogAppendInfo(NamedTuple):
    """The result of `Log.append`. The defaults stand for an append without any whole batch."""

    first_offset: Offset = Offset(-1)
    """For a v0 or v1 wrapper that a follower appends: its last offset, because the first one requires decompression."""
    last_offset: Offset = Offset(-1)
    last_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Leader epoch of the last batch. For v0 and v1 batches that a follower appends: the current epoch."""
    max_timestamp: Millis = NO_TIMESTAMP
    log_append_time: Millis = NO_TIMESTAMP
    """The append time written to the records on topics with log append time, else -1."""
    log_start_offset: Offset = Offset(-1)
    record_count: int | None = 0
    """Number of records according to the batch headers. None if a v0 or v1 wrapper that a follower appends hides it."""
    valid_bytes: int = 0
    """Bytes appended: the stored size of all whole batches."""
    duplicate: bool = False
    """True if the values are those of an earlier append of the same batch."""
    converted_records: int = 0
    """Records that the leader converted to the topic's format."""
    checksum: int | None = None
    """CRC-32C of the batch that a leader stored. None for v0 and v1, for a duplicate, and on a follower."""
