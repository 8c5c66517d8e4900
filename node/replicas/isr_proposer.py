"""Proposals of in-sync sets to the controller: one request at a time, with the proposals of all partitions.

Invariants: each proposal that is sent is answered once, as accepted or failed. A later proposal for a partition
replaces an unsent one. A failed proposal may still take effect, so the core counts members of both sets.
Not here: finding the controller and retrying (the function given to the constructor), the proposed set (the core).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from node.replicas.isr_changes import IsrChanges
from node.replicas.replica_config import ReplicaConfig
from replication.controller import events
from replication.controller.events import AlteredPartition, AlteredPartitions
from replication.partition.leader_events import ProposalAccepted, ProposeIsr
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.types import NodeEpoch, NodeId, PartitionKey

_log = logging.getLogger("node.isr")

AlterPartition: TypeAlias = Callable[[events.AlterPartition], Awaitable[AlteredPartitions]]
"""Sends the request to the active controller and returns its answer. Raises TidelogError."""

PARTITIONS_MAX: Final = 1_000
"""Partitions in one request: some 100 KiB."""


class _Queued(NamedTuple):
    partition: object
    """For the log output: its text is the partition's name."""
    proposal: ProposeIsr
    ended: Callable[[ProposalAccepted | None], None]


class IsrProposer:
    """The queue of proposals of one node, and the task that sends them."""

    def __init__(
        self,
        me: NodeId,
        alter_partition: AlterPartition,
        *,
        clock: Clock,
        config: ReplicaConfig,
        changes: IsrChanges | None = None,
    ) -> None:
        """changes: counts the proposals that fail."""
        self._me = me
        self._changes = IsrChanges() if changes is None else changes
        self._alter_partition = alter_partition
        self._clock = clock
        self._config = config
        self._queue: dict[PartitionKey, _Queued] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self.node_epoch = NodeEpoch(-1)
        """The registration of this node."""

    def propose(
        self,
        key: PartitionKey,
        partition: object,
        proposal: ProposeIsr,
        ended: Callable[[ProposalAccepted | None], None] = lambda _accepted: None,
    ) -> None:
        """Send the proposal with the next request. ended: called with the committed state; None: it was rejected, or
        was not answered."""
        self._queue[key] = _Queued(partition, proposal, ended)
        self._wake.set()

    def stop(self) -> None:
        """Send no further requests; `run` returns once the current one is answered."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Send proposals until stopped."""
        while not self._stopping:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = {key: self._queue.pop(key) for key in list(self._queue)[:PARTITIONS_MAX]}
            await self._send(batch)

    async def _send(self, batch: dict[PartitionKey, _Queued]) -> None:
        proposals = tuple(_proposal(key, queued.proposal) for key, queued in batch.items())
        request = events.AlterPartition(self._me, self.node_epoch, proposals)
        answers: tuple[AlteredPartition, ...] = ()
        try:
            async with asyncio.timeout(self._config.alter_timeout_ms / 1000):
                answers = (await self._alter_partition(request)).partitions
        except (TidelogError, TimeoutError) as error:
            _log.info("%d in-sync set proposals failed and are retried: %s", len(batch), error)
        outcomes = {answer.key: answer.outcome for answer in answers}
        for key, queued in batch.items():
            outcome, accepted = outcomes.get(key), None
            if isinstance(outcome, TidelogError):
                _log.info("%s: the controller rejected the proposed in-sync set: %s", queued.partition, outcome.message)
            elif outcome is not None:
                now = self._clock.monotonic_ms()
                accepted = ProposalAccepted(outcome.leader_epoch, outcome.partition_epoch, outcome.isr, now)
            if accepted is None:
                self._changes.failed_proposals += 1
            queued.ended(accepted)


def _proposal(key: PartitionKey, proposal: ProposeIsr) -> events.Proposal:
    members = tuple(events.IsrMember(node, epoch) for node, epoch in proposal.members)
    return events.Proposal(key, proposal.leader_epoch, proposal.partition_epoch, members)
