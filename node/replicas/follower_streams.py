"""The stream on which each follower fetches from this node.

Invariants:
  1. Of the streams of one follower process only the latest is served. The order is that in which this node accepted the
     streams: it does not depend on anything that a request contains.
  2. An earlier stream ends with an error as soon as a later one names the same process, and a stream that names the
     process after a later one did ends at once. The follower reconnects and takes over again, so a request that forges
     the follower's identity has no effect beyond one reconnect.
  3. Only a process that is registered in the metadata takes over.

Not here: what a fetch says (replication/partition/leader.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from node.replicas.waiting_fetch import FollowerIdentity
from replication.controller.image import ClusterImage
from replication.partition.leader_events import Session
from tidelog.errors import InvalidRequest
from tidelog.types import NodeId


class FollowerStreams:
    """The latest stream of each follower process."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._latest: dict[NodeId, tuple[FollowerIdentity, Callable[[InvalidRequest], None]]] = {}

    def next_number(self) -> Session:
        """Number of the next stream; higher than all before."""
        return Session(next(self._numbers))

    def take_over(
        self, follower: FollowerIdentity, replace: Callable[[InvalidRequest], None], image: ClusterImage
    ) -> None:
        """A request names this follower. replace: ends its stream, once a later one of the follower takes over. Raises
        InvalidRequest if a later one exists."""
        latest, end_latest = self._latest.get(follower.node_id, (None, replace))
        if latest is follower:
            return
        node = image.nodes.get(follower.node_id)
        if node is None or node.incarnation != follower.incarnation:
            return  # each partition refuses its fetches
        if latest is not None and latest.incarnation == follower.incarnation and latest.session != follower.session:
            outdated = InvalidRequest(
                f"this stream of node {follower.node_id} is outdated: the node has fetched on a later one"
            )
            if latest.session > follower.session:
                raise outdated
            end_latest(outdated)
        self._latest[follower.node_id] = follower, replace
