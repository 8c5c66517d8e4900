"""The metadata log as the quorum's rules see it: an immutable value, replaced whenever the log changes."""

from __future__ import annotations

from replication.raft.voters import NO_VOTERS, ReplicaKey, VoterSet
from tidelog.types import NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot of all records below `end_offset`, the last of which was written in `epoch` (KIP-630)."""

    end_offset: Offset
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class MetadataLogView:
    """One replica of the metadata log."""

    log_start: Offset = Offset(0)
    log_end: Offset = Offset(0)
    durable_offset: Offset = Offset(0)
    """All records below it are on disk."""
    high_watermark: Offset = Offset(0)
    epochs: tuple[EpochStart, ...] = ()
    """The first offset of each leader epoch."""
    voters: VoterSet = NO_VOTERS
    """The set in the last voters record of the whole log, committed or not."""
    voters_end: Offset = Offset(0)
    """One past that record; 0 if it is applied."""
    snapshot: SnapshotId | None = None
    """The newest snapshot at or above the log start; it replaces the records before it."""
    voters_before: VoterSet = NO_VOTERS
    """The set that `voters` replaced."""

    def may_stand(self, replica: ReplicaKey) -> bool:
        """Whether this replica, the owner of the log, may be elected.

        This includes a removed voter while the removal is not known to be committed: it may be the only replica that
        has the record, and then no shorter log gets its vote (Raft's thesis, 4.2.2).
        """
        return replica in self.voters or (self.high_watermark < self.voters_end and replica in self.voters_before)

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Epoch of the last record; of the snapshot if no record follows it; -1 for an empty log."""
        for entry in reversed(self.epochs):
            if entry.start_offset < self.log_end:
                return entry.epoch
        if self.snapshot is not None and self.snapshot.end_offset == self.log_end:
            return self.snapshot.epoch
        return NO_LEADER_EPOCH

    @property
    def position(self) -> tuple[LeaderEpoch, Offset]:
        """Epoch of the last record, and log end. The log with the larger position has every record that is committed in
        the other (Raft 5.4.1)."""
        return self.last_epoch, self.log_end
