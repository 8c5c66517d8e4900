"""Formation of a cluster, once: by the configured node, after all nodes of its list have answered that they belong to
no cluster.

Invariants (scenario 16): if any directory of the list ever belonged to a cluster, no other cluster is formed; a node
with an emptied directory does not form the cluster again. If another node's log names voters, this node joins them.
Not here: the election and the first records of the log (node/quorum/driver.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from node.api.peers import Peers
from node.api.quorum_requests import IntroduceAnswer, IntroduceRequest
from node.api.table import QUORUM_INTRODUCE
from node.quorum.checks import directory_id_of, key_of
from replication.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.clock import Clock
from tidelog.errors import CorruptLog, InconsistentClusterId, InvalidConfig, TidelogError
from tidelog.types import Endpoint, NodeId

_log = logging.getLogger("node.quorum")

ASK_TIMEOUT_MS = 2_000
ASK_AGAIN_MS = 200


class ClusterFormation:
    """Queries every node of the initial list until all have answered."""

    def __init__(
        self, node_id: NodeId, nodes: Sequence[Endpoint], *, listener: str, clock: Clock, peers: Peers
    ) -> None:
        """nodes: addresses of the initial list, which may include this node's own. listener: name of the listener
        between nodes."""
        self._me, self._nodes, self._listener = node_id, tuple(dict.fromkeys(nodes)), listener
        self._clock, self._peers = clock, peers

    async def choose_voters(self, me: Voter, own_cluster: str | None, count: int) -> tuple[Voter, ...]:
        """The voters of the new cluster, including this node, once every node has answered that it never belonged to a
        cluster. Empty if this node only has to join: its cluster is formed already, or its directory was emptied and a
        majority of the voters are other nodes.

        own_cluster: the cluster that this node belongs to, or began to form before it stopped; None for none. Raises
        InconsistentClusterId if a node belongs to another cluster that this node cannot join, InvalidConfig if two
        nodes have the same id, CorruptLog if only this node had the cluster's log and it is gone.
        """
        others: dict[NodeId, Voter] = {}
        async with asyncio.TaskGroup() as asking:
            tasks = {asking.create_task(self._ask(endpoint)): endpoint for endpoint in self._nodes}
            waiting = set(tasks)
            while waiting:
                answered, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(answered, key=lambda task: str(tasks[task])):
                    if self._has_only_to_join(me, own_cluster, tasks[task], task.result()):
                        for late in waiting:
                            late.cancel()
                        return ()
                    self._enter(tasks[task], task.result(), others)
        return (me, *(others[node_id] for node_id in sorted(others)[: count - 1]))

    def _has_only_to_join(
        self, me: Voter, own_cluster: str | None, endpoint: Endpoint, answer: IntroduceAnswer
    ) -> bool:
        if answer.node_id == self._me:
            return False
        voters = VoterSet(tuple(key_of(voter) for voter in answer.voters))
        if voters.members == (ReplicaKey(me.node_id, me.directory_id),):
            raise CorruptLog(
                f"node {self._me} is the only voter of cluster {answer.cluster_id}, and its metadata log is gone: "
                "restore its metadata directory"
            )
        elsewhere = [voter for voter in voters.members if voter.node_id != self._me]
        if voters.is_majority(elsewhere) and own_cluster in (None, answer.cluster_id):
            return True
        if answer.cluster_id and answer.cluster_id != own_cluster:
            raise self._belongs(endpoint, answer, own_cluster)
        return False

    def _enter(self, endpoint: Endpoint, answer: IntroduceAnswer, others: dict[NodeId, Voter]) -> None:
        node_id = NodeId(answer.node_id)
        if node_id == self._me:
            return
        if node_id in others:
            raise InvalidConfig(
                f"two nodes of controller.quorum.bootstrap.servers have the id {node_id}: make node ids unique"
            )
        others[node_id] = Voter(node_id, directory_id_of(answer.directory_id), {self._listener: endpoint})

    def _belongs(self, endpoint: Endpoint, answer: IntroduceAnswer, own_cluster: str | None) -> InconsistentClusterId:
        own = f"this directory began to form cluster {own_cluster}" if own_cluster else "this directory belongs to none"
        return InconsistentClusterId(
            f"node {self._me} is configured to form a cluster, but node {answer.node_id} at {endpoint} belongs to "
            f"cluster {answer.cluster_id} already, and {own}: the metadata directory of node {self._me} was "
            "emptied or replaced. Restore it, or empty the directories of all nodes to form a new cluster"
        )

    async def _ask(self, endpoint: Endpoint) -> IntroduceAnswer:
        said = ""
        while True:
            try:
                return await self._peers.call(
                    endpoint, QUORUM_INTRODUCE, IntroduceRequest(self._me), timeout_ms=ASK_TIMEOUT_MS
                )
            except TidelogError as error:
                if error.message != said:
                    said = error.message
                    _log.info("forming a cluster: waiting for %s: %s", endpoint, said)
                await self._clock.sleep_ms(ASK_AGAIN_MS)
