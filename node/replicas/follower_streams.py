"""The stream on which each follower fetches from this node.

Invariant: of the streams of one follower process only the latest is served. The order is that in which this node
accepted the streams: it does not depend on anything that a request contains. An earlier stream ends with an error, and
its follower reconnects and takes over again, so a request that forges a follower's identity has no effect beyond one
reconnect.

Not here: the meaning of a fetch (replication/partition/leader.py).
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
        """Make the stream whose request names this follower the served one. replace: ends the stream, called when a
        later one takes over. Raises InvalidRequest if a later stream of the process exists already."""
        latest, end_latest = self._latest.get(follower.node_id, (None, replace))
        if latest is follower:
            return
        node = image.nodes.get(follower.node_id)
        # An unregistered process must not end the streams of a registered one. Each partition refuses its fetches.
        if node is None or node.incarnation != follower.incarnation:
            return
        if latest is not None and latest.incarnation == follower.incarnation and latest.session != follower.session:
            outdated = InvalidRequest(
                f"this stream of node {follower.node_id} is outdated: the node has fetched on a later one"
            )
            if latest.session > follower.session:
                raise outdated
            end_latest(outdated)
        self._latest[follower.node_id] = follower, replace
