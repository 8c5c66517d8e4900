"""What one append did, all of it in one value. Source: Kafka's LogAppendInfo and RecordValidationStats."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Codec, LeaderEpoch, Millis, Offset


class Origin(Enum):
    """Who asks for an append."""

    CLIENT = "client"
    """A producer: what it sends is checked in full."""
    REPLICATION = "replication"
    """A follower's fetch: the leader has checked it."""
    COORDINATOR = "coordinator"
    """The node itself: markers and metadata."""


class RecordValidationStats(NamedTuple):
    """What validation cost: bytes of buffers made for it, records converted to another format, time spent
    converting."""

    temporary_bytes: int = 0
    converted_records: int = 0
    conversion_ms: int = 0


class LogAppendInfo(NamedTuple):
    """The outcome of `Log.append`. Offsets are -1 where nothing was appended."""

    first_offset: Offset
    """Of a v0 or v1 wrapper that a follower took: its last one, the first takes decompression."""
    last_offset: Offset
    last_leader_epoch: LeaderEpoch
    """Epoch of the last batch; of v0 and v1 that a follower took: the one in force."""
    max_timestamp: Millis
    offset_of_max_timestamp: Offset
    """Last offset of the batch that brought the largest timestamp."""
    log_append_time: Millis
    """The stamp given, on topics with log append time; else -1."""
    log_start_offset: Offset
    source_codec: Codec
    """How the producer compressed; of the last compressed batch where they differ."""
    target_codec: Codec
    """How the batches were stored."""
    shallow_count: int
    """Batches; of v0 and v1, outer messages."""
    record_count: int | None
    """Records, as the headers declare them; None where a v0 or v1 wrapper that a follower took hides them."""
    valid_bytes: int
    """Bytes appended: those of whole batches, as they are stored."""
    offsets_monotonic: bool = True
    duplicate: bool = False
    """These are the results of an earlier append of the same batch."""
    stats: RecordValidationStats = RecordValidationStats()

    @classmethod
    def nothing(cls, log_start_offset: Offset) -> LogAppendInfo:
        """There was no whole batch in what was to be appended."""
        none = Offset(-1)
        return cls(
            none,
            none,
            NO_LEADER_EPOCH,
            NO_TIMESTAMP,
            none,
            NO_TIMESTAMP,
            log_start_offset,
            Codec.NONE,
            Codec.NONE,
            0,
            0,
            0,
        )
