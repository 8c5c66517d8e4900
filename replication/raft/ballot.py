"""One round of votes or pre-votes and its answers.

Invariants: a voter counts once; a replica that is not a voter never counts. A granted vote stays granted. A voter that
refused may grant the vote in a later answer, after it has lost contact with its leader.
"""

from __future__ import annotations

from copy import copy

from replication.raft.voters import ReplicaKey, VoterSet


class Ballot:
    """One round of votes among `voters`, started by `me`, which votes for itself if it is a voter."""

    def __init__(self, voters: VoterSet, me: ReplicaKey) -> None:
        self._voters = voters
        self._granted = {me} & set(voters.members)
        self._refused: set[ReplicaKey] = set()

    def copy(self) -> Ballot:
        """Return an independent copy."""
        ballot = copy(self)
        ballot._granted, ballot._refused = set(self._granted), set(self._refused)
        return ballot

    def record(self, voter: ReplicaKey, granted: bool) -> None:
        """Record a voter's answer."""
        if granted:
            self._granted.add(voter)
            self._refused.discard(voter)
        elif voter not in self._granted:
            self._refused.add(voter)

    @property
    def won(self) -> bool:
        """True if a majority granted the vote."""
        return self._voters.is_majority(self._granted)

    @property
    def lost(self) -> bool:
        """True if so many voters refused that a majority is no longer possible."""
        return len(self._voters.members) - len(self._refused & set(self._voters.members)) < self._voters.majority

    @property
    def granting(self) -> tuple[ReplicaKey, ...]:
        """The replicas that granted the vote."""
        return tuple(sorted(self._granted))

    @property
    def ungranted(self) -> tuple[ReplicaKey, ...]:
        """The voters that have not granted the vote."""
        return tuple(voter for voter in self._voters.members if voter not in self._granted)
