"""The driver of a producer's transactions: passes calls of the application to the core, and makes the core's calls to
the coordinators.

Invariants: a call to a coordinator is finished even if the application's caller is cancelled. When a transaction ends,
each of its records has its outcome and none is waiting.
Not here: decisions (transaction_core.py), records (transactional_core.py), the application's side (transaction.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import ATTEMPT_MS, CoordinatorKind, Coordinators
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_offsets import GroupOffsets, OffsetCommitted, offset_to_commit
from tidelog.client.produce_stream import TRANSACTION_VERSION
from tidelog.client.producer_events import Effect, Flushed, Policy
from tidelog.client.transaction_core import (
    Ask,
    AskEnd,
    AskOffsets,
    AskProducerId,
    Call,
    Done,
    Opened,
    PreparedTransaction,
    RecordsRefused,
    TransactionalState,
    TransactionCore,
    TransactionEffect,
    TransactionPolicy,
    needs_lookup,
)
from tidelog.client.transactional_core import NO_TRANSACTION, TransactionalCore
from tidelog.clock import Clock
from tidelog.errors import InvalidTxnState, TidelogError, TransactionOutcomeUnknown
from tidelog.protocol import methods
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Endpoint, Millis, ProducerId, TopicPartition

_log = logging.getLogger("tidelog.producer")

_COMMITTING: Final = "the transaction is being committed: send records before its block ends"


class ProducerTransactions:
    """The transactions of one producer, one at a time."""

    def __init__(
        self,
        policy: TransactionPolicy,
        of_records: Policy,
        clock: Clock,
        rng: Random,
        execute: Callable[[Sequence[Effect]], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        has_waiting_calls: Callable[[], bool],
    ) -> None:
        """execute: carries out effects of the producer core. spawn: starts a task of the producer. has_waiting_calls:
        whether a call waits until its records can be queued."""
        self.records = TransactionalCore(of_records, rng)
        """The core of the producer's records."""
        self._core = TransactionCore(policy, rng)
        self._policy, self._clock, self._rng = policy, clock, rng
        self._execute, self._spawn, self._has_waiting_calls = execute, spawn, has_waiting_calls
        self._cluster: Cluster | None = None
        self._coordinators: Coordinators | None = None
        self._caller: asyncio.Future[None] | None = None
        """Done when the application's call that is under way has ended; None without a call."""
        self._turn = asyncio.Lock()
        """Locked by the application's call that is under way."""
        self._member: Callable[[], GroupMetadata] | None = None
        """Returns the identity of the committer of the offsets that are being added."""
        self._stopped: TidelogError | None = None
        """Why the producer has ended; None while it runs."""
        self._ensure_here: Callable[[], None] = lambda: None

    def start(self, cluster: Cluster, ensure_here: Callable[[], None]) -> None:
        """Called when the producer has started. ensure_here: raises outside of the event loop of the producer."""
        self._cluster, self._coordinators = cluster, Coordinators(cluster, self._rng)
        self._ensure_here = ensure_here

    def stop(self, reason: TidelogError) -> None:
        """Called when the producer has ended: fail the call that is under way. A transaction without a request to
        commit is aborted, at the latest by its timeout."""
        self._stopped = reason
        self._core.records_failed(reason)  # the records have their outcomes
        if self._caller is not None and not self._caller.done():
            if self._core.state is TransactionalState.ABORTING:
                self._caller.set_result(None)
                return
            if self._core.state is TransactionalState.COMMITTING:
                error: TidelogError = TransactionOutcomeUnknown(
                    f"it is unknown whether the transaction of {self._policy.transactional_id!r} was committed: "
                    f"{reason.message}. A new producer with the same transactional id ends it"
                )
                error.__cause__ = reason
                reason = error
            self._caller.set_exception(reason)
            self._caller.exception()  # mark it as read: a cancelled caller does not wait for it

    # --- calls of the application -------------------------------------------------------------------------------

    @property
    def has_open(self) -> bool:
        """Whether a transaction is open, or ends at this moment."""
        return self._core.state in (
            TransactionalState.OPEN,
            TransactionalState.ABORT_ONLY,
            TransactionalState.COMMITTING,
            TransactionalState.ABORTING,
        )

    @property
    def identity(self) -> tuple[ProducerId, int]:
        """The present producer id and epoch; NO_PRODUCER_ID before the first transaction."""
        return self._core.identity

    async def begin(self) -> None:
        """Open a transaction. The first one requests a producer id, which ends a transaction that an earlier producer
        of the transactional id has left open. Raises the reason after `max_block_ms`; ProducerFenced,
        InvalidTxnState."""
        if self._turn.locked():
            raise self._core.refusal()
        async with self._turn:
            await self._settled()
            try:
                await self._perform(lambda: self._core.begin(self._clock.monotonic_ms()))
            except asyncio.CancelledError:
                self._when_settled(self._abandon)
                raise

    async def add_offsets(
        self,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetCommitted],
        member: Callable[[], GroupMetadata] | None = None,
    ) -> None:
        """Commit offsets of a group with the open transaction. member: returns the committer's identity for an attempt,
        or raises CommitFailed. Raises TransactionAborted, ProducerFenced."""
        async with self._turn:
            await self._settled()
            self._member = member
            at, has_member = self._clock.monotonic_ms(), member is not None
            await self._perform(lambda: self._core.add_offsets(group, offsets, at, has_member=has_member))

    async def committed_offsets(self, group_id: str, *, require_stable: bool) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group. require_stable: wait until no open transaction may change one.
        Raises the last error after `max_block_ms`."""
        assert self._coordinators is not None, "a transaction begins after the start"
        offsets = GroupOffsets(self._coordinators, self._policy.max_block_ms)
        who = GroupMetadata(group_id)
        found = await offsets.fetch(group_id, None, lambda: who, require_stable=require_stable)
        return {key: each.committed for key, each in found.items() if each is not None}

    async def commit(self) -> None:
        """Send all queued records, then commit. Raises TransactionAborted, TransactionOutcomeUnknown,
        ProducerFenced."""
        await self._finish(lambda: self._core.commit(self._clock.monotonic_ms(), has_written=self.records.has_written))

    async def prepare(self) -> PreparedTransaction:
        """Send all queued records, then leave the transaction to another process, which ends it. Raises
        TransactionAborted, ProducerFenced."""
        await self._finish(lambda: self._core.prepare(has_written=self.records.has_written))
        return self._core.prepared()

    async def _finish(self, decide: Callable[[], list[TransactionEffect]]) -> None:
        """Send all queued records, then end the transaction as `decide` does. Aborts it, and raises the reason, if a
        part of it has failed."""
        try:
            self.records.refuse_records(InvalidTxnState(_COMMITTING))
            if self._has_waiting_calls():
                self.fail(
                    InvalidTxnState(
                        "a call was still waiting to queue its records when the block of its transaction ended: await "
                        "each call inside the block"
                    )
                )
            await self._flush()
            async with self._turn:
                await self._settled()
                if self._core.state is not TransactionalState.ABORT_ONLY:
                    await self._perform(decide)
                    return
        except asyncio.CancelledError:
            if self._core.state in (TransactionalState.OPEN, TransactionalState.ABORT_ONLY):
                self._when_settled(self._abandon)
            raise
        reason = await self.abort()
        assert reason is not None, "the transaction has failed"
        raise reason

    async def abort(self) -> TidelogError | None:
        """Abort the open transaction. Returns the reason if the transaction had failed before, or if the producer has.
        Does not raise errors of the coordinator: the abort is certain before it answers."""
        async with self._turn:
            await self._settled()
            reason = self._core.reason()
            is_open = self._core.state in (TransactionalState.OPEN, TransactionalState.ABORT_ONLY)
            if is_open and self._stopped is None:
                try:
                    await self._perform(self._decide_abort)
                except asyncio.CancelledError:
                    self._when_settled(self._abandon)
                    raise
                if self._core.has_failed:  # the coordinator has answered that this producer is fenced
                    reason = self._core.reason()
        return reason

    def fail(self, error: TidelogError) -> None:
        """Note that a part of the open transaction failed: the transaction can only be aborted."""
        self._apply(self._core.records_failed(error))

    def refusal(self) -> TidelogError:
        """Return the error of a call that is not possible now."""
        return self._core.refusal()

    async def _flush(self) -> None:
        """Wait until each record of the transaction has its outcome."""
        outcomes = [batch.outcome for batch in self.records.unfinished()]
        self._execute(self.records.handle(Flushed(self._clock.monotonic_ms())))
        for outcome in outcomes:
            outcome.is_read = True  # the error of the transaction reports it
            await outcome.wait()

    async def _settled(self) -> None:
        """Wait for the end of a call whose caller was cancelled."""
        if self._caller is not None:
            await asyncio.wait([self._caller])

    def _decide_abort(self) -> list[TransactionEffect]:
        return self._core.abort(self._clock.monotonic_ms(), has_written=self.records.has_written)

    async def _perform(self, decide: Callable[[], list[TransactionEffect]]) -> None:
        """Carry out a call of the application, and wait for its end. decide: passes it to the core."""
        self._ensure_here()
        caller = self._caller = asyncio.get_running_loop().create_future()
        try:
            if self._stopped is not None:
                raise type(self._stopped)(self._stopped.message) from self._stopped.__cause__
            self._apply(decide())
        except BaseException:
            self._caller = None
            raise
        await asyncio.shield(caller)

    def _when_settled(self, then: Callable[[], None]) -> None:
        """Call back when the call under way has ended, or at once if there is none."""
        if self._caller is None:
            then()
        else:
            self._caller.add_done_callback(lambda _: then())

    def _abandon(self) -> None:
        """Abort the transaction in the background: the caller that opened it was cancelled."""
        if (
            self._core.state in (TransactionalState.OPEN, TransactionalState.ABORT_ONLY)
            and not self._core.is_busy
            and self._cluster is not None
        ):
            self._caller = asyncio.get_running_loop().create_future()
            self._apply(self._decide_abort())

    # --- the core and I/O ---------------------------------------------------------------------------------------

    def _apply(self, effects: Iterable[TransactionEffect]) -> None:
        for effect in effects:
            match effect:
                case Ask():
                    self._spawn(self._ask(effect), "ask a coordinator")
                case Opened(producer_id, epoch):
                    self.records.begin_transaction(producer_id, epoch)
                case RecordsRefused(reason):
                    self._execute(self.records.drop_records(reason, self._clock.monotonic_ms()))
                case Done(error):
                    self._done(error)

    def _done(self, error: TidelogError | None) -> None:
        """End the application's call."""
        if self._core.state in (TransactionalState.NEW, TransactionalState.READY):
            self.records.refuse_records(InvalidTxnState(NO_TRANSACTION))
        caller, self._caller = self._caller, None
        assert caller is not None, "a call is under way"
        if caller.done():
            return
        if error is None:
            caller.set_result(None)
        else:
            caller.set_exception(error)
            caller.exception()  # mark it as read: a cancelled caller does not read it

    async def _ask(self, ask: Ask) -> None:
        assert self._coordinators is not None, "a transaction begins after the start"
        kind, key = self._coordinator_of(ask.call)
        if ask.pause_ms:
            await self._clock.sleep_ms(ask.pause_ms)
        is_applied: bool | None = False
        try:
            endpoint = await self._coordinators.find(kind, key, timeout_ms=self._left_ms(ask.until))
            try:
                effects = await self._call(endpoint, ask.call, min(ATTEMPT_MS, self._left_ms(ask.until)))
            except TidelogError as error:
                is_applied = error.written
                if needs_lookup(error):
                    self._coordinators.forget(kind, key, endpoint)
                raise
        except TidelogError as error:
            self._apply(self._core.call_failed(error, is_applied, self._clock.monotonic_ms()))
        else:
            self._apply(effects)

    def _left_ms(self, until: Millis) -> int:
        return max(1, until - self._clock.monotonic_ms())

    def _coordinator_of(self, call: Call) -> tuple[CoordinatorKind, str]:
        if isinstance(call, AskOffsets):
            return CoordinatorKind.GROUP, call.group.group_id
        return CoordinatorKind.TRANSACTION, self._policy.transactional_id

    async def _call(self, to: Endpoint, call: Call, timeout_ms: int) -> list[TransactionEffect]:
        """Make one attempt, and report its answer to the core. Raises the error of the answer."""
        assert self._cluster is not None, "a transaction begins after the start"
        transport, transactional_id = self._cluster.transport, self._policy.transactional_id
        match call:
            case AskProducerId(producer_id, epoch):
                timeout = self._policy.transaction_timeout_ms
                request = init_request(transactional_id, timeout, producer_id, epoch)
                method = methods.TRANSACTIONS_INIT_PRODUCER_ID
                given = await transport.call(to, method, request, timeout_ms=timeout_ms)
                return self._identified(given)
            case AskEnd(producer_id, epoch, committed):
                end = end_request(PreparedTransaction(transactional_id, producer_id, epoch), committed=committed)
                ended = await transport.call(to, methods.TRANSACTIONS_END_TXN, end, timeout_ms=timeout_ms)
                return self._identified(ended)
            case AskOffsets():
                if self._member is not None:
                    call = replace(call, group=self._member())
                commit = offsets_request(transactional_id, call)
                answer = await transport.call(to, methods.GROUPS_TXN_OFFSET_COMMIT, commit, timeout_ms=timeout_ms)
                for partition in answer.partitions:
                    if error := error_of(partition):
                        raise error
                return self._core.offsets_added()

    def _identified(
        self, answer: transactions_pb2.InitTransactionalProducerResponse | transactions_pb2.EndTxnResponse
    ) -> list[TransactionEffect]:
        return self._core.identified(ProducerId(answer.producer_id), answer.producer_epoch, self._clock.monotonic_ms())


def init_request(
    transactional_id: str, timeout_ms: int, producer_id: ProducerId = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH
) -> transactions_pb2.InitTransactionalProducerRequest:
    """Return the message that asks for a producer id and fences who had it; without one, as a new producer does."""
    return transactions_pb2.InitTransactionalProducerRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_version=TRANSACTION_VERSION,
    )


def end_request(transaction: PreparedTransaction, *, committed: bool) -> transactions_pb2.EndTxnRequest:
    """Return the message that commits or aborts a transaction."""
    return transactions_pb2.EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=committed,
        transaction_version=TRANSACTION_VERSION,
    )


def offsets_request(transactional_id: str, call: AskOffsets) -> groups_pb2.TxnOffsetCommitRequest:
    """Return the message of a call."""
    group = call.group
    return groups_pb2.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        producer_id=call.producer_id,
        producer_epoch=call.epoch,
        transaction_version=TRANSACTION_VERSION,
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        instance_id=group.instance_id,
        partitions=[offset_to_commit(key, offset) for key, offset in call.offsets.items()],
    )
