"""Where the nodes of the metadata quorum are reached: by their registrations, the voters' record, or as found.

Kept true: an address where the node itself was met goes before what the log says of it, until nobody answers there. A
request of another node never adds an address: only answers to this node's own questions do.
Left to others: who leads (driver.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from node.metadata.metadata_log import MetadataLog
from replication.raft.voters import ReplicaKey, Voter
from tidelog.types import Endpoint, NodeId


class QuorumAddresses:
    """The address book of one node."""

    def __init__(self, node_id: NodeId, own: Endpoint, nodes: Sequence[Endpoint], metadata: MetadataLog, listener: str):
        """own: where this node is reached. nodes: the initial list. listener: by which nodes reach each other."""
        self._me, self._own, self._nodes = node_id, own, tuple(nodes)
        self._metadata, self._listener = metadata, listener
        self._met: dict[NodeId, Endpoint] = {}
        self._keys: dict[Endpoint, ReplicaKey] = {}
        self._first_voters: tuple[Voter, ...] = ()

    def expect(self, voters: tuple[Voter, ...]) -> None:
        """The voters of a cluster that is about to be formed."""
        self._first_voters = voters

    def met(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """That node answers there, or says so itself."""
        self._met[node_id] = endpoint

    def introduced(self, endpoint: Endpoint, key: ReplicaKey) -> None:
        """The replica that answered there said who it is."""
        self._keys[endpoint] = key
        self.met(key.node_id, endpoint)

    def key_at(self, endpoint: Endpoint) -> ReplicaKey | None:
        """The replica that answered there last; None where none has."""
        return self._keys.get(endpoint)

    def missed(self, endpoint: Endpoint) -> None:
        """Nobody could be reached there, or another replica than was meant."""
        self._keys.pop(endpoint, None)
        for node_id in [node_id for node_id, met in self._met.items() if met == endpoint]:
            del self._met[node_id]

    def of(self, node_id: NodeId) -> Endpoint | None:
        """Where the node is reached, None where that is not known."""
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
        """Wherever another node of the quorum may be: voters first, then the initial list."""
        voters = [self.of(voter.node_id) for voter in self._metadata.voters if voter.node_id != self._me]
        found = (*voters, *self._nodes)
        return tuple(dict.fromkeys(each for each in found if each is not None and each != self._own))

    def of_voters(self) -> dict[NodeId, Endpoint | None]:
        """Where each voter is reached, None: it is this node. Without those whose address is not known."""
        found = {voter.node_id: self.of(voter.node_id) for voter in self._metadata.voters}
        known = {node_id: each for node_id, each in sorted(found.items()) if each is not None or node_id == self._me}
        return {node_id: None if node_id == self._me else each for node_id, each in known.items()}
