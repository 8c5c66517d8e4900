"""The fetch stream to one node: many open fetches, each with its own answer.

Invariants: every fetch given to the stream is answered, rejected or reported as failed.
Not here: the stream's lifecycle (node_stream.py), decisions (fetch_core.py), decoding (consumer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidelog.client.fetch_events import FetchBatches
from tidelog.client.node_stream import NodeStream
from tidelog.client.read_committed import LEVELS
from tidelog.clock import Clock
from tidelog.errors import OffsetOutOfRange, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.network import Transport
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer, FetchedPartition
from tidelog.types import Endpoint, Isolation, TopicPartition

Throttled: TypeAlias = Callable[[int], None]
"""Called with the time (milliseconds) for which the node sends and reads nothing, because a quota is exceeded."""
Answered: TypeAlias = Callable[[TopicPartition, int, FetchedPartition | TidelogError], None]
"""Called with the partition, the number of its fetch, and the answer or the error."""


class FetchStream(NodeStream[FetchBatches, data_pb2.FetchRequest, FetchAnswer]):
    """Fetches from one address."""

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        clock: Clock,
        answered: Answered,
        throttled: Throttled,
        *,
        max_wait_ms: int,
        min_bytes: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        rack: str = "",
    ) -> None:
        super().__init__(endpoint, transport, methods.DATA_FETCH_STREAM, clock)
        self._answered, self._on_throttled = answered, throttled
        self._max_wait_ms, self._min_bytes = max_wait_ms, min_bytes
        self._isolation = isolation
        self._rack = rack
        self._open: dict[int, TopicPartition] = {}

    def _next_request(self) -> data_pb2.FetchRequest:
        hint = self._outbox[0].hint
        fetches = [fetch for fetch in self._outbox if fetch.hint is hint]
        later = [fetch for fetch in self._outbox if fetch.hint is not hint]
        self._open.update((fetch.number, fetch.topic_partition) for fetch in fetches)
        request = data_pb2.FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            isolation_level=LEVELS[self._isolation],
            partitions=[
                data_pb2.FetchPartition(
                    fetch_id=fetch.number,
                    topic_id=fetch.topic_id.bytes,
                    partition=fetch.topic_partition.partition,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.last_epoch,
                    durable_offset=-1,
                    log_start_offset=-1,
                    max_bytes=fetch.max_bytes,
                    refused=fetch.refused,
                )
                for fetch in fetches
            ],
            rack=self._rack if hint else "",
        )
        self._outbox.clear()
        self._outbox.extend(later)
        return request

    def _received(self, answer: FetchAnswer) -> None:
        if answer.throttle_time_ms:
            self._throttled(answer.throttle_time_ms)
            self._on_throttled(answer.throttle_time_ms)
        for result in answer.partitions:
            topic_partition = self._open.pop(result.correlation_id, None)
            if topic_partition is None:
                continue
            error = result.error
            if isinstance(error, OffsetOutOfRange) and result.log_start_offset >= 0:
                error.log_start = result.log_start_offset
            self._answered(topic_partition, result.correlation_id, error or result)

    def _failed(self, unsent: Sequence[FetchBatches], cause: TidelogError) -> None:
        opened, self._open = self._open, {}
        for number, topic_partition in opened.items():
            self._answered(topic_partition, number, cause)
        for fetch in unsent:
            self._answered(fetch.topic_partition, fetch.number, cause)
