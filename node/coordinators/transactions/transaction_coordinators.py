"""The transaction coordinators of a node, with the markers and producer ids that their decisions need.

Invariants:
  1. A decided transaction is completed when its markers are written. If the coordinator is dropped before, its next
     load writes the markers again, on this node or another one.
  2. A producer id that a decision needs is taken before the decision: a taken id that is not used is lost, never used
     twice.
Not here: decisions (replication/coordination/transactions), loading and appending (node/coordinators/runtime.py).
Source: KIP-98, KIP-890; Kafka's TransactionCoordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from node.api.marker_requests import WriteTxnMarkersAnswer, WriteTxnMarkersRequest
from node.api.peers import Peers
from node.coordinators.coordinator_spec import CoordinatorSpec
from node.coordinators.runtime import CoordinatorRuntime
from node.coordinators.transactions.completing import CompletingTransactions
from node.coordinators.transactions.marker_sender import MarkerSender
from node.coordinators.transactions.transaction_location import TransactionLocation
from node.coordinators.transactions.transaction_verifier import TransactionVerifier
from node.replicas.replica_manager import ReplicaManager
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_requests import CommittedPartition
from replication.coordination.transaction_records import TRANSACTION_RECORDS
from replication.coordination.transaction_requests import (
    AddOrVerifyPartitions,
    AddOrVerifyPartitionsAnswer,
    EndTxn,
    InitTransactionalProducer,
    InitWithProducerId,
    MarkersRefused,
    MarkersWritten,
    ProducerIdNeeded,
    TransactionToVerify,
    VerifiedTransaction,
    WriteMarkers,
)
from replication.coordination.transactions.transaction_config import TransactionConfig
from tidelog.clock import Clock
from tidelog.errors import ConcurrentTransactions, CoordinatorNotAvailable, TidelogError
from tidelog.types import TRANSACTIONS_TOPIC, Millis, PartitionIndex, ProducerId
from tidelog.values import dataclass

if TYPE_CHECKING:
    from replication.coordination.transactions.transaction_machine import TransactionMachine


@dataclass(frozen=True, slots=True)
class TransactionFigures:
    """The transactions that a node coordinates."""

    transactional_ids: int
    open_transactions: int
    """Transactions that are open, or decided and not complete."""
    oldest_age_ms: int
    """Age of the oldest of these; 0 if there is none."""
    markers_waiting: int
    """Markers that are not committed yet."""


class TransactionCoordinators:
    """The coordinators of the transactional ids whose partitions this node leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        location: TransactionLocation,
        *,
        clock: Clock,
        peers: Peers,
        call_soon: Callable[[Callable[[], None]], object],
        why_no_lease: Callable[[], str],
        config: TransactionConfig,
        verifies_batches: bool = True,
        take_producer_id: Callable[[], Awaitable[ProducerId]],
        write_markers: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersAnswer]],
    ) -> None:
        """call_soon: that of the event loop. why_no_lease: see CoordinatorRuntime. verifies_batches: see
        TransactionVerifier. take_producer_id: returns an unused one; may raise a TidelogError. write_markers: appends
        markers to the partitions that this node leads."""
        self.location = location
        self.max_timeout_ms = config.transaction_max_timeout_ms
        self._clock, self._config, self._take = clock, config, take_producer_id
        self._machines: dict[PartitionIndex, TransactionMachine] = {}
        """The machines that are loaded or being loaded, by partition; for metrics."""
        kind = CoordinatorSpec(
            "transaction",
            TRANSACTIONS_TOPIC,
            self._new_machine,
            TRANSACTION_RECORDS.encode,
            TRANSACTION_RECORDS.decode,
            self._carry_out,
            self._unloaded,
        )
        self.runtime = CoordinatorRuntime(kind, replicas, clock=clock, call_soon=call_soon, why_no_lease=why_no_lease)
        self.verifier = TransactionVerifier(
            location, clock=clock, peers=peers, local=self.add_or_verify, verifies_batches=verifies_batches
        )
        """Used by the leaders of partitions on this node."""
        self.markers = MarkerSender(
            location, clock=clock, peers=peers, local=write_markers, report=self._report_markers
        )
        self.completing = CompletingTransactions(self._submit)

    async def run(self) -> None:
        """Load coordinators, verify transactions and send markers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.runtime.run())
            tasks.create_task(self.verifier.run())
            tasks.create_task(self.markers.run())

    # --- requests ---

    async def submit(self, transactional_id: str, request: Any) -> Any:
        """The answer of the coordinator of this id, which waits while the last transaction is completed. Raises as
        `CoordinatorRuntime.submit`, and CoordinatorNotAvailable if the topic does not exist."""
        partition = self.location.partition_of(transactional_id)
        try:
            return await self.runtime.submit(partition, request)
        except ConcurrentTransactions:
            return await self.completing.again(partition, transactional_id, request)

    async def next_producer(self, request: InitTransactionalProducer | EndTxn) -> TransactionalProducer:
        """The answer to a request that may need a producer id that was never assigned. Raises as `submit`."""
        answer: TransactionalProducer | ProducerIdNeeded = await self.submit(request.transactional_id, request)
        while isinstance(answer, ProducerIdNeeded):
            try:
                fresh = await self._take()
            except TidelogError as error:
                raise CoordinatorNotAvailable(
                    f"no producer id for transactional id {request.transactional_id!r}: {error.message}"
                ) from error
            answer = await self.submit(request.transactional_id, InitWithProducerId(request, fresh))
        return answer

    async def add_or_verify(self, request: AddOrVerifyPartitions) -> AddOrVerifyPartitionsAnswer:
        """Decide on each entry. Entries whose last transaction is being completed wait for that; an entry that a
        coordinator cannot decide now gets its error."""
        decisions = [self._begun(entry, self._submit) for entry in request.transactions]
        answers = await _answers(request, decisions)
        concurrent = [number for number, answer in enumerate(answers) if _is_concurrent(answer)]
        if concurrent:
            for number in concurrent:
                decisions[number] = self._begun(request.transactions[number], self._submit_again)
            answers = await _answers(request, decisions)
        return AddOrVerifyPartitionsAnswer(answers)

    def _begun(
        self, entry: TransactionToVerify, submit: Callable[[PartitionIndex, TransactionToVerify], asyncio.Future[Any]]
    ) -> asyncio.Future[Any] | TidelogError:
        try:
            decision = submit(self.location.partition_of(entry.transactional_id), entry)
        except TidelogError as error:
            return error
        decision.add_done_callback(_note_seen)
        return decision

    def _submit(self, partition: PartitionIndex, request: Any) -> asyncio.Future[Any]:
        return self.runtime.coordinator(partition).submit(request)

    def _submit_again(self, partition: PartitionIndex, entry: TransactionToVerify) -> asyncio.Future[Any]:
        return self.completing.again(partition, entry.transactional_id, entry)

    # --- machines ---

    def _new_machine(self, partition: PartitionIndex) -> TransactionMachine:
        # With the first partition that this node leads: others do not need it.
        from replication.coordination.transactions.transaction_machine import TransactionMachine

        machine = self._machines[partition] = TransactionMachine(self._config)
        return machine

    def _carry_out(self, partition: PartitionIndex, effect: object) -> None:
        assert isinstance(effect, WriteMarkers), f"transactions have no effect {effect}"
        self.completing.begin(partition, effect.transactional_id)
        self.markers.write(partition, effect)

    def _unloaded(self, partition: PartitionIndex) -> None:
        self._machines.pop(partition, None)
        self.markers.cancel(partition)
        self.completing.drop(partition)

    def _report_markers(self, partition: PartitionIndex, outcome: MarkersWritten | MarkersRefused) -> None:
        """Report written markers to the coordinator. If it cannot append now, it is loaded again, and writes the
        markers again."""
        if self.runtime.report(partition, outcome):
            self.completing.end(partition, outcome.markers.transactional_id)

    # --- metrics ---

    def figures(self) -> TransactionFigures:
        """The present state, for the metrics."""
        machines = self._machines.values()
        starts = [start for machine in machines if (start := machine.oldest_open_start()) is not None]
        return TransactionFigures(
            sum(len(machine.values) for machine in machines),
            sum(machine.open_transactions for machine in machines),
            max(0, Millis(self._clock.wall_ms() - min(starts))) if starts else 0,
            self.markers.waiting,
        )


def _note_seen(decision: asyncio.Future[Any]) -> None:
    """Mark the error of a decision as read: its caller may not wait any more, and the loop would report the error."""
    if not decision.cancelled():
        decision.exception()


async def _answers(
    request: AddOrVerifyPartitions, decisions: Sequence[asyncio.Future[Any] | TidelogError]
) -> tuple[VerifiedTransaction, ...]:
    """Wait for all decisions."""
    waiting = [each for each in decisions if isinstance(each, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting)
    entries = zip(request.transactions, decisions, strict=True)
    return tuple(_verified(entry, decision) for entry, decision in entries)


def _is_concurrent(answer: VerifiedTransaction) -> bool:
    return any(isinstance(partition.error, ConcurrentTransactions) for partition in answer.partitions)


def _verified(entry: TransactionToVerify, decision: asyncio.Future[Any] | TidelogError) -> VerifiedTransaction:
    error = decision if isinstance(decision, TidelogError) else decision.exception()
    if error is None:
        assert isinstance(decision, asyncio.Future), "it is no error"
        verified: VerifiedTransaction = decision.result()
        return verified
    if not isinstance(error, TidelogError):
        raise error
    return VerifiedTransaction(entry.transactional_id, _refused(entry, error))


def _refused(entry: TransactionToVerify, error: TidelogError) -> tuple[CommittedPartition, ...]:
    return tuple(CommittedPartition(each.topic, each.partition, error) for each in entry.partitions)
