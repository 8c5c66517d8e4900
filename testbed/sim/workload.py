"""Clients of a simulated cluster: a plain producer that records its answers, and a reader of committed records.

A client is a process that sends the wire's messages over the simulated transport. Invariants: a record with an unknown
outcome is never sent again, so the log has at most one copy of a record that the client counts as sent once. Not here:
the check of the answers (checkers.py).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from testbed.sim.clock import WORLD_BEGAN_MS
from testbed.sim.loop import SimLoop
from testbed.sim.network import Network, SimTransport
from testbed.sim.process import Process
from testbed.topic_requests import changed, creating, deleting
from tidelog.errors import (
    ConnectionLost,
    CorruptLog,
    CorruptRecord,
    LeaderNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    Retry,
    TidelogError,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods, status
from tidelog.protocol.kafka.message_codec import Data
from tidelog.protocol.network import MessageStream
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.record_exchange import FetchedPartition, ProduceBatch, ProduceRequest
from tidelog.records import build_batch, iter_batches
from tidelog.records.v2.record import Record
from tidelog.types import EARLIEST, LATEST, MAX_TIMESTAMP, Endpoint, LeaderEpoch, Millis, Offset

RETRY_MS = (20, 250)
BUSY_S = 0.2  # upper bound of the time for which a reader may be busy with an answer
ANSWER_MS = 4_000
CALL_MS = 3_000
IDENTITY = "sent as"
"""The header that identifies a record without a value (a tombstone)."""


CORRUPT = (CorruptRecord, CorruptLog)
"""Errors of a reader at corrupt bytes: another leader can serve them."""


class AnsweredError(Exception):
    """A node has answered with this error."""

    def __init__(self, error: TidelogError) -> None:
        super().__init__(error.message)
        self.error = error


class Fate(Enum):
    PENDING = "in flight"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "certainly not written"
    UNKNOWN = "unknown whether written"


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction of one producer and the decision of its coordinator: None while it is open."""

    producer_id: int
    producer_epoch: int
    committed: bool | None = None
    sent: list[Sent] = field(default_factory=list)
    marker_epoch: int = -1
    """The producer epoch in its markers; -1: its own."""
    registered: set[tuple[str, int]] = field(default_factory=set)
    """Partitions added to the transaction, with or without records."""

    @property
    def places(self) -> list[tuple[str, int]]:
        """The partitions that get its markers."""
        return sorted({(sent.topic, sent.partition) for sent in self.sent} | self.registered)

    @property
    def marker(self) -> tuple[int, int]:
        """Producer ID and epoch of its markers."""
        return self.producer_id, self.producer_epoch if self.marker_epoch < 0 else self.marker_epoch

    def is_contradicted(self, *, committed: bool) -> bool:
        """Whether a marker that commits, or aborts, differs from the decision of the scripted coordinator."""
        return self.committed is not committed

    def sequence_of(self, sent: Sent) -> int:
        """The position of a record among the transaction's records of its partition."""
        mine = [one for one in self.sent if (one.topic, one.partition) == (sent.topic, sent.partition)]
        return mine.index(sent)


@dataclass(slots=True, eq=False)
class Sent:
    """One record that a producer sends, and its outcome."""

    topic: str
    partition: int
    value: bytes
    """Identifies the record: no other record has it."""
    acks: int
    fate: Fate = Fate.PENDING
    offset: int = -1
    topic_id: bytes = b""
    error: TidelogError | None = None
    attempts: int = 0
    began_us: int = 0
    """When the client first got it."""
    producer: str = ""
    """Its idempotent producer; empty: a plain one."""
    number: int = -1
    """Its number in that producer: records are queued in this order."""
    tombstone: bool = False
    """The record has no value: a header identifies it."""
    on_done: list[Callable[[Sent], None]] = field(default_factory=list)
    transaction: Transaction | None = None
    timeout_ms: int = ANSWER_MS
    """Time for the leader to acknowledge it; the client waits twice as long for the answer."""
    drive: Callable[..., None] | None = None  # the world's `run_until`
    key: bytes | None = None

    @property
    def done(self) -> bool:
        return self.fate is not Fate.PENDING

    def wait(self, within: float = 60.0) -> int:
        """Run the world until the answer arrives. Returns the offset; raises the error of the answer."""
        assert self.drive is not None
        self.drive(lambda: self.done, within=within, what=lambda: f"an answer for {self} ({self.error})")
        if self.error is not None and self.fate is not Fate.ACKNOWLEDGED:
            raise self.error
        return self.offset

    def __str__(self) -> str:
        return f"{self.value[:24]!r} to {self.topic}-{self.partition}: {self.fate.value}"


def record_of(sent: Sent, timestamp: Millis, number: int = 0) -> Record:
    """The record as it is sent. number: its place in its batch."""
    if sent.tombstone:
        return Record(Offset(number), timestamp, sent.key, None, ((IDENTITY, sent.value),))
    return Record(Offset(number), timestamp, sent.key, sent.value)


def _batch_of(sent: Sent, record: Record) -> bytes:
    if sent.transaction is None:
        return build_batch([record])
    return build_batch(
        [record],
        producer_id=sent.transaction.producer_id,
        producer_epoch=sent.transaction.producer_epoch,
        base_sequence=sent.transaction.sequence_of(sent),
        is_transactional=True,
    )


class Received(Protocol):
    """The judge of what a reader receives (readings.py)."""

    position: int

    def got(self, record: Record) -> None: ...
    def reached(self, offset: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, as a client knows it."""

    endpoint: Endpoint
    topic_id: bytes
    epoch: int


class Client:
    """One client process. Every public coroutine runs as a task of it (`start`)."""

    def __init__(
        self, loop: SimLoop, network: Network, rng: random.Random, name: str, bootstrap: Sequence[Endpoint]
    ) -> None:
        self.process = Process(name)
        self.loop = loop
        self.rng = rng
        self.bootstrap = list(bootstrap)
        self.network = network
        self.transport: SimTransport = network.transport(name)
        self._streams: dict[Endpoint, MessageStream[Any, Any]] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._batch_ids = itertools.count(1)
        self.graveyard: list[Any] = []  # keeps the tasks of a killed process from garbage collection
        self._turn = asyncio.Lock()  # one request at a time on the produce streams

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this process."""
        return self.process.run(self.loop.create_task, work, name=f"{self.process.name} {name}")

    async def pause(self) -> None:
        """Back off before the next attempt."""
        await self.sleep(self.rng.randint(*RETRY_MS) / 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # noqa: TID251 - a client on the simulated loop

    # --- metadata and topics ---

    async def metadata(self, *topics: str) -> admin_pb2.GetMetadataResponse:
        """The metadata from the first node that answers, asked in random order."""
        nodes = self.bootstrap.copy()
        self.rng.shuffle(nodes)
        failure: TidelogError | None = None
        for endpoint in nodes:
            request = admin_pb2.GetMetadataRequest(topics=list(topics))
            try:
                return await self.transport.call(endpoint, methods.ADMIN_GET_METADATA, request, timeout_ms=CALL_MS)
            except TidelogError as error:
                failure = error
        assert failure is not None
        raise failure

    async def leader(self, topic: str, partition: int) -> Leader:
        """The leader of a partition, cached until `forget`. Raises LeaderNotAvailable, UnknownTopicOrPartition."""
        known = self._leaders.get((topic, partition))
        if known is None:
            known = self._leaders[topic, partition] = await self._look_up(topic, partition)
        return known

    def forget(self, topic: str, partition: int) -> None:
        """Drop the cached leader after an error."""
        self._leaders.pop((topic, partition), None)

    async def _look_up(self, topic: str, partition: int) -> Leader:
        answer = await self.metadata(topic)
        for found in answer.topics:
            if found.name == topic and not found.HasField("error") and partition < len(found.partitions):
                state = found.partitions[partition]
                for node in answer.nodes:
                    if node.node_id == state.leader:
                        return Leader(Endpoint(node.host, node.port), found.topic_id, state.leader_epoch)
                raise LeaderNotAvailable(f"{topic}-{partition} has no leader now")
        raise UnknownTopicOrPartition(f"{topic}-{partition} does not exist")

    async def create_topic(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        request = creating(name=name, partitions=partitions, replication_factor=replicas, configs=configs)
        await self._admin(methods.ADMIN_CREATE_TOPICS, request, done=TopicExists)

    async def delete_topic(self, name: str) -> None:
        request = deleting(name=name)
        await self._admin(methods.ADMIN_DELETE_TOPICS, request, done=UnknownTopicOrPartition)

    async def admin(self, method: Method[Request, Answer], request: Request, *, attempts_max: int = 10_000) -> Answer:
        """Send a request to any node, with retries after retriable errors. Raises the error of the answer, or the
        last one."""
        for attempt in itertools.count(1):
            endpoint = self.rng.choice(self.bootstrap)
            try:
                answer = await self.transport.call(endpoint, method, request, timeout_ms=CALL_MS)
                if isinstance(answer, admin_pb2.ChangedTopics):
                    changed(answer)
                return answer
            except TidelogError as error:
                if error.retry is Retry.NEVER or attempt >= attempts_max:
                    raise
                await self.pause()
        raise AssertionError("unreachable")

    async def _admin(self, method: Any, request: Any, *, done: type[TidelogError]) -> None:
        """Retry on any node until the request is done. done: the error that proves that an earlier attempt
        succeeded."""
        for attempt in itertools.count():
            endpoint = self.rng.choice(self.bootstrap)
            try:
                changed(await self.transport.call(endpoint, method, request, timeout_ms=CALL_MS))
                return
            except TidelogError as error:
                if attempt > 0 and isinstance(error, done):
                    return
                if error.retry is Retry.NEVER:
                    raise
                await self.pause()

    async def delete_records(self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 2_000) -> int:
        """Ask the leader once to delete records. Returns the low watermark. Raises the error of the leader's answer as
        AnsweredError; any other error if there was no answer."""
        leader = await self.leader(topic, partition)
        deletion = data_pb2.PartitionDeletion(topic_id=leader.topic_id, partition=partition, offset=offset)
        request = data_pb2.DeleteRecordsRequest(partitions=[deletion], max_wait_ms=max_wait_ms)
        answer = await self.transport.call(leader.endpoint, methods.DATA_DELETE_RECORDS, request, timeout_ms=CALL_MS)
        deleted = answer.partitions[0]
        if deleted.HasField("error"):
            self.forget(topic, partition)
            raise AnsweredError(status.from_proto(deleted.error))
        return int(deleted.low_watermark)

    # --- producing ---

    async def produce(self, sent: Sent, *, attempts_max: int = 10_000) -> None:
        """Send until the outcome is known, or cannot be known. Only a record that was certainly not written is sent
        again."""
        async with self._turn:
            while not sent.done:
                sent.attempts += 1
                try:
                    await self._produce_once(sent)
                    sent.fate = Fate.ACKNOWLEDGED
                except TidelogError as error:
                    self.forget(sent.topic, sent.partition)
                    sent.error = error
                    if error.written is None:
                        sent.fate = Fate.UNKNOWN
                    elif error.retry is Retry.NEVER or sent.attempts >= attempts_max:
                        sent.fate = Fate.REFUSED
                    else:
                        await self.pause()
        for tell in sent.on_done:
            tell(sent)

    async def _produce_once(self, sent: Sent) -> None:
        leader = await self.leader(sent.topic, sent.partition)
        sent.topic_id = leader.topic_id
        stream = self._streams.get(leader.endpoint)
        if stream is None:
            stream = await self.transport.open_stream(leader.endpoint, methods.DATA_PRODUCE_STREAM)
            self._streams[leader.endpoint] = stream
        batch_id = next(self._batch_ids)
        record = record_of(sent, Millis(WORLD_BEGAN_MS + self.loop.now_us // 1000))
        entry = ProduceBatch(
            correlation_id=batch_id,
            topic_id=leader.topic_id,
            partition=sent.partition,
            leader_epoch=LeaderEpoch(leader.epoch),
            records=_batch_of(sent, record),
        )
        request = ProduceRequest(acks=sent.acks, timeout_ms=sent.timeout_ms, partitions=[entry])
        try:
            answer = await self._exchange(stream, request, batch_id, leader.endpoint)
        except BaseException:
            self._streams.pop(leader.endpoint, None)
            stream.close()
            raise
        if answer.HasField("error"):
            raise status.from_proto(answer.error)
        sent.offset = answer.base_offset

    @staticmethod
    async def _exchange(
        stream: MessageStream[Any, Any], request: ProduceRequest, batch_id: int, to: Endpoint
    ) -> data_pb2.PartitionProduced:
        try:
            async with asyncio.timeout(2 * request.timeout_ms / 1000):
                await stream.send(request)
                if request.acks == 0:
                    return data_pb2.PartitionProduced(base_offset=-1)
                while (answer := await stream.receive()) is not None:
                    for entry in answer.partitions:
                        if entry.batch_id == batch_id:
                            return entry  # type: ignore[no-any-return]
        except TimeoutError:
            raise RequestTimedOut(f"no answer from {to} to a batch within {2 * request.timeout_ms} ms") from None
        raise ConnectionLost(f"{to} ended the stream before it answered the batch")

    # --- reading ---

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 100,
        decided: bool = False,
        refused: bool = False,
    ) -> tuple[list[Record], int]:
        """One fetch of committed records from the leader. decided: with read_committed, without aborted records.
        refused: the last bytes received from this offset were corrupt. Returns the records from `offset` on and the
        next position, which may be beyond the last record because of markers and aborted records."""
        isolation = data_pb2.ISOLATION_LEVEL_READ_COMMITTED if decided else data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
        try:
            leader = await self.leader(topic, partition)
            fetched = await self._ask(leader, partition, offset, max_wait_ms, isolation=isolation, refused=refused)
        except TidelogError:
            self.forget(topic, partition)
            raise
        return _shown(fetched, offset)

    async def _ask(
        self,
        leader: Leader,
        partition: int,
        offset: int,
        max_wait_ms: int,
        *,
        last_epoch: int = -1,
        isolation: data_pb2.IsolationLevel.ValueType = data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
        rack: str = "",
        refused: bool = False,
    ) -> FetchedPartition:
        wanted = data_pb2.FetchPartition(
            fetch_id=1,
            topic_id=leader.topic_id,
            partition=partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            durable_offset=-1,
            log_start_offset=-1,
            max_bytes=1 << 20,
            refused=refused,
        )
        request = data_pb2.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=isolation,
            rack=rack,
            partitions=[wanted],
        )
        answer = await self.transport.call(leader.endpoint, methods.DATA_FETCH, request, timeout_ms=CALL_MS)
        fetched = answer.partitions[0]
        if fetched.error is not None:
            raise fetched.error
        return fetched

    async def nearest(self, topic: str, partition: int, offset: int, rack: str) -> int:
        """The preferred read replica of the leader for a reader in that rack; -1 for the leader itself (KIP-392)."""
        fetched = await self._ask(await self.leader(topic, partition), partition, offset, 0, rack=rack)
        return int(fetched.preferred_read_replica)

    async def fetch_at(
        self, node: Endpoint, topic: str, partition: int, offset: int, epoch: int | None = None
    ) -> list[Record]:
        """One fetch of committed records from a replica, the leader or not. epoch: the leader epoch in the request;
        None: the current one."""
        leader = await self.leader(topic, partition)
        asked = Leader(node, leader.topic_id, leader.epoch if epoch is None else epoch)
        records, _ = _shown(await self._ask(asked, partition, offset, 0), offset)
        return records

    async def latest(self, topic: str, partition: int) -> int:
        """The end of the committed log, from the leader. Raises OffsetNotAvailable while the leader does not know
        it."""
        return (await self.reported_end(topic, partition))[1]

    async def reported_end(self, topic: str, partition: int) -> tuple[int, int]:
        """As `latest`, with the epoch of that leader before it."""
        leader = await self.leader(topic, partition)
        return leader.epoch, await self._listed(leader, partition, LATEST)

    async def earliest(self, topic: str, partition: int) -> int:
        """The log start offset, from the leader."""
        return await self._listed(await self.leader(topic, partition), partition, EARLIEST)

    async def newest(self, topic: str, partition: int) -> int:
        """The offset of the first record with the largest timestamp, from the leader."""
        return await self._listed(await self.leader(topic, partition), partition, MAX_TIMESTAMP)

    async def _listed(self, leader: Leader, partition: int, timestamp_ms: int) -> int:
        asked = data_pb2.ListOffsetsPartition(
            topic_id=leader.topic_id,
            partition=partition,
            current_leader_epoch=leader.epoch,
            timestamp_ms=timestamp_ms,
        )
        request = data_pb2.ListOffsetsRequest(partitions=[asked])
        answer = await self.transport.call(leader.endpoint, methods.DATA_LIST_OFFSETS, request, timeout_ms=CALL_MS)
        listed = answer.partitions[0]
        if listed.HasField("error"):
            raise status.from_proto(listed.error)
        return int(listed.offset)

    async def truncation(self, topic: str, partition: int, offset: int, epoch: int) -> tuple[int, int] | None:
        """Fetch from `offset`, with that epoch as the epoch of the record before. Returns the diverging epoch and
        its end offset if the leader reports them; None if the logs agree."""
        leader = await self.leader(topic, partition)
        answer = await self._ask(leader, partition, offset, 0, last_epoch=epoch)
        return None if answer.diverging is None else (answer.diverging.epoch, answer.diverging.end_offset)

    async def read_to(self, topic: str, partition: int, end: int, received: Received, *, decided: bool = False) -> None:
        """Read from the position of `received` until it has received everything below `end`, through all errors."""
        while received.position < end:
            await self._read_on(topic, partition, received, 100, decided)

    async def tail(self, topic: str, partition: int, received: Received, *, decided: bool = False) -> None:
        """Read without end. Half of the time the reader is busy with an answer for a while, so that the next one has
        several batches."""
        while True:
            position = received.position
            await self._read_on(topic, partition, received, self.rng.randint(0, 500), decided)
            if received.position == position:
                await self.pause()
            elif self.rng.random() < 0.5:
                await self.sleep(self.rng.uniform(0, BUSY_S))

    async def _read_on(self, topic: str, partition: int, received: Received, max_wait_ms: int, decided: bool) -> None:
        """One attempt. If its position is no longer in the log, the reader moves to the log start."""
        try:
            records, reached = await self.fetch(
                topic, partition, received.position, max_wait_ms=max_wait_ms, decided=decided
            )
        except OffsetOutOfRange:
            try:
                start = await self.earliest(topic, partition)
            except TidelogError:
                start = received.position
            received.reached(max(start, received.position))
            await self.pause()
        except TidelogError as error:
            if error.retry is Retry.NEVER and not isinstance(error, CORRUPT):
                raise
            self.forget(topic, partition)
            await self.pause()
        else:
            for record in records:
                received.got(record)
            received.reached(reached)


def _shown(fetched: FetchedPartition, offset: int) -> tuple[list[Record], int]:
    """The records that an answer gives to a reader from `offset` on, and its next position."""
    aborted = [(int(entry.first_offset), int(entry.producer_id)) for entry in fetched.aborted]
    shown = records_shown(fetched.records, aborted, offset)
    return shown.records, shown.position


class Shown(NamedTuple):
    """What an answer gives to a reader."""

    records: list[Record]
    position: int
    """The next one of the reader."""
    epoch: int
    """The leader epoch of the last batch; -1 if there is none."""


def records_shown(data: Data, aborted: Sequence[tuple[int, int]], offset: int) -> Shown:
    """What batches give to a reader from `offset` on. aborted: first offset and producer id of aborted transactions."""
    begun = deque(sorted(aborted))
    open_ids: set[int] = set()
    records: list[Record] = []
    reached, epoch = offset, -1
    for batch in iter_batches(data):
        batch.ensure_valid()
        reached, epoch = int(batch.next_offset), int(batch.partition_leader_epoch)
        while begun and begun[0][0] < reached:
            open_ids.add(begun.popleft()[1])
        if batch.is_control:
            open_ids.discard(int(batch.producer_id))  # its transaction ends here
        elif not (batch.is_transactional and int(batch.producer_id) in open_ids):
            records.extend(record for record in batch.records() if record.offset >= offset)
    return Shown(records, reached, epoch)
