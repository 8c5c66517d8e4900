"""Handlers of the Data service: append records to the partitions that this node leads, and read from its partitions.

Streams and calls work the same way: a session (`ProduceSession`, `FetchSession`) takes requests, and each time the
stream can send, the answers that are due are collected into one message.

Invariants: each entry of a request is answered separately, errors included; a request as a whole fails only if it is
malformed. A stream whose answers are not read is not served further and uses a bounded amount of memory.
Not here: partitions (replica_manager.py, replica.py), messages (node/listeners).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from operator import attrgetter
from typing import Final, TypeVar

from node.api.fetch import FetchRequest, PartitionFetch
from node.api.offsets import (
    EpochAnswer,
    EpochQuestion,
    ListedOffset,
    ListOffsetsAnswer,
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetForLeaderEpochAnswer,
    OffsetForLeaderEpochRequest,
    ReplicaLogInfo,
    ReplicaLogInfoRequest,
)
from node.api.peers import ValueStream
from node.api.produce import ProduceAnswer, ProducedBatch
from node.api.producers import InitProducerIdAnswer, InitProducerIdRequest
from node.api.table import DATA_LIST_OFFSETS, DATA_OFFSET_FOR_LEADER_EPOCH
from node.coordinators.transactions.transaction_verifier import TransactionVerifier
from node.quotas.throttle import Throttle
from node.replicas.own_log_check import look_at_damage
from node.replicas.replica import Replica
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from node.requests.deletion_handlers import DeletionHandlers
from node.requests.fetch_answers import add_next, limited
from node.requests.fetch_session import BYTES_MAX, READS_UP_TO, FetchSession, FetchSessions
from node.requests.incremental_fetches import IncrementalFetches
from node.requests.incremental_sessions import SessionCache
from node.requests.marker_handlers import MarkerHandlers
from node.requests.permitted import locate_permitted
from node.requests.produce_session import ProduceSession
from node.requests.producer_ids import ProducerIds
from node.requests.refused_batches import RefusedBatches
from node.requests.remote_range_handlers import RemoteRangeHandlers
from node.requests.snapshot_end_handlers import SnapshotEndHandlers
from node.runtime.duplex import run_duplex
from node.runtime.limits import FIRST_ANSWER_BYTES, UNARY_FETCH_BYTES_MAX, ensure_few
from node.runtime.memory_budget import AnswerCharge, Kind
from storage.files.disk_executor import Executor
from storage.isolation import FetchIsolation
from tidelog.clock import Clock
from tidelog.errors import InvalidRequest, NotLeaderOrFollower, TidelogError
from tidelog.record_exchange import FetchAnswer, FetchedPartition, ProduceBatch, ProduceRequest
from tidelog.types import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, NO_LEADER_EPOCH, Offset

Item = TypeVar("Item", ProduceBatch, PartitionFetch)
Outcome = TypeVar("Outcome", ProducedBatch, FetchedPartition)

OFFSETS_PER_TURN: Final = 200
"""Offsets that are known without reading a batch, and are listed in one turn of the loop: some ms."""


class DataHandlers(MarkerHandlers, DeletionHandlers, SnapshotEndHandlers, RemoteRangeHandlers):
    """One method for each API of the Data service."""

    def __init__(
        self,
        manager: ReplicaManager,
        sessions: FetchSessions,
        producer_ids: ProducerIds,
        *,
        clock: Clock,
        config: ReplicaConfig,
        inspectors: Executor,
        fetch_sessions: SessionCache,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        """inspectors: checks records that take time. fetch_sessions: the incremental ones. verifier: of transactions,
        before their first batch in a partition; None: they are not verified."""
        MarkerHandlers.__init__(self, manager, clock)
        DeletionHandlers.__init__(self, manager, clock, config.max_wait_ms)
        self._sessions = sessions
        self._producer_ids = producer_ids
        self._config = config
        self._inspectors = inspectors
        self._verifier = verifier
        self._refused = RefusedBatches(clock)
        self._incremental = IncrementalFetches(
            manager, sessions, fetch_sessions, clock=clock, config=config, fetch_all=self._fetch_all
        )
        self._searching = asyncio.Lock()
        """Locked for each search by timestamp, which reads a batch: one in a turn of the loop for all callers."""

    # --- produce ---

    def _produce_session(self, context: RequestContext) -> ProduceSession:
        return ProduceSession(
            self._manager,
            context,
            clock=self._clock,
            config=self._config,
            inspectors=self._inspectors,
            refused=self._refused,
            verifier=self._verifier,
        )

    async def produce_stream(self, stream: ValueStream[ProduceAnswer, ProduceRequest], context: RequestContext) -> None:
        """Append each entry on arrival; answer it after its acks, in any order."""
        session = self._produce_session(context)
        await run_duplex(self._take_batches(stream, session), _send_produced(stream, session))

    async def _take_batches(self, stream: ValueStream[ProduceAnswer, ProduceRequest], session: ProduceSession) -> None:
        while await self._take_batch(stream, session):
            if session.outstanding >= self._config.outstanding_max:
                await session.wait_outstanding_below(self._config.outstanding_max)
        await session.wait_outstanding_below(1)

    async def _take_batch(self, stream: ValueStream[ProduceAnswer, ProduceRequest], session: ProduceSession) -> bool:
        """Take one request and release its memory. Returns False at the end of the stream."""
        await self._manager.memory.wait_room(Kind.PRODUCE)
        request = await stream.receive()
        if request is None:
            return False
        with session.charge(request):
            with session.begin(request):
                await session.take(request)
            if session.awaits_verification:
                await session.admit()
        return True

    async def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
        """Append the entries; answer when all outcomes are known, in the order of the request."""
        session = self._produce_session(context)
        with session.charge(request):
            async with context.appends or nullcontext():
                await session.take(request._replace(partitions=_numbered(request.partitions)))
                await session.admit()
        answers: list[ProducedBatch] = []
        while len(answers) < session.outstanding:
            await session.wait_answers()
            answers += session.collect()
        return ProduceAnswer(_in_order(answers, request.partitions))

    async def init_producer_id(self, _request: InitProducerIdRequest, _context: RequestContext) -> InitProducerIdAnswer:
        """A new producer id. As in Kafka, a producer without a transactional id increments its epoch itself, and
        requests an id only if it has none or the epochs are exhausted."""
        return InitProducerIdAnswer(await self._producer_ids.take(), 0)

    # --- fetch ---

    async def fetch_stream(self, stream: ValueStream[FetchAnswer, FetchRequest], context: RequestContext) -> None:
        """Open the fetches of each request; answer each when enough can be read, or at its deadline."""
        session = self._sessions.open(context)
        try:
            await run_duplex(_take_fetches(stream, session), self._send_fetched(stream, session, context.throttle))
        finally:
            self._sessions.close(session)

    async def _send_fetched(
        self, stream: ValueStream[FetchAnswer, FetchRequest], session: FetchSession, throttle: Throttle
    ) -> None:
        bytes_max = FIRST_ANSWER_BYTES
        while not session.closed:
            await session.wait_ready()
            if throttle.applies:
                await throttle.wait()  # before anything is read for the answer
            if await self._send_next(stream, session, bytes_max):
                bytes_max = min(2 * bytes_max, BYTES_MAX)
        session.ensure_latest()

    async def _send_next(
        self, stream: ValueStream[FetchAnswer, FetchRequest], session: FetchSession, bytes_max: int
    ) -> bool:
        """Send the due answers, or a keep-alive answer, and release their memory. Returns False if none was due.

        A consumer gets at most about `bytes_max` bytes of records, but at least one batch."""
        overdue, enough = session.sign_of_life_due, self._config.response_bytes
        wanted, least = session.next_bytes(enough)
        if session.kind is Kind.CONSUMER_FETCH:
            wanted = min(wanted, enough + max(bytes_max, least))
        charge = AnswerCharge(self._manager.memory, session.kind, session.copies)
        answer = FetchAnswer([], charge)
        try:
            await add_next(answer, charge, session, self._manager.memory, wanted, enough, least)
            if not (answer.partitions or overdue):
                return False
            session.sending(stream.close)
            await stream.send(answer)
        except asyncio.CancelledError:
            del answer, charge  # the listener may still write the answer, which keeps its charge
            raise
        except BaseException:
            charge.release()
            raise
        charge.release()
        session.sent()
        return True

    async def fetch(self, request: FetchRequest, context: RequestContext) -> FetchAnswer:
        """Read from the partitions; answer when one can be answered, when all together have enough, or at the deadline,
        as Kafka's DelayedFetch. For consumers only: a follower's fetches are ordered by its stream. Raises
        InvalidRequest."""
        if request.session is not None:
            return await self._incremental.fetch(request, request.session, context)
        return await self._fetch_all(request, context)

    async def _fetch_all(self, request: FetchRequest, context: RequestContext) -> FetchAnswer:
        """As `fetch`: every partition of the request, in its order."""
        if request.replica is not None:
            raise InvalidRequest("a follower fetches on a stream, not with unary calls")
        limit = min(request.max_bytes or UNARY_FETCH_BYTES_MAX, UNARY_FETCH_BYTES_MAX)
        most = max(1, UNARY_FETCH_BYTES_MAX // max(1, len(request.partitions)))
        asked = _numbered([_at_most(most, item) for item in request.partitions])
        session = self._sessions.open(context)
        charge = AnswerCharge(self._manager.memory, Kind.CONSUMER_FETCH, session.copies)
        answer = FetchAnswer([], charge)
        try:
            session.take(request._replace(partitions=asked))
            wanted = min(limit, sum(item.max_bytes for item in asked))
            waits = True
            while not session.idle:
                await session.wait_ready()
                _, least = session.next_bytes(0)
                rest = wanted - charge.size // session.copies
                await add_next(answer, charge, session, self._manager.memory, rest, wanted, least, room=rest)
                if waits and (answer.partitions or session.outbox.short_bytes >= min(request.min_bytes, limit)):
                    waits = False
                    session.answer_anyway()
        except BaseException:
            charge.release()  # a traceback may keep this frame alive for long
            raise
        finally:
            self._sessions.close(session)
        answer.partitions[:] = limited(_in_order(answer.partitions, request.partitions), limit)
        return answer

    # --- offsets ---

    async def list_offsets(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsAnswer:
        """The first and last offsets of partitions, and offsets by timestamp."""
        isolation = READS_UP_TO[request.isolation_level]
        ensure_few(request.partitions, "partitions")
        listed = []
        for number, item in enumerate(request.partitions, 1):
            if item.timestamp_ms in (EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED):
                listed.append(self._listed(item, isolation, context))
                if number % OFFSETS_PER_TURN == 0:
                    await self._clock.sleep_ms(0)
                continue
            in_tier = await self._in_tier(item, isolation, context)
            if in_tier is not None:
                listed.append(in_tier)
                continue
            async with self._searching:
                listed.append(self._listed(item, isolation, context))
                await self._clock.sleep_ms(0)
        return ListOffsetsAnswer(tuple(listed))

    def _listed(self, item: ListOffsetsPartition, isolation: FetchIsolation, context: RequestContext) -> ListedOffset:
        partition: Replica | None = None
        try:
            partition = locate_permitted(self._manager, context, DATA_LIST_OFFSETS, item.topic_id, item.partition)
            offset, timestamp, epoch = partition.offset_at(item.timestamp_ms, isolation, item.current_leader_epoch)
            return ListedOffset(item.topic_id, item.partition, None, offset, timestamp, epoch)
        except TidelogError as error:
            refused = self._manager.registry.with_leader(error, partition, context.listener)
            return ListedOffset(item.topic_id, item.partition, refused)

    async def _in_tier(
        self, item: ListOffsetsPartition, isolation: FetchIsolation, context: RequestContext
    ) -> ListedOffset | None:
        """The answer if the record is in the remote tier only."""
        partition: Replica | None = None
        try:
            partition = locate_permitted(self._manager, context, DATA_LIST_OFFSETS, item.topic_id, item.partition)
            found = await partition.offset_in_tier(item.timestamp_ms, isolation, item.current_leader_epoch)
        except TidelogError as error:
            refused = self._manager.registry.with_leader(error, partition, context.listener)
            return ListedOffset(item.topic_id, item.partition, refused)
        return None if found is None else ListedOffset(item.topic_id, item.partition, None, *found)

    async def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochAnswer:
        """The end offsets of leader epochs."""
        ensure_few(request.partitions, "partitions")
        ends = []
        for number, question in enumerate(request.partitions, 1):
            ends.append(self._epoch_end(question, context))
            if number % OFFSETS_PER_TURN == 0:
                await self._clock.sleep_ms(0)
        return OffsetForLeaderEpochAnswer(tuple(ends))

    def _epoch_end(self, question: EpochQuestion, context: RequestContext) -> EpochAnswer:
        partition: Replica | None = None
        try:
            partition = locate_permitted(
                self._manager, context, DATA_OFFSET_FOR_LEADER_EPOCH, question.topic_id, question.partition
            )
            end = partition.epoch_end(question.current_leader_epoch, question.leader_epoch)
            return EpochAnswer(question.topic_id, question.partition, None, end)
        except TidelogError as error:
            refused = self._manager.registry.with_leader(error, partition, context.listener)
            return EpochAnswer(question.topic_id, question.partition, refused)

    async def get_replica_log_info(self, request: ReplicaLogInfoRequest, context: RequestContext) -> ReplicaLogInfo:
        """The extent of this node's replica, leader or not; of a damaged log, the intact part. Raises KafkaStorageError
        if its log cannot be used."""
        try:
            partition = self._manager.registry.locate(request.topic_id, request.partition, context.listener)
        except NotLeaderOrFollower:  # this node has no log of it (yet)
            return ReplicaLogInfo(NO_LEADER_EPOCH, Offset(0))
        if partition.offline is not None and (partition.log.damage is None or partition.directory.offline is not None):
            raise partition.offline
        sound, lost = await look_at_damage(partition.log, partition.directory, request.look_ms)
        return ReplicaLogInfo(sound.epoch, sound.end_offset, partition.directory.directory_id, lost)


# A copy of an entry takes 1 us, and a request may have hundreds: those that need none stay as they are.


def _at_most(bytes_max: int, item: PartitionFetch) -> PartitionFetch:
    allowed = max(1, min(item.max_bytes or BYTES_MAX, bytes_max))
    return item if item.max_bytes == allowed else item._replace(max_bytes=allowed)


def _numbered(items: Sequence[Item]) -> list[Item]:
    """The items of a call, with their positions in it as correlation ids: those of the caller need not be unique."""
    return [
        item if item.correlation_id == position else item._replace(correlation_id=position)
        for position, item in enumerate(items)
    ]


def _in_order(answers: Sequence[Outcome], items: Sequence[Item]) -> list[Outcome]:
    """The answers to numbered items in the order of the call, with the correlation ids of the caller."""
    found = sorted(answers, key=attrgetter("correlation_id"))
    callers = (items[answer.correlation_id].correlation_id for answer in found)
    return [
        answer if answer.correlation_id == number else answer._replace(correlation_id=number)
        for answer, number in zip(found, callers, strict=True)
    ]


async def _send_produced(stream: ValueStream[ProduceAnswer, ProduceRequest], session: ProduceSession) -> None:
    while True:
        await session.wait_answers()
        answers = session.collect()
        await stream.send(ProduceAnswer(answers))
        session.sent(len(answers))


async def _take_fetches(stream: ValueStream[FetchAnswer, FetchRequest], session: FetchSession) -> None:
    while (request := await stream.receive()) is not None:
        with session.begin(request):
            session.take(request)
        await session.wait_room()
