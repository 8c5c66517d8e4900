"""Synchronous clients for programs without asyncio. Each client runs an event loop in a thread of its own.

Every method does the same as the asynchronous method of the same name and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar

from tidelog.client import admin as _admin
from tidelog.client import consumer as _consumer
from tidelog.client import producer as _producer
from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.connection import Service
from tidelog.client.delivery import Delivery, SendResult
from tidelog.client.machine import LoopThread
from tidelog.client.many_arrow import columns_of_table
from tidelog.client.many_records import RecordColumns, checked_columns
from tidelog.errors import InvalidRequest
from tidelog.records.v2.record import Header
from tidelog.types import TopicPartition

Client = TypeVar("Client", bound=Service)
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


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


def _blocking(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[_SyncClient[Client], Arguments], Result]:
    """Return the synchronous form of an asynchronous method, with its signature and docstring."""

    @wraps(method)
    def call(self: _SyncClient[Client], /, *args: Any, **kwargs: Any) -> Result:
        # An iterator runs in the thread of its caller: it may call the client, which would wait for itself on the loop.
        args = tuple(list(each) if isinstance(each, Iterator) else each for each in args)
        kwargs = {name: list(each) if isinstance(each, Iterator) else each for name, each in kwargs.items()}
        return self._thread.run(method(self._client, *args, **kwargs))

    return call


class Producer(_SyncClient[_producer.Producer]):
    """Synchronous `tidelog.Producer` with the same options."""

    def __init__(self, bootstrap: str | list[str] | tuple[str, ...], **options: Any) -> None:
        super().__init__(_producer.Producer(bootstrap, **options))

    send = _blocking(_producer.Producer.send)
    flush = _blocking(_producer.Producer.flush)

    def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Iterable[Header]] | None = None,
        partition: int | None = None,
        timestamp: int | Iterable[int | None] | None = None,
    ) -> BatchDelivery:
        """Send many records and wait for all results: `enqueue_many` of `tidelog.Producer`, with the same arguments and
        errors, and `await` on its BatchDelivery. The fastest way to send records that are at hand."""
        columns = checked_columns(values, keys, headers, partition, timestamp)  # iterators run in the caller's thread
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


class Consumer(_SyncClient[_consumer.Consumer]):
    """Synchronous `tidelog.Consumer` with the same options.

    Iteration never ends: it waits for new records. It polls up to 1,000 records at a time; `position` is behind them.
    """

    def __init__(self, bootstrap: str | list[str] | tuple[str, ...], **options: Any) -> None:
        super().__init__(_consumer.Consumer(bootstrap, **options))

    partitions = _blocking(_consumer.Consumer.partitions)
    seek = _blocking(_consumer.Consumer.seek)
    position = _blocking(_consumer.Consumer.position)
    end_offsets = _blocking(_consumer.Consumer.end_offsets)
    poll = _blocking(_consumer.Consumer.poll)
    poll_arrow = _blocking(_consumer.Consumer.poll_arrow)

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> None:
        """Replace the assignment by these partitions."""
        self._thread.run(self._assign(list(partitions), start))

    def __iter__(self) -> Iterator[_consumer.ConsumerRecord]:
        while True:
            yield from self.poll(max_records=1_000, timeout=3600.0)

    async def _assign(
        self, partitions: list[TopicPartition | tuple[str, int]], start: Literal["earliest", "latest"]
    ) -> None:
        self._client.assign(partitions, start=start)


class Admin(_SyncClient[_admin.Admin]):
    """Synchronous `tidelog.Admin` with the same options."""

    def __init__(self, bootstrap: str | list[str] | tuple[str, ...], **options: Any) -> None:
        super().__init__(_admin.Admin(bootstrap, **options))

    create_topic = _blocking(_admin.Admin.create_topic)
    delete_topic = _blocking(_admin.Admin.delete_topic)
    create_partitions = _blocking(_admin.Admin.create_partitions)
    alter_topic = _blocking(_admin.Admin.alter_topic)
    elect_leaders = _blocking(_admin.Admin.elect_leaders)
    reassign = _blocking(_admin.Admin.reassign)
    list_reassignments = _blocking(_admin.Admin.list_reassignments)
    update_features = _blocking(_admin.Admin.update_features)
    explain_partitions = _blocking(_admin.Admin.explain_partitions)
    explain_restart = _blocking(_admin.Admin.explain_restart)
    remove_voter = _blocking(_admin.Admin.remove_voter)
    create_acls = _blocking(_admin.Admin.create_acls)
    delete_acls = _blocking(_admin.Admin.delete_acls)
    describe_acls = _blocking(_admin.Admin.describe_acls)
    test_acl = _blocking(_admin.Admin.test_acl)
    alter_client_quotas = _blocking(_admin.Admin.alter_client_quotas)
    describe_client_quotas = _blocking(_admin.Admin.describe_client_quotas)
    list_topics = _blocking(_admin.Admin.list_topics)
    describe_topic = _blocking(_admin.Admin.describe_topic)
    describe_cluster = _blocking(_admin.Admin.describe_cluster)
    list_offsets = _blocking(_admin.Admin.list_offsets)
    set_password = _blocking(_admin.Admin.set_password)
    remove_user = _blocking(_admin.Admin.remove_user)
    list_users = _blocking(_admin.Admin.list_users)
