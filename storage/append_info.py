"""The result of one append. Source: Kafka's LogAppendInfo and RecordValidationStats."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Codec, LeaderEpoch, Millis, Offset


class Origin(Enum):
    """The source of an append. It decides which checks apply."""

    CLIENT = "client"
    """A producer: its records are validated in full."""
    REPLICATION = "replication"
    """A follower's fetch: the leader has validated the records."""
    COORDINATOR = "coordinator"
    """The node itself: transaction markers and metadata records."""


class RecordValidationStats(NamedTuple):
    """The cost of validation: bytes of temporary buffers, records converted to another format, conversion time."""

    temporary_bytes: int = 0
    converted_records: int = 0
    conversion_ms: int = 0


class LogAppendInfo(NamedTuple):
    """The result of `Log.append`. The defaults stand for an append without any whole batch."""

    first_offset: Offset = Offset(-1)
    """For a v0 or v1 wrapper that a follower appends: its last offset, because the first one requires decompression."""
    last_offset: Offset = Offset(-1)
    last_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Leader epoch of the last batch. For v0 and v1 batches that a follower appends: the current epoch."""
    max_timestamp: Millis = NO_TIMESTAMP
    offset_of_max_timestamp: Offset = Offset(-1)
    """Last offset of the batch with the largest timestamp."""
    log_append_time: Millis = NO_TIMESTAMP
    """The append time written to the records on topics with log append time, else -1."""
    log_start_offset: Offset = Offset(-1)
    source_codec: Codec = Codec.NONE
    """The producer's codec. If batches differ: that of the last compressed batch."""
    target_codec: Codec = Codec.NONE
    """The codec of the stored batches."""
    shallow_count: int = 0
    """Number of batches; for v0 and v1, of outer messages."""
    record_count: int | None = 0
    """Number of records according to the batch headers. None if a v0 or v1 wrapper that a follower appends hides it."""
    valid_bytes: int = 0
    """Bytes appended: the stored size of all whole batches."""
    duplicate: bool = False
    """True if the values are those of an earlier append of the same batch."""
    stats: RecordValidationStats = RecordValidationStats()
    checksum: int | None = None
    """CRC-32C of the batch that a leader stored. None for v0 and v1, for a duplicate, and on a follower."""
