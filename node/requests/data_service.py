"""The Data service of one node: records in and out, over the partitions that the node leads.

The streams and their unary twins share one way of working: a desk takes requests in (`ProduceSession`, `FetchSession`),
the answers that are known are collected into one message as often as the stream takes one.

Kept true: within a request each entry is answered by itself, errors included; a request as a whole fails only where it
makes no sense. A stream that is not read is not served further, and costs the node a bounded amount of memory.
Left to others: everything about partitions (replica_manager.py, partition.py).
"""

from __future__ import annotations

from typing import TypeVar

from node.replicas.fetch_session import BYTES_MAX, FetchSession, isolation_of
from node.replicas.own_log_check import look_at_damage
from node.replicas.partition import Partition
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.requests.produce_session import ProduceSession
from node.requests.producer_ids import ProducerIds
from node.requests.types.context import RequestContext
from node.runtime import status
from node.runtime.clock import Clock
from node.runtime.duplex import run_duplex
from node.runtime.limits import FIRST_ANSWER_BYTES, UNARY_FETCH_BYTES_MAX, ensure_few
from node.runtime.memory_budget import ANSWER_COPIES, REQUEST_COPIES, ChargedResponse, Kind, Share
from node.runtime.transport import MessageStream
from replication.epochs import epoch_before
from storage.files.executor import Executor
from storage.isolation import FetchIsolation
from storage.segment.time_lookup import EARLIEST, LATEST
from tidelog.errors import NotLeaderOrFollower, TidelogError
from tidelog.protocol.v1 import common_pb2, data_pb2
from tidelog.protocol.wire import FetchResponse, ProduceRequest
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Millis, Offset

Item = TypeVar("Item")


class DataService:
    """See the module's words. Methods are named as the RPCs of data.proto."""

    def __init__(
        self,
        manager: ReplicaManager,
        producer_ids: ProducerIds,
        *,
        clock: Clock,
        config: ReplicaConfig,
        inspectors: Executor,
    ) -> None:
        """inspectors: where records are checked that take time."""
        self._manager = manager
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self._inspectors = inspectors

    # --- produce ---

    def _produce_session(self, context: RequestContext) -> ProduceSession:
        return ProduceSession(
            self._manager, context, clock=self._clock, config=self._config, inspectors=self._inspectors
        )

    async def produce_stream(
        self, stream: MessageStream[data_pb2.ProduceResponse, ProduceRequest], context: RequestContext
    ) -> None:
        """Append what comes; answer each entry when its acks are there, in any order."""
        session = self._produce_session(context)
        await run_duplex(self._take_batches(stream, session), _send_produced(stream, session))

    async def _take_batches(
        self, stream: MessageStream[data_pb2.ProduceResponse, ProduceRequest], session: ProduceSession
    ) -> None:
        while await self._take_batch(stream, session):
            if session.outstanding >= self._config.outstanding_max:
                await session.wait_outstanding_below(self._config.outstanding_max)
        await session.wait_outstanding_below(1)

    async def _take_batch(
        self, stream: MessageStream[data_pb2.ProduceResponse, ProduceRequest], session: ProduceSession
    ) -> bool:
        """Take one request; afterwards nothing of it is left. Returns False where no more come."""
        await self._manager.memory.wait_room(Kind.PRODUCE)
        request = await stream.receive()
        if request is None:
            return False
        with self._charge(request):
            await session.take(request)
        return True

    def _charge(self, request: ProduceRequest) -> Share:
        size = sum(len(entry.records) for entry in request.partitions)
        return self._manager.memory.charge(Kind.PRODUCE, REQUEST_COPIES * size)

    async def produce(self, request: ProduceRequest, context: RequestContext) -> data_pb2.ProduceResponse:
        """Append the entries; answer when all are settled."""
        session = self._produce_session(context)
        with self._charge(request):
            await session.take(request)
        answers: list[data_pb2.PartitionProduced] = []
        while len(answers) < session.outstanding:
            await session.wait_answers()
            answers += session.collect()
        return data_pb2.ProduceResponse(partitions=answers)

    async def init_producer_id(
        self, _request: data_pb2.InitProducerIdRequest, _context: RequestContext
    ) -> data_pb2.InitProducerIdResponse:
        """An identity for an idempotent producer. As in Kafka it is a new one in any case: a producer without a
        transactional id counts its epochs by itself, and asks only when it has none or has used up the last."""
        return data_pb2.InitProducerIdResponse(producer_id=await self._producer_ids.take(), producer_epoch=0)

    # --- fetch ---

    async def fetch_stream(
        self, stream: MessageStream[FetchResponse, data_pb2.FetchRequest], context: RequestContext
    ) -> None:
        """Open fetches as they are asked for; answer each when there is enough to read or its time is up."""
        session = self._manager.open_session(context)
        try:
            await run_duplex(_take_fetches(stream, session), self._send_fetched(stream, session))
        finally:
            self._manager.close_session(session)

    async def _send_fetched(
        self, stream: MessageStream[FetchResponse, data_pb2.FetchRequest], session: FetchSession
    ) -> None:
        bytes_max = FIRST_ANSWER_BYTES
        while not session.closed:
            await session.wait_ready()
            if await self._send_next(stream, session, bytes_max):
                bytes_max = min(2 * bytes_max, BYTES_MAX)

    async def _send_next(
        self, stream: MessageStream[FetchResponse, data_pb2.FetchRequest], session: FetchSession, bytes_max: int
    ) -> bool:
        """Send what is due, to a consumer not much more than `bytes_max` of records, or one batch. Returns whether
        there was anything. Afterwards nothing of it is left."""
        overdue, enough = session.sign_of_life_due, self._config.response_bytes
        wanted, least = session.next_bytes(enough)
        if session.kind is Kind.CONSUMER_FETCH:
            wanted = min(wanted, enough + max(bytes_max, least))
        response = ChargedResponse(self._manager.memory, session.kind)
        try:
            await self._add_next(response, session, wanted, enough, least)
            if not (response.partitions or overdue):
                return False
            session.sending(stream.close)
            await stream.send(response)
            session.sent()
            return True
        finally:
            response.release()

    async def _add_next(
        self, response: ChargedResponse, session: FetchSession, wanted: int, enough: int, least: int
    ) -> None:
        """Add answers that are due, of `wanted` bytes of records, or as many as there is memory for, but at least of
        `least`; stop when they hold `enough`. Where memory is kept already, for this answer or for what is read from a
        disk, nothing is waited for that others may keep."""
        memory, kind = self._manager.memory, session.kind
        if session.cold.read or not least:
            response.add(session.collect_read(), memory.charge(kind, 0))
            return
        if response.charged or session.cold.is_busy:
            share = memory.take_now(kind, ANSWER_COPIES * wanted, ANSWER_COPIES * least)
            if not share.size and session.cold.is_busy:
                await session.wait_cold()
                return
        else:
            share = await memory.take(kind, ANSWER_COPIES * wanted, ANSWER_COPIES * least)
        room = share.size // ANSWER_COPIES
        response.add(session.collect(min(enough, room - least) if room else enough, room), share)

    async def fetch(self, request: data_pb2.FetchRequest, context: RequestContext) -> FetchResponse:
        """Read from the partitions; answer when each has enough or the time is up."""
        for item in request.partitions:
            item.max_bytes = min(item.max_bytes or BYTES_MAX, max(1, UNARY_FETCH_BYTES_MAX // len(request.partitions)))
        session = self._manager.open_session(context, is_stream=False)
        response = ChargedResponse(self._manager.memory, Kind.CONSUMER_FETCH)
        try:
            session.take(request)
            wanted = min(UNARY_FETCH_BYTES_MAX, sum(item.max_bytes for item in request.partitions))
            while not session.idle:
                await session.wait_ready()
                _, least = session.next_bytes(0)
                rest = wanted - response.charged // ANSWER_COPIES
                await self._add_next(response, session, rest, wanted, least)
        except BaseException:
            response.release()  # an error may keep this frame for long
            raise
        finally:
            self._manager.close_session(session)
        return response

    # --- questions ---

    async def list_offsets(
        self, request: data_pb2.ListOffsetsRequest, context: RequestContext
    ) -> data_pb2.ListOffsetsResponse:
        """Where partitions begin and end, and the offset that belongs to a time."""
        isolation = isolation_of(request.isolation_level)
        ensure_few(request.partitions, "partitions")
        listed = [self._listed(item, isolation, context) for item in request.partitions]
        return data_pb2.ListOffsetsResponse(partitions=listed)

    def _listed(
        self, item: data_pb2.ListOffsetsPartition, isolation: FetchIsolation, context: RequestContext
    ) -> data_pb2.ListedOffset:
        partition: Partition | None = None
        answer = data_pb2.ListedOffset(
            topic_id=item.topic_id, partition=item.partition, offset=-1, timestamp_ms=-1, leader_epoch=-1
        )
        try:
            partition = self._manager.locate(item.topic_id, item.partition, context.listener)
            offset, timestamp, epoch = _look_up(
                partition, Millis(item.timestamp_ms), isolation, LeaderEpoch(item.current_leader_epoch)
            )
            answer.offset, answer.timestamp_ms, answer.leader_epoch = offset, timestamp, epoch
        except TidelogError as error:
            answer.error.CopyFrom(status.to_proto(self._manager.with_leader(error, partition, context.listener)))
        return answer

    async def offset_for_leader_epoch(
        self, request: data_pb2.OffsetForLeaderEpochRequest, context: RequestContext
    ) -> data_pb2.OffsetForLeaderEpochResponse:
        """Where leader epochs end."""
        ensure_few(request.partitions, "partitions")
        answers = [self._epoch_end(question, context) for question in request.partitions]
        return data_pb2.OffsetForLeaderEpochResponse(partitions=answers)

    async def get_replica_log_info(
        self, request: data_pb2.GetReplicaLogInfoRequest, context: RequestContext
    ) -> data_pb2.GetReplicaLogInfoResponse:
        """How much of a partition is here, whoever leads; of a damaged log, what is sound. Raises KafkaStorageError
        where its log cannot be used."""
        try:
            partition = self._manager.locate(request.topic_id, request.partition, context.listener)
        except NotLeaderOrFollower:  # it has no log here (yet)
            return data_pb2.GetReplicaLogInfoResponse(last_epoch=NO_LEADER_EPOCH, log_end_offset=0)
        if partition.offline is not None and (partition.log.damage is None or partition.directory.offline is not None):
            raise partition.offline
        sound, lost = await look_at_damage(partition.log, partition.directory, request.look_ms)
        return data_pb2.GetReplicaLogInfoResponse(
            last_epoch=sound.epoch,
            log_end_offset=sound.end_offset,
            directory_id=partition.directory.directory_id.bytes,
            lost=lost,
        )

    def _epoch_end(self, question: data_pb2.EpochQuestion, context: RequestContext) -> data_pb2.EpochAnswer:
        partition: Partition | None = None
        answer = data_pb2.EpochAnswer(topic_id=question.topic_id, partition=question.partition)
        try:
            partition = self._manager.locate(question.topic_id, question.partition, context.listener)
            leader = partition.leading_in(LeaderEpoch(question.current_leader_epoch))
            end = leader.epoch_end(LeaderEpoch(question.leader_epoch))
            answer.end.CopyFrom(common_pb2.EpochEnd(epoch=end.epoch, end_offset=end.end_offset))
        except TidelogError as error:
            answer.error.CopyFrom(status.to_proto(self._manager.with_leader(error, partition, context.listener)))
        return answer


async def _send_produced(
    stream: MessageStream[data_pb2.ProduceResponse, ProduceRequest], session: ProduceSession
) -> None:
    while True:
        await session.wait_answers()
        answers = session.collect()
        await stream.send(data_pb2.ProduceResponse(partitions=answers))
        session.sent(len(answers))


async def _take_fetches(stream: MessageStream[FetchResponse, data_pb2.FetchRequest], session: FetchSession) -> None:
    while (request := await stream.receive()) is not None:
        session.take(request)
        await session.wait_room()


def _look_up(
    partition: Partition, timestamp: Millis, isolation: FetchIsolation, leader_epoch: LeaderEpoch
) -> tuple[Offset, Millis, LeaderEpoch]:
    """Offset, timestamp and epoch for one question, at the end of the log that of the record before it; offset -1 where
    no record is that young."""
    leader = partition.leading_in(leader_epoch)
    log = partition.log
    # The log start is known before a new leader knows how far the log is committed.
    end = log.log_start_offset if timestamp == EARLIEST else min(leader.committed_end(), log.end_for(isolation))
    if timestamp == LATEST:
        return end, NO_TIMESTAMP, epoch_before(log.epoch_entries(), end)
    found = log.fetch_offset_by_timestamp(timestamp, up_to=end)
    return found if found is not None else (Offset(-1), NO_TIMESTAMP, NO_LEADER_EPOCH)
