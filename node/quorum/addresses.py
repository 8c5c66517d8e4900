"""Addresses of the metadata quorum's nodes: from their registrations, from the voters record, or as found.

Invariants: an address at which the node itself answered has priority over the log's, until it no longer answers there.
A request of another node never adds an address; only answers to this node's own queries do.
Not here: which node leads (driver.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from node.metadata.metadata_log import MetadataLog
from replication.raft.voters import ReplicaKey, Voter
from tidelog.types import Endpoint, NodeId


class QuorumAddresses:
    """Addresses of the other nodes as known to one node."""

    def __init__(
        self, node_id: NodeId, *, own: Endpoint, nodes: Sequence[Endpoint], metadata: MetadataLog, listener: str
    ) -> None:
        """own: this node's address. nodes: the configured list. listener: name of the listener between nodes."""
        self._me, self._own, self._nodes = node_id, own, tuple(nodes)
        self._metadata, self._listener = metadata, listener
        self._met: dict[NodeId, Endpoint] = {}
        self._keys: dict[Endpoint, ReplicaKey] = {}
        self._first_voters: tuple[Voter, ...] = ()

    def expect(self, voters: tuple[Voter, ...]) -> None:
        """Set the voters of a cluster that is being formed."""
        self._first_voters = voters

    def met(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """The node answered at this address, or reported it as its own."""
        self._met[node_id] = endpoint

    def introduced(self, endpoint: Endpoint, key: ReplicaKey) -> None:
        """The replica at this address identified itself."""
        self._keys[endpoint] = key
        self.met(key.node_id, endpoint)

    def key_at(self, endpoint: Endpoint) -> ReplicaKey | None:
        """The replica that last answered at this address; None if none has."""
        return self._keys.get(endpoint)

    def missed(self, endpoint: Endpoint) -> None:
        """No replica, or another one than expected, was reached at this address."""
        self._keys.pop(endpoint, None)
        for node_id in [node_id for node_id, met in self._met.items() if met == endpoint]:
            del self._met[node_id]

    def of(self, node_id: NodeId) -> Endpoint | None:
        """The node's address; None if unknown."""
        met = self._met.get(node_id)
        if met is not None:
            return met
        node = self._metadata.image.nodes.get(node_id)
        registered = None if node is None else node.listeners.get(self._listener)
        if registered is not None:
            return registered
        voters = (*self._metadata.voters, *self._first_voters)
        return next((voter.listeners.get(self._listener) for voter in voters if voter.node_id == node_id), None)

    def all_others(self) -> tuple[Endpoint, ...]:
        """Every address of another quorum node: voters first, then the configured list."""
        voters = [self.of(voter.node_id) for voter in self._metadata.voters if voter.node_id != self._me]
        found = (*voters, *self._nodes)
        return tuple(dict.fromkeys(each for each in found if each is not None and each != self._own))

    def of_voters(self) -> dict[NodeId, Endpoint | None]:
        """The address of each voter, None for this node. Voters with an unknown address are omitted."""
        found = {voter.node_id: self.of(voter.node_id) for voter in self._metadata.voters}
        known = {node_id: each for node_id, each in sorted(found.items()) if each is not None or node_id == self._me}
        return {node_id: None if node_id == self._me else each for node_id, each in known.items()}
