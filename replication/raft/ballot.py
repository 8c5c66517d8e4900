"""One round of votes or pre-votes: who was asked, who has answered what.

Kept true: a voter counts once; who does not vote never counts. A vote once granted stays; who would not vote a moment
ago may do so now, when it has not heard its leader for a little longer.
"""

from __future__ import annotations

from copy import copy

from replication.raft.voters import ReplicaKey, VoterSet


class Ballot:
    """Asked of `voters` by `me`, which votes for itself if it is one of them."""

    def __init__(self, voters: VoterSet, me: ReplicaKey) -> None:
        self._voters = voters
        self._granted = {me} & set(voters.members)
        self._refused: set[ReplicaKey] = set()

    def copy(self) -> Ballot:
        """Another one that says the same."""
        ballot = copy(self)
        ballot._granted, ballot._refused = set(self._granted), set(self._refused)
        return ballot

    def record(self, voter: ReplicaKey, granted: bool) -> None:
        """A voter has answered."""
        if granted:
            self._granted.add(voter)
            self._refused.discard(voter)
        elif voter not in self._granted:
            self._refused.add(voter)

    @property
    def won(self) -> bool:
        """Has a majority granted it?"""
        return self._voters.is_majority(self._granted)

    @property
    def lost(self) -> bool:
        """Have so many refused that no majority can grant it any more?"""
        return len(self._voters.members) - len(self._refused & set(self._voters.members)) < self._voters.majority

    @property
    def granting(self) -> tuple[ReplicaKey, ...]:
        """Who has granted it."""
        return tuple(sorted(self._granted))

    @property
    def ungranted(self) -> tuple[ReplicaKey, ...]:
        """Who has not granted it, or not yet."""
        return tuple(voter for voter in self._voters.members if voter not in self._granted)
