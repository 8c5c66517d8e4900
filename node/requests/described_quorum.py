"""The replicas of the metadata log and their positions, which only the leader of the quorum knows.

Invariant: a request is passed on once: a node that is taken for the leader and is not answers with an error.
Source: Kafka's DescribeQuorum (KIP-595, KIP-836).
"""

from __future__ import annotations

from typing import Final

from node.api.admin_requests import DescribeQuorumAnswer, DescribeQuorumRequest, QuorumReplica
from node.api.peers import Peers
from node.api.table import ADMIN_DESCRIBE_QUORUM
from node.metadata.metadata_log import MetadataLog
from node.quorum.driver import QuorumDriver
from node.quorum.state import QuorumView
from replication.raft.voters import ReplicaKey, Voter
from tidelog.clock import Clock
from tidelog.errors import NotLeaderOrFollower
from tidelog.types import Millis, Offset

QUERY_MS: Final = 3_000
"""Timeout of the leader's answer."""

OBSERVER_MS: Final = 300_000
"""An observer that has not fetched for this long is not shown, as in Kafka."""

_UNKNOWN: Final = Millis(-1)


class DescribedQuorum:
    """Describes the quorum for the callers of a node."""

    def __init__(
        self, quorum: QuorumDriver, metadata: MetadataLog, view: QuorumView, *, clock: Clock, peers: Peers
    ) -> None:
        self._quorum, self._metadata, self._view = quorum, metadata, view
        self._clock, self._peers = clock, peers

    async def describe(self, request: DescribeQuorumRequest) -> DescribeQuorumAnswer:
        """The quorum as its leader knows it. Raises NotLeaderOrFollower, and the errors of a call to the leader."""
        if self._view.leads:
            return self._own()
        endpoint = self._view.endpoint
        if request.is_forwarded or endpoint is None:
            raise NotLeaderOrFollower(
                f"node {self._view.node_id} does not lead the metadata quorum, and "
                + ("a leader was expected here" if request.is_forwarded else "knows no leader: try again later"),
                leader=self._view.address(),
            )
        asked = DescribeQuorumRequest(is_forwarded=True)
        return await self._peers.call(endpoint, ADMIN_DESCRIBE_QUORUM, asked, timeout_ms=QUERY_MS)

    def _own(self) -> DescribeQuorumAnswer:
        voters = {ReplicaKey(each.node_id, each.directory_id): each for each in self._metadata.voters}
        positions = {} if self._quorum.core is None else self._quorum.core.positions
        since = self._clock.monotonic_ms() - OBSERVER_MS
        observers = [key for key, each in positions.items() if key not in voters and each.fetched_at >= since]
        return DescribeQuorumAnswer(
            self._view.leader_id,
            self._view.leader_epoch,
            self._metadata.high_watermark,
            tuple(self._replica(key, voters[key]) for key in sorted(voters)),
            tuple(self._replica(key) for key in sorted(observers)),
        )

    def _replica(self, key: ReplicaKey, voter: Voter | None = None) -> QuorumReplica:
        """The state of a replica. voter: None if it does not vote."""
        listeners = {} if voter is None else voter.listeners
        now = self._clock.wall_ms()
        if key == self._quorum.me:
            return QuorumReplica(key.node_id, key.directory_id, self._metadata.end, _UNKNOWN, now, listeners)
        position = None if self._quorum.core is None else self._quorum.core.positions.get(key)
        if position is None:
            return QuorumReplica(key.node_id, key.directory_id, Offset(-1), _UNKNOWN, _UNKNOWN, listeners)
        fetched = Millis(now - (self._clock.monotonic_ms() - position.fetched_at))
        is_caught_up = position.durable_offset >= self._metadata.high_watermark
        caught_up = fetched if is_caught_up else _UNKNOWN
        return QuorumReplica(key.node_id, key.directory_id, position.durable_offset, fetched, caught_up, listeners)
