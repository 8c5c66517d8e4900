"""A client of Kafka's protocol in a simulated world: connections, metadata, an idempotent producer, and a reader that
detects truncation (KIP-320).

It is ours and small, but its bytes are Kafka's, and the node's listener is the real one. As Kafka's clients do, it
sends several produce requests ahead on one connection and takes the answers to be in the order of the requests; what
does not fit fails the world. What it is told goes through the checkers like that of all other clients.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from node.listeners.kafka.api_versions import VERSIONS as API_VERSIONS
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from testbed.sim.byte_streams import WINDOW_BYTES, ByteConnection, ClientSocket
from testbed.sim.checkers import Checkers
from testbed.sim.clock import WORLD_BEGAN_MS
from testbed.sim.ledger import Violation
from testbed.sim.machine import KAFKA_PORT
from testbed.sim.readings import Reading
from testbed.sim.workload import Client, Fate, Sent, record_of, records_shown
from tests.node.kafka_frames import both_ways, decoded, request_frame
from tidelog.errors import (
    ConnectionLost,
    InvalidProducerEpoch,
    LeaderNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicOrPartition,
    all_errors,
)
from tidelog.records import build_batch
from tidelog.types import EARLIEST, Endpoint, Millis

CONNECT_S: Final = 2.0
ANSWER_S: Final = 6.0
"""Longer than a node waits for acknowledgements."""

PRODUCE_MS: Final = 3_000
AHEAD: Final = 5
"""Produce requests that a producer sends before it has an answer."""

BATCH: Final = 3
"""Limit of records in a batch."""

NEW_SESSION: Final = 0.05
"""How often a reader ends its session, and begins another."""

Place = tuple[str, int]
"""Topic name and partition index."""

_ById = tuple[UUID, int]
"""Topic id and partition index."""

DUPLICATE_SEQUENCE_NUMBER: Final = 46

LOST_SEQUENCES: Final = (OutOfOrderSequenceNumber, InvalidProducerEpoch, UnknownProducerId)
"""The leader does not know the sequence numbers any more: another producer id is needed."""

_VERSIONS: Final = {each.request.message.__name__.removesuffix("Request"): each.versions[-1] for each in KAFKA_APIS}
_VERSIONS["ApiVersions"] = API_VERSIONS[-1]
_VERSIONS.update(OffsetCommit=9, OffsetFetch=9)
"""The latest, but for those that have names of topics."""
_ERRORS: Final = {each.code: each for each in all_errors()}


def raise_for(code: int, what: str) -> None:
    """Raise the error with this number."""
    if code:
        raise _ERRORS.get(code, UnknownServerError)(f"{what} is refused with {code}")


def message_of(name: str) -> Any:
    """The module of a request."""
    return both_ways(f"{name}Request").module


class Wire:
    """One connection, on which answers are expected in the order of the requests."""

    def __init__(self, client: Client, socket: ClientSocket) -> None:
        self._client, self._socket = client, socket
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, str, int, asyncio.Future[Any]]] = deque()
        self._is_closed = False
        self.transaction_version = 0
        """The level of that feature that the cluster has raised, by this node."""
        client.start(self._read(), "reads answers")

    @property
    def is_over(self) -> bool:
        return self._socket.is_over

    def _is_calm(self) -> bool:
        """Whether no fault explains what a node did within the time of an answer."""
        since = self._client.network.calm_since
        return since is not None and self._client.loop.time() > since + ANSWER_S

    def tell(self, api: str, message: Any, version: int | None = None) -> int:
        """Send a request, and expect no answer. version: None: that of `_VERSIONS`. Returns its number. Raises
        ConnectionLost."""
        number = next(self._numbers)
        version = _VERSIONS[api] if version is None else version
        self._socket.send(request_frame(api, version, message, number, self._client.process.name))
        return number

    def begin(self, api: str, message: Any, version: int | None = None) -> asyncio.Future[Any]:
        """Send a request. The future gets the message of the answer, or ConnectionLost."""
        answer: asyncio.Future[Any] = self._client.loop.create_future()
        try:
            number = self.tell(api, message, version)
            self._waiting.append((number, api, _VERSIONS[api] if version is None else version, answer))
        except ConnectionLost as lost:
            answer.set_exception(lost)
        return answer

    async def end(self, api: str, answer: asyncio.Future[Any], within_s: float = ANSWER_S) -> Any:
        """The message of the answer. Raises ConnectionLost, RequestTimedOut; the connection is closed then."""
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            self.close()
            what = f"{self._client.process.name} has no answer to its {api} request within {within_s:g} s"
            if self._is_calm() and within_s >= ANSWER_S:
                raise Violation(f"{what}, and nothing disturbs the node") from None
            raise RequestTimedOut(what) from None

    def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        self._socket.close()

    async def ask(self, api: str, message: Any, within_s: float = ANSWER_S, version: int | None = None) -> Any:
        """The answer to one request. Raises as `end` does."""
        return await self.end(api, self.begin(api, message, version), within_s)

    async def _read(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._socket.read(4), "big")
                self._answered(await self._socket.read(size))
        except ConnectionLost as lost:
            if self._is_calm() and not self._is_closed:
                raise Violation(f"{lost.message}: a node has ended the connection, and nothing disturbs it") from None
            while self._waiting:
                *_, answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_exception(lost)

    def _answered(self, data: bytes) -> None:
        number = int.from_bytes(data[:4], "big")
        expected = self._waiting[0][0] if self._waiting else None
        if number != expected:
            raise Violation(
                f"{self._client.process.name} was given the answer to request {number} of a connection, where that to "
                f"{'no request' if expected is None else f'request {expected}'} was due"
            )
        _, api, version, answer = self._waiting.popleft()
        _, message = decoded(api, version, data, plain=api == "ApiVersions")
        if not answer.done():
            answer.set_result(message)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, as the client knows it."""

    leader: Endpoint
    epoch: int
    topic_id: bytes


class KafkaClient:
    """The connections and the metadata of one client process."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._wires: dict[Endpoint, Wire] = {}
        self._connecting = asyncio.Lock()
        self._leaders: dict[Place, Leader] = {}

    async def wire(self, to: Endpoint) -> Wire:
        """The connection to a node; a new one begins with ApiVersions. Raises ConnectionFailed, ConnectionLost,
        RequestTimedOut."""
        async with self._connecting:
            wire = self._wires.get(to)
            if wire is None or wire.is_over:
                wire = self._wires[to] = await self._connected(to)
            return wire

    async def _connected(self, to: Endpoint) -> Wire:
        client = self.client
        connection = ByteConnection(client.network, client.process.name, to, client.process)
        try:
            async with asyncio.timeout(CONNECT_S):
                wire = Wire(client, await connection.opened())
        except TimeoutError:
            raise RequestTimedOut(f"no connection to {to}") from None
        software = {"client_software_name": "sim", "client_software_version": "1"}
        answer = await wire.ask("ApiVersions", message_of("ApiVersions").ApiVersionsRequest(**software))
        raise_for(answer.error_code, "ApiVersions")
        for feature in answer.finalized_features:
            wire.transaction_version = feature.max_version_level
        return wire

    def close(self) -> None:
        """End all connections."""
        for wire in self._wires.values():
            wire.close()

    async def any_wire(self) -> Wire:
        """A connection to any node. Raises as `wire` does."""
        return await self.wire(Endpoint(self.client.rng.choice(self.client.bootstrap).host, KAFKA_PORT))

    async def place(self, place: Place) -> Leader:
        """The leader of a partition, from any node. Raises LeaderNotAvailable, UnknownTopicOrPartition, and what a
        connection raises."""
        known = self._leaders.get(place)
        if known is None:
            sent = message_of("Metadata")
            named = (sent.MetadataRequestTopic(name=place[0]),)
            asked = sent.MetadataRequest(named, allow_auto_topic_creation=False)
            answer = await (await self.any_wire()).ask("Metadata", asked)
            known = self._leaders[place] = self._found(answer, *place)
        return known

    def _found(self, answer: Any, topic: str, partition: int) -> Leader:
        [found] = answer.topics
        if found.name != topic:
            raise Violation(f"the metadata of {topic} name {found.name}")
        raise_for(found.error_code, f"metadata of {topic}")
        nodes = {each.node_id: Endpoint(each.host, each.port) for each in answer.brokers}
        for each in found.partitions:
            if each.partition_index == partition:
                if each.leader_id not in nodes:
                    raise LeaderNotAvailable(f"{topic}-{partition} has no leader now")
                return Leader(nodes[each.leader_id], each.leader_epoch, found.topic_id.bytes)
        raise UnknownTopicOrPartition(f"{topic}-{partition} does not exist")

    def forget(self, place: Place) -> None:
        """Look the leader up again."""
        self._leaders.pop(place, None)

    async def fetch(
        self, wire: Wire, positions: Mapping[Place, tuple[int, int]], *, decided: bool, wait_ms: int
    ) -> dict[Place, Any]:
        """Records of partitions, from a node and without a session. positions: the next offset of each, and the leader
        epoch of the record before it. decided: with read_committed. Raises the error of the request, and what a
        connection raises."""
        sent, names = message_of("Fetch"), dict[_ById, Place]()
        asked: dict[UUID, list[Any]] = {}
        for place, (offset, last_epoch) in positions.items():
            known = await self.place(place)
            key = UUID(bytes=known.topic_id), place[1]
            names[key] = place
            epochs = {"last_fetched_epoch": last_epoch, "current_leader_epoch": known.epoch}
            asked.setdefault(key[0], []).append(sent.FetchPartition(place[1], offset, 1 << 16, **epochs))
        topics = tuple(sent.FetchTopic(topic_id=each, partitions=tuple(parts)) for each, parts in asked.items())
        answer = await wire.ask("Fetch", sent.FetchRequest(wait_ms, 1, 1 << 20, int(decided), topics))
        raise_for(answer.error_code, "Fetch")
        found = {
            (topic.topic_id, each.partition_index): each for topic in answer.responses for each in topic.partitions
        }
        if found.keys() != names.keys():
            raise Violation(f"a fetch of {sorted(positions)} was answered for {sorted(found)}")
        return {names[key]: each for key, each in found.items()}

    async def read_late(self, place: Place, *, requests: int, after_s: float) -> None:
        """Ask for all records of a partition several times, on a connection of which nothing is read for so long, then
        read all answers. Raises what a connection raises."""
        client, known, sent = self.client, await self.place(place), message_of("Fetch")
        topic = sent.FetchTopic(
            topic_id=UUID(bytes=known.topic_id), partitions=(sent.FetchPartition(place[1], 0, 1 << 20),)
        )
        message = sent.FetchRequest(0, 1, 1 << 20, 0, (topic,), session_epoch=-1)
        connection = ByteConnection(client.network, client.process.name, known.leader, client.process)
        socket = await connection.opened()
        for number in range(requests):
            socket.send(request_frame("Fetch", _VERSIONS["Fetch"], message, number, client.process.name))
        await client.sleep(after_s)
        held = connection.down.unread
        for number in range(requests):
            size = int.from_bytes(await socket.read(4), "big")
            answered, answer = decoded("Fetch", _VERSIONS["Fetch"], await socket.read(size))
            found = self.only_partition((topic.topic_id, place[1]), answer.responses, "partitions", "partition_index")
            raise_for(found.error_code, f"a fetch of {place}")
            if answered != number or len(found.records) < WINDOW_BYTES:
                raise Violation(f"request {number} has the answer to {answered}: {len(found.records)} bytes of records")
            if number == 0 and held != 4 + size:
                raise Violation(f"{held} bytes wait for {client.process.name}; the first answer has {4 + size}")
        socket.close()

    async def earliest(self, place: Place) -> int:
        """The log start offset, from the leader. Raises as `fetch`."""
        sent = message_of("ListOffsets")
        known = await self.place(place)
        partition = sent.ListOffsetsPartition(place[1], EARLIEST, known.epoch)
        request = sent.ListOffsetsRequest(-1, (sent.ListOffsetsTopic(place[0], (partition,)),))
        answer = await (await self.wire(known.leader)).ask("ListOffsets", request)
        found = self.only_partition(place, answer.topics, "partitions", "partition_index")
        raise_for(found.error_code, f"the start of {place}")
        return int(found.offset)

    @staticmethod
    def only_partition(asked: Place | _ById, topics: Sequence[Any], partitions: str, index: str) -> Any:
        """The answer for the one partition that was asked for."""
        by_id = isinstance(asked[0], UUID)
        found = [
            (topic.topic_id if by_id else topic.name, each) for topic in topics for each in getattr(topic, partitions)
        ]
        names = [(name, getattr(each, index)) for name, each in found]
        if names != [asked]:
            raise Violation(f"a request for {asked} was answered for {names}")
        return found[0][1]


# --- producing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Batch:
    """Records that are sent together, and again with the same number until their outcome is known."""

    records: Sequence[Sent]
    sequence: int


class SimKafkaProducer:
    """An idempotent producer with acks=all, of one partition at a time."""

    def __init__(self, kafka: KafkaClient, checkers: Checkers, index: int = 0) -> None:
        """index: of the producer among those of its process."""
        self._kafka, self._client, self._checkers = kafka, kafka.client, checkers
        self._index = index
        self._producer = (-1, -1)
        self._run_number = 0
        self._next: dict[Place, int] = {}
        """The next sequence number of each partition."""
        self._numbers = itertools.count()

    @property
    def name(self) -> str:
        """What identifies its present producer id to the checkers: the order of what it sends is judged by that."""
        return f"{self._client.process.name}.{self._index}.{self._run_number}"

    async def start(self) -> None:
        """Get a producer id."""
        request = message_of("InitProducerId").InitProducerIdRequest(None, 60_000)
        while True:
            try:
                answer = await (await self._kafka.any_wire()).ask("InitProducerId", request)
                raise_for(answer.error_code, "InitProducerId")
            except TidelogError:
                await self._client.pause()
            else:
                self._producer = (answer.producer_id, answer.producer_epoch)
                self._run_number += 1
                self._next.clear()
                return

    async def send(self, records: Sequence[Sent]) -> None:
        """Send new records of one partition, as batches of a few, and wait for the outcomes."""
        for each in records:
            each.acks, each.producer, each.number = -1, self.name, next(self._numbers)
            self._checkers.sending(each)
        place, batches, rest = (records[0].topic, records[0].partition), deque[_Batch](), list(records)
        while rest:
            count = self._client.rng.randint(1, BATCH)
            sequence = self._next.get(place, 0)
            batches.append(_Batch(rest[:count], sequence))
            self._next[place] = sequence + len(rest[:count])
            rest = rest[count:]
        while batches:
            try:
                await self._attempt(place, batches)
            except LOST_SEQUENCES:  # nothing tells whether the batches were written
                for batch in batches:
                    for each in batch.records:
                        self._done(each, Fate.UNKNOWN)
                await self.start()
                return
            except TidelogError:
                self._kafka.forget(place)
                await self._client.pause()

    async def _attempt(self, place: Place, batches: deque[_Batch]) -> None:
        """Send the oldest batches, one request each, all at once. Those with an outcome are removed. Raises the first
        error."""
        known = await self._kafka.place(place)
        wire = await self._kafka.wire(known.leader)
        tried = list(batches)[:AHEAD]
        for each in (each for batch in tried for each in batch.records):
            each.topic_id, each.attempts = known.topic_id, each.attempts + 1
        answers = [wire.begin("Produce", self._request(known, place[1], batch)) for batch in tried]
        failure: TidelogError | None = None
        for batch, answer in zip(tried, answers, strict=True):
            try:
                self._learn(place, known, batch, await wire.end("Produce", answer))
                batches.remove(batch)
            except TidelogError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _learn(self, place: Place, known: Leader, batch: _Batch, answer: Any) -> None:
        """What an answer says about a batch. Raises its error."""
        asked = UUID(bytes=known.topic_id), place[1]
        found = self._kafka.only_partition(asked, answer.responses, "partition_responses", "index")
        error = _ERRORS.get(found.error_code, UnknownServerError)
        is_known = found.error_code in (0, DUPLICATE_SEQUENCE_NUMBER) or error in LOST_SEQUENCES
        if not is_known and error.retry is Retry.NEVER:
            raise Violation(f"a sound batch of {self.name} for {place} is refused: {error.__name__}")
        if found.error_code != DUPLICATE_SEQUENCE_NUMBER:
            raise_for(found.error_code, f"a batch of {place}")
            if found.base_offset < 0:
                raise Violation(f"a batch of {self.name} for {place} is acknowledged at offset {found.base_offset}")
        for number, each in enumerate(batch.records):
            each.offset = found.base_offset + number
            self._done(each, Fate.ACKNOWLEDGED if found.base_offset >= 0 else Fate.UNKNOWN)

    def _done(self, sent: Sent, fate: Fate) -> None:
        sent.fate = fate
        for tell in sent.on_done:
            self._client.loop.call_soon(tell, sent)

    def _request(self, known: Leader, partition: int, batch: _Batch) -> Any:
        now = self._now()
        producer_id, producer_epoch = self._producer
        data = build_batch(
            [record_of(each, now, number) for number, each in enumerate(batch.records)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.sequence,
        )
        return produce_request(known, partition, data, acks=-1)

    def _now(self) -> Millis:
        return Millis(WORLD_BEGAN_MS + self._client.loop.now_us // 1_000)

    async def send_unacknowledged(self, sent: Sent) -> None:
        """Send a new record with acks=0, once: the client learns nothing of it."""
        sent.acks, place = 0, (sent.topic, sent.partition)
        self._checkers.sending(sent)
        try:
            known = await self._kafka.place(place)
            sent.topic_id = known.topic_id
            wire = await self._kafka.wire(known.leader)
            data = build_batch([record_of(sent, self._now())])
            wire.tell("Produce", produce_request(known, sent.partition, data, acks=0))
        except TidelogError:
            self._kafka.forget(place)
        self._done(sent, Fate.UNKNOWN)


def produce_request(known: Leader, partition: int, data: bytes, acks: int, transactional_id: str | None = None) -> Any:
    sent = message_of("Produce")
    topic = sent.TopicProduceData(
        topic_id=UUID(bytes=known.topic_id), partition_data=(sent.PartitionProduceData(partition, data),)
    )
    return sent.ProduceRequest(transactional_id, acks, PRODUCE_MS, (topic,))


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Session:
    """An incremental fetch session on one connection (KIP-227)."""

    session_id: int = 0
    epoch: int = 0
    told: dict[_ById, tuple[int, int, int]] = field(default_factory=dict)
    """What the node knows of each partition: the position, and the epochs of the last record and of the leader."""


class SimKafkaReader:
    """Reads partitions from their leaders, those of a leader in one session."""

    def __init__(self, kafka: KafkaClient, readings: Mapping[Place, Reading], *, decided: bool) -> None:
        self._kafka, self._client = kafka, kafka.client
        self._readings, self._decided = readings, decided
        self._epochs = dict.fromkeys(readings, -1)
        """The leader epoch of the last record that was read."""
        self._sessions: dict[Wire, _Session] = {}

    async def run(self) -> None:
        """Read without end."""
        while True:
            by_leader: dict[Endpoint, list[Place]] = {}
            for place in self._readings:
                try:
                    by_leader.setdefault((await self._kafka.place(place)).leader, []).append(place)
                except TidelogError:
                    await self._client.pause()
            for leader, places in by_leader.items():
                try:
                    await self._fetch(await self._kafka.wire(leader), places)
                except TidelogError:
                    for place in places:
                        self._kafka.forget(place)
                    await self._client.pause()

    async def _fetch(self, wire: Wire, places: list[Place]) -> None:
        leaders = {place: await self._kafka.place(place) for place in places}
        names = {(UUID(bytes=known.topic_id), place[1]): place for place, known in leaders.items()}
        wanted = {
            key: (self._readings[place].position, self._epochs[place], leaders[place].epoch)
            for key, place in names.items()
        }
        session = self._sessions.setdefault(wire, _Session())
        if self._client.rng.random() < NEW_SESSION:
            session.epoch = 0
        told = session.told if session.epoch else {}
        changed = {key: each for key, each in wanted.items() if told.get(key) != each}
        request = self._request(session, changed, [key for key in told if key not in wanted])
        session.told = wanted
        try:
            answer = await wire.ask("Fetch", request)
            raise_for(answer.error_code, "Fetch")
        except TidelogError:
            del self._sessions[wire]
            raise
        found = {
            (topic.topic_id, each.partition_index): each for topic in answer.responses for each in topic.partitions
        }
        if not found.keys() <= names.keys() or (session.epoch == 0 and len(found) < len(names)):
            raise Violation(f"a fetch of {sorted(names)} in epoch {session.epoch} was answered for {sorted(found)}")
        session.session_id, session.epoch = answer.session_id, session.epoch + 1
        if not session.session_id:
            session.epoch = 0
        for key, each in found.items():
            await self._take(names[key], each)

    def _request(self, session: _Session, changed: Mapping[_ById, tuple[int, int, int]], gone: list[_ById]) -> Any:
        sent = message_of("Fetch")
        topics: dict[UUID, list[Any]] = {}
        for (topic_id, index), (position, last_epoch, leader_epoch) in changed.items():
            epochs = {"last_fetched_epoch": last_epoch, "current_leader_epoch": leader_epoch}
            topics.setdefault(topic_id, []).append(sent.FetchPartition(index, position, 1 << 16, **epochs))
        return sent.FetchRequest(
            self._client.rng.choice((100, 500)),
            1,
            1 << 20,
            int(self._decided),
            tuple(sent.FetchTopic(topic_id=each, partitions=tuple(partitions)) for each, partitions in topics.items()),
            session_id=session.session_id,
            session_epoch=session.epoch,
            forgotten_topics_data=tuple(
                sent.ForgottenTopic(topic_id=topic_id, partitions=(index,)) for topic_id, index in gone
            ),
        )

    async def _take(self, place: Place, found: Any) -> None:
        reading = self._readings[place]
        if found.error_code == OffsetOutOfRange.code:
            reading.reached(max(await self._kafka.earliest(place), reading.position))
            self._epochs[place] = -1  # of a record that it has not read
            return
        raise_for(found.error_code, f"a fetch of {place}")
        if found.diverging_epoch.end_offset >= 0:
            if found.diverging_epoch.end_offset < reading.position and not reading.ledger.lossy:
                raise Violation(f"a reader of {place} at {reading.position} is told of {found.diverging_epoch}")
            self._epochs[place] = -1  # the log begins behind its position: the next answer says so
            return
        aborted = [(each.first_offset, each.producer_id) for each in found.aborted_transactions or ()]
        shown = records_shown(bytes(found.records or b""), aborted, reading.position)
        for record in shown.records:
            reading.got(record)
        reading.reached(shown.position)
        if shown.epoch >= 0:
            self._epochs[place] = shown.epoch
