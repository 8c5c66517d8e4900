"""Fetch: reads of partitions by consumers and followers, and one answer for each partition's fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from node.api.record_bytes import Records
from node.api.topic_reference import TopicReference
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.types import (
    NO_LEADER_EPOCH,
    EpochEnd,
    EpochStart,
    Incarnation,
    Isolation,
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerId,
)


class FetchingReplica(NamedTuple):
    """The follower that fetches. incarnation: of its process; positions of an earlier one are ignored."""

    node_id: NodeId
    incarnation: Incarnation


class PartitionFetch(NamedTuple):
    """A fetch of one partition.

    fetch_offset: the first offset to read; a follower's log end offset. current_leader_epoch: of the node as known to
    the sender; -1 skips the check (consumers only). last_fetched_epoch: epoch of the record before the fetch offset; -1
    unknown. durable_offset, log_start_offset: of a follower's log, else -1. max_bytes: at least one whole batch is
    returned; 0 for the default. refused: the bytes last sent from this offset on were corrupt. correlation_id: on a
    stream, whose answers come in any order: returned in the answer.
    """

    topic_id: TopicReference
    partition: int
    fetch_offset: Offset
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    durable_offset: Offset = Offset(-1)
    log_start_offset: Offset = Offset(-1)
    max_bytes: int = 0
    refused: bool = False
    correlation_id: int = 0


class DurablePosition(NamedTuple):
    """A follower's durable offset, which moved while its fetch waits. topic_id: the bytes as sent."""

    topic_id: bytes
    partition: int
    leader_epoch: LeaderEpoch
    durable_offset: Offset


class FetchRequest(NamedTuple):
    """Fetches to open; a later one replaces an earlier one of the same partition.

    replica: None for a consumer. max_wait_ms, min_bytes: on a stream a partition's fetch is answered once this number
    of bytes is available, or after this time; the fetch of a follower in the in-sync set waits without limit. A call is
    answered once all its partitions together have as many bytes, or one has an answer of its own, as an error.
    isolation_level: for consumers. rack: of a consumer, for the nearest replica (KIP-392). max_bytes: of the records in
    the answer to a call, except for the first batch, which is returned whole (KIP-74); 0 for the default.
    """

    replica: FetchingReplica | None
    max_wait_ms: int
    min_bytes: int
    isolation_level: Isolation
    partitions: Sequence[PartitionFetch]
    durable_positions: Sequence[DurablePosition] = ()
    rack: str = ""
    max_bytes: int = 0


class AbortedStart(NamedTuple):
    """The start of an aborted transaction, whose records a consumer with read_committed skips."""

    producer_id: ProducerId
    first_offset: Offset


class FetchedPartition(NamedTuple):
    """The answer to the fetch of one partition; -1 stands for an unknown offset or epoch.

    leader_epoch: of the leader that answers. diverging: the logs diverge; the follower truncates its log to this end.
    epochs: for followers, the leader's epoch entries in the range of `records`. preferred_read_replica: a consumer
    should fetch from this node instead; -1 none. waits: only a new high watermark and log start; the fetch keeps
    waiting. held_from: for followers, as of `InSyncSet.held_from`. records: start with the batch that contains the
    offset of the fetch.
    """

    topic_id: TopicReference
    partition: int
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    error: TidelogError | None = None
    diverging: EpochEnd | None = None
    epochs: Sequence[EpochStart] = ()
    aborted: Sequence[AbortedStart] = ()
    preferred_read_replica: int = -1
    waits: bool = False
    held_from: Offset = Offset(0)
    records: Records = b""
    correlation_id: int = 0


class AnswerMemory(Protocol):
    """The memory that an answer occupies."""

    @property
    def delays_others(self) -> bool:
        """True if other requests wait for memory, some of which this answer occupies."""


class FetchAnswer(NamedTuple):
    """Answers to fetches, in the order of the request; on a stream those that are due, possibly none.

    charge: represents the memory of the records; it is returned when the object is deleted. A listener keeps the answer
    or its charge until the answer is sent.
    """

    partitions: list[FetchedPartition]
    charge: AnswerMemory | None = None


_ISOLATION_LEVELS: Final = {int(level): level for level in Isolation}


def isolation_of(level: int) -> Isolation:
    """The isolation level with this number. Raises InvalidRequest for an unknown one."""
    found = _ISOLATION_LEVELS.get(level)
    if found is None:
        raise InvalidRequest(f"isolation level {level}: it must be 0 (read_uncommitted) or 1 (read_committed)")
    return found
