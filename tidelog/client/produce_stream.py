"""The produce stream to one node: sends the core's batches in order and passes the answers to the core.

Invariants: a batch is sent only if the core still wants it (`take`). Every given batch is acknowledged, rejected or
reported as lost.
Not here: the stream's lifecycle (node_stream.py), decisions (producer_core.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.client.accumulator import Attempt
from tidelog.client.node_stream import NodeStream
from tidelog.errors import TidelogError
from tidelog.protocol import methods, wire
from tidelog.protocol.network import Transport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.types import Acks, Endpoint, RecordError

MESSAGE_BYTES: Final = 256 * 1024
"""Target size of a message; a message contains at least one batch."""


class Progress(Protocol):
    """The producer's interface for its streams."""

    acks: Acks

    def take(self, attempt: Attempt) -> bytes | None:
        """Return the batch to be sent now, or None if it must not be sent."""
        ...

    def node_timeout_ms(self, attempt: Attempt) -> int:
        """Return how long the node may wait for the acks."""
        ...

    def acknowledged(self, attempt_id: int, base_offset: int, append_time: int) -> None:
        """The node has acknowledged the batch."""
        ...

    def refused(self, attempt_id: int, error: TidelogError) -> None:
        """The node has answered with an error."""
        ...

    def lost(self, attempt_id: int, cause: TidelogError) -> None:
        """No answer will arrive on this stream."""
        ...


class ProduceStream(NodeStream[Attempt, wire.ProduceRequest, data_pb2.ProduceResponse]):
    """Batches for one node at one address."""

    def __init__(self, endpoint: Endpoint, transport: Transport, progress: Progress) -> None:
        super().__init__(endpoint, transport, methods.DATA_PRODUCE_STREAM)
        self._progress = progress
        self._unanswered: set[int] = set()

    def _next_request(self) -> wire.ProduceRequest | None:
        entries, timeout_ms = self._next_entries()
        if not entries:
            return None
        return wire.ProduceRequest(acks=self._progress.acks, timeout_ms=timeout_ms, partitions=entries)

    def _next_entries(self) -> tuple[list[wire.PartitionProduce], int]:
        entries: list[wire.PartitionProduce] = []
        size, timeout_ms = 0, 0
        while self._outbox and (not entries or size + self._outbox[0].batch.size <= MESSAGE_BYTES):
            attempt = self._outbox.popleft()
            records = self._progress.take(attempt)
            if records is None:
                continue
            queue = attempt.batch.queue
            topic_id = queue.topic_id
            assert topic_id is not None, "a leader is known only together with the topic's id"
            entries.append(
                wire.PartitionProduce(
                    batch_id=attempt.attempt_id,
                    topic_id=topic_id.bytes,
                    partition=queue.topic_partition.partition,
                    leader_epoch=attempt.leader_epoch,
                    records=records,
                )
            )
            self._unanswered.add(attempt.attempt_id)
            size += len(records)
            wanted = self._progress.node_timeout_ms(attempt)
            timeout_ms = min(timeout_ms, wanted) if timeout_ms else wanted
        return entries, timeout_ms

    def _sent(self, request: wire.ProduceRequest) -> None:
        if self._progress.acks is Acks.NONE:
            for entry in request.partitions:
                self._unanswered.discard(entry.batch_id)
                self._progress.acknowledged(entry.batch_id, -1, -1)

    def _received(self, answer: data_pb2.ProduceResponse) -> None:
        for told in answer.partitions:
            self._unanswered.discard(told.batch_id)
            if told.HasField("error"):
                self._progress.refused(told.batch_id, _refusal(told))
            else:
                self._progress.acknowledged(told.batch_id, told.base_offset, told.log_append_time_ms)

    def _failed(self, unsent: Sequence[Attempt], cause: TidelogError) -> None:
        unanswered, self._unanswered = sorted(self._unanswered), set()
        for attempt_id in unanswered:
            self._progress.lost(attempt_id, cause)
        for attempt in unsent:
            self._progress.lost(attempt.attempt_id, cause)


def _refusal(told: data_pb2.PartitionProduced) -> TidelogError:
    """Return the error with its errors of single records."""
    error = from_proto(told.error)
    error.record_errors = tuple(RecordError(each.index, each.message) for each in told.record_errors)
    return error
