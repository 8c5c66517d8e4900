"""The produce streams of a producer, one to each node: they send the core's batches in order and report the answers.

Invariants: a batch is sent only if the core has not withdrawn it (`take`). Every queued batch is acknowledged, refused
or reported as lost.
Not here: the stream's lifecycle (node_stream.py), decisions (producer_core.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from tidelog.client.accumulator import Attempt
from tidelog.client.node_stream import NodeStream
from tidelog.client.producer_events import Acknowledged, Lost, Refused
from tidelog.client.producer_options import checked_receipts
from tidelog.client.receipt import StoredBatch
from tidelog.client.refusal_watch import RefusalWatch
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.network import Transport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import (
    NO_TIMESTAMP,
    Acks,
    BatchReceipt,
    Durability,
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    RecordError,
    TopicId,
)

MESSAGE_BYTES: Final = 1024 * 1024
"""Target size of a message; a message contains at least one batch."""
TRANSACTION_VERSION: Final = 2
"""KIP-890: the leader adds a partition to the transaction when it is first written."""


Take: TypeAlias = Callable[[Attempt], int | None]
"""Encodes the batch. Returns how many ms the node may wait for the acks; None if the batch must not be sent."""
Report: TypeAlias = Callable[[Sequence[Acknowledged | Refused | Lost]], None]
"""Called with the outcomes of all attempts of a message at once. Lost: no answer will arrive on this stream."""
Throttled: TypeAlias = Callable[[int, Millis], None]
"""Called with the time (milliseconds) for which the node reads nothing, because a quota is exceeded, and the present
time."""


class ProduceStream(NodeStream[Attempt, ProduceRequest, data_pb2.ProduceResponse]):
    """Batches for one node at one address."""

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        clock: Clock,
        *,
        acks: Acks,
        take: Take,
        report: Report,
        throttled: Throttled,
        transactional_id: str = "",
        receipts: bool = False,
    ) -> None:
        """transactional_id: that of a transactional producer; empty for others. receipts: request a receipt of each
        batch."""
        super().__init__(endpoint, transport, methods.DATA_PRODUCE_STREAM, clock)
        self._acks, self._take, self._report, self._on_throttled = acks, take, report, throttled
        self._transactional_id = transactional_id
        self._transaction_version = TRANSACTION_VERSION if transactional_id else 0
        self._receipts = receipts
        self._refusals = RefusalWatch(endpoint)
        self._unanswered: set[int] = set()

    def _next_request(self) -> ProduceRequest | None:
        batches: list[ProduceBatch] = []
        size, timeout_ms = 0, 0
        while self._outbox and (not batches or size + self._outbox[0].batch.size <= MESSAGE_BYTES):
            attempt = self._outbox.popleft()
            wait_ms = self._take(attempt)
            if wait_ms is None:
                continue
            queue, records = attempt.batch.queue, attempt.batch.encoded
            assert queue.topic_id is not None, "a leader is known only together with the topic's id"
            partition = queue.topic_partition.partition
            batches.append(
                ProduceBatch(queue.topic_id.bytes, partition, records, attempt.leader_epoch, attempt.attempt_id)
            )
            self._unanswered.add(attempt.attempt_id)
            size += len(records)
            # One answer for all: the node must not wait longer than the batch with the least time left.
            timeout_ms = min(timeout_ms, wait_ms) if timeout_ms else wait_ms
        if not batches:
            return None
        return ProduceRequest(
            self._acks, timeout_ms, batches, self._transactional_id, self._transaction_version, self._receipts
        )

    def _sent(self, request: ProduceRequest) -> None:
        if self._acks is Acks.NONE:
            at, sent = self._clock.monotonic_ms(), [batch.correlation_id for batch in request.partitions]
            self._unanswered.difference_update(sent)
            self._report([Acknowledged(attempt_id, Offset(-1), NO_TIMESTAMP, at) for attempt_id in sent])

    def _received(self, answer: data_pb2.ProduceResponse) -> None:
        at = self._clock.monotonic_ms()
        if answer.throttle_time_ms:
            self._throttled(answer.throttle_time_ms)
            self._on_throttled(answer.throttle_time_ms, at)
        outcomes: list[Acknowledged | Refused | Lost] = []
        for result in answer.partitions:
            self._unanswered.discard(result.batch_id)
            if result.HasField("error"):
                error = from_proto(result.error)
                error.record_errors = tuple(RecordError(each.index, each.message) for each in result.record_errors)
                outcomes.append(Refused(result.batch_id, error, at))
                self._refusals.refused(error, at)
            else:
                base_offset, append_time = Offset(result.base_offset), Millis(result.log_append_time_ms)
                stored = _stored(result) if self._receipts else None
                outcomes.append(Acknowledged(result.batch_id, base_offset, append_time, at, stored))
        self._report(outcomes)

    def _failed(self, unsent: Sequence[Attempt], cause: TidelogError) -> None:
        unanswered, self._unanswered = sorted(self._unanswered), set()
        at = self._clock.monotonic_ms()
        lost = [*unanswered, *(attempt.attempt_id for attempt in unsent)]
        self._report([Lost(attempt_id, cause, at) for attempt_id in lost])


class ProduceStreams:
    """Opens a stream when a batch needs one. A stream that has ended is replaced."""

    def __init__(
        self,
        clock: Clock,
        acks: Acks,
        take: Take,
        report: Report,
        throttled: Callable[[NodeId, int, Millis], None],
        transactional_id: str | None,
        *,
        receipts: bool,
    ) -> None:
        """throttled: called with a node and the time for which it throttles this client. The other options are those of
        a stream. Raises InvalidConfig."""
        self._clock, self._acks, self._take, self._report, self._throttled = clock, acks, take, report, throttled
        self._transactional_id, self._receipts = transactional_id or "", checked_receipts(acks, receipts)
        self._streams: dict[tuple[NodeId, Endpoint], ProduceStream] = {}

    def give(self, attempt: Attempt, endpoint: Endpoint, transport: Transport) -> ProduceStream | None:
        """Queue the attempt on the stream of its node. Returns the stream if it is new: the caller runs it."""
        node = attempt.node
        stream = self._streams.get((node, endpoint))
        if stream is not None and stream.give(attempt):
            return None
        stream = self._streams[node, endpoint] = ProduceStream(
            endpoint,
            transport,
            self._clock,
            acks=self._acks,
            take=self._take,
            report=self._report,
            throttled=partial(self._throttled, node),
            transactional_id=self._transactional_id,
            receipts=self._receipts,
        )
        stream.give(attempt)
        return stream

    async def finish(self) -> None:
        """Return once the nodes have read all that was sent, or their connections are broken."""
        async with asyncio.TaskGroup() as tasks:
            for stream in self._streams.values():
                tasks.create_task(stream.finish())


def _stored(result: data_pb2.PartitionProduced) -> StoredBatch | None:
    """What the answer states about the stored batch; None if the node states nothing, or is of an older version."""
    if not result.HasField("receipt"):
        return None
    sent = result.receipt
    stated = BatchReceipt(
        TopicId(UUID(bytes=sent.topic_id)),
        Offset(sent.last_offset),
        sent.checksum,
        tuple(NodeId(node) for node in sent.replicas),
        tuple(NodeId(node) for node in sent.durable_replicas),
        Durability.FSYNC if sent.fsync else Durability.PAGE_CACHE,
    )
    return StoredBatch(stated, Offset(result.base_offset), LeaderEpoch(result.leader_epoch))
