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
    """A fetch of one partition."""

    topic_id: TopicReference
    partition: int
    fetch_offset: Offset
    """The first offset to read; for a follower the end of its log."""
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """The leader epoch as known to the sender; -1 skips the check (consumers only)."""
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Epoch of the record before the fetch offset; -1 if unknown."""
    durable_offset: Offset = Offset(-1)
    """Durable offset and log start of a follower's log; -1 from a consumer."""
    log_start_offset: Offset = Offset(-1)
    max_bytes: int = 0
    """0 for the default. At least one whole batch is returned."""
    refused: bool = False
    """The bytes that were last sent from this offset on were corrupt."""
    correlation_id: int = 0
    """Returned in the answer: the answers on a stream come in any order."""


class DurablePosition(NamedTuple):
    """A follower's durable offset and log start, one of which moved while its fetch waits. topic_id: the bytes as
    sent."""

    topic_id: bytes
    partition: int
    leader_epoch: LeaderEpoch
    durable_offset: Offset
    log_start_offset: Offset
    """0 from a node of a version that does not report it."""


NEW_SESSION: Final = 0
NO_SESSION: Final = -1
"""Epochs of requests that name all of their partitions. Both end the session that they name, if there is one."""


class SessionFetch(NamedTuple):
    """The incremental fetch session of a request (KIP-227): `partitions` has only those that are new, or whose fetch
    has changed. The answer has only those of which the caller does not know everything."""

    session_id: int
    epoch: int
    """NEW_SESSION, NO_SESSION, or the number of the request in its session, from 1 on."""
    by_id: bool
    """The protocol names topics by id, in this version of the request."""
    forgotten: Sequence[tuple[TopicReference, int]] = ()
    """Partitions that are fetched no longer."""

    @property
    def continues(self) -> bool:
        """True for a request within a session."""
        return self.epoch not in (NEW_SESSION, NO_SESSION)


class FetchRequest(NamedTuple):
    """Fetches to open; a later one replaces an earlier one of the same partition.

    On a stream, the fetch of a partition is answered once `min_bytes` are available, or after `max_wait_ms`; the
    fetch of a follower in the in-sync set waits without limit. A call is answered once all its partitions together
    have that many bytes, or one of them has an error.
    """

    replica: FetchingReplica | None
    """None for a consumer."""
    max_wait_ms: int
    min_bytes: int
    isolation_level: Isolation
    """Used for consumers only."""
    partitions: Sequence[PartitionFetch]
    durable_positions: Sequence[DurablePosition] = ()
    rack: str = ""
    """The consumer's rack, for the nearest replica (KIP-392)."""
    max_bytes: int = 0
    """Limit of the records in the answer to a call, except for the first batch, which is returned whole (KIP-74); 0 for
    the default."""
    session: SessionFetch | None = None
    """None if the caller has none, and wants none."""


_ISOLATION_LEVELS: Final = {int(level): level for level in Isolation}


def isolation_of(level: int) -> Isolation:
    """The isolation level with this number. Raises InvalidRequest for an unknown one."""
    found = _ISOLATION_LEVELS.get(level)
    if found is None:
        raise InvalidRequest(f"isolation level {level}: it must be 0 (read_uncommitted) or 1 (read_committed)")
    return found
