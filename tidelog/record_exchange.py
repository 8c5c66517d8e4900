"""What carries record batches: produce requests, and the answers to fetches. Clients and nodes use the same values.

Codecs pass `records` on and do not copy them: `tidelog/protocol/wire.py` for gRPC, `node/listeners/` for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.errors import TidelogError
from tidelog.types import NO_LEADER_EPOCH, Buffer, EpochEnd, EpochStart, LeaderEpoch, Offset, ProducerId

Records: TypeAlias = Buffer
"""Whole record batches, exactly as stored on disk. They must not change while a value refers to them. A listener that
can use sendfile may add a slice of a file (file, position, size) to this type; gRPC needs the bytes."""

TopicReference: TypeAlias = bytes | str
"""The topic id, the bytes as sent, or the topic's name. A name means whichever topic has it when the request arrives,
an id is of one incarnation. Answers repeat what was sent. Tidelog's clients and nodes send ids only."""


class ProduceBatch(NamedTuple):
    """One batch of a request."""

    topic_id: TopicReference
    partition: int
    records: Records
    """One record batch."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """The leader epoch as known to the sender; -1 skips the check."""
    correlation_id: int = 0
    """On a stream, whose answers come in any order: returned in the answer."""


class ProduceRequest(NamedTuple):
    """Batches to append."""

    acks: int
    """As sent, not checked."""
    timeout_ms: int
    """How long the node may wait for the acks."""
    partitions: Sequence[ProduceBatch]
    transactional_id: str = ""
    """The transactional id of the producer; empty if there are no transactional batches."""
    transaction_version: int = 0
    """With 2, the leader adds the partition to the transaction; with 1, the producer has added it."""
    receipts: bool = False
    """Answer each batch with a receipt."""


class AbortedStart(NamedTuple):
    """The start of an aborted transaction, whose records a consumer with read_committed skips."""

    producer_id: ProducerId
    first_offset: Offset


class FetchedPartition(NamedTuple):
    """The answer to the fetch of one partition; -1 stands for an unknown offset or epoch."""

    topic_id: TopicReference
    partition: int
    leader_epoch: LeaderEpoch
    """The epoch of the answering leader."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    error: TidelogError | None = None
    diverging: EpochEnd | None = None
    """The logs diverge; the follower truncates its log to this end."""
    epochs: Sequence[EpochStart] = ()
    """For followers, the leader's epoch entries of `records`; all of them with `local_log_start_offset`."""
    aborted: Sequence[AbortedStart] = ()
    preferred_read_replica: int = -1
    """A consumer should fetch from this node instead; -1 none."""
    waits: bool = False
    """Only a new high watermark and log start; the fetch keeps waiting."""
    held_from: Offset = Offset(0)
    """For followers, as of `InSyncSet.held_from`."""
    records: Records = b""
    """Start with the batch that contains the offset of the fetch."""
    correlation_id: int = 0
    """The correlation id of the fetch."""
    local_log_start_offset: Offset = Offset(0)
    """For followers, with OffsetMovedToTieredStorage: records below it are in the remote tier only; else 0."""


class AnswerMemory(Protocol):
    """The memory that an answer occupies."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def delays_others(self) -> bool:
        """True if other requests wait for memory, some of which this answer occupies."""


class FetchAnswer(NamedTuple):
    """Answers to fetches, in the order of the request; on a stream those that are due, possibly none."""

    partitions: list[FetchedPartition]
    charge: AnswerMemory | None = None
    """In a node: represents the memory of the records; it is returned when the object is deleted. A listener keeps the
    answer or its charge until the answer is sent."""
    throttle_time_ms: int = 0
    """A quota is exceeded: how long the node reads no further request of the caller."""
    session_id: int = 0
    """The incremental fetch session that the next request may continue; 0 if there is none."""
