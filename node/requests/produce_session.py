"""The produce requests of one stream or unary call: entries are appended on arrival and answered after their acks.

Invariants:
  1. Entries are appended in the order of arrival. A rejected entry does not affect the others.
  2. With `outstanding_max` unanswered entries, the stream is not read further, which slows the producer down.
  3. Records that take time to check (compressed, or to be recompressed) are checked on another thread before they are
     appended on the loop. Later entries wait.
  4. An entry with `acks=0` is never answered. As in Kafka, its failure ends the stream, so that the producer looks the
     leader up again.
  5. The first batch of a transaction in a partition is verified before it is appended, by `admit`. Only later batches
     of its producer in this partition, and later requests of the stream, wait for it.

Not here: the stream (data_handlers.py), verification (transactional_entries.py), appends and acks (leader_replica.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from node.api.produce import ProducedBatch
from node.api.table import DATA_PRODUCE
from node.coordinators.transactions.transaction_verifier import TransactionOf, TransactionVerifier
from node.replicas.replica_config import ReplicaConfig
from node.requests.context import RequestContext
from node.requests.permitted import locate_permitted
from node.requests.refused_batches import RefusedBatches
from node.requests.transactional_entries import EntryToAppend, TransactionalEntries
from node.runtime.limits import ensure_few
from node.runtime.memory_budget import Kind, Share
from node.runtime.request_meter import MeteredRequest
from node.runtime.work import run_while_awaited
from storage.append_info import LogAppendInfo, Origin
from storage.files.disk_executor import Executor
from storage.log.validation import inspect_sent, is_transactional, takes_time
from storage.producers.verification import UNVERIFIED, TransactionCheck
from tidelog.clock import Clock
from tidelog.errors import InvalidRequiredAcks, NodeShuttingDown, RecordTooLarge, TidelogError, TopicAuthorizationFailed
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import Inspected
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Acks, BatchReceipt, Buffer, Millis, Offset

if TYPE_CHECKING:
    from node.replicas.leader_replica import LeaderReplica
    from node.replicas.replica import Replica
    from node.replicas.replica_manager import ReplicaManager


_ACKS: Final = {int(acks): acks for acks in Acks}

BATCHES_PER_TURN: Final = 200
"""Entries of a request that are appended in one turn of the loop: some 10 ms."""


class _Waiting:
    """An appended entry whose outcome is unknown; called with the outcome."""

    __slots__ = ("acks", "correlation_id", "leader", "partition", "request", "session")

    def __init__(
        self, session: ProduceSession, correlation_id: int, acks: Acks, partition: Replica, leader: LeaderReplica | None
    ) -> None:
        """leader: gives the receipt; None if none is requested."""
        self.session, self.correlation_id, self.acks, self.partition = session, correlation_id, acks, partition
        self.leader = leader
        self.request = session.request

    def __call__(self, info: LogAppendInfo | None, error: TidelogError | None) -> None:
        self.session.settle(self, info, error)


class ProduceSession:
    """The unanswered entries of one stream or call, and their answers."""

    def __init__(
        self,
        manager: ReplicaManager,
        context: RequestContext,
        *,
        clock: Clock,
        config: ReplicaConfig,
        inspectors: Executor,
        refused: RefusedBatches,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        """inspectors: checks records that take time. refused: by this node, for all sessions. verifier: None:
        transactions are not verified."""
        self._manager = manager
        self._inspectors = inspectors
        self._context = context
        self._clock = clock
        self._config = config
        self._refused_before = refused
        self.request: MeteredRequest | None = None
        """The meter of the current stream message; None for a call, which the listener measures."""
        self.outstanding = 0
        """The number of unanswered entries."""
        self._settled: list[tuple[_Waiting, LogAppendInfo, BatchReceipt | None]] = []
        self._receipts = False
        """Whether the current request asks for receipts."""
        self._refused: list[tuple[int, Replica | None, TidelogError]] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._unanswered_failure: TidelogError | None = None
        self._transactional = TransactionalEntries(context, verifier)

    # --- requests ---

    def begin(self, request: ProduceRequest) -> MeteredRequest:
        """Measure a message of a stream, as a context around `take`."""
        self.request = self._context.begin(entries=len(request.partitions))
        return self.request

    def charge(self, request: ProduceRequest) -> Share:
        """The memory of a request while it is worked on."""
        size = 0
        for entry in request.partitions:
            size += len(entry.records)
        return self._manager.memory.charge(Kind.PRODUCE, self._context.request_copies * size)

    async def take(self, request: ProduceRequest) -> None:
        """Append the entries of a request, but those that must be verified: `admit` must follow. Raises the error of an
        entry with acks=0, InvalidRequest for too many."""
        ensure_few(request.partitions, "batches")
        deadline = Millis(self._clock.monotonic_ms() + max(0, min(request.timeout_ms, self._config.max_wait_ms)))
        acks = _ACKS.get(request.acks)
        self._receipts = request.receipts
        if acks is not Acks.NONE:
            self.outstanding += len(request.partitions)
        for number, entry in enumerate(request.partitions, 1):
            partition: Replica | None = None
            if number % BATCHES_PER_TURN == 0:
                await self._clock.sleep_ms(0)
            try:
                if acks is None:
                    raise InvalidRequiredAcks(
                        f"acks={request.acks} is invalid; set -1 (all in-sync replicas), 1 (the leader) or 0"
                    )
                partition = self._locate(entry)
                inspected = None
                if takes_time(entry.records, partition.log.rules):
                    partition.leading_in(entry.leader_epoch)
                    inspected = await self._inspected(partition, entry.records)
                    partition = self._locate(entry)
                if self._transactional.waiting or is_transactional(entry.records):
                    self._append_or_wait(request, EntryToAppend(partition, entry, acks, deadline, inspected))
                else:
                    self._append(partition, entry, acks, deadline, inspected, UNVERIFIED)
            except TidelogError as error:
                self._entry_failed(entry, acks, partition, error)
        if self._unanswered_failure is not None:
            raise self._unanswered_failure

    @property
    def awaits_verification(self) -> bool:
        """True if entries of the request wait to be verified."""
        return bool(self._transactional.waiting)

    async def admit(self) -> None:
        """Verify and append the entries of the request that wait for it. Raises the error of an entry with acks=0."""
        waiting = self._transactional.take()
        if len(waiting) == 1:
            await self._admit(waiting[0])
        elif waiting:
            async with asyncio.TaskGroup() as tasks:
                for items in waiting:
                    tasks.create_task(self._admit(items))
        if self._unanswered_failure is not None:
            raise self._unanswered_failure

    async def _admit(self, items: Sequence[EntryToAppend]) -> None:
        """Verify and append entries of one producer and partition, in order."""
        refused: dict[TransactionOf, TidelogError] = {}
        for item in items:
            try:
                if item.transaction is not None and item.transaction in refused:
                    raise refused[item.transaction]
                check = await self._verified(item, refused)
                item.partition = self._locate(item.entry)
                self._append(item.partition, item.entry, item.acks, item.deadline, item.inspected, check)
            except TidelogError as error:
                self._entry_failed(item.entry, item.acks, item.partition, error)

    async def _verified(self, item: EntryToAppend, refused: dict[TransactionOf, TidelogError]) -> TransactionCheck:
        try:
            return await self._transactional.verified(item)
        except TidelogError as error:
            if item.transaction is not None:
                refused[item.transaction] = error
            raise

    def _locate(self, entry: ProduceBatch) -> Replica:
        return locate_permitted(self._manager, self._context, DATA_PRODUCE, entry.topic_id, entry.partition)

    def _append_or_wait(self, request: ProduceRequest, item: EntryToAppend) -> None:
        check = self._transactional.check(request, item)
        if check is not None:
            self._append(item.partition, item.entry, item.acks, item.deadline, item.inspected, check)

    def _append(
        self,
        partition: Replica,
        entry: ProduceBatch,
        acks: Acks,
        deadline: Millis,
        inspected: Inspected | None,
        check: TransactionCheck,
    ) -> None:
        if self._manager.stopping:
            raise NodeShuttingDown("the node is stopping and rejects appends: send to the next leader")
        leader = partition.leading_in(entry.leader_epoch)
        leader.produce(
            entry.records,
            origin=Origin.CLIENT,
            acks=acks,
            deadline=deadline,
            done=_Waiting(self, entry.correlation_id, acks, partition, leader if self._receipts else None),
            inspected=inspected,
            check=check,
            for_receipt=self._receipts,
        )

    def _entry_failed(
        self, entry: ProduceBatch, acks: Acks | None, partition: Replica | None, error: TidelogError
    ) -> None:
        if partition is not None:
            error = self._refused_before.reason_of(partition.key, entry.records, error)
            partition.topic_meter.produce_failed(error, len(entry.records))
        if acks is Acks.NONE:
            self._unanswered_failure = error
            return
        if self.request is not None:
            self.request.entry_ended()
        self._refuse(entry.correlation_id, partition, error)

    def _refuse(self, correlation_id: int, partition: Replica | None, error: TidelogError) -> None:
        self._context.meter.count_error(error)
        self._refused.append((correlation_id, partition, error))
        self._wake.set()

    async def _inspected(self, partition: Replica, records: Buffer) -> Inspected | None:
        """The result of `inspect_sent`, which runs on another thread. Raises the reason if the records are rejected."""
        log, rules, now = partition.log, partition.log.rules, self._clock.wall_ms()
        try:
            return await run_while_awaited(self._inspectors, lambda: inspect_sent(records, rules, now))
        except RecordTooLarge:
            log.bytes_rejected += len(records)
            raise

    def settle(self, waiting: _Waiting, info: LogAppendInfo | None, error: TidelogError | None) -> None:
        """Note the outcome of an entry, to be answered."""
        if info is not None and not info.duplicate:
            records = info.last_offset - info.first_offset + 1
            waiting.partition.topic_meter.appended(info.valid_bytes, records, info.converted_records)
            waiting.partition.log.flow.bytes_in += info.valid_bytes
        if waiting.request is not None:
            waiting.request.entry_ended()
        if error is not None:
            waiting.partition.topic_meter.produce_failed(error, 0)
        if waiting.acks is Acks.NONE:
            return
        if error is not None:
            self._refuse(waiting.correlation_id, waiting.partition, error)
            return
        assert info is not None, "an acknowledged entry was appended"
        receipt = None if waiting.leader is None else waiting.leader.receipt(info)
        self._settled.append((waiting, info, receipt))
        self._wake.set()

    # --- answers ---

    def collect(self) -> list[ProducedBatch]:
        """The answers that are complete; each is returned once."""
        settled, self._settled = self._settled, []
        refused, self._refused = self._refused, []
        answers = [_acknowledged(waiting.correlation_id, info, receipt) for waiting, info, receipt in settled]
        answers += [self._error_answer(*each) for each in refused]
        return answers

    def _error_answer(self, correlation_id: int, partition: Replica | None, error: TidelogError) -> ProducedBatch:
        if isinstance(error, TopicAuthorizationFailed):
            partition = None  # the answer must not reveal anything about it
        return ProducedBatch(
            self._manager.registry.with_leader(error, partition, self._context.listener),
            Offset(-1),
            NO_TIMESTAMP,
            Offset(-1) if partition is None else partition.log_start,
            NO_LEADER_EPOCH if partition is None else partition.leader_epoch,
            correlation_id=correlation_id,
        )

    def sent(self, count: int) -> None:
        """Note that `count` answers are being sent, which admits as many entries."""
        self.outstanding -= count
        self._room.set()

    # --- waiting ---

    async def wait_answers(self) -> None:
        """Return when there are answers to collect."""
        while not (self._settled or self._refused):
            self._wake.clear()
            await self._wake.wait()

    async def wait_outstanding_below(self, count: int) -> None:
        """Return when fewer than `count` entries are unanswered."""
        while self.outstanding >= count:
            self._room.clear()
            await self._room.wait()


def _acknowledged(correlation_id: int, info: LogAppendInfo, receipt: BatchReceipt | None) -> ProducedBatch:
    return ProducedBatch(
        None,
        info.first_offset,
        info.log_append_time,
        info.log_start_offset,
        info.last_leader_epoch,
        info.duplicate,
        receipt,
        correlation_id,
    )
