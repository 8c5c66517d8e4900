"""Finds out whether the process behind a broken connection has ended: then its address refuses connections.

A connection that breaks, or cannot be made, the end of a follower's stream, or a request of the controller is the
occasion to probe the address of a node. While the address refuses connections, this node is a witness: each heartbeat
to the active controller names that node's registration.

Invariants:
  1. A refusal is attributed to the registration, and to the quorum epoch, that were known before the probe.
  2. A process that is paused or starved accepts connections, and a machine that is down does not answer: neither
     counts as refused.
  3. Probing ends when connections are accepted or not answered several times in a row, or when the node is fenced and
     does not lead the quorum.

Not here: how many witnesses fence a node (replication/controller/refusals.py), elections (replication/raft/quorum.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from node.api.peers import Peers
from node.metadata.metadata_log import MetadataLog
from node.quorum.state import QuorumView
from replication.controller.image import NodeRegistration
from replication.controller.refusals import RefusedNode
from tidelog.clock import Clock
from tidelog.types import Endpoint, LeaderEpoch, NodeEpoch, NodeId

_log = logging.getLogger("node.process_watch")

PROBE_MS: Final = 500
"""Timeout of one probe. An address that refuses connections answers within a round trip."""

PROBE_AGAIN_MS: Final = 50
PROBE_AGAIN_MS_MAX: Final = 400
"""Pause between two probes; it doubles while they are refused, since a node may stay dead and unfenced for as long as
there is no controller."""

ACCEPTED_MAX: Final = 3
"""Probes in a row that were not refused, after which the process counts as running. The sockets of a killed process are
closed one after the other: its connections may break some milliseconds before its address refuses new ones."""


class ProcessWatch:
    """Probes the nodes whose connections failed, from `run` on."""

    def __init__(
        self,
        view: QuorumView,
        metadata: MetadataLog,
        *,
        listeners: tuple[str, ...],
        clock: Clock,
        peers: Peers,
        on_refused: Callable[[], None],
        on_leader_refused: Callable[[LeaderEpoch, NodeId], None],
    ) -> None:
        """listeners: those at which nodes reach each other; the first one is probed. on_refused: called when `refused`
        has a new entry. on_leader_refused: called after each refused probe of the node that leads the quorum, with the
        epoch known before the probe."""
        self._view, self._metadata, self._listeners = view, metadata, listeners
        self._clock, self._peers = clock, peers
        self._tasks: asyncio.TaskGroup | None = None
        self._watched: set[NodeId] = set()
        self._refused: dict[NodeId, NodeEpoch] = {}
        self._on_refused, self._on_leader_refused = on_refused, on_leader_refused
        peers.when_failed.append(self.connection_failed)

    async def run(self) -> None:
        """Probe until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None  # before the probes are cancelled: connections may break meanwhile

    @property
    def refused(self) -> tuple[RefusedNode, ...]:
        """The registrations whose addresses refuse connections, by node id."""
        return tuple(RefusedNode(node_id, self._refused[node_id]) for node_id in sorted(self._refused))

    def connection_failed(self, endpoint: Endpoint) -> None:
        """A connection to this address broke or could not be made: probe the nodes that are registered with it."""
        for node in self._metadata.image.nodes.values():
            if endpoint in (node.listeners.get(listener) for listener in self._listeners):
                self.probe(node.node_id)

    def probe(self, node_id: NodeId) -> None:
        """Probe the node until it is certain that its process runs, or until it is fenced."""
        if self._tasks is not None and node_id not in self._watched and self._wanted(node_id) is not None:
            self._watched.add(node_id)
            self._tasks.create_task(self._watch(node_id), name=f"watch of node {node_id}")

    def _wanted(self, node_id: NodeId) -> NodeRegistration | None:
        """The registration of a node that matters, None for any other: it is fenced already, or is this node."""
        node = self._metadata.image.nodes.get(node_id)
        if node is None or node_id == self._view.node_id or (node.fenced and node_id != self._view.leader_id):
            return None
        return node

    async def _watch(self, node_id: NodeId) -> None:
        left, pause = ACCEPTED_MAX, PROBE_AGAIN_MS
        try:
            while left and (node := self._wanted(node_id)) is not None:
                if await self._probe_once(node):
                    left = ACCEPTED_MAX
                else:
                    left, pause = left - 1, PROBE_AGAIN_MS
                await self._clock.sleep_ms(pause)
                pause = min(2 * pause, PROBE_AGAIN_MS_MAX)
        finally:
            self._watched.discard(node_id)
            self._refused.pop(node_id, None)

    async def _probe_once(self, node: NodeRegistration) -> bool:
        leads, epoch = self._view.leader_id == node.node_id, self._view.leader_epoch
        endpoint = node.listeners.get(self._listeners[0])
        if endpoint is None or not await self._peers.is_refused(endpoint, timeout_ms=PROBE_MS):
            self._refused.pop(node.node_id, None)
            return False
        if self._refused.get(node.node_id) != node.node_epoch:
            self._refused[node.node_id] = node.node_epoch
            _log.info("node %d at %s refuses connections: no process listens there", node.node_id, endpoint)
            self._on_refused()
        if leads:
            self._on_leader_refused(epoch, node.node_id)
        return True
