"""The metadata log as the quorum's rules see it: a value, given anew whenever something of the log has moved."""

from __future__ import annotations

from dataclasses import dataclass

from replication.raft.voters import NO_VOTERS, ReplicaKey, VoterSet
from tidelog.types import NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot of everything below `end_offset`, the last record of which was written in `epoch` (KIP-630)."""

    end_offset: Offset
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class LogView:
    """One replica of the metadata log.

    held: everything below is on the disk. epochs: where each leader epoch begins. voters: by the last voters record of
    the whole log, committed or not; voters_end: one past that record, 0 if it is applied; voters_before: the set that
    it replaced. snapshot: the newest one at or above the log start, which stands for what was before it.
    """

    log_start: Offset = Offset(0)
    log_end: Offset = Offset(0)
    durable_offset: Offset = Offset(0)
    high_watermark: Offset = Offset(0)
    epochs: tuple[EpochStart, ...] = ()
    voters: VoterSet = NO_VOTERS
    voters_end: Offset = Offset(0)
    snapshot: SnapshotId | None = None
    voters_before: VoterSet = NO_VOTERS

    def may_stand(self, replica: ReplicaKey) -> bool:
        """May this replica, whose log it is, be elected?

        Also while it is not known that the record that removes it is committed: it may be the only one that has that
        record, and then no shorter log gets its vote (Raft's thesis, 4.2.2).
        """
        return replica in self.voters or (self.high_watermark < self.voters_end and replica in self.voters_before)

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record; of the snapshot, where no record follows it; -1 for an empty log."""
        for entry in reversed(self.epochs):
            if entry.start_offset < self.log_end:
                return entry.epoch
        if self.snapshot is not None and self.snapshot.end_offset == self.log_end:
            return self.snapshot.epoch
        return NO_LEADER_EPOCH

    @property
    def position(self) -> tuple[LeaderEpoch, Offset]:
        """Of two logs, the one with the larger position has everything that is committed in the other (Raft 5.4.1)."""
        return self.last_epoch, self.log_end
