"""Forming a cluster, once: by the node told to, after all nodes of its list have said that they belong to none.

Kept true (scenario 16): where any folder of the list ever belonged to a cluster, no other cluster is formed; an emptied
folder does not make one anew.
Left to others: the first records of the log (quorum_driver.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from node import methods
from node.clock import Clock
from node.transport import Transport
from tidelog.errors import InconsistentClusterId, TidelogError
from tidelog.types import Endpoint, NodeId
from tidelog.v1 import quorum_pb2

_log = logging.getLogger("node.quorum")

ASK_TIMEOUT_MS = 2_000
ASK_AGAIN_MS = 200


class ClusterFormation:
    """Asks every node of the initial list until all have answered."""

    def __init__(self, node_id: NodeId, nodes: Sequence[Endpoint], *, clock: Clock, transport: Transport) -> None:
        """nodes: addresses of the initial list; this node's own may be among them."""
        self._me, self._nodes = node_id, tuple(nodes)
        self._clock, self._transport = clock, transport

    async def ensure_none_belongs(self, own_cluster: str | None) -> None:
        """Return once every node has answered that it never belonged to a cluster.

        own_cluster: the cluster that this node began to form before it stopped; None: none. Raises
        InconsistentClusterId where a node belongs to one.
        """
        async with asyncio.TaskGroup() as asking:
            answers = [asking.create_task(self._ask(endpoint)) for endpoint in self._nodes]
        for endpoint, answer in zip(self._nodes, (task.result() for task in answers), strict=True):
            if answer.cluster_id and answer.node_id != self._me:
                own = f"its own began to form cluster {own_cluster}" if own_cluster else "its own belongs to none"
                raise InconsistentClusterId(
                    f"node {self._me} was told to form a cluster, but node {answer.node_id} at {endpoint} belongs to "
                    f"cluster {answer.cluster_id} already, and {own}: the metadata folder of node {self._me} was "
                    "emptied or replaced. Give it back; or, to begin anew, empty the folders of all nodes"
                )

    async def _ask(self, endpoint: Endpoint) -> quorum_pb2.IntroduceResponse:
        said = ""
        while True:
            try:
                return await self._transport.call(
                    endpoint,
                    methods.QUORUM_INTRODUCE,
                    quorum_pb2.IntroduceRequest(node_id=self._me),
                    timeout_ms=ASK_TIMEOUT_MS,
                )
            except TidelogError as error:
                if error.message != said:
                    said = error.message
                    _log.info("forming a cluster waits for %s: %s", endpoint, said)
                await self._clock.sleep_ms(ASK_AGAIN_MS)
