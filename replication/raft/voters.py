"""Voters of the metadata quorum, and the arithmetic of their majorities.

A voter is a node together with one of its directories (KIP-853): the same node with another directory is another voter.
Not here: changes of the set (replication/controller/voter_changes.py), decisions by majority (quorum.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tidelog.types import DirectoryId, Endpoint, NodeId, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """One replica of the metadata log, voter or not: a node and the directory that contains the log."""

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
    """The voters, by node id. It contains at most one directory of each node."""

    members: tuple[ReplicaKey, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """The set that a voters record names."""
        return cls(tuple(sorted(ReplicaKey(voter.node_id, voter.directory_id) for voter in voters)))

    def __contains__(self, replica: object) -> bool:
        return replica in self.members

    @property
    def majority(self) -> int:
        """Smallest number of voters such that any two groups of this size have a voter in common."""
        return len(self.members) // 2 + 1

    def others(self, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """All voters except this one."""
        return tuple(voter for voter in self.members if voter != me)

    def is_majority(self, replicas: Collection[ReplicaKey]) -> bool:
        """Whether these replicas include a majority of the voters. Other replicas do not count."""
        return bool(self.members) and sum(voter in replicas for voter in self.members) >= self.majority

    def reached_by_majority(self, positions: Mapping[ReplicaKey, int]) -> int:
        """Largest position that a majority has reached. A voter without a position counts as -1."""
        if not self.members:
            return -1
        reached = sorted((positions.get(voter, -1) for voter in self.members), reverse=True)
        return reached[self.majority - 1]


NO_VOTERS: Final = VoterSet()
"""The set before the first voters record."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position of one replica, as the leader tracks it in its epoch."""

    durable_offset: Offset
    """All records below it are on the replica's disk."""
    fetched_at: int
    """Arrival of its last agreed fetch (monotonic milliseconds)."""


NEVER: Final = -(1 << 60)
"""A time before all others."""
