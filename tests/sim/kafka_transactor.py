"""A transactional producer that speaks Kafka's protocol in a simulated world, with transaction version 2 (KIP-890).

As Kafka's clients do, it sends the records of a transaction to the leaders and asks the coordinator for nothing before,
takes its next epoch from the answer to EndTxn, repeats what may be repeated, and aborts after any other error. A record
may be given up while its request is still on its way: its transaction is aborted, and the record must not appear later.

What it is told about each transaction goes through the checkers like that of tidelog.Producer (transactors.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from testbed.sim.clock import WORLD_BEGAN_MS
from testbed.sim.coordinated_transactions import CoordinatedTransaction, Instance
from testbed.sim.ledger import Violation
from testbed.sim.workload import Client, Fate, Sent, record_of
from tests.sim.kafka_client import DUPLICATE_SEQUENCE_NUMBER, KafkaClient, Place, message_of, produce_request, raise_for
from tidelog.errors import RequestTimedOut, Retry, TidelogError, TransactionAbortable
from tidelog.records import build_batch
from tidelog.types import Endpoint, Millis

if TYPE_CHECKING:
    from testbed.sim.world import Simulation

TRANSACTIONS: Final = 1
"""The kind of coordinator that FindCoordinator is asked for."""


class OpenKafkaTransaction:
    """An open transaction of an instance, for the function that fills it."""

    def __init__(self, transactor: SimKafkaTransactor, judged: CoordinatedTransaction) -> None:
        self.judged = judged
        self.is_aborted = False
        self._transactor = transactor

    @property
    def client(self) -> Client:
        """The process of its producer."""
        return self._transactor.client

    async def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> Sent:
        """Write a record of the transaction. Raises the error that ends it."""
        sent = self._transactor.announced(self.judged, (topic, partition), value)
        sent.key = key
        await self._transactor.write(sent)
        return sent

    async def abort(self) -> None:
        """Have the transaction aborted when the function returns."""
        self.is_aborted = True


Fill = Callable[[OpenKafkaTransaction], Awaitable[object]]


class SimKafkaTransactor:
    """One instance of a transactional id. over: why it must end; None while it may continue."""

    def __init__(
        self,
        sim: Simulation,
        transactional_id: str,
        *,
        client: Client | None = None,
        delivery_s: float = 10.0,
        transaction_timeout_ms: int = 60_000,
        repeats_ends: bool = False,
    ) -> None:
        """client: its process; None: a new one. delivery_s: after this time a record is given up. repeats_ends: each
        EndTxn is sent once more, as if its answer had been lost."""
        self.client = sim.client() if client is None else client
        self.instance = Instance(transactional_id, self.client.process.name)
        self.over: TidelogError | None = None
        self._sim, self._kafka = sim, KafkaClient(self.client)
        self._coordination = sim.coordination
        self._delivery_s, self._timeout_ms, self._repeats_ends = delivery_s, transaction_timeout_ms, repeats_ends
        self._coordinator: Endpoint | None = None
        self._sequences: dict[Place, int] = {}
        self._name = f"{self.client.process.name}.{next(self._coordination.transactions.instance_numbers)}"
        self._numbers = itertools.count()

    # --- requests to the coordinator ---

    async def stop(self) -> None:
        """End the instance. No transaction is open."""
        self._kafka.close()

    async def start(self) -> None:
        """Get a producer id and an epoch. Raises the refusal."""
        request = message_of("InitProducerId").InitProducerIdRequest(self.instance.transactional_id, self._timeout_ms)
        self._identified(await self._ask("InitProducerId", request))

    async def _ask(self, api: str, request: Any) -> Any:
        """The answer of the coordinator to a request that is repeated until there is one. Raises the refusal."""
        while True:
            try:
                answer = await (await self._kafka.wire(await self._found())).ask(api, request)
                raise_for(answer.error_code, f"{api} of {self.instance.transactional_id}")
            except TidelogError as error:
                self._coordinator = None
                if error.retry is Retry.NEVER:
                    raise
                await self.client.pause()
            else:
                return answer

    async def _found(self) -> Endpoint:
        """Where the coordinator is. Raises what a connection raises, and CoordinatorNotAvailable."""
        if self._coordinator is None:
            keys = (self.instance.transactional_id,)
            request = message_of("FindCoordinator").FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=keys)
            wire = await self._kafka.any_wire()
            (found,) = (await wire.ask("FindCoordinator", request)).coordinators
            raise_for(found.error_code, f"the coordinator of {self.instance.transactional_id}")
            if wire.transaction_version < 2:  # its node had not read the metadata
                wire.close()
                raise RequestTimedOut("version 2 of transactions is not announced")
            self._coordinator = Endpoint(found.host, found.port)
        return self._coordinator

    def _identified(self, answer: Any) -> None:
        producer = answer.producer_id, answer.producer_epoch
        self._coordination.transactions.began(self.instance, producer, self.client.loop.now_us)
        self._sequences.clear()

    async def end(self, *, committed: bool) -> None:
        """End the transaction. Raises the refusal, and Violation if the answer is not what the coordinator has decided:
        each end gives the producer the next epoch, however often it is asked for."""
        name, (producer_id, epoch) = self.instance.transactional_id, self.instance.producer
        request = message_of("EndTxn").EndTxnRequest(name, producer_id, epoch, committed)
        answer = await self._ask("EndTxn", request)
        if self._repeats_ends:
            answer = await self._ask("EndTxn", request)
        ended = (
            f"{self.instance.name} was told that {name} in epoch {epoch} is {'committed' if committed else 'aborted'}"
        )
        decision = self._coordination.decisions.of((producer_id, epoch + 1))
        if decision is not committed:
            raise Violation(f"{ended}, and its log says {decision}")
        if (answer.producer_id, answer.producer_epoch) != (producer_id, epoch + 1):
            raise Violation(f"{ended}, and was given producer id {answer.producer_id}, epoch {answer.producer_epoch}")
        self._identified(answer)

    # --- records ---

    def announced(self, transaction: CoordinatedTransaction, place: Place, value: bytes) -> Sent:
        """A new record of a transaction, as the checkers know it."""
        sent = Sent(*place, value, -1, producer=self._name, number=next(self._numbers), transaction=transaction)
        transaction.sent.append(sent)
        self._sim.checkers.sending(sent)
        return sent

    async def write(self, sent: Sent) -> None:
        """Send a record until it is acknowledged or given up. Raises the error that ends the transaction."""
        place = sent.topic, sent.partition
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        data = self.batch(sent, self.instance.producer[1], sequence)
        until = self.client.loop.time() + self._delivery_s
        while True:
            try:
                sent.offset = await self.attempt(sent, data)
            except TidelogError as error:
                self._kafka.forget(place)
                if error.retry is Retry.NEVER or self.client.loop.time() > until:
                    self._done(sent, Fate.UNKNOWN)
                    raise
                await self.client.pause()
            else:
                self._done(sent, Fate.ACKNOWLEDGED if sent.offset >= 0 else Fate.UNKNOWN)
                return

    def batch(self, sent: Sent, epoch: int, sequence: int) -> bytes:
        """A batch with this record."""
        now = Millis(WORLD_BEGAN_MS + self.client.loop.now_us // 1_000)
        return build_batch(
            [record_of(sent, now)],
            producer_id=self.instance.producer[0],
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    async def attempt(self, sent: Sent, data: bytes) -> int:
        """Send a batch once. Returns its offset; -1 if it was written before and the leader does not know where. Raises
        the error of the answer, and what a connection raises."""
        place = sent.topic, sent.partition
        known = await self._kafka.place(place)
        sent.topic_id, sent.attempts = known.topic_id, sent.attempts + 1
        request = produce_request(known, sent.partition, data, -1, self.instance.transactional_id)
        answer = await (await self._kafka.wire(known.leader)).ask("Produce", request)
        asked = UUID(bytes=known.topic_id), sent.partition
        found = self._kafka.only_partition(asked, answer.responses, "partition_responses", "index")
        if found.error_code != DUPLICATE_SEQUENCE_NUMBER:
            raise_for(found.error_code, f"a batch of {place}")
        return int(found.base_offset)

    def _done(self, sent: Sent, fate: Fate) -> None:
        sent.fate = fate
        for tell in sent.on_done:
            self.client.loop.call_soon(tell, sent)

    # --- transactions ---

    async def transact(self, fill: Fill) -> CoordinatedTransaction:
        """Run one transaction. Returns it with what its client was told of its outcome."""
        judged = self._coordination.transactions.begin(self.instance)
        opened = OpenKafkaTransaction(self, judged)
        try:
            await fill(opened)
            commits = not opened.is_aborted and bool(judged.sent)
        except TidelogError:
            commits = False
        try:
            await self.end(committed=commits)
        except TidelogError as error:
            await self._not_ended(judged, error, commits=commits)
        else:
            self._coordination.transactions.told(judged, committed=commits)
        return judged

    async def _not_ended(self, judged: CoordinatedTransaction, error: TidelogError, *, commits: bool) -> None:
        """The end is refused: the transaction was aborted, or a newer instance has begun, as any other error tells.
        Then the transaction may have been committed before, and the answer lost."""
        if not (commits and isinstance(error, TransactionAbortable)):
            self.over = error
            return
        try:
            await self.end(committed=False)
        except TidelogError as refusal:
            self.over = refusal
        else:
            self._coordination.transactions.told(judged, committed=False)
