"""What tests give a fetch core: a session, batches and answers."""

from __future__ import annotations

import random
from uuid import UUID

from tidelog.client.core_events import LeaderKnown, TimePassed
from tidelog.client.cursor import Cursor
from tidelog.client.fetch_core import (
    FetchCore,
)
from tidelog.client.fetch_events import (
    BatchesFetched,
    Effect,
    Event,
    Failed,
    FetchBatches,
    FetchPolicy,
    LeaderVerified,
    PlaceFound,
    Taken,
    VerifyLeader,
)
from tidelog.errors import (
    TidelogError,
)
from tidelog.records import RecordBatch, build_batch, stamp
from tidelog.records.v2.record import Record
from tidelog.types import (
    EpochEnd,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

TOPIC_ID = TopicId(UUID(int=1))
POLICY = FetchPolicy(buffer_bytes=10_000, fetch_bytes=1_000, max_wait_ms=500, request_timeout_ms=5_000)


def key(partition: int = 0) -> TopicPartition:
    return TopicPartition("orders", PartitionIndex(partition))


def batch(base: int, count: int = 3, epoch: int = 0, size: int = 10) -> RecordBatch:
    made = bytearray(
        build_batch([Record(Offset(base + index), Millis(1), None, b"x" * size) for index in range(count)])
    )
    stamp(made, 0, base_offset=base, leader_epoch=epoch)
    return RecordBatch(bytes(made))


class RequestSession:
    """A core with a clock, and the effects of the last event."""

    def __init__(self, policy: FetchPolicy = POLICY, partitions: int = 1, start: str = "earliest") -> None:
        self.core = FetchCore(policy, random.Random(1))
        self.now = 1_000
        self.core.assign([key(index) for index in range(partitions)], "latest" if start == "latest" else "earliest")

    def cursor(self, partition: int = 0) -> Cursor:
        return self.core.cursors[key(partition)]

    def handle(self, event: Event) -> list[Effect]:
        return self.core.handle(event)

    def tick(self, ms: int = 0) -> list[Effect]:
        self.now += ms
        return self.handle(TimePassed(Millis(self.now)))

    def lead(
        self,
        node: int = 1,
        epoch: int = 0,
        partition: int = 0,
        topic_id: TopicId | None = TOPIC_ID,
        cause: TidelogError | None = None,
    ) -> list[Effect]:
        at = Millis(self.now)
        return self.handle(LeaderKnown(key(partition), topic_id, NodeId(node), LeaderEpoch(epoch), at, cause))

    def fetched(
        self, *batches: RecordBatch, epoch: int = 0, partition: int = 0, readable_end: int = 100
    ) -> list[Effect]:
        number = self.cursor(partition).number
        at, end = Millis(self.now), Offset(100)
        return self.handle(
            BatchesFetched(
                key(partition), number, batches, LeaderEpoch(epoch), end, Offset(readable_end), Offset(0), at
            )
        )

    def diverged(self, end: EpochEnd) -> list[Effect]:
        number, at = self.cursor().number, Millis(self.now)
        epoch, nothing = self.cursor().leader_epoch, Offset(-1)
        return self.handle(BatchesFetched(key(), number, (), epoch, nothing, nothing, Offset(0), at, diverging=end))

    def failed(self, error: TidelogError, partition: int = 0) -> list[Effect]:
        return self.handle(Failed(key(partition), self.cursor(partition).number, error, Millis(self.now)))

    def denied(self, error: TidelogError) -> list[Effect]:
        """The leader answers "out of range", and another node confirms that it leads."""
        (asked,) = self.failed(error)
        assert isinstance(asked, VerifyLeader)
        return self.handle(LeaderVerified(key(), asked.number, Millis(self.now)))

    def ready(self, offset: int = 0, epoch: int = 0) -> list[Effect]:
        """The partition has a leader and a position, and a fetch is open."""
        self.tick()
        self.lead(epoch=epoch)
        return self.handle(PlaceFound(key(), self.cursor().number, Offset(offset), Millis(self.now)))

    def consume(self, upto: int, epoch: int = 0) -> list[Effect]:
        """The user takes all buffered records."""
        cursor = self.cursor()
        cursor.drop()
        cursor.position, cursor.position_epoch = Offset(upto), LeaderEpoch(epoch)
        return self.handle(Taken(key(), Millis(self.now)))


def opened(effects: list[Effect]) -> list[FetchBatches]:
    return [effect for effect in effects if isinstance(effect, FetchBatches)]


def hinted(session: RequestSession, node: int = 3) -> list[Effect]:
    """The leader names a preferred read replica instead of answering."""
    at, number = Millis(session.now), session.cursor().number
    epoch, end = session.cursor().leader_epoch, Offset(100)
    return session.handle(BatchesFetched(key(), number, (), epoch, end, end, Offset(0), at, NodeId(node)))
