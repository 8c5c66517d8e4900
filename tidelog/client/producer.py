"""The producer: collects records into batches, sends them, and reports the outcome of every record.

Invariants: the guarantees in the docstring of `send`; memory stays within `buffer_bytes`; `send_nowait` puts a record
into its batch without creating a task or a future.
Not here: decisions (producer_core.py), queues (accumulator.py), streams (produce_stream.py), metadata (cluster.py).
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Final, Literal, Unpack

from tidelog.client.accumulator import OBJECT_BYTES, RECORD_BYTES, Attempt, PartitionQueue, record_size
from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.client_metrics import Metrics, ProducerMetrics
from tidelog.client.cluster import TopicView
from tidelog.client.connection import ClientOptions, Service
from tidelog.client.core_events import FindLeader, TimePassed
from tidelog.client.delivery import Delivery, OnDelivery, ensure_callable
from tidelog.client.key_hash import PartitionerOption, key_hash_of
from tidelog.client.many_records import NO_HEADERS, Content, ManyRecords, RecordColumns
from tidelog.client.options import acks_of, at_least, topic_name
from tidelog.client.partitioner import Partitioner
from tidelog.client.produce_stream import ProduceStreams
from tidelog.client.producer_calls import Call, CallsForTopics, Pause, Placed, WaitingRecord, checked_record
from tidelog.client.producer_core import ProducerCore
from tidelog.client.producer_events import (
    Acknowledged,
    Effect,
    Event,
    Finished,
    Flushed,
    InitProducerId,
    Lost,
    NotEncoded,
    Policy,
    ProducerIdKnown,
    ProducerIdRefused,
    Refused,
    SubmitAttempt,
)
from tidelog.client.producer_failures import ensure_fits, memory_exhausted, not_known, warn_of_format
from tidelog.client.producer_options import checked_codec, checked_idempotence, checked_policy, checked_transactions
from tidelog.client.record_hooks import ProducerInterceptor, hooks_of
from tidelog.client.record_sender import RecordSender
from tidelog.client.route import Route, batch_limits
from tidelog.client.serialization import SerializerOption
from tidelog.client.transaction import Transaction
from tidelog.client.transactions import ProducerTransactions
from tidelog.client.unsent_records import warn_of_unsent
from tidelog.errors import InvalidTxnState, LeaderNotAvailable, TidelogError, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.records.v2.header import HEADER_BYTES
from tidelog.records.v2.record import Header, encode_record
from tidelog.types import INT64_MAX, Acks, Codec, Millis, ProducerId

_log = logging.getLogger("tidelog.client")

MESSAGE_FORMAT: Final = "message.format"
NODE_SHARE: Final = 0.9
"""The node's share of the request timeout, so that its answer arrives before the producer's timeout."""
TURN_BYTES: Final = 2 * 1024 * 1024
"""Memory that `enqueue` fills before the streams get a turn of the loop: 6,000 records of 100 bytes, some 10 ms.
Shorter turns send smaller batches while nodes are idle, which costs more processor time for each record."""


class Producer(Service, RecordSender):
    """Writes records to topics. Use it inside `async with`: leaving the block sends queued records.

    bootstrap: addresses of some nodes, "host:port,host:port".
    acks: "all" (every in-sync replica has the record), 1 (the leader has it) or 0 (no answer).
    enable_idempotence: batches are resent until they are acknowledged, and each record is written once, in the order of
    the calls. This needs acks="all" and a topic with message.format v2; otherwise records are sent without idempotence,
    and the producer logs it (see also `is_idempotent`).
    compression: none, gzip, snappy, lz4 or zstd.
    linger_ms: how long a batch waits for more records.
    batch_bytes: uncompressed size of a full batch.
    buffer_bytes: memory limit for all waiting records.
    record_bytes_max: largest record.
    max_block_ms: how long a call waits for memory or metadata.
    request_timeout_ms: timeout of one request.
    delivery_timeout_ms: time limit for the outcome of a record; keep it well below the nodes'
    `producer.id.expiration.ms` (default: one day).
    on_unknown: what to do with records sent without idempotence if it is unknown whether they are committed: "raise"
    CommitUnknown, or "resend" them in order, before later ones, until they are acknowledged; they may then be in the
    log twice.
    transactional_id: sends records in transactions only (`transaction()`). The id belongs to one running producer; a
    newer producer with the same id fences it.
    transaction_timeout_ms: the coordinator aborts a transaction that is open for longer, at most the nodes'
    `transaction.max.timeout.ms`.
    receipts: each result has a receipt (`SendResult.receipt`); needs acks="all" or 1.
    partitioner: the hash that gives a key its partition. All producers of a topic must have the same: "murmur2" is that
    of Kafka's Java client, kafka-python, aiokafka and franz-go, "crc32" that of librdkafka (kcat, Confluent's clients).
    Or a function `(key, number of partitions) -> partition`, which is called for each record whose partition the caller
    has not chosen, also with None for a record without a key, and more than once for one that waits for memory; where
    it returns None, the record stays on the partition of records without keys. It must return at once.
    key_serializer, value_serializer: "json", "string", or a function of an object, or of an object and its
    SerializationContext, that returns bytes; without one, keys and values are bytes.
    interceptors: objects that see each record before it is serialized, and its outcome.
    tls: the files for TLS; None: plain text.
    sasl: the user that the client authenticates as; None: the client does not authenticate.
    client_id: the client's name in quotas and in the nodes' logs.
    transport, clock, rng: for tests; by default those of the system.

    The defaults are those of Kafka's producer, except for larger batches and more memory.
    """

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        acks: str | int | Acks = "all",
        enable_idempotence: bool = True,
        compression: str | Codec = Codec.NONE,
        compression_level: int | None = None,
        linger_ms: int = 5,
        batch_bytes: int = 256 * 1024,
        buffer_bytes: int = 64 * 1024 * 1024,
        record_bytes_max: int = 1024 * 1024,
        max_block_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: int = 100,
        retry_backoff_ms_max: int = 1_000,
        on_unknown: Literal["raise", "resend"] = "raise",
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        receipts: bool = False,
        partitioner: PartitionerOption = "murmur2",
        key_serializer: SerializerOption = None,
        value_serializer: SerializerOption = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(bootstrap, **client)
        self.acks = acks_of(acks)
        limits = request_timeout_ms, delivery_timeout_ms, retry_backoff_ms, retry_backoff_ms_max
        policy = checked_policy(Policy(self.acks, linger_ms, batch_bytes, *limits), on_unknown)
        at_least(0, max_block_ms=max_block_ms)
        at_least(1, record_bytes_max=record_bytes_max)
        at_least(RECORD_BYTES + OBJECT_BYTES + 1, most=INT64_MAX, buffer_bytes=buffer_bytes)
        self._idempotent = checked_idempotence(self.acks, enable_idempotence)
        self._keys = key_hash_of(partitioner)
        self.hooks = hooks_of(interceptors, key_serializer, value_serializer)
        self._codec, self._level = checked_codec(compression, compression_level), compression_level
        self._buffer_bytes, self._record_bytes_max, self._max_block_ms = buffer_bytes, record_bytes_max, max_block_ms
        self._transactions: ProducerTransactions | None = None
        self._core: ProducerCore
        if transactional_id is None:
            self._core = ProducerCore(policy, self._rng)
        else:
            options = checked_transactions(
                policy, transactional_id, transaction_timeout_ms, max_block_ms, idempotent=self._idempotent
            )
            self._transactions = ProducerTransactions(
                options, policy, self._clock, self._rng, self._execute, self._spawn, lambda: bool(self._waiting_calls())
            )
            self._core = self._transactions.records
        weakref.finalize(self, warn_of_unsent, self._core)  # for a loop that is dropped with tasks still running
        self._counts = ProducerMetrics()
        self._routes: dict[str, Route] = {}
        self._views: dict[str, TopicView] = {}
        throttled = self._core.note_throttle
        self._streams = ProduceStreams(
            self._clock, self.acks, self._take, self._report, throttled, transactional_id, receipts=receipts
        )
        self._todo: deque[Effect] = deque()
        """Effects to execute. They outlive `_execute`: after a defect `_abandon` notifies senders of finished ones."""
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: Millis | None = None
        """Time of the timer; None if there is none."""
        self._waiting_for_topic = CallsForTopics()
        self._waiting_for_memory: deque[Call] = deque()
        """Calls that wait for memory, in order. While there is one, every later call waits behind it: a smaller record
        must not overtake a larger one of the same partition."""
        self._pause_due = False
        """A batch is full, or `TURN_BYTES` were queued since the streams last ran: the next `enqueue` lets them run."""
        self._pause_at = TURN_BYTES
        """Memory in use from which on a pause is due."""

    # --- sending ------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[Header] = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue one record, waiting for memory and metadata; await the Delivery for its outcome.

        The order within a partition is the order of the calls. on_delivery is called with the delivery when its outcome
        is known, on the producer's loop: `delivery.exception()`, `delivery.result()`. Raises the same errors as `send`
        before a record is queued. A cancelled call may have queued its record; nothing more is queued after it.
        """
        ensure_callable("on_delivery", on_delivery)
        if self.hooks is not None:
            value, key, headers, timestamp, on_delivery = self.hooks.prepare(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        delivery = self._put(topic, value, key, headers, partition, timestamp)
        if not isinstance(delivery, Delivery):
            placed = asyncio.get_running_loop().create_future()
            call = Call(topic, partial(self._put_first, topic, delivery), placed, partition=delivery[3] or 0)
            put_later = await self._put_later(call)
            assert isinstance(put_later, Delivery)
            delivery = put_later
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        if self._pause_due:
            # A program that only calls `enqueue` would fill the memory before the streams send anything.
            self._pause_due = False
            await self._clock.sleep_ms(0)
            self._pause_at = self._core.memory_used + TURN_BYTES
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[Header] = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue one record at once; await the Delivery for its outcome. on_delivery: as for `enqueue`.

        Raises BufferExhausted if memory is full or earlier calls wait for memory, InvalidRequest if the metadata of the
        topic are not loaded (`await producer.partitions(topic)` loads them), UnknownTopicOrPartition, RecordTooLarge.
        """
        ensure_callable("on_delivery", on_delivery)
        if self.hooks is not None:
            value, key, headers, timestamp, on_delivery = self.hooks.prepare(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        delivery = self._put(topic, value, key, headers, partition, timestamp)
        if not isinstance(delivery, Delivery):
            if topic not in self._routes:
                _ = self._cluster
                raise not_known(topic)
            self._routes[topic].at(topic, delivery[3] or 0)
            raise memory_exhausted(self._buffer_bytes, "is full", self._core.queues())
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def transaction(self) -> Transaction:
        """Return a transaction, to be used once with `async with`: leaving the block commits, an exception aborts. One
        is open at a time; needs a `transactional_id`. Records that are sent while it is open belong to it."""
        if self._transactions is None:
            raise InvalidTxnState("the producer has no transactional_id: create it with one to use transactions")
        return Transaction(self, self._transactions)

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of the topic. Raises the reason if the topic is not known after
        `max_block_ms`; a missing topic is reported after 3 s."""
        route = self._routes.get(topic_name(topic))
        if route is None:
            view = await self._cluster.wait_topic(topic, timeout_ms=self._max_block_ms)
            route = self._routes.get(topic) or self._learn(view)
        return len(route.queues)

    async def flush(self) -> None:
        """Send all records queued before this call without lingering; return once all have an outcome."""
        self._ensure_here()
        outcomes = [batch.outcome for batch in self._core.unfinished()]
        self._handle(Flushed(self._clock.monotonic_ms()))
        for outcome in outcomes:
            await outcome.wait()

    async def close(self, *, flush: bool = True) -> None:
        """Flush, then stop. flush=False: unsent records fail with an error. An open transaction is aborted."""
        if not self._can_close():
            return
        try:
            if self._tasks is not None and self._transactions is not None and self._transactions.has_open:
                await self._transactions.abort()
            if flush and self._tasks is not None:
                await self.flush()
                if self.acks is Acks.NONE:  # no answer says that the node has read what a cancelled call would drop
                    try:
                        async with asyncio.timeout(self._core.policy.request_timeout_ms / 1000):
                            await self._streams.finish()
                    except TimeoutError:
                        _log.warning(
                            "closing although a node has not read all records within request_timeout_ms (%d): with "
                            "acks=0 the last ones may be lost; use acks=1 or acks='all'",
                            self._core.policy.request_timeout_ms,
                        )
        finally:
            self._closed = True
            self._abandon("the producer was closed")
            await super().close()

    def note_fork(self) -> None:
        """See `Service`. Without routes no record is queued."""
        super().note_fork()
        self._routes.clear()

    def is_idempotent(self, topic: str) -> bool:
        """Return whether records of the topic are sent with idempotence, so that each is written once.

        Raises InvalidRequest if the metadata of the topic are not loaded (`await partitions(topic)` loads them).
        """
        route = self._routes.get(topic_name(topic))
        if route is None:
            raise not_known(topic)
        return route.idempotent

    def metrics(self) -> Metrics:
        """Return what the producer counts, by the groups and names of Kafka's producers."""
        return self._counts.report(self._buffer_bytes, self._core.memory_used, len(self._waiting_calls()))

    @property
    def buffered_bytes(self) -> int:
        """Memory of all records without an outcome, as counted for `buffer_bytes`."""
        return self._core.memory_used

    # --- a record's way into its batch --------------------------------------------------------------------------

    def _put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Iterable[Header],
        partition: int | None,
        timestamp: int | None,
        *,
        first: bool = False,
    ) -> Delivery | WaitingRecord:
        """Check and queue the record. Returns the checked record if it is not queued, because the topic or partition is
        not known yet, memory is full, or earlier calls wait for memory (unless this one is the `first` of them)."""
        if not (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and headers is NO_HEADERS
            and partition is None
            and timestamp is None
        ):
            value, key, headers, partition, timestamp = checked_record(value, key, headers, partition, timestamp)
        try:
            route = self._routes.get(topic)
        except TypeError:  # not hashable, so not a str
            route = None
        if route is None:
            topic_name(topic)
            return value, key, headers, partition, timestamp
        if headers:
            size = record_size(key, value, headers)
        else:
            size = RECORD_BYTES + (0 if key is None else len(key)) + (0 if value is None else len(value))
        if size > route.record_bytes_max or get_ident() != self._thread_id:
            self._ensure_allowed(topic, route, (key, value, headers))
        core = self._core
        used = core.memory_used + size + OBJECT_BYTES
        if used > self._buffer_bytes or (self._waiting_for_memory and not first):
            return value, key, headers, partition, timestamp
        if partition is not None:
            if not (first or route.has(partition)):
                self._cluster.request_refresh(topic)  # it may have been added
                return value, key, headers, partition, timestamp
            queue = route.at(topic, partition)
        elif key is not None and route.keys.choose is None:
            queue = route.queues[route.keys.of_key(key, len(route.queues))]
        else:
            queue = route.chosen(key, size)
        stamp = self._clock.wall_ms() if timestamp is None else Millis(timestamp)
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.sealed or batch.size + size > route.batch_bytes:
            self._pause_due = self._pause_due or batch is not None
            batch = core.open_batch(queue, self._clock.monotonic_ms())
            self._wake.set()
        if used > self._pause_at:
            self._pause_due = True
        batch.records.append((key, value, stamp, headers))
        batch.size += size
        queue.queued_bytes += size
        core.memory_used = used
        outcome = batch.outcome
        index = outcome.records
        outcome.records = index + 1
        return Delivery(outcome, index, stamp)

    def _seal(self, queue: PartitionQueue) -> None:
        self._core.seal(queue)
        self._pause_due = True
        self._wake.set()

    def _put_first(self, topic: str, record: WaitingRecord) -> Delivery | Pause:
        """Queue the record of the first waiting call."""
        delivery = self._put(topic, *record, first=True)
        return delivery if isinstance(delivery, Delivery) else self._pause()

    def _pause(self) -> Pause:
        """What the first waiting call waits for. While no request is under way, no answer will free memory: then
        lingering batches must be sent."""
        return Pause.FLUSH if self._core.is_idle else Pause.WAIT

    async def enqueue_columns(self, topic: str, columns: RecordColumns) -> BatchDelivery:
        """Queue many records that are checked already; see `enqueue_many`."""
        many = ManyRecords(topic_name(topic), columns)
        placed = asyncio.get_running_loop().create_future()
        try:
            await self._put_later(Call(topic, partial(self._put_many, many), placed, many, many.highest_partition))
            await self._clock.sleep_ms(0)  # let the streams send
        except asyncio.CancelledError as error:
            error.args = (many.delivery,)
            raise
        except TidelogError as error:
            if many.queued:
                raise many.not_queued(error) from error
            raise
        finally:
            if self.hooks is not None:
                self.hooks.follow(columns, many.delivery)
        return many.delivery

    def _put_many(self, many: ManyRecords) -> BatchDelivery | Pause:
        """Queue records of the first waiting call, for one turn of the loop."""
        route, core = self._routes[many.topic], self._core
        for index in many.too_large(route):
            self._ensure_allowed(many.topic, route, many.content(index), index)
        if many.wants_more(self._buffer_bytes - core.memory_used, self._buffer_bytes):
            many.put(route, core, self._buffer_bytes, self._clock.monotonic_ms(), Millis(self._clock.wall_ms()))
            self._wake.set()
            if many.is_queued:
                return many.delivery
            if many.wants_more(self._buffer_bytes - core.memory_used, self._buffer_bytes):
                asyncio.get_running_loop().call_soon(self._put_waiting)
                return Pause.WAIT
        return self._pause()

    async def _put_later(self, call: Call) -> Placed:
        """Wait for metadata and memory behind earlier calls.

        The time limit is a timer that completes `placed`, not `asyncio.timeout`, which could expire in the turn of the
        loop in which the record is queued, and then report a queued record as not queued.
        """
        self._ensure_here()
        start = self._clock.monotonic_ms()
        try:
            route = self._routes.get(call.topic)
            if route is None or not route.has(call.partition):
                self._waiting_for_topic.add(call)
                await self._wait_partition(call)
            else:
                self._put_in_turn(call)
            left = max(0, start + self._max_block_ms - self._clock.monotonic_ms())
            call.timer = asyncio.get_running_loop().call_later(left / 1000, call.time_out, self._max_block_ms)
            delivery = await call.placed
        finally:
            if call.timer is not None:
                call.timer.cancel()
            self._end_call(call)
        if delivery is None:
            full = f"was full for max_block_ms={self._max_block_ms}"
            raise memory_exhausted(self._buffer_bytes, full, self._core.queues())
        return delivery

    async def _wait_partition(self, call: Call) -> None:
        """Wait until the topic is known with the partition of the call; then its records are queued in its turn."""
        topic, cluster = call.topic, self._cluster
        try:
            view = await cluster.wait_topic(topic, timeout_ms=self._max_block_ms, partition=call.partition)
        except TidelogError as error:
            if call.placed.done():
                return
            if topic not in cluster.view.topics or not isinstance(error, UnknownTopicOrPartition):
                raise
            view = cluster.view.topics[topic]  # the route tells the caller which of its records has no partition
        self._learn(view)
        if self._waiting_for_topic.remove(call):
            self._put_in_turn(call)

    def _put_in_turn(self, call: Call) -> None:
        """Queue the records of a call now, or once those of earlier calls are queued."""
        self._waiting_for_memory.append(call)
        if self._waiting_for_memory[0] is call:
            self._put_waiting()

    def _put_waiting(self) -> None:
        """Queue the records of the calls that wait for memory, in order, until memory is full."""
        calls = self._waiting_for_memory
        while calls:
            call = calls[0]
            if not call.placed.done():
                try:
                    delivery = call.put()
                except Exception as error:  # noqa: BLE001 - raised to the caller of this record
                    call.placed.set_exception(error)
                else:
                    if isinstance(delivery, Pause):
                        if delivery is Pause.FLUSH:
                            self._handle(Flushed(self._clock.monotonic_ms()))
                        return
                    call.placed.set_result(delivery)
            calls.popleft()

    def _end_call(self, call: Call) -> None:
        """Withdraw a call that has ended, and let the calls behind it continue."""
        call.placed.cancel()  # `_put_waiting` must not queue its record any more: the caller was told that it is not
        self._waiting_for_topic.remove(call)
        if self._waiting_for_memory and self._waiting_for_memory[0] is call:
            self._put_waiting()

    def _ensure_allowed(self, topic: str, route: Route, content: Content, record: int | None = None) -> None:
        """Raise RecordTooLarge if the encoded record exceeds a limit. record: its index in a call of many."""
        self._ensure_here()  # two threads would give two records the same place in a batch
        limits = {"record_bytes_max": self._record_bytes_max, "buffer_bytes": self._buffer_bytes - OBJECT_BYTES}
        if self._codec is Codec.NONE:  # the compressed size is checked by the node
            limits[f"max.message.bytes of topic {topic!r}"] = route.topic_bytes_max
        ensure_fits(topic, HEADER_BYTES + len(encode_record(0, 0, *content)), limits, record)

    # --- the core and I/O ---------------------------------------------------------------------------------------

    def _background(self) -> dict[str, Coroutine[Any, Any, None]]:
        self._cluster.on_change(self._on_metadata)
        if self._transactions is not None:
            self._transactions.start(self._cluster, self._ensure_here)
        return {"produce": self._pump()}

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._handle(TimePassed(self._clock.monotonic_ms()))
            if self._waiting_for_memory:
                self._put_waiting()

    def _handle(self, *events: Event) -> None:
        """Pass events that came together to the core, and execute its effects."""
        self._execute(self._core.handle(*events))

    def _execute(self, effects: Sequence[Effect]) -> None:
        """Execute effects of the core, in order, and set the timer."""
        memory_was_freed = False
        todo = self._todo
        todo.extend(effects)
        while todo:
            effect = todo.popleft()
            match effect:
                case SubmitAttempt(attempt):
                    try:
                        self._submit(attempt)
                    except LeaderNotAvailable as cause:
                        todo.extend(self._core.handle(Lost(attempt.attempt_id, cause, self._clock.monotonic_ms())))
                case Finished():
                    self._counts.finished(effect)
                    effect.notify()
                    memory_was_freed = True
                    if effect.error is not None and self._transactions is not None:
                        self._transactions.fail(effect.error)
                case FindLeader(topic_partition):
                    if self._tasks is not None:
                        self._cluster.request_refresh(topic_partition.topic)
                case InitProducerId():
                    if self._tasks is not None:
                        self._spawn(self._init_producer_id(effect), "get a producer id")
        if memory_was_freed:
            self._pause_at = min(self._pause_at, self._core.memory_used + TURN_BYTES)
            self._put_waiting()
        self._set_timer()

    async def _init_producer_id(self, effect: InitProducerId) -> None:
        request = data_pb2.InitProducerIdRequest(producer_id=effect.producer_id, producer_epoch=effect.epoch)
        try:
            answer = await self._cluster.call_any(methods.DATA_INIT_PRODUCER_ID, request)
        except TidelogError as error:
            self._handle(ProducerIdRefused(error, self._clock.monotonic_ms()))
            return
        self._handle(ProducerIdKnown(ProducerId(answer.producer_id), answer.producer_epoch, self._clock.monotonic_ms()))

    def _set_timer(self) -> None:
        alarm = self._core.next_alarm()
        if alarm == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._timer_ms = None
        if alarm is not None and self._tasks is not None:
            self._timer_ms, delay = alarm, max(0, alarm - self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._alarm_rang)

    def _alarm_rang(self) -> None:
        self._timer = self._timer_ms = None
        self._wake.set()

    def _submit(self, attempt: Attempt) -> None:
        """Queue the attempt on the stream of its node. Raises LeaderNotAvailable."""
        endpoint = self._cluster.view.endpoint(attempt.node, attempt.batch.queue.topic_partition)
        assert self._transport is not None
        stream = self._streams.give(attempt, endpoint, self._transport)
        if stream is not None:
            self._spawn(stream.run(), f"produce to {endpoint}")

    def _on_metadata(self, failure: TidelogError | None) -> None:
        view = self._cluster.view
        for topic in list(self._routes):
            reported = view.topics.get(topic)
            if reported is not None and reported is not self._views[topic]:
                self._learn(reported)
        changed = [
            queue.topic_partition
            for queue in self._core.queues()
            if failure is not None
            or queue.lookup_pending
            or not view.is_led_by(queue.topic_partition, queue.topic_id, queue.leader, queue.leader_epoch)
        ]
        if changed:
            self._handle(*(self._cluster.leader_known(topic_partition, failure) for topic_partition in changed))

    def _learn(self, view: TopicView) -> Route:
        """Create the route of a topic, or replace it if the topic changed."""
        cluster, known = self._cluster, self._routes.get(view.name)  # raises once the producer has ended
        self._views[view.name] = view
        batch_bytes, topic_bytes_max = batch_limits(view.configs, self._core.policy.batch_bytes, self._record_bytes_max)
        idempotent = self._idempotent and view.configs.get(MESSAGE_FORMAT, "v2") == "v2"
        new = len(view.partitions), batch_bytes, topic_bytes_max, idempotent
        if known is not None and (len(known.queues), known.batch_bytes, known.topic_bytes_max, known.idempotent) == new:
            return known
        if self._idempotent and not idempotent:
            warn_of_format(view.name, view.configs[MESSAGE_FORMAT])
        queues = [self._core.queue(view.name, index, idempotent=idempotent) for index in range(len(view.partitions))]
        partitioner = Partitioner(len(queues), batch_bytes=batch_bytes, rng=self._rng)
        bytes_max = min(self._record_bytes_max, self._buffer_bytes - OBJECT_BYTES, topic_bytes_max) - HEADER_BYTES
        route = self._routes[view.name] = Route(
            queues, partitioner, batch_bytes, topic_bytes_max, bytes_max, idempotent, self._seal, self._keys
        )
        self._handle(*(cluster.leader_known(queue.topic_partition, None) for queue in queues))
        self._waiting_for_memory.extend(self._waiting_for_topic.pop(view.name))
        self._put_waiting()
        return route

    def _abandon(self, why: str) -> None:
        """Fail every batch now: nothing more is sent."""
        self._routes.clear()
        if self._timer is not None:
            self._timer.cancel()
        for effect in (*self._todo, *self._core.abandon(why)):
            if isinstance(effect, Finished):
                self._counts.finished(effect)
                effect.notify()
        self._todo.clear()
        for call in self._waiting_for_memory:
            if not call.placed.done():
                call.placed.set_exception(self._unusable())
        self._waiting_for_memory.clear()
        if self._transactions is not None:
            self._transactions.stop(self._unusable())

    def _waiting_calls(self) -> list[Call]:
        return [call for call in (*self._waiting_for_memory, *self._waiting_for_topic) if not call.placed.done()]

    def _on_defect(self) -> None:
        self._abandon(f"the producer failed by a defect ({self._defect!r})")

    def _on_end(self) -> None:
        warn_of_unsent(self._core)
        self._abandon("the event loop of the producer ended")

    # --- calls of the streams -----------------------------------------------------------------------------------

    def _take(self, attempt: Attempt) -> int | None:
        """Encode the batch. Return how many ms the node may wait; None if the attempt must not be sent."""
        at = self._clock.monotonic_ms()
        if not self._core.is_wanted(attempt):  # given up, or tried again, while it waited for its stream
            return None
        try:
            attempt.batch.encode(self._codec, self._level)
        except Exception as error:  # noqa: BLE001 - raised to the senders of the records that cause it
            self._handle(NotEncoded(attempt.attempt_id, attempt.batch.faulty(self._codec, self._level, error), at))
            return None
        taken = self._core.take(attempt, at)
        self._wake.set()  # the timer has changed
        if not taken:
            return None
        self._counts.sent(attempt, at)
        return max(1, int((attempt.give_up_ms - self._clock.monotonic_ms()) * NODE_SHARE))

    def _report(self, outcomes: Sequence[Acknowledged | Refused | Lost]) -> None:
        self._counts.answered(outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Refused) and (at := self._core.partition_of(outcome.attempt_id)) is not None:
                self._cluster.note_leader(at, outcome.error.leader)
        self._handle(*outcomes)
