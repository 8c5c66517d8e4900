"""Synchronous clients for programs without asyncio. Each client runs an event loop in a thread of its own.

Every method does the same as the asynchronous method of the same name and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar

from tidelog.client import admin as _admin
from tidelog.client import consumer as _consumer
from tidelog.client import producer as _producer
from tidelog.client.admin import ClusterDescription, TopicDescription
from tidelog.client.connection import Service
from tidelog.client.consumer import ConsumerRecord, Place
from tidelog.client.delivery import Delivery, SendResult
from tidelog.client.machine import LoopThread
from tidelog.errors import InvalidRequest
from tidelog.records.v2.record import Header
from tidelog.types import NO_LEADER_EPOCH, DirectoryId, Offset, TopicId, TopicPartition

Client = TypeVar("Client", bound=Service)


class _Face(Generic[Client]):
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


class Producer(_Face[_producer.Producer]):
    """Synchronous `tidelog.Producer` with the same options."""

    def __init__(self, bootstrap: str | list[str] | tuple[str, ...], **options: Any) -> None:
        super().__init__(_producer.Producer(bootstrap, **options))

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> SendResult:
        """Send one record and wait for its result."""
        return self._thread.run(self._client.send(topic, value, key, headers, partition, timestamp))

    def send_all(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], *, partition: int | None = None
    ) -> list[SendResult]:
        """Send (key, value) records and wait for all results, in order. Much faster than single sends.

        Raises the first failure after all results are known.
        """
        return self._thread.run(self._send_all(topic, records, partition))

    def flush(self) -> None:
        """Return once every record sent so far has its result."""
        self._thread.run(self._client.flush())

    async def _send_all(self, topic: str, records: Iterable[Any], partition: int | None) -> list[SendResult]:
        deliveries: list[Delivery] = []
        for record in records:
            if not isinstance(record, tuple | list) or len(record) != 2:
                raise TypeError(f"a record is a (key, value) pair, not {type(record).__name__}: {record!r}")
            key, value = record
            deliveries.append(await self._client.enqueue(topic, value, key, (), partition))
        await self._client.flush()
        return [delivery.result() for delivery in deliveries]


class Consumer(_Face[_consumer.Consumer]):
    """Synchronous `tidelog.Consumer` with the same options.

    Iteration never ends: it waits for new records. It polls up to 1,000 records at a time; `position` is behind them.
    """

    def __init__(self, bootstrap: str | list[str] | tuple[str, ...], **options: Any) -> None:
        super().__init__(_consumer.Consumer(bootstrap, **options))

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> None:
        """Replace the assignment by these partitions."""
        self._thread.run(self._assign(list(partitions), start))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of a topic."""
        return self._thread.run(self._client.partitions(topic))

    def seek(
        self, partition: TopicPartition | tuple[str, int], place: Place, *, leader_epoch: int = NO_LEADER_EPOCH
    ) -> Offset:
        """Continue reading from this place."""
        return self._thread.run(self._client.seek(partition, place, leader_epoch=leader_epoch))

    def position(self, partition: TopicPartition | tuple[str, int]) -> Offset:
        """Return the offset of the next record."""
        return self._thread.run(self._client.position(partition))

    def end_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, Offset]:
        """Return one past the last committed record of each partition."""
        return self._thread.run(self._client.end_offsets(list(partitions)))

    def poll(self, max_records: int = 10_000, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Return available records; wait up to `timeout` seconds for the first one."""
        return self._thread.run(self._client.poll(max_records, timeout))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while True:
            yield from self.poll(max_records=1_000, timeout=3600.0)

    async def _assign(
        self, partitions: list[TopicPartition | tuple[str, int]], start: Literal["earliest", "latest"]
    ) -> None:
        self._client.assign(partitions, start=start)


class Admin(_Face[_admin.Admin]):
    """Synchronous `tidelog.Admin` with the same options."""

    def __init__(self, bootstrap: str | list[str] | tuple[str, ...], **options: Any) -> None:
        super().__init__(_admin.Admin(bootstrap, **options))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicId:
        """Create a topic."""
        return self._thread.run(
            self._client.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=validate_only,
            )
        )

    def remove_voter(self, node_id: int, *, directory_id: DirectoryId | None = None) -> None:
        """See `tidelog.Admin.remove_voter`."""
        self._thread.run(self._client.remove_voter(node_id, directory_id=directory_id))

    def delete_topic(self, name: str, *, topic_id: TopicId | None = None) -> None:
        """Delete a topic and all its records."""
        self._thread.run(self._client.delete_topic(name, topic_id=topic_id))

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Increase the number of partitions of a topic to `count`."""
        self._thread.run(self._client.create_partitions(name, count, validate_only=validate_only))

    def alter_topic(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Change settings of a topic; None resets a setting to its default."""
        self._thread.run(self._client.alter_topic(name, changes, validate_only=validate_only))

    def elect_leaders(
        self, partitions: Iterable[_admin.Place] = (), *, unclean: bool = False, validate_only: bool = False
    ) -> list[_admin.PartitionResult]:
        """Elect preferred leaders; `unclean`: elect the most complete available replica. validate_only: report the
        expected loss and change nothing."""
        asked = self._client.elect_leaders(list(partitions), unclean=unclean, validate_only=validate_only)
        return self._thread.run(asked)

    def reassign(self, replicas: Mapping[_admin.Place, Sequence[int] | None]) -> list[_admin.PartitionResult]:
        """Move replicas; None cancels a reassignment."""
        return self._thread.run(self._client.reassign(replicas))

    def list_reassignments(self) -> list[_admin.ReassignmentDescription]:
        """Return the reassignments in progress."""
        return self._thread.run(self._client.list_reassignments())

    def update_features(self, level: int = 0, *, validate_only: bool = False) -> int:
        """Raise the feature level."""
        return self._thread.run(self._client.update_features(level, validate_only=validate_only))

    def explain_partitions(self, partitions: Iterable[_admin.Place] = ()) -> list[_admin.PartitionExplanation]:
        """Explain why partitions cannot be read or written."""
        return self._thread.run(self._client.explain_partitions(list(partitions)))

    def explain_restart(self, node_id: int) -> _admin.RestartExplanation:
        """Report whether the node can be stopped for a while."""
        return self._thread.run(self._client.explain_restart(node_id))

    def list_topics(self) -> list[TopicDescription]:
        """Return all topics, by name."""
        return self._thread.run(self._client.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """Return one topic."""
        return self._thread.run(self._client.describe_topic(name))

    def describe_cluster(self) -> ClusterDescription:
        """Return nodes, controller, voters and the number of partitions that need attention."""
        return self._thread.run(self._client.describe_cluster())

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        place: Literal["earliest", "latest"] | datetime = "latest",
    ) -> dict[TopicPartition, Offset]:
        """Return the offset of a place in each partition."""
        return self._thread.run(self._client.list_offsets(list(partitions), place))
