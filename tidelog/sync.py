"""Synchronous clients for programs without asyncio. Each client runs an event loop in its own thread.

Every method has the arguments of the asynchronous method of the same name, does the same, and may be called from any
thread, by several at a time. What `await` is there for is a SyncDelivery here: `delivery.result(timeout)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from tidelog.client import admin as _admin
from tidelog.client import consumer as _consumer
from tidelog.client import producer as _producer
from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.client_metrics import Metrics
from tidelog.client.connection import Service
from tidelog.client.delivery import Delivery, SendResult
from tidelog.client.group_member import CLOSED_IN_CALLBACK
from tidelog.client.group_options import PartitionsCallback
from tidelog.client.machine import LoopThread, as_coroutine, blocking, on_loop, run_beside
from tidelog.client.many_arrow import columns_of_table
from tidelog.client.many_records import RecordColumns
from tidelog.client.sync_delivery import SyncBatchDelivery, SyncDelivery, delivering
from tidelog.client.sync_transaction import SyncTransaction
from tidelog.clock import MachineClock
from tidelog.errors import InvalidRequest
from tidelog.records.v2.record import Header
from tidelog.types import TopicPartition

__all__ = ["Admin", "Consumer", "Producer", "SyncBatchDelivery", "SyncDelivery", "SyncTransaction"]

AHEAD_MAX: Final = 1_000
"""Records that an iteration polls at once."""
AHEAD_MS: Final = 100
"""An iteration polls as many records as the program processes in this time, so that the member of a group polls often
enough."""

Client = TypeVar("Client", bound=Service)
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def _with_arguments_of(
    method: Callable[Concatenate[Any, Arguments], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Arguments], None]]:
    """Give a method, or a constructor, the parameters and their types of that of the asynchronous client."""

    def typed(own: Callable[..., None]) -> Callable[Concatenate[Any, Arguments], None]:
        return wraps(method)(own)

    return typed


class _SyncClient(Generic[Client]):
    """A client with its own event loop. Leaving its `with` block closes it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread = LoopThread(f"tidelog {type(client).__name__.lower()}")
        try:
            self._thread.run(client.start())
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client and stop its thread. A producer sends queued records first. Idempotent."""
        if self._thread.is_running:
            try:
                with suppress(InvalidRequest):  # another thread has closed the client
                    self._thread.run(self._client.close())
            finally:
                self._thread.stop()


class Producer(_SyncClient[_producer.Producer]):
    """Synchronous `tidelog.Producer` with the same options."""

    @_with_arguments_of(_producer.Producer.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(_producer.Producer(*args, **options))

    send = blocking(_producer.Producer.send)
    enqueue = delivering(_producer.Producer.enqueue)
    send_nowait = delivering(as_coroutine(_producer.Producer.send_nowait))
    flush = blocking(_producer.Producer.flush)
    partitions = blocking(_producer.Producer.partitions)
    is_idempotent = on_loop(_producer.Producer.is_idempotent)
    enqueue_columns = blocking(_producer.Producer.enqueue_columns)

    def metrics(self) -> Metrics:
        """Return what the producer counts, by the groups and names of Kafka's producers; also after it was closed."""
        return self._client.metrics()

    @property
    def buffered_bytes(self) -> int:
        """Memory of all records without an outcome, as counted for `buffer_bytes`."""
        return self._client.buffered_bytes

    def close(self, *, flush: bool = True) -> None:
        """Flush, then stop: `close` of `tidelog.Producer`. Idempotent. Raises InvalidRequest in a callback of a
        delivery."""
        if self._thread.is_running:
            with suppress(InvalidRequest):  # another thread has closed the client
                self._thread.run(self._client.close(flush=flush))
        super().close()

    def enqueue_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Iterable[Iterable[Header]] | None = None,
        partition: int | None = None,
        timestamp: int | Iterable[int | None] | None = None,
    ) -> SyncBatchDelivery:
        """Queue many records, and do not wait for their outcomes: `enqueue_many` of `tidelog.Producer`."""
        # Iterators run in the caller's thread.
        columns = self._client.columns_of(topic, values, keys, headers, partition, timestamp)
        return SyncBatchDelivery(self._thread, self.enqueue_columns(topic, columns))

    def enqueue_arrow(self, topic: str, table: object, *, partition: int | None = None) -> SyncBatchDelivery:
        """Queue the rows of an Arrow table: `enqueue_arrow` of `tidelog.Producer`."""
        return SyncBatchDelivery(self._thread, self.enqueue_columns(topic, columns_of_table(table, partition)))

    def transaction(self) -> SyncTransaction:
        """Return a transaction, to be used once with `with`: `transaction` of `tidelog.Producer`."""
        return SyncTransaction(self._thread, self._client.transaction())

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Iterable[Iterable[Header]] | None = None,
        partition: int | None = None,
        timestamp: int | Iterable[int | None] | None = None,
    ) -> BatchDelivery:
        """Send many records and wait for all results: `enqueue_many` of `tidelog.Producer`, with the same arguments and
        errors, and `await` on its BatchDelivery. The fastest way to send records that are at hand."""
        # Iterators run in the caller's thread.
        columns = self._client.columns_of(topic, values, keys, headers, partition, timestamp)
        return self._thread.run(self._send_many(topic, columns))

    def send_arrow(self, topic: str, table: object, *, partition: int | None = None) -> BatchDelivery:
        """Send the rows of an Arrow table and wait for all results: `enqueue_arrow` of `tidelog.Producer`."""
        return self._thread.run(self._send_many(topic, columns_of_table(table, partition)))

    async def _send_many(self, topic: str, columns: RecordColumns) -> BatchDelivery:
        delivery = await self._client.enqueue_columns(topic, columns)
        await self._client.flush()
        return await delivery

    def send_all(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], *, partition: int | None = None
    ) -> list[SendResult]:
        """Send (key, value) records and wait for all results, in order. Much faster than single sends.

        Raises the first failure after all results are known.
        """
        return self._thread.run(self._send_all(topic, records, partition))

    async def _send_all(self, topic: str, records: Iterable[Any], partition: int | None) -> list[SendResult]:
        deliveries: list[Delivery] = []
        for record in records:
            if not isinstance(record, tuple | list) or len(record) != 2:
                raise TypeError(f"a record is a (key, value) pair, not {type(record).__name__}: {record!r}")
            key, value = record
            deliveries.append(await self._client.enqueue(topic, value, key, (), partition))
        await self._client.flush()
        return [delivery.result() for delivery in deliveries]


def _after_iteration(
    call: Callable[Concatenate[Any, Arguments], Result], *, ends: bool = False
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Return a method of Consumer that first gives back what an iteration polled ahead: of the records, only those that
    were yielded count. ends: the records that it returns are not those of the iteration."""

    @wraps(call)
    def method(self: Consumer, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        self._put_back()
        self._iterates = self._iterates and not ends
        return call(self, *args, **kwargs)

    return method


class Consumer(_SyncClient[_consumer.Consumer]):
    """Synchronous `tidelog.Consumer` with the same options.

    Iteration never ends: it waits for new records. It polls some records ahead: as many as the program processes in 100
    ms, at most 1,000. `position` is after these. Records that were not yielded are read again after a call of `poll`,
    `poll_arrow`, `commit` or `close`. In a group, the records that were polled together count as processed when all of
    them were yielded and the program asks for the next one. Callbacks run in their own thread, and may call the
    consumer.
    """

    @_with_arguments_of(_consumer.Consumer.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._in_threads(options)
        self._polled: list[_consumer.ConsumerRecord] = []
        self._polled_of: Mapping[TopicPartition, object] = {}
        """The cursors of the partitions when these records were polled."""
        self._given = 0
        """Number of records of `_polled` that the iteration has yielded."""
        self._iterates = False
        """Whether the last records were returned by the iteration."""
        super().__init__(_consumer.Consumer(*args, **options))

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._put_back(with_last=kind is not None)  # an error: the last record is not processed
        if self._thread.is_running:
            with suppress(InvalidRequest):
                self._thread.run(self._client.__aexit__(None if self._iterates else kind))
        self.close()

    def close(self, *, leave_group: bool = False) -> None:
        """Commit processed records, leave the group, stop: `close` of `tidelog.Consumer`. Idempotent. Raises
        InvalidRequest in a callback of this consumer."""
        if getattr(_of_thread, "consumer", None) is self:
            raise InvalidRequest(CLOSED_IN_CALLBACK)
        self._put_back()
        if self._thread.is_running:
            with suppress(InvalidRequest):
                self._thread.run(self._client.close(leave_group=leave_group))
        super().close()

    def _in_threads(self, options: dict[str, Any]) -> None:
        """Let the callbacks among the options run in threads, so that they may call the consumer."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if callable(options.get(name)):
                options[name] = _in_a_thread(options[name], self)

    @_with_arguments_of(_consumer.Consumer.subscribe)
    def subscribe(self, *args: Any, **options: Any) -> None:
        """See `subscribe` of `tidelog.Consumer`."""
        self._put_back()
        self._in_threads(options)
        self._subscribe(*args, **options)

    _subscribe = on_loop(_consumer.Consumer.subscribe)
    commit = _after_iteration(blocking(_consumer.Consumer.commit))
    rewind = _after_iteration(blocking(_consumer.Consumer.rewind))
    transaction_offsets = _after_iteration(on_loop(_consumer.Consumer.transaction_offsets))
    transaction_committed = on_loop(_consumer.Consumer.transaction_committed)
    poll = _after_iteration(blocking(_consumer.Consumer.poll), ends=True)
    poll_arrow = _after_iteration(blocking(_consumer.Consumer.poll_arrow), ends=True)
    committed = blocking(_consumer.Consumer.committed)
    partitions = blocking(_consumer.Consumer.partitions)
    seek = blocking(_consumer.Consumer.seek)
    position = blocking(_consumer.Consumer.position)
    seek_to_beginning = blocking(_consumer.Consumer.seek_to_beginning)
    seek_to_end = blocking(_consumer.Consumer.seek_to_end)
    beginning_offsets = blocking(_consumer.Consumer.beginning_offsets)
    end_offsets = blocking(_consumer.Consumer.end_offsets)
    offsets_for_times = blocking(_consumer.Consumer.offsets_for_times)

    high_watermark = on_loop(_consumer.Consumer.high_watermark)
    group_metadata = on_loop(_consumer.Consumer.group_metadata)
    offsets_to_commit = on_loop(_consumer.Consumer.offsets_to_commit)
    transaction_member = on_loop(_consumer.Consumer.transaction_member)

    assign = on_loop(_consumer.Consumer.assign)
    unsubscribe = _after_iteration(blocking(_consumer.Consumer.unsubscribe), ends=True)
    pause = on_loop(_consumer.Consumer.pause)
    resume = on_loop(_consumer.Consumer.resume)

    def metrics(self) -> Metrics:
        """Return what the consumer counts, by the groups and names of Kafka's consumers; also after it was closed."""
        return self._client.metrics()

    @property
    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are assigned, by the user or by the group."""
        return self._client.assignment

    @property
    def paused(self) -> list[TopicPartition]:
        """Return the partitions that `pause` stopped."""
        return self._client.paused

    def __iter__(self) -> Iterator[_consumer.ConsumerRecord]:
        self._put_back()
        records_max, clock = 1, MachineClock()
        while True:
            polled = self._polled = self._thread.run(self._poll_ahead(records_max))
            self._given, self._iterates, began = 0, True, clock.monotonic_ms()
            while self._polled is polled and self._given < len(polled):
                record = polled[self._given]
                self._given += 1
                if self._is_assigned(record.topic_partition):
                    yield record
            if polled:
                fitting = len(polled) * AHEAD_MS // max(1, clock.monotonic_ms() - began)
                records_max = max(1, min(fitting, 4 * records_max, AHEAD_MAX))

    async def _poll_ahead(self, records_max: int) -> list[_consumer.ConsumerRecord]:
        polled = await self._client.poll(records_max, timeout=3600.0)
        self._polled_of = self._client.assigned_cursors()
        return polled

    def _is_assigned(self, partition: TopicPartition) -> bool:
        """Whether the partition has stayed assigned since its records were polled."""
        cursor = self._client.assigned_cursor(partition)
        return cursor is not None and cursor is self._polled_of.get(partition)

    def _put_back(self, *, with_last: bool = False) -> None:
        """Let the records that were polled for an iteration and not yielded be read again: they are not processed.
        with_last: also the last one that was yielded. Raises InvalidRequest in the thread of the consumer."""
        self._thread.ensure_outside()  # else they would be dropped
        left, self._polled = self._polled[max(0, self._given - with_last) :], []
        if left and self._thread.is_running:
            with suppress(InvalidRequest):
                self._thread.run(self._rewind(left))

    async def _rewind(self, records: list[_consumer.ConsumerRecord]) -> None:
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
        for partition, offset in first.items():
            if self._is_assigned(partition):  # else its position is that of another assignment
                await self._client.seek(partition, offset)


_of_thread: Final = threading.local()
"""Its field `consumer`: the consumer whose callback this thread runs."""


def _in_a_thread(callback: Callable[[list[TopicPartition]], object], consumer: Consumer) -> PartitionsCallback:
    """Return a coroutine function that runs the callback in a thread, so that it may call the consumer."""

    def run(partitions: list[TopicPartition]) -> None:
        _of_thread.consumer = consumer
        try:
            callback(partitions)
        finally:
            _of_thread.consumer = None

    async def call(partitions: list[TopicPartition]) -> None:
        await run_beside(lambda: run(partitions))

    return call


class Admin(_SyncClient[_admin.Admin]):
    """Synchronous `tidelog.Admin` with the same options."""

    @_with_arguments_of(_admin.Admin.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(_admin.Admin(*args, **options))

    create_topic = blocking(_admin.Admin.create_topic)
    create_topics = blocking(_admin.Admin.create_topics)
    delete_topic = blocking(_admin.Admin.delete_topic)
    delete_topics = blocking(_admin.Admin.delete_topics)
    create_partitions = blocking(_admin.Admin.create_partitions)
    alter_topic = blocking(_admin.Admin.alter_topic)
    alter_topics = blocking(_admin.Admin.alter_topics)
    check_connection = blocking(_admin.Admin.check_connection)
    describe_topic_settings = blocking(_admin.Admin.describe_topic_settings)
    describe_node_settings = blocking(_admin.Admin.describe_node_settings)
    describe_log_dirs = blocking(_admin.Admin.describe_log_dirs)
    move_replicas = blocking(_admin.Admin.move_replicas)
    elect_leaders = blocking(_admin.Admin.elect_leaders)
    reassign = blocking(_admin.Admin.reassign)
    list_reassignments = blocking(_admin.Admin.list_reassignments)
    update_features = blocking(_admin.Admin.update_features)
    explain_partitions = blocking(_admin.Admin.explain_partitions)
    explain_restart = blocking(_admin.Admin.explain_restart)
    remove_voter = blocking(_admin.Admin.remove_voter)
    unregister_node = blocking(_admin.Admin.unregister_node)
    cordon_node = blocking(_admin.Admin.cordon_node)
    uncordon_node = blocking(_admin.Admin.uncordon_node)
    create_topic_snapshot = blocking(_admin.Admin.create_topic_snapshot)
    list_topic_snapshots = blocking(_admin.Admin.list_topic_snapshots)
    describe_topic_snapshot = blocking(_admin.Admin.describe_topic_snapshot)
    extend_topic_snapshot = blocking(_admin.Admin.extend_topic_snapshot)
    delete_topic_snapshot = blocking(_admin.Admin.delete_topic_snapshot)
    create_acls = blocking(_admin.Admin.create_acls)
    delete_acls = blocking(_admin.Admin.delete_acls)
    describe_acls = blocking(_admin.Admin.describe_acls)
    test_acl = blocking(_admin.Admin.test_acl)
    alter_client_quotas = blocking(_admin.Admin.alter_client_quotas)
    describe_client_quotas = blocking(_admin.Admin.describe_client_quotas)
    list_topics = blocking(_admin.Admin.list_topics)
    describe_topic = blocking(_admin.Admin.describe_topic)
    describe_topics = blocking(_admin.Admin.describe_topics)
    describe_cluster = blocking(_admin.Admin.describe_cluster)
    list_offsets = blocking(_admin.Admin.list_offsets)
    end_positions = blocking(_admin.Admin.end_positions)
    describe_remote_segments = blocking(_admin.Admin.describe_remote_segments)
    delete_records = blocking(_admin.Admin.delete_records)
    list_groups = blocking(_admin.Admin.list_groups)
    describe_groups = blocking(_admin.Admin.describe_groups)
    delete_groups = blocking(_admin.Admin.delete_groups)
    list_group_offsets = blocking(_admin.Admin.list_group_offsets)
    alter_group_offsets = blocking(_admin.Admin.alter_group_offsets)
    delete_group_offsets = blocking(_admin.Admin.delete_group_offsets)
    group_lag = blocking(_admin.Admin.group_lag)
    list_transactions = blocking(_admin.Admin.list_transactions)
    describe_transactions = blocking(_admin.Admin.describe_transactions)
    describe_producers = blocking(_admin.Admin.describe_producers)
    open_transactions = blocking(_admin.Admin.open_transactions)
    transaction_max_timeout_ms = blocking(_admin.Admin.transaction_max_timeout_ms)
    find_hanging_transactions = blocking(_admin.Admin.find_hanging_transactions)
    abort_hanging_transaction = blocking(_admin.Admin.abort_hanging_transaction)
    abort_transaction = blocking(_admin.Admin.abort_transaction)
    end_prepared_transaction = blocking(_admin.Admin.end_prepared_transaction)
    set_password = blocking(_admin.Admin.set_password)
    remove_user = blocking(_admin.Admin.remove_user)
    list_users = blocking(_admin.Admin.list_users)
