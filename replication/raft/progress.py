"""Replica positions that the quorum leader tracks in one epoch: durable offset and last fetch of each replica.

Invariants:
  1. A position is recorded only from a fetch of this epoch whose log agreed. Positions start empty.
  2. An offset is committed when a majority of the voters (those of the whole log, committed or not) has made it durable
     and it lies in this epoch: records of older epochs are committed with the first record of this epoch, never by
     count alone (Raft 5.4.2).
  3. A leader that is no longer a voter does not count itself.

Not here: comparing logs, rejecting requests (quorum.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Final

from replication.raft.log_view import MetadataLogView
from replication.raft.voters import NEVER, Position, ReplicaKey
from tidelog.types import LeaderEpoch, Millis, Offset

REPLICAS_MAX: Final = 1_000
"""Limit of tracked replicas. Voters are always tracked."""


class QuorumProgress:
    """Positions tracked by `me`, leader since `began`. epoch_start: offset of the first record of its epoch."""

    def __init__(self, me: ReplicaKey, epoch: LeaderEpoch, began: Millis, epoch_start: Offset) -> None:
        self._me = me
        self.epoch = epoch
        self.began = began
        self.epoch_start = epoch_start
        self.active = False
        """True once a record of this epoch is committed."""
        self._positions: dict[ReplicaKey, Position] = {}
        self._last_contact: dict[ReplicaKey, Millis] = {}

    def copy(self) -> QuorumProgress:
        """Return an independent copy."""
        progress = copy(self)
        progress._positions, progress._last_contact = dict(self._positions), dict(self._last_contact)
        return progress

    def may_track(self, replica: ReplicaKey, log: MetadataLogView) -> bool:
        """Whether fetches of the replica are tracked: always for voters, for others only up to the limit, since a fetch
        may name any replica."""
        return replica in log.voters or replica in self._last_contact or len(self._last_contact) < REPLICAS_MAX

    def note_contact(self, replica: ReplicaKey, at: Millis) -> None:
        """Record that the replica sent a request in this epoch, whether its log agrees or not."""
        self._last_contact[replica] = at

    def enter(self, replica: ReplicaKey, durable_offset: Offset, at: Millis) -> None:
        """Record an agreed fetch: below `durable_offset` the replica's disk has the same records as this log.

        The last report counts, not the largest: an observer whose log was damaged starts again under the same name.
        """
        self._positions[replica] = Position(durable_offset, at)

    def has_fetched(self, replica: ReplicaKey) -> bool:
        """True if the replica has fetched in this epoch."""
        return replica in self._last_contact

    def committed(self, log: MetadataLogView) -> Offset | None:
        """The offset below which a majority has made the log durable; None while that is not beyond the start of this
        epoch."""
        durable_offset = {replica: int(position.durable_offset) for replica, position in self._positions.items()}
        durable_offset[self._me] = log.durable_offset
        reached = Offset(min(log.voters.reached_by_majority(durable_offset), log.log_end))
        return reached if reached > self.epoch_start else None

    def silence_ms(self, log: MetadataLogView, at: Millis, doubted: range = range(0)) -> int:
        """Milliseconds since a majority of the voters, this one included, last fetched. doubted: fetches that arrived
        at these times do not count."""
        contacts = {voter: NEVER if last in doubted else last for voter, last in self._last_contact.items()}
        contacts[self._me] = at
        last = log.voters.reached_by_majority({voter: contacts.get(voter, NEVER) for voter in log.voters.members})
        return at - max(last, self.began)

    def successors(self, log: MetadataLogView) -> tuple[ReplicaKey, ...]:
        """The other voters, by decreasing durable offset."""
        others = log.voters.others(self._me)
        return tuple(sorted(others, key=lambda voter: (-self._durable_offset(voter), voter)))

    def caught_up(self, log: MetadataLogView, at: Millis, within_ms: int) -> tuple[ReplicaKey, ...]:
        """Replicas, voters or not, that fetched within the last `within_ms` and have all committed records durable."""
        return tuple(
            sorted(
                replica
                for replica, position in self._positions.items()
                if at - position.fetched_at <= within_ms and position.durable_offset >= log.high_watermark
            )
        )

    @property
    def positions(self) -> Mapping[ReplicaKey, Position]:
        """The position of each replica, voters or not, whose log has agreed in this epoch."""
        return self._positions

    def _durable_offset(self, replica: ReplicaKey) -> Offset:
        position = self._positions.get(replica)
        return Offset(-1) if position is None else position.durable_offset
