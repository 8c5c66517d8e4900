"""A scripted transaction coordinator: it decides as Kafka's does and has markers written, without its own log.

Invariants: a transaction is decided once, and its markers are appended again until they are committed in every
partition. They have the next producer epoch, so that late requests of the transaction's own epoch are refused
(KIP-890). The coordinator loses no state when it dies; its successor has a higher coordinator epoch and completes the
open work. Not here: the append of a marker (views.py), the check of readers (readings.py, ledger.py).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from testbed.sim import views
from testbed.sim.process import ProcessState
from testbed.sim.workload import Client, Transaction

if TYPE_CHECKING:
    from testbed.sim.world import Simulation


class Coordinator:
    """The coordinator of one transactional ID. `epoch`: the current coordinator epoch."""

    DIES: float = 0.15
    """The probability that it dies between two markers."""

    def __init__(self, sim: Simulation, producer_id: int, rng: random.Random) -> None:
        self._sim, self._rng = sim, rng
        self.producer_id, self.producer_epoch = producer_id, 0
        self.epoch = 0
        self._current: Transaction | None = None

    async def init(self, client: Client) -> None:
        """A new instance of the producer starts: abort what an earlier one left open (InitProducerId)."""
        if self._current is not None:
            await self.end(client, self._current, commit=False)
        self.producer_epoch += 1

    def begin(self) -> Transaction:
        """A new transaction of the present instance."""
        self._current = Transaction(self.producer_id, self.producer_epoch, marker_epoch=self.producer_epoch + 1)
        return self._current

    async def end(self, client: Client, transaction: Transaction, *, commit: bool) -> None:
        """Decide, and make the leaders append the markers until they are committed."""
        self._current = None
        self.producer_epoch = transaction.marker_epoch
        transaction.committed = commit
        died: list[tuple[str, int]] = []
        while missing := unmarked(self._sim, transaction):
            for place in missing:
                if not died and self._rng.random() < self.DIES:
                    died = missing
                    self.epoch += 1
                append_marker(self._sim, transaction, *place, coordinator_epoch=self.epoch)
            await client.pause()
        for place in died:  # late requests of the coordinator that died
            append_marker(self._sim, transaction, *place, coordinator_epoch=self.epoch - 1)


def unmarked(sim: Simulation, transaction: Transaction) -> list[tuple[str, int]]:
    """The partitions of a transaction in which its marker is not committed."""
    return [place for place in transaction.places if transaction.marker not in sim.ledger(*place).markers]


def append_marker(
    sim: Simulation, transaction: Transaction, topic: str, partition: int, *, coordinator_epoch: int = 0
) -> None:
    """Make the leader of a partition append the marker of a decided transaction; no effect if it cannot."""
    assert transaction.committed is not None, "an open transaction has no marker"
    machine = sim.machines.get(sim.leader(topic, partition))
    if machine is None or machine.node is None or machine.process is None:
        return
    if machine.process.state is not ProcessState.PAUSED:
        key = sim.partition(topic, partition).key
        machine.process.run(
            views.append_marker,
            machine.node,
            key,
            *transaction.marker,
            commit=transaction.committed,
            coordinator_epoch=coordinator_epoch,
        )
