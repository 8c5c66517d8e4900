"""Fetch: reads of partitions by consumers and followers. The answers are in tidelog/record_exchange.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.errors import InvalidRequest
from tidelog.record_exchange import TopicReference
from tidelog.types import NO_LEADER_EPOCH, Incarnation, Isolation, LeaderEpoch, NodeId, Offset


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


_ISOLATION_LEVELS: Final = {int(level): level for level in Isolation}


def isolation_of(level: int) -> Isolation:
    """The isolation level with this number. Raises InvalidRequest for an unknown one."""
    found = _ISOLATION_LEVELS.get(level)
    if found is None:
        raise InvalidRequest(f"isolation level {level}: it must be 0 (read_uncommitted) or 1 (read_committed)")
    return found
