"""The consumer: committed records of assigned partitions, in order, starting at the position.

Invariants: no record with a wrong checksum, below the position or of a control batch is returned. The position moves
only over returned records, so a cancelled `poll` or an abandoned loop loses nothing.
Not here: decisions (fetch_core.py), streams (fetch_stream.py), metadata (cluster.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from datetime import datetime
from operator import index
from random import Random
from typing import Any, Final, Literal, NamedTuple, SupportsIndex, TypeAlias

from tidelog.client.connection import Service
from tidelog.client.fetch_core import (
    CheckEpoch,
    Cursor,
    EpochChecked,
    Event,
    Failed,
    FetchCore,
    Fetched,
    FetchPolicy,
    FindLeader,
    FindPlace,
    LeaderKnown,
    OpenFetch,
    PlaceFound,
    Ready,
    Sought,
    Taken,
    Ticked,
    Where,
    plausible_epoch,
)
from tidelog.client.fetch_stream import FetchStream
from tidelog.client.isolation import hide_aborted, isolation_of
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.options import (
    at_least,
    seconds,
    text,
    topic_name,
    topic_partition,
    topic_partitions,
    whole_number,
    yes_or_no,
)
from tidelog.errors import (
    CorruptRecord,
    InvalidConfig,
    InvalidRequest,
    LeaderNotAvailable,
    TidelogError,
)
from tidelog.protocol import methods, wire
from tidelog.protocol.network import Clock, Transport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.records import iter_batches
from tidelog.records.v2.record import Header
from tidelog.records.v2.varint import INT64_MAX
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Endpoint,
    EpochEnd,
    Isolation,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    TopicPartition,
)

TICK_MS: Final = 100
"""Interval of timeout checks."""

Place: TypeAlias = int | Literal["earliest", "latest"] | datetime
"""An offset, "earliest", "latest", or a time: the first record at or after it."""


class ConsumerRecord(NamedTuple):
    """One record and its position."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    timestamp: Millis
    """Milliseconds since 1970; -1 if there is none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, in the form that `seek` and `position` take."""
        return TopicPartition(self.topic, self.partition)


class Consumer(Service):
    """Reads committed records. Use it inside `async with`: assign partitions, then iterate or poll.

    bootstrap: addresses of some nodes, "host:port,host:port". buffer_bytes: limit for all fetched but unread bytes,
    plus at most one batch per partition. fetch_bytes: maximum size of one fetch. max_wait_ms: how long a node may wait
    for min_bytes. request_timeout_ms: timeout of one request. check_crcs: verify the checksums of all batches.
    isolation: "read_committed" returns records of committed transactions and non-transactional records, up to the first
    transaction that is still open. on_out_of_range: what to do if the position is not in the log: "raise"
    OffsetOutOfRange, or continue at "earliest" or "latest". rack: location of the consumer; an in-sync replica in this
    rack is read instead of a leader elsewhere (KIP-392). transport, clock, rng: the system's by default.
    """

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        buffer_bytes: int = 64 * 1024 * 1024,
        fetch_bytes: int = 1024 * 1024,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        request_timeout_ms: int = 30_000,
        check_crcs: bool = True,
        isolation: str | Isolation = Isolation.READ_UNCOMMITTED,
        on_out_of_range: Literal["raise", "earliest", "latest"] = "raise",
        rack: str = "",
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(bootstrap, transport=transport, clock=clock, rng=rng)
        at_least(1, most=INT64_MAX, buffer_bytes=buffer_bytes)
        at_least(1, fetch_bytes=fetch_bytes, request_timeout_ms=request_timeout_ms)
        at_least(0, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        yes_or_no(check_crcs=check_crcs)
        if on_out_of_range not in ("raise", "earliest", "latest"):
            raise InvalidConfig(f'on_out_of_range={on_out_of_range!r}: use "raise", "earliest" or "latest"')
        self._policy = FetchPolicy(buffer_bytes, fetch_bytes, max_wait_ms, request_timeout_ms, on_out_of_range)
        self._min_bytes, self._check_crcs = min_bytes, check_crcs
        self._isolation = isolation_of(isolation)
        self._rack = text("rack", rack)
        self._core = FetchCore(self._policy, self._rng)
        self._streams: dict[Endpoint, FetchStream] = {}
        self._ready = asyncio.Event()
        self._turn: deque[Cursor] = deque()

    # --- where to read ------------------------------------------------------------------------------------------

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> None:
        """Replace the assignment. New partitions are read from `start` unless `seek` changes it. Partitions that were
        already assigned keep their position."""
        _ = self._cluster
        keys = topic_partitions(partitions)
        self._core.assign(keys, _where(start))
        self._turn = deque(self._core.cursors.values())
        self._handle(Ticked(self._clock.monotonic_ms()))
        self._ready.set()

    @property
    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return list(self._core.cursors)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of a topic, for `assign`. Raises the reason if the topic is not known after
        `request_timeout_ms`; a missing topic is reported after 3 s."""
        view = await self._cluster.wait_topic(topic_name(topic), timeout_ms=self._policy.request_timeout_ms)
        return [TopicPartition(topic, PartitionIndex(index)) for index in range(len(view.partitions))]

    async def seek(
        self, partition: TopicPartition | tuple[str, int], place: Place, *, leader_epoch: int = NO_LEADER_EPOCH
    ) -> Offset:
        """Continue reading from this place; return its offset.

        place: an offset, "earliest", "latest", or an aware datetime: the first record at or after it, or the end if
        there is none. leader_epoch: epoch of the record before the offset, if known from an earlier read. The log is
        then checked for truncation (LogTruncated). Raises the reason if the place cannot be found.
        """
        cursor = self._cursor(partition)
        leader_epoch = whole_number("leader_epoch", leader_epoch, least=NO_LEADER_EPOCH)
        if isinstance(place, SupportsIndex) and not isinstance(place, bool):
            number = index(place)
            if not 0 <= number <= INT64_MAX:
                raise InvalidRequest(f"invalid offset {number}: seek to 0 or above, to 'earliest' or to 'latest'")
            offset = Offset(number)
        else:
            offset = await self._find(cursor.topic_partition, _where(place))
        at = self._clock.monotonic_ms()
        self._handle(Sought(cursor.topic_partition, offset, LeaderEpoch(leader_epoch), at))
        return offset

    async def position(self, partition: TopicPartition | tuple[str, int]) -> Offset:
        """Return the offset of the next record. Raises the partition's error if it has one."""
        cursor = self._cursor(partition)
        while cursor.position is None:
            if cursor.error is not None:
                raise cursor.error
            _ = self._cluster
            self._ready.clear()
            await self._ready.wait()
        return cursor.position

    async def end_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, Offset]:
        """Query the leaders for the end of each partition: one past the last record that this consumer may read."""
        return await self._list_offsets(dict.fromkeys(topic_partitions(partitions), LATEST))

    def high_watermark(self, partition: TopicPartition | tuple[str, int]) -> Offset | None:
        """Return one past the last committed record, as of the last fetch; None before the first fetch."""
        cursor = self._cursor(partition)
        return cursor.high_watermark if cursor.high_watermark >= 0 else None

    # --- reading ------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 10_000, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Return available records, at most `max_records`; wait up to `timeout` seconds for the first one.

        Records of one partition are in order. An error of a partition is raised after all records before it were
        returned: OffsetOutOfRange, LogTruncated, InconsistentTopicId (the topic was created again), CorruptRecord.
        Other partitions remain readable; `seek` or `assign` clears the error.
        """
        max_records = whole_number("max_records", max_records, least=1)
        timeout = seconds("timeout", timeout)
        found: list[ConsumerRecord] = []
        await self._clock.sleep_ms(0)  # other tasks run even if the caller never waits
        cursor = self._ready_cursor(raising=True)
        if cursor is None:
            try:
                async with asyncio.timeout(timeout):
                    cursor = await self._next_cursor()
            except TimeoutError:
                return found
        while cursor is not None and len(found) < max_records:
            topic, partition = cursor.topic_partition.topic, cursor.topic_partition.partition
            records = cursor.records[cursor.at : cursor.at + max_records - len(found)]
            cursor.at += len(records)
            found.extend([ConsumerRecord(topic, partition, *record) for record in records])
            self._moved(cursor, Offset(records[-1].offset + 1))
            cursor = self._ready_cursor(raising=False)
        return found

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield all records from the positions on, without end."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            await self._clock.sleep_ms(0)
            cursor = await self._next_cursor()
            topic, partition = cursor.topic_partition.topic, cursor.topic_partition.partition
            while cursor.at < len(cursor.records):  # a seek clears the list
                record = cursor.records[cursor.at]
                cursor.at += 1
                self._moved(cursor, Offset(record.offset + 1))
                yield ConsumerRecord(topic, partition, *record)

    async def _next_cursor(self) -> Cursor:
        """Return the next cursor with records, round-robin."""
        while True:
            self._ready.clear()
            cursor = self._ready_cursor(raising=True)
            if cursor is not None:
                return cursor
            await self._ready.wait()

    def _ready_cursor(self, *, raising: bool) -> Cursor | None:
        _ = self._cluster
        if not self._core.cursors:
            raise InvalidRequest("no partitions are assigned: call assign first")
        for _ in range(len(self._turn)):
            cursor = self._turn[0]
            self._turn.rotate(-1)
            try:
                while cursor.at >= len(cursor.records) and cursor.batches:
                    self._load(cursor)
            except TidelogError as error:
                self._core.refuse(cursor, error, self._clock.monotonic_ms())
            if cursor.at < len(cursor.records):
                return cursor
            if cursor.error is not None:
                if raising:
                    raise cursor.error
                self._ready.set()
        return None

    def _load(self, cursor: Cursor) -> None:
        """Decode the next batch of the cursor. Raises CorruptRecord and decompression errors."""
        assert cursor.position is not None, "nothing is fetched before the position is known"
        batch = cursor.batches.popleft()
        cursor.buffered -= batch.size
        start = cursor.position
        try:
            if self._check_crcs:
                batch.ensure_valid()
            records = [] if batch.is_control else batch.record_list()
        except TidelogError as error:
            where = self._cluster.view.nodes.get(cursor.leader)
            kind = type(error) if error.written is False else CorruptRecord
            told = kind(
                f"{cursor.topic_partition}, read from node {cursor.leader} at {where}: {error.message}. Seek to the "
                f"offset after {batch.last_offset} to skip the batch."
            )
            raise told from error
        self._core.read(cursor)
        if records and records[0].offset < start:
            records = [record for record in records if record.offset >= start]
        cursor.records, cursor.at = records, 0
        cursor.records_end = batch.next_offset
        cursor.records_epoch = plausible_epoch(batch, cursor.position_epoch, cursor.leader_epoch)
        if not records:
            self._moved(cursor, batch.next_offset)
        self._handle(Taken(cursor.topic_partition, self._clock.monotonic_ms()))

    def _moved(self, cursor: Cursor, offset: Offset) -> None:
        """Everything below `offset` was returned, including the offset gaps after the last record of a batch."""
        cursor.position = offset if cursor.at < len(cursor.records) else cursor.records_end
        cursor.position_epoch = cursor.records_epoch

    # --- the core and the world ---------------------------------------------------------------------------------

    def _background(self) -> dict[str, Coroutine[Any, Any, None]]:
        self._cluster.on_change(self._on_metadata)
        return {"consume": self._tick()}

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            self._handle(Ticked(self._clock.monotonic_ms()))

    def _handle(self, event: Event) -> None:
        todo = deque(self._core.handle(event))
        while todo:
            effect = todo.popleft()
            match effect:
                case FindLeader(topic_partition):
                    self._cluster.ask(topic_partition.topic)
                case FindPlace():
                    self._spawn(self._find_place(effect), f"find {effect.where} of {effect.topic_partition}")
                case CheckEpoch():
                    self._spawn(self._check_epoch(effect), f"check {effect.topic_partition}")
                case OpenFetch():
                    error = self._open(effect)
                    if error is not None:
                        at = self._clock.monotonic_ms()
                        todo.extend(self._core.handle(Failed(effect.topic_partition, effect.number, error, at)))
                case Ready():
                    self._ready.set()

    def _open(self, fetch: OpenFetch) -> TidelogError | None:
        endpoint = self._cluster.view.nodes.get(fetch.node)
        if endpoint is None:
            return LeaderNotAvailable(
                f"{fetch.topic_partition} is led by node {fetch.node}, but no node reports that node as alive"
            )
        stream = self._streams.get(endpoint)
        if stream is None or not stream.give(fetch):
            assert self._transport is not None
            stream = self._streams[endpoint] = FetchStream(
                endpoint,
                self._transport,
                self._answered,
                max_wait_ms=self._policy.max_wait_ms,
                min_bytes=self._min_bytes,
                isolation=self._isolation,
                rack=self._rack,
            )
            stream.give(fetch)
            self._spawn(stream.run(), f"fetch from {endpoint}")
        return None

    def _answered(
        self, topic_partition: TopicPartition, number: int, answer: wire.PartitionFetched | TidelogError
    ) -> None:
        at = self._clock.monotonic_ms()
        if isinstance(answer, TidelogError):
            self._cluster.note_leader(topic_partition, answer.leader)
            self._handle(Failed(topic_partition, number, answer, at))
            return
        try:
            batches = tuple(iter_batches(answer.records))
            if answer.records and not batches:
                raise CorruptRecord("the answer of a node does not contain a whole batch")
            batches = hide_aborted(batches, answer.aborted)
        except TidelogError as error:
            told = type(error)(f"{topic_partition}: {error.message}; the fetched bytes are corrupt, fetch them again")
            self._handle(Failed(topic_partition, number, told, at))
            return
        diverging = answer.diverging
        self._handle(
            Fetched(
                topic_partition,
                number,
                batches,
                LeaderEpoch(answer.leader_epoch),
                Offset(answer.high_watermark),
                Offset(answer.log_start_offset),
                at,
                NodeId(answer.preferred_read_replica) if self._rack and not batches else NO_NODE,
                None if diverging is None else EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
            )
        )

    def _on_metadata(self, failure: TidelogError | None) -> None:
        view, at = self._cluster.view, self._clock.monotonic_ms()
        for key in self.assignment:
            topic = view.topics.get(key.topic)
            topic_id = topic.topic_id if topic is not None else None
            try:
                _, partition = view.leader(key)
                self._handle(LeaderKnown(key, topic_id, partition.leader, partition.leader_epoch, at, failure))
            except TidelogError as cause:
                self._handle(LeaderKnown(key, topic_id, NO_NODE, NO_LEADER_EPOCH, at, failure or cause))

    async def _find(self, key: TopicPartition, where: Where) -> Offset:
        timestamp = {"earliest": EARLIEST, "latest": LATEST}.get(where) if isinstance(where, str) else where
        assert timestamp is not None
        found = await self._list_offsets({key: timestamp})
        return found[key]

    async def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        timeout_ms = self._policy.request_timeout_ms
        return await list_offsets(self._cluster, wanted, timeout_ms=timeout_ms, isolation=self._isolation)

    async def _find_place(self, question: FindPlace) -> None:
        key, number = question.topic_partition, question.number
        event: Event
        try:
            offset = await self._find(key, question.where)
            event = PlaceFound(key, number, offset, self._clock.monotonic_ms())
        except TidelogError as error:
            event = Failed(key, number, error, self._clock.monotonic_ms())
        self._handle(event)

    async def _check_epoch(self, question: CheckEpoch) -> None:
        key, number = question.topic_partition, question.number
        entry = data_pb2.EpochQuestion(
            topic_id=question.topic_id.bytes,
            partition=key.partition,
            current_leader_epoch=question.leader_epoch,
            leader_epoch=question.epoch,
        )
        event: Event
        try:
            endpoint = self._cluster.view.nodes.get(question.node)
            if endpoint is None:
                raise LeaderNotAvailable(
                    f"{key} is led by node {question.node}, but no node reports that node as alive"
                )
            answer = await self._cluster.transport.call(
                endpoint,
                methods.DATA_OFFSET_FOR_LEADER_EPOCH,
                data_pb2.OffsetForLeaderEpochRequest(partitions=[entry]),
                timeout_ms=self._policy.request_timeout_ms,
            )
            told = answer.partitions[0]
            if told.HasField("error"):
                raise from_proto(told.error)
            end = EpochEnd(LeaderEpoch(told.end.epoch), Offset(told.end.end_offset))
            event = EpochChecked(key, number, end, self._clock.monotonic_ms())
        except TidelogError as error:
            self._cluster.note_leader(key, error.leader)
            event = Failed(key, number, error, self._clock.monotonic_ms())
        self._handle(event)

    def _cursor(self, partition: TopicPartition | tuple[str, int]) -> Cursor:
        key = topic_partition(partition)
        cursor = self._core.cursors.get(key)
        if cursor is None:
            raise InvalidRequest(f"{key} is not assigned to this consumer: assign it first")
        return cursor

    def _on_defect(self) -> None:
        self._ready.set()

    async def close(self) -> None:
        """Stop the consumer. Waiting calls raise an error."""
        await super().close()
        self._ready.set()


def _where(place: Place) -> Where:
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise InvalidRequest(f"datetime {place!r} has no time zone: set tzinfo, for example UTC")
        return max(0, int(place.timestamp() * 1000))
    if place in ("earliest", "latest"):
        return place
    raise InvalidRequest(f"invalid place in a log: {place!r}; use 'earliest', 'latest', an offset or a datetime")
