"""Who votes in the metadata quorum, and what a majority of them has said or holds.

A voter is a node and one directory of it (KIP-853): the same node with another directory is somebody else.
Left to others: how the set changes (voter_changes.py), what is done with a majority (quorum.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.types import DirectoryId, Endpoint, NodeId, Offset


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """One replica of the metadata log, voter or not: a node and the directory in which it keeps the log."""

    node_id: NodeId
    directory_id: DirectoryId

    def __str__(self) -> str:
        return f"node {self.node_id} (directory {self.directory_id})"


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the metadata quorum: a node and the directory that votes (KIP-853)."""

    node_id: NodeId
    directory_id: DirectoryId
    listeners: Mapping[str, Endpoint]


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, by node id; at most one directory of a node is among them."""

    members: tuple[ReplicaKey, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """The set that a voters record names."""
        return cls(tuple(sorted(ReplicaKey(voter.node_id, voter.directory_id) for voter in voters)))

    def __contains__(self, replica: object) -> bool:
        return replica in self.members

    @property
    def majority(self) -> int:
        """The least number of voters of which any two groups have one in common."""
        return len(self.members) // 2 + 1

    def others(self, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """All but this one."""
        return tuple(voter for voter in self.members if voter != me)

    def is_majority(self, replicas: Collection[ReplicaKey]) -> bool:
        """Are these enough? Who is no voter does not count."""
        return bool(self.members) and sum(voter in replicas for voter in self.members) >= self.majority

    def reached_by_majority(self, positions: Mapping[ReplicaKey, int]) -> int:
        """The largest position that a majority has reached; who is not named has reached nothing (-1)."""
        if not self.members:
            return -1
        reached = sorted((positions.get(voter, -1) for voter in self.members), reverse=True)
        return reached[self.majority - 1]


NO_VOTERS: Final = VoterSet()
"""Before the first voters record."""


@dataclass(frozen=True, slots=True)
class Position:
    """What the leader knows of one replica in its epoch.

    held: everything below is on its disk. fetched_at: when its last fetch that agreed came (milliseconds, monotonic).
    """

    durable_offset: Offset
    fetched_at: int


NEVER: Final = -(1 << 60)
"""A time before all others."""
