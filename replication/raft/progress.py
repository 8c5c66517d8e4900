"""The quorum leader's books for one epoch: how far each replica's disk has come, and who has been heard of.

Kept true:
  1. Only a fetch of this epoch whose log agreed enters a position; the books start empty.
  2. What is committed is held by a majority of the voters of the whole log, and reaches into this epoch: records of
     older epochs are committed with the first of the own one, never by count alone (Raft 5.4.2).
  3. A leader that is no voter any more does not count itself.
Left to others: comparing logs, refusing (quorum.py).
"""

from __future__ import annotations

from copy import copy
from typing import Final

from replication.raft.log_view import LogView
from replication.raft.voters import NEVER, Position, ReplicaKey
from tidelog.types import LeaderEpoch, Millis, Offset

REPLICAS_MAX: Final = 1_000
"""The progress of so many replicas is kept, and of all voters."""


class QuorumProgress:
    """Kept by `me`, which leads since `began`; its epoch's first record is to lie at `epoch_start`."""

    def __init__(self, me: ReplicaKey, epoch: LeaderEpoch, began: Millis, epoch_start: Offset) -> None:
        self._me = me
        self.epoch = epoch
        self.began = began
        self.epoch_start = epoch_start
        self.active = False
        """Has this epoch committed anything?"""
        self._positions: dict[ReplicaKey, Position] = {}
        self._heard: dict[ReplicaKey, Millis] = {}

    def copy(self) -> QuorumProgress:
        """Another one that says the same."""
        progress = copy(self)
        progress._positions, progress._heard = dict(self._positions), dict(self._heard)
        return progress

    def takes(self, replica: ReplicaKey, log: LogView) -> bool:
        """True for every voter; of others, which anybody can make up, for the first ones only."""
        return replica in log.voters or replica in self._heard or len(self._heard) < REPLICAS_MAX

    def hear(self, replica: ReplicaKey, at: Millis) -> None:
        """The replica has asked for something in this epoch, whether its log agrees or not."""
        self._heard[replica] = at

    def enter(self, replica: ReplicaKey, durable_offset: Offset, at: Millis) -> None:
        """A fetch of the replica agreed: below `held` its disk has what this log has.

        The last one counts, not the largest: an observer whose log was damaged begins again under the same name.
        """
        self._positions[replica] = Position(durable_offset, at)

    def has_fetched(self, replica: ReplicaKey) -> bool:
        """Has the replica fetched in this epoch?"""
        return replica in self._heard

    def committed(self, log: LogView) -> Offset | None:
        """How far a majority holds the log; None while that is not beyond the start of the own epoch."""
        durable_offset = {replica: int(position.durable_offset) for replica, position in self._positions.items()}
        durable_offset[self._me] = log.durable_offset
        reached = Offset(min(log.voters.reached_by_majority(durable_offset), log.log_end))
        return reached if reached > self.epoch_start else None

    def silence_ms(self, log: LogView, at: Millis) -> int:
        """For how long no majority of the voters, this one included, has fetched."""
        heard = {**self._heard, self._me: at}
        last = log.voters.reached_by_majority({voter: heard.get(voter, NEVER) for voter in log.voters.members})
        return at - max(last, self.began)

    def successors(self, log: LogView) -> tuple[ReplicaKey, ...]:
        """The other voters, those whose disk has most first."""
        others = log.voters.others(self._me)
        return tuple(sorted(others, key=lambda voter: (-self._durable_offset(voter), voter)))

    def caught_up(self, log: LogView, at: Millis, within_ms: int) -> tuple[ReplicaKey, ...]:
        """Replicas, voters or not, that fetched within that time and hold everything committed."""
        return tuple(
            sorted(
                replica
                for replica, position in self._positions.items()
                if at - position.fetched_at <= within_ms and position.durable_offset >= log.high_watermark
            )
        )

    def _durable_offset(self, replica: ReplicaKey) -> Offset:
        position = self._positions.get(replica)
        return Offset(-1) if position is None else position.durable_offset
