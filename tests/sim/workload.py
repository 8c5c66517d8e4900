"""Clients of a simulated cluster: a plain producer that remembers what it was told, and a reader of what is committed.

A client is a process of its own that speaks the wire's messages over the simulated transport. Kept true: a record whose
fate is unknown is never sent again, so what a client counts as sent once is in the log at most once.
Left to others: whether what it was told is true (checkers.py).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from node.listeners.grpc.transport import MessageStream
from tests.sim.clock import WORLD_BEGAN_MS
from tests.sim.loop import SimLoop
from tests.sim.network import Network, SimTransport
from tests.sim.process import Process
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
from tidelog.protocol.methods import Answer, Method, Request
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.protocol.wire import PartitionFetched, PartitionProduce, ProduceRequest
from tidelog.records import build_batch, iter_batches
from tidelog.records.v2.record import Record
from tidelog.types import Endpoint, Millis, Offset

RETRY_MS = (20, 250)
BUSY_S = 0.2  # how long a reader may be busy with what it was given
ANSWER_MS = 4_000
CALL_MS = 3_000
IDENTITY = "sent as"
"""The header by which a record without a value, a tombstone, is known."""
LATEST, EARLIEST = -1, -2


CORRUPT = (CorruptRecord, CorruptLog)
"""What a reader is told, or sees, where bytes have rotted: by another leader they can be read."""


class Fate(Enum):
    PENDING = "under way"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "certainly not written"
    UNKNOWN = "nobody can tell"


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction of one producer, and what its coordinator has decided: None while it is open."""

    producer_id: int
    producer_epoch: int
    committed: bool | None = None
    sent: list[Sent] = field(default_factory=list)
    marker_epoch: int = -1
    """The producer epoch that its markers bear; -1: its own."""
    registered: set[tuple[str, int]] = field(default_factory=set)
    """Partitions that the coordinator was told of, whether anything was sent there or not."""

    @property
    def places(self) -> list[tuple[str, int]]:
        """Where it gets markers."""
        return sorted({(sent.topic, sent.partition) for sent in self.sent} | self.registered)

    @property
    def marker(self) -> tuple[int, int]:
        """Producer id and epoch of its markers."""
        return self.producer_id, self.producer_epoch if self.marker_epoch < 0 else self.marker_epoch

    def sequence_of(self, sent: Sent) -> int:
        """Its place among the records of its partition."""
        mine = [one for one in self.sent if (one.topic, one.partition) == (sent.topic, sent.partition)]
        return mine.index(sent)


@dataclass(slots=True, eq=False)
class Sent:
    """One record that a producer sends, and what became of it."""

    topic: str
    partition: int
    value: bytes
    """By which the record is known: no other has it."""
    acks: int
    fate: Fate = Fate.PENDING
    offset: int = -1
    topic_id: bytes = b""
    error: TidelogError | None = None
    attempts: int = 0
    began_us: int = 0
    """When it was first given to its client."""
    producer: str = ""
    """Which idempotent producer sends it; empty: a plain one."""
    number: int = -1
    """What that producer counts it as: records are queued in this order."""
    tombstone: bool = False
    """The record has no value: a header tells by which it is known."""
    on_done: list[Callable[[Sent], None]] = field(default_factory=list)
    transaction: Transaction | None = None
    timeout_ms: int = ANSWER_MS
    """For the leader to acknowledge it; the client waits for the answer twice as long."""
    drive: Callable[..., None] | None = None  # the world's `run_until`
    key: bytes | None = None

    @property
    def done(self) -> bool:
        return self.fate is not Fate.PENDING

    def wait(self, within: float = 60.0) -> int:
        """Let the world run until the answer is there. Returns the offset; raises the error it ended with."""
        assert self.drive is not None
        self.drive(lambda: self.done, within=within, what=lambda: f"an answer for {self} ({self.error})")
        if self.error is not None and self.fate is not Fate.ACKNOWLEDGED:
            raise self.error
        return self.offset

    def __str__(self) -> str:
        return f"{self.value[:24]!r} to {self.topic}-{self.partition}: {self.fate.value}"


def _record_of(sent: Sent, timestamp: Millis) -> Record:
    if sent.tombstone:
        return Record(Offset(0), timestamp, sent.key, None, ((IDENTITY, sent.value),))
    return Record(Offset(0), timestamp, sent.key, sent.value)


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


class Told(Protocol):
    """What a reader tells of what it is given (readings.py)."""

    position: int

    def got(self, record: Record) -> None: ...
    def reached(self, offset: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Leader:
    """Where a partition is led, as a client learnt it."""

    endpoint: Endpoint
    topic_id: bytes
    epoch: int


class Client:
    """One client process. Every public method is a coroutine to be run as a task of it (`start`)."""

    def __init__(
        self, loop: SimLoop, network: Network, rng: random.Random, name: str, bootstrap: Sequence[Endpoint]
    ) -> None:
        self.process = Process(name)
        self.loop = loop
        self.rng = rng
        self.bootstrap = list(bootstrap)
        self.transport: SimTransport = network.transport(name)
        self._streams: dict[Endpoint, MessageStream[Any, Any]] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._batch_ids = itertools.count(1)
        self._turn = asyncio.Lock()  # one request at a time on the produce streams

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this process."""
        return self.process.run(self.loop.create_task, work, name=f"{self.process.name} {name}")

    async def pause(self) -> None:
        """Wait a little before another attempt."""
        await self.sleep(self.rng.randint(*RETRY_MS) / 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # noqa: TID251 - a client on the simulated loop

    # --- metadata and topics ---

    async def metadata(self, *topics: str) -> admin_pb2.GetMetadataResponse:
        """Of whichever node answers first, asked in an order of chance."""
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
        """Who leads, as a node said once: kept until `forget`. Raises LeaderNotAvailable, UnknownTopicOrPartition."""
        known = self._leaders.get((topic, partition))
        if known is None:
            known = self._leaders[topic, partition] = await self._look_up(topic, partition)
        return known

    def forget(self, topic: str, partition: int) -> None:
        """What was known of the leader led to an error: look it up again."""
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
        request = admin_pb2.CreateTopicRequest(
            name=name, partitions=partitions, replication_factor=replicas, configs=configs
        )
        await self._admin(methods.ADMIN_CREATE_TOPIC, request, done=TopicExists)

    async def delete_topic(self, name: str) -> None:
        request = admin_pb2.DeleteTopicRequest(name=name)
        await self._admin(methods.ADMIN_DELETE_TOPIC, request, done=UnknownTopicOrPartition)

    async def admin(self, method: Method[Request, Answer], request: Request, *, attempts_max: int = 10_000) -> Answer:
        """Ask any node, again where another attempt can help. Raises the refusal, or the last one."""
        for attempt in itertools.count(1):
            endpoint = self.rng.choice(self.bootstrap)
            try:
                return await self.transport.call(endpoint, method, request, timeout_ms=CALL_MS)
            except TidelogError as error:
                if error.retry is Retry.NEVER or attempt >= attempts_max:
                    raise
                await self.pause()
        raise AssertionError("unreachable")

    async def _admin(self, method: Any, request: Any, *, done: type[TidelogError]) -> None:
        """Ask any node until one has done it. done: the error that says an earlier attempt did."""
        for attempt in itertools.count():
            endpoint = self.rng.choice(self.bootstrap)
            try:
                await self.transport.call(endpoint, method, request, timeout_ms=CALL_MS)
                return
            except TidelogError as error:
                if attempt > 0 and isinstance(error, done):
                    return
                if error.retry is Retry.NEVER:
                    raise
                await self.pause()

    # --- producing ---

    async def produce(self, sent: Sent, *, attempts_max: int = 10_000) -> None:
        """Send until the fate is known or unknowable; only what was certainly not written is sent again."""
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
        record = _record_of(sent, Millis(WORLD_BEGAN_MS + self.loop.now_us // 1000))
        entry = PartitionProduce(
            batch_id=batch_id,
            topic_id=leader.topic_id,
            partition=sent.partition,
            leader_epoch=leader.epoch,
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
        """One fetch from the leader, of what is committed; decided: of decided transactions, without what was aborted;
        refused: what was last sent from there on was damaged.
        Returns the records from `offset` on, and where to read on: markers and aborted records lie between."""
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
    ) -> PartitionFetched:
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
            raise status.from_proto(fetched.error)
        return fetched

    async def nearest(self, topic: str, partition: int, offset: int, rack: str) -> int:
        """Whom the leader would have a reader in that rack ask for the offset: a node, -1 for itself (KIP-392)."""
        fetched = await self._ask(await self.leader(topic, partition), partition, offset, 0, rack=rack)
        return int(fetched.preferred_read_replica)

    async def fetch_at(
        self, node: Endpoint, topic: str, partition: int, offset: int, epoch: int | None = None
    ) -> list[Record]:
        """One fetch from a replica, the leader or not, of what it knows to be committed. epoch: by which the reader
        asks; None: the leader's."""
        leader = await self.leader(topic, partition)
        asked = Leader(node, leader.topic_id, leader.epoch if epoch is None else epoch)
        records, _ = _shown(await self._ask(asked, partition, offset, 0), offset)
        return records

    async def latest(self, topic: str, partition: int) -> int:
        """Where the committed log ends, by the leader. Raises OffsetNotAvailable while that one cannot know."""
        return (await self.told_end(topic, partition))[1]

    async def told_end(self, topic: str, partition: int) -> tuple[int, int]:
        """As `latest`, behind the epoch of the leader that says so."""
        leader = await self.leader(topic, partition)
        return leader.epoch, await self._listed(leader, partition, LATEST)

    async def earliest(self, topic: str, partition: int) -> int:
        """Where the log starts, by the leader."""
        return await self._listed(await self.leader(topic, partition), partition, EARLIEST)

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
        """Fetch from `offset`, the record before it being of that epoch. Returns epoch and end where the leader says
        that the logs stop agreeing; None where they agree."""
        leader = await self.leader(topic, partition)
        answer = await self._ask(leader, partition, offset, 0, last_epoch=epoch)
        return None if answer.diverging is None else (answer.diverging.epoch, answer.diverging.end_offset)

    async def read_to(self, topic: str, partition: int, end: int, told: Told, *, decided: bool = False) -> None:
        """Read from where `told` is until it has been given everything below `end`, through whatever goes wrong."""
        while told.position < end:
            await self._read_on(topic, partition, told, 100, decided)

    async def tail(self, topic: str, partition: int, told: Told, *, decided: bool = False) -> None:
        """Read for ever; half of the time it is busy for a while with what it was given, so that the next answer is of
        several batches."""
        while True:
            position = told.position
            await self._read_on(topic, partition, told, self.rng.randint(0, 500), decided)
            if told.position == position:
                await self.pause()
            elif self.rng.random() < 0.5:
                await self.sleep(self.rng.uniform(0, BUSY_S))

    async def _read_on(self, topic: str, partition: int, told: Told, max_wait_ms: int, decided: bool) -> None:
        """One attempt. A position that is not in the log any more is left for where that starts."""
        try:
            records, reached = await self.fetch(
                topic, partition, told.position, max_wait_ms=max_wait_ms, decided=decided
            )
        except OffsetOutOfRange:
            try:
                start = await self.earliest(topic, partition)
            except TidelogError:
                start = told.position
            told.reached(max(start, told.position))
            await self.pause()
        except TidelogError as error:
            if error.retry is Retry.NEVER and not isinstance(error, CORRUPT):
                raise
            self.forget(topic, partition)
            await self.pause()
        else:
            for record in records:
                told.got(record)
            told.reached(reached)


def _shown(fetched: PartitionFetched, offset: int) -> tuple[list[Record], int]:
    """The records that an answer gives a reader from `offset` on, and where that reads on."""
    begun = deque(sorted((int(entry.first_offset), int(entry.producer_id)) for entry in fetched.aborted))
    aborted: set[int] = set()
    records: list[Record] = []
    reached = offset
    for batch in iter_batches(fetched.records):
        batch.ensure_valid()
        reached = int(batch.next_offset)
        while begun and begun[0][0] < reached:
            aborted.add(begun.popleft()[1])
        if batch.is_control:
            aborted.discard(int(batch.producer_id))  # its transaction ends here
        elif not (batch.is_transactional and int(batch.producer_id) in aborted):
            records.extend(record for record in batch.records() if record.offset >= offset)
    return records, reached
