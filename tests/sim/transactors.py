"""Real transactional producers: tidelog.Producer with a transactional id, one instance in each client process.

An instance runs one transaction after the other until it is fenced, or until it cannot know an outcome. Its world may
kill or pause it at any moment and start the next instance of the same transactional id. What it is told about each
transaction, and what it sends after a newer instance has begun, is judged (coordinated_transactions.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from testbed.sim.coordinated_transactions import CoordinatedTransaction, Instance
from testbed.sim.producers import SimProducer
from testbed.sim.watched_transport import WatchedTransport
from testbed.sim.workload import Client, Sent
from tidelog.client.transaction import Transaction
from tidelog.errors import ProducerFenced, TidelogError, TransactionOutcomeUnknown

if TYPE_CHECKING:
    from testbed.sim.world import Simulation


class OpenTransaction:
    """An open transaction of an instance, for the function that fills it. real: the one of the producer."""

    def __init__(self, transactor: SimTransactor, judged: CoordinatedTransaction, real: Transaction) -> None:
        self.judged, self.real = judged, real
        self.is_aborted = False
        self._transactor = transactor

    @property
    def client(self) -> Client:
        """The process of its producer."""
        return self._transactor.client

    async def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> Sent:
        """Queue a record of the transaction. Raises why it cannot be queued: a block that went on would commit the
        offsets of its source without it."""
        sent = await self._transactor.producer.enqueue(topic, value, partition, key, transaction=self.judged)
        if sent.error is not None:
            raise sent.error
        return sent

    async def abort(self) -> None:
        await self.real.abort()
        self.is_aborted = True


Fill = Callable[[OpenTransaction], Awaitable[object]]


class SimTransactor:
    """One instance of a transactional id. over: why it must end; None while it may continue."""

    def __init__(self, sim: Simulation, transactional_id: str, *, client: Client | None = None, **options: Any) -> None:
        """client: its process; None: a new one. options: as of tidelog.Producer."""
        self.client = sim.client() if client is None else client
        self.instance = Instance(transactional_id, self.client.process.name)
        self.over: TidelogError | None = None
        self._transactions = sim.coordination.transactions
        transport = WatchedTransport(
            self.client.transport, sim.loop, sim.coordination, name=self.instance.name, instance=self.instance
        )
        self.producer = SimProducer(
            self.client,
            sim.checkers,
            sim.run_until,
            run_number=next(self._transactions.instance_numbers),
            transport=transport,
            transactional_id=transactional_id,
            **options,
        )

    async def start(self) -> None:
        await self.producer.start()

    async def stop(self) -> None:
        """End the instance; an open transaction is aborted."""
        await self.producer.stop()

    async def transact(self, fill: Fill) -> CoordinatedTransaction:
        """Run one transaction. Returns it with what its client was told of its outcome."""
        judged = self._transactions.begin(self.instance)
        opened: OpenTransaction | None = None
        try:
            async with self.producer.producer.transaction() as real:
                opened = OpenTransaction(self, judged, real)
                await fill(opened)
        except TidelogError as error:
            if error.written is False:
                self._transactions.told(judged, committed=False)
            if isinstance(error, TransactionOutcomeUnknown | ProducerFenced):
                self.over = error
        else:
            assert opened is not None
            self._transactions.told(judged, committed=not opened.is_aborted)
        return judged
