"""A scripted transaction coordinator: what Kafka's decides and has written, without its own log.

Kept true: a transaction is decided once, and its markers are appended again until they are committed in every
partition; they bear the next producer epoch, so that what comes late from the transaction's own is refused (KIP-890).
It forgets nothing when it dies; who takes over has a higher coordinator epoch and finishes what was begun.
Left to others: appending a marker (views.py), whether readers are told the truth (readings.py, ledger.py).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.sim import views
from tests.sim.process import ProcessState
from tests.sim.workload import Client, Transaction

if TYPE_CHECKING:
    from tests.sim.world import Simulation


class Coordinator:
    """Of one transactional id. `epoch`: which coordinator it is by now."""

    DIES: float = 0.15
    """How often it dies between two markers."""

    def __init__(self, sim: Simulation, producer_id: int, rng: random.Random) -> None:
        self._sim, self._rng = sim, rng
        self.producer_id, self.producer_epoch = producer_id, 0
        self.epoch = 0
        self._current: Transaction | None = None

    async def init(self, client: Client) -> None:
        """Another instance of the producer begins: what an earlier one left open is aborted (InitProducerId)."""
        if self._current is not None:
            await self.end(client, self._current, commit=False)
        self.producer_epoch += 1

    def begin(self) -> Transaction:
        """A transaction of the present instance."""
        self._current = Transaction(self.producer_id, self.producer_epoch, marker_epoch=self.producer_epoch + 1)
        return self._current

    async def end(self, client: Client, transaction: Transaction, *, commit: bool) -> None:
        """Decide, and have the leaders append the markers until they are committed."""
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
        for place in died:  # what the one that died had sent arrives late
            append_marker(self._sim, transaction, *place, coordinator_epoch=self.epoch - 1)


def unmarked(sim: Simulation, transaction: Transaction) -> list[tuple[str, int]]:
    """The partitions of a transaction in which its marker is not committed."""
    return [place for place in transaction.places if transaction.marker not in sim.ledger(*place).markers]


def append_marker(
    sim: Simulation, transaction: Transaction, topic: str, partition: int, *, coordinator_epoch: int = 0
) -> None:
    """Have the leader of a partition append the marker of a decided transaction; nothing happens where it cannot."""
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
