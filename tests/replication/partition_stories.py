"""Shared by the stories about one partition's leader: a leader with its progress, and short constructors of events."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from replication.common_events import ClockTicked
from replication.partition.leader import PartitionLeader
from replication.partition.leader_events import (
    AckAwaited,
    Acknowledge,
    Appended,
    DeletionAwaited,
    Fail,
    FetchAgreed,
    FollowerDurable,
    FollowerFetched,
    LeaderEffect,
    LocalDurable,
    LogStartMoved,
    ProposeIsr,
    ReplicaView,
    Session,
    StateKnown,
    Ticket,
)
from tidelog.errors import TidelogError
from tidelog.types import (
    Acks,
    EpochStart,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicPartition,
)

E = TypeVar("E")

ME, F, G = NodeId(1), NodeId(2), NodeId(3)
EPOCH = LeaderEpoch(4)
LAG_MS = 1_000


def run_number(node: int, number: int = 1) -> Incarnation:
    """The incarnation with that number of a node."""
    return Incarnation(UUID(int=node * 1000 + number))


class Leader:
    """Node 1 leads epoch 4 from offset 100 on, with followers 2 and 3, at time 0."""

    def __init__(
        self,
        *,
        isr: tuple[int, ...] = (1, 2, 3),
        min_insync: int = 1,
        log_end: int = 100,
        durable_offset: int | None = None,
        watermark: int = 80,
        history: tuple[tuple[int, int], ...] = ((1, 0), (3, 60)),
        log_start: int = 0,
    ) -> None:
        self.now = 0
        self.partition_epoch = 10
        self.isr = isr
        self.elr: tuple[int, ...] = ()
        self.min_insync = min_insync
        self.views = {
            NodeId(node): ReplicaView(NodeEpoch(node * 10), run_number(node), eligible=True) for node in (1, 2, 3)
        }
        self.tickets = 0
        self.core = PartitionLeader(
            name=TopicPartition("t", PartitionIndex(0)),
            me=ME,
            leader_epoch=EPOCH,
            history=[EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in history],
            log_start=Offset(log_start),
            log_end=Offset(log_end),
            durable_offset=Offset(log_end if durable_offset is None else durable_offset),
            high_watermark=Offset(watermark),
            known=self.known(),
            lag_ms_max=LAG_MS,
        )

    def known(self) -> StateKnown:
        return StateKnown(
            (ME, F, G),
            tuple(NodeId(node) for node in self.isr),
            PartitionEpoch(self.partition_epoch),
            self.min_insync,
            dict(self.views),
            Millis(self.now),
            tuple(NodeId(node) for node in self.elr),
        )

    @property
    def watermark(self) -> int:
        return self.core.high_watermark

    # --- events ---

    def metadata_changed(
        self, *, isr: tuple[int, ...] | None = None, min_insync: int | None = None
    ) -> list[LeaderEffect]:
        """The metadata change the set, or the minimum: a higher partition epoch."""
        self.partition_epoch += 1
        self.isr = self.isr if isr is None else isr
        self.min_insync = self.min_insync if min_insync is None else min_insync
        return self.core.handle(self.known())

    def sees(self, node: int, *, number: int = 1, eligible: bool = True) -> list[LeaderEffect]:
        """The metadata of a node change: a new registration (`number`), fenced or unfenced. The partition's state
        stays."""
        self.views[NodeId(node)] = ReplicaView(NodeEpoch(node * 10 + number - 1), run_number(node, number), eligible)
        return self.core.handle(self.known())

    def append(self, log_end: int, *, durable_offset: int | None = None) -> list[LeaderEffect]:
        return self.core.handle(
            Appended(Offset(log_end), Offset(log_end if durable_offset is None else durable_offset))
        )

    def holds(self, durable_offset: int) -> list[LeaderEffect]:
        return self.core.handle(LocalDurable(Offset(durable_offset)))

    def await_ack(self, end: int, *, acks: Acks = Acks.ALL, within: int = 10_000) -> tuple[Ticket, list[LeaderEffect]]:
        self.tickets += 1
        ticket = Ticket(self.tickets)
        return ticket, self.core.handle(AckAwaited(ticket, acks, Offset(end), Millis(self.now + within)))

    def fetch(
        self,
        node: int,
        offset: int,
        *,
        durable_offset: int | None = None,
        last_epoch: int | None = None,
        epoch: int = EPOCH,
        number: int = 1,
        session: int = 1,
        log_start: int = 0,
    ) -> list[LeaderEffect]:
        """A follower fetches. By default all of its log is durable and agrees with the leader's."""
        if last_epoch is None:
            last_epoch = 4 if offset > 100 else 3
        return self.core.handle(
            FollowerFetched(
                NodeId(node),
                run_number(node, number),
                Session(session),
                LeaderEpoch(epoch),
                Offset(offset),
                LeaderEpoch(last_epoch),
                Offset(offset if durable_offset is None else durable_offset),
                Offset(log_start),
                Millis(self.now),
            )
        )

    def durable_reported(
        self,
        node: int,
        durable_offset: int,
        *,
        log_start: int = 0,
        epoch: int = EPOCH,
        number: int = 1,
        session: int = 1,
    ) -> list[LeaderEffect]:
        """A follower reports its durable offset and log start between fetches."""
        return self.core.handle(
            FollowerDurable(
                NodeId(node),
                run_number(node, number),
                Session(session),
                LeaderEpoch(epoch),
                Offset(durable_offset),
                Offset(log_start),
                Millis(self.now),
            )
        )

    def delete(self, offset: int, *, within: int = 10_000) -> tuple[Ticket, list[LeaderEffect]]:
        """A request deletes the records below `offset`. Raises as `deletable`."""
        self.tickets += 1
        ticket, below = Ticket(self.tickets), self.core.deletable(Offset(offset))
        return ticket, self.core.handle(DeletionAwaited(ticket, below, Millis(self.now + within)))

    def starts_at(self, offset: int) -> list[LeaderEffect]:
        """The log of the leader starts there, durably."""
        return self.core.handle(LogStartMoved(Offset(offset)))

    def later(self, ms: int) -> list[LeaderEffect]:
        """Time goes by, tick after tick."""
        effects: list[LeaderEffect] = []
        end = self.now + ms
        while self.now < end:
            self.now = min(self.now + 50, end)
            effects += self.core.handle(ClockTicked(Millis(self.now)))
        return effects


def all_of(effects: list[LeaderEffect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def agreed(effects: list[LeaderEffect]) -> bool:
    return bool(effects) and isinstance(effects[0], FetchAgreed)


def acknowledged(effects: list[LeaderEffect]) -> list[Ticket]:
    return [ticket for effect in all_of(effects, Acknowledge) for ticket in effect.tickets]


def failed(effects: list[LeaderEffect]) -> dict[Ticket, TidelogError]:
    return {ticket: effect.error for effect in all_of(effects, Fail) for ticket in effect.tickets}


def proposed(effects: list[LeaderEffect]) -> tuple[int, ...] | None:
    """The set proposed, None where none was."""
    proposals = all_of(effects, ProposeIsr)
    assert len(proposals) <= 1, "one proposal at a time"
    return tuple(node for node, _ in proposals[0].members) if proposals else None
