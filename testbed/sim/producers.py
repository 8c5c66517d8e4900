"""The real producer as a client of a simulated cluster: tidelog.Producer on virtual time and the simulated network.

Invariants: the outcome of each record is recorded (`Sent`) and checked like all others (checkers.py).
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from testbed.sim.checkers import Checkers
from testbed.sim.clock import SimClock
from testbed.sim.workload import Client, Fate, Sent, Transaction
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError
from tidelog.protocol.network import Transport


class SimProducer:
    """An idempotent producer in its own client process."""

    def __init__(
        self,
        client: Client,
        checkers: Checkers,
        drive: Any,
        *,
        run_number: int = 0,
        transport: Transport | None = None,
        **options: Any,
    ) -> None:
        """drive: the world's `run_until`. run_number: number of this producer within its process. transport: None: that
        of the process. options: as of tidelog.Producer."""
        self.run_number = run_number
        self._client, self._checkers, self._drive = client, checkers, drive
        self._numbers = itertools.count()
        self.producer = Producer(
            [str(endpoint) for endpoint in client.bootstrap],
            transport=transport or client.transport,
            clock=SimClock(client.loop),
            rng=client.rng,
            **options,
        )

    @property
    def name(self) -> str:
        """The name of its process, also on the network."""
        return self._client.process.name

    async def start(self) -> None:
        await self.producer.start()

    async def stop(self) -> None:
        """Returns when every record has its outcome."""
        await self.producer.close()

    def send(self, topic: str, value: bytes, partition: int = 0, *, transaction: Transaction | None = None) -> Sent:
        """Queue a record from a task of the producer's process; `.wait()` returns the outcome. transaction: the open
        one."""
        sent = self._announce(topic, value, partition, transaction)
        self._client.start(self._enqueue(sent), f"sends {value[:16]!r}")
        return sent

    async def enqueue(
        self,
        topic: str,
        value: bytes,
        partition: int = 0,
        key: bytes | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> Sent:
        """Queue a record; waits for buffer space and metadata as the producer does. transaction: the open one."""
        sent = self._announce(topic, value, partition, transaction)
        sent.key = key
        await self._enqueue(sent)
        return sent

    def _announce(self, topic: str, value: bytes, partition: int, transaction: Transaction | None = None) -> Sent:
        sent = Sent(topic, partition, value, -1, producer=f"{self.name}.{self.run_number}", drive=self._drive)
        sent.transaction = transaction
        if transaction is not None:
            transaction.sent.append(sent)
        self._checkers.sending(sent)
        return sent

    async def _enqueue(self, sent: Sent) -> None:
        sent.number = next(self._numbers)  # the order of the calls, not of their returns
        try:
            delivery = await self.producer.enqueue(sent.topic, sent.value, sent.key, partition=sent.partition)
        except TidelogError as error:
            self._done(sent, Fate.REFUSED, error)
            return
        delivery.add_done_callback(partial(self._told, sent))

    def _told(self, sent: Sent, delivery: Delivery) -> None:
        if not self._client.process.alive:  # its tasks are removed from memory with the world
            return
        error = delivery.exception()
        view = self.producer._cluster.view.topics.get(sent.topic)
        sent.topic_id = b"" if view is None else view.topic_id.bytes
        if error is None:
            sent.offset = delivery.result().offset
        fate = Fate.ACKNOWLEDGED if error is None else Fate.UNKNOWN if error.written is None else Fate.REFUSED
        self._done(sent, fate, error)

    def _done(self, sent: Sent, fate: Fate, error: TidelogError | None) -> None:
        sent.fate, sent.error = fate, error
        for tell in sent.on_done:
            self._client.loop.call_soon(tell, sent)  # a violation must not become a defect of the producer
