"""Asks transaction coordinators whether a partition is part of a transaction, before a leader appends its first batch.

With transaction version 2 the request also adds the partition to the transaction (KIP-890).

Invariants:
  1. A guard is taken from the log before each request: an answer admits no batch if a marker was appended in between.
  2. Several requests are under way to a node, since one may wait until the last transaction of its producer is
     complete.
  3. Every question is answered, at the latest when `run` ends.

Not here: guards (storage/producers/verification.py), the coordinator's decision
(replication/coordination/transactions).
Source: KIP-890; Kafka's AddPartitionsToTxnManager and ReplicaManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from node.api.peers import Peers
from node.api.table import TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS
from node.coordinators.transactions.node_requests import NodeRequests
from node.coordinators.transactions.transaction_location import TransactionLocation
from replication.coordination.group_requests import NamedPartition
from replication.coordination.transaction_requests import (
    AddOrVerifyPartitions,
    AddOrVerifyPartitionsAnswer,
    TransactionToVerify,
)
from storage.producers.verification import NOTHING_VERIFIED, VERSION_2, VerificationGuard
from tidelog.clock import Clock
from tidelog.errors import (
    ConcurrentTransactions,
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    NodeNotAvailable,
    NodeShuttingDown,
    NotCoordinator,
    ProducerFenced,
    RequestTimedOut,
    TidelogError,
    UnknownServerError,
)
from tidelog.types import Millis, NodeId, ProducerId
from tidelog.values import dataclass

RETRY_MS_MAX: Final = 1_000
"""How long a leader repeats a question that cannot be answered yet. The usual cause is the end of the transaction
before, whose markers are being written. Afterwards the producer repeats the batch."""

PAUSE_MS_MIN: Final = 2
"""The first pause before a question is repeated; each further one is 1 ms longer. The markers of a transaction take
some milliseconds, so that longer steps would delay the next transaction."""

CALL_TIMEOUT_MS: Final = 3_000
"""The longest wait for the answer of a coordinator."""

_log = logging.getLogger("node.transactions")

_NOT_NOW: Final = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable)


@dataclass(frozen=True, slots=True)
class TransactionOf:
    """The transaction of a batch, as its producer says. verify_only: transaction version 1."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    verify_only: bool


@dataclass(eq=False, slots=True)
class _Question:
    transaction: TransactionOf
    partition: NamedPartition
    answer: asyncio.Future[TidelogError | None]


class TransactionVerifier:
    """The questions of one node to transaction coordinators."""

    def __init__(
        self,
        location: TransactionLocation,
        *,
        clock: Clock,
        peers: Peers,
        local: Callable[[AddOrVerifyPartitions], Awaitable[AddOrVerifyPartitionsAnswer]],
        verifies_batches: bool = True,
    ) -> None:
        """location: which node coordinates a transactional id. local: the coordinators of this node. verifies_batches:
        False: batches of version 1 are appended unasked (`transaction.partition.verification.enable`)."""
        self._verifies_batches = verifies_batches
        self._location, self._clock, self._peers, self._local = location, clock, peers, local
        self._requests = NodeRequests(self._send)

    async def run(self) -> None:
        """Send the questions until cancelled."""
        try:
            await self._requests.run()
        finally:
            _settle(self._requests.unsent(), _stopping())

    def asks_before(self, transaction_version: int) -> bool:
        """Return True if the coordinator is asked before a transaction's first batch in a partition. With version 2 it
        always is: nobody else adds the partition."""
        return self._verifies_batches or transaction_version >= VERSION_2

    async def verify(
        self,
        transaction: TransactionOf,
        partition: NamedPartition,
        begin: Callable[[], VerificationGuard],
        deadline: Millis,
    ) -> VerificationGuard:
        """The guard with which the batch may be appended at once.

        begin: takes a guard from the log, NOTHING_VERIFIED if none is needed. deadline: monotonic time.
        Raises what `begin` raises; the coordinator's refusal; ConcurrentTransactions, CoordinatorLoadInProgress or
        CoordinatorNotAvailable if it could not decide in time: the producer repeats the batch.
        """
        give_up = min(deadline, Millis(self._clock.monotonic_ms() + RETRY_MS_MAX))
        pause_ms = PAUSE_MS_MIN
        while True:
            guard = begin()
            if guard is NOTHING_VERIFIED:
                return guard
            error = await self._ask(transaction, partition)
            if error is None:
                return guard
            if not isinstance(error, _NOT_NOW) or self._clock.monotonic_ms() + pause_ms >= give_up:
                raise error
            await self._clock.sleep_ms(pause_ms)
            pause_ms += 1

    async def _ask(self, transaction: TransactionOf, partition: NamedPartition) -> TidelogError | None:
        """The coordinator's error; None: the partition is part of the open transaction."""
        if self._requests.tasks is None:
            return _stopping()
        try:
            node = self._location.node_of(transaction.transactional_id)
        except TidelogError as error:
            return error
        answer: asyncio.Future[TidelogError | None] = asyncio.get_running_loop().create_future()
        question = _Question(transaction, partition, answer)
        self._requests.add(node, question, question)
        return await answer

    async def _send(self, node: NodeId, questions: list[_Question]) -> None:
        try:
            await self._ask_node(node, [question for question in questions if not question.answer.done()])
        finally:
            _settle(questions, _stopping())

    async def _ask_node(self, node: NodeId, questions: list[_Question]) -> None:
        grouped: dict[TransactionOf, list[_Question]] = {}
        for question in questions:
            grouped.setdefault(question.transaction, []).append(question)
        request = AddOrVerifyPartitions(tuple(_to_verify(*each) for each in grouped.items()))
        try:
            answer = await self._call(node, request)
            _distribute(answer, list(grouped.values()))
        except TidelogError as error:
            _settle(questions, _of_producer(error))

    async def _call(self, node: NodeId, request: AddOrVerifyPartitions) -> AddOrVerifyPartitionsAnswer:
        if node == self._location.me:
            try:
                return await self._local(request)
            except TidelogError:
                raise
            except Exception as defect:
                _log.exception("a defect of a transaction coordinator of this node")
                raise UnknownServerError(f"the transaction could not be verified: {defect!r}") from defect
        endpoint = self._location.endpoint(node)
        return await self._peers.call(
            endpoint, TRANSACTIONS_ADD_OR_VERIFY_PARTITIONS, request, timeout_ms=CALL_TIMEOUT_MS
        )


def _to_verify(transaction: TransactionOf, questions: list[_Question]) -> TransactionToVerify:
    return TransactionToVerify(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.verify_only,
        tuple(question.partition for question in questions),
    )


def _distribute(answer: AddOrVerifyPartitionsAnswer, asked: list[list[_Question]]) -> None:
    """Give each question its answer. Raises UnknownServerError for an answer of another size than the request's."""
    sizes = [len(each.partitions) for each in answer.transactions]
    if sizes != [len(questions) for questions in asked]:
        raise UnknownServerError("a transaction coordinator did not answer what it was asked: check its version")
    for transaction, questions in zip(answer.transactions, asked, strict=True):
        for outcome, question in zip(transaction.partitions, questions, strict=True):
            _settle([question], None if outcome.error is None else _of_producer(outcome.error))


def _settle(questions: Iterable[_Question], error: TidelogError | None) -> None:
    """Answer the questions that are not answered yet and whose callers still wait."""
    for question in questions:
        if not question.answer.done():
            question.answer.set_result(error)


def _of_producer(error: TidelogError) -> TidelogError:
    """The error as a producer gets it. Another coordinator is looked up by this node, not by the producer. A fenced
    producer gets the error of its batches in the log (KIP-588)."""
    unreachable = (NotCoordinator, ConnectionFailed, RequestTimedOut, NodeNotAvailable, NodeShuttingDown)
    if isinstance(error, unreachable):
        return CoordinatorNotAvailable(f"the transaction could not be verified: {error.message}")
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    return error


def _stopping() -> TidelogError:
    return CoordinatorNotAvailable("the transaction could not be verified: this node is stopping; send again")
