"""The fetch of one partition that is not answered yet.

Not here: the stream or call that it belongs to (fetch_session.py), what can be read (partition.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.observability.meters.request_meter import MeteredRequest
from node.requests.types.fetch import FetchedPartition
from replication.partition.leader_events import Session
from storage.isolation import FetchIsolation
from storage.log.log_reader import LogRead
from tidelog.errors import TidelogError
from tidelog.types import Incarnation, LeaderEpoch, Millis, NodeId, Offset

if TYPE_CHECKING:
    from node.replicas.fetch_session import FetchSession
    from node.replicas.partition import Partition


@dataclass(frozen=True, slots=True)
class FollowerIdentity:
    """The follower that fetches, and the stream on which it does."""

    node_id: NodeId
    incarnation: Incarnation
    session: Session


@dataclass(slots=True, eq=False)
class WaitingFetch:
    """The fetch of one partition. partition: None if this node has no replica of it."""

    session: FetchSession
    fetch_id: int
    topic_id: bytes
    index: int
    next_offset: Offset
    last_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch
    max_bytes: int
    min_bytes: int
    deadline: Millis
    follower: FollowerIdentity | None
    isolation: FetchIsolation
    rack: str = ""
    partition: Partition | None = None
    due: bool = False
    ended: bool = False
    """True once it is answered, replaced, or its session is closed."""
    cold_tries: int = 0
    """The number of disk reads for this fetch."""
    short: bool = False
    """Fewer than `min_bytes` could be read: the next attempt is at the next tick, not at each append."""
    refused: bool = False
    """The reader found the bytes last sent from this offset on corrupt."""
    request: MeteredRequest | None = None
    """The meter of the stream message with this fetch; None for a call, which the listener measures."""

    def is_due(self, now: Millis) -> bool:
        """True if it must be answered now, with or without records. `deadline` applies to consumers only."""
        return self.due or (self.follower is None and now >= self.deadline) or self.min_bytes <= 0

    def is_filled_by(self, read: LogRead, up_to: Offset) -> bool:
        """True if `read` is an answer: it has `min_bytes`, or waiting cannot add to it. Then it ends below `up_to`, the
        readable end of the log: the next batch is in another segment, or exceeds `max_bytes` (Kafka's
        onOlderSegment)."""
        size = len(read.records)
        return size >= min(self.min_bytes, self.max_bytes) or (size > 0 and read.next_offset < up_to)

    def wake(self) -> None:
        """Try the fetch again: there may be more to read."""
        if not self.short:
            self.session.ready(self)

    def answer_anyway(self) -> None:
        """Answer it now, with or without records."""
        self.due = True
        self.session.ready(self)

    def tell(self, news: FetchedPartition) -> None:
        """Send an update; the fetch keeps waiting."""
        self.session.tell(news)

    def refuse(self, error: TidelogError) -> None:
        """Answer it with an error."""
        self.session.refuse(self, error)
