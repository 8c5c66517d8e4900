"""One node's produce stream: what the core gives goes out in order, what comes back goes to the core.

Kept true: a batch is put on the wire only if the core still wants it there (`take`), and each batch that was given is
answered, refused or reported lost, exactly as far as this stream can tell. The stream ends with its connection, and its
task with the stream: the next batch for the node makes a new one.
Left to others: every decision (_producer_core.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from tidelog import _methods as methods
from tidelog import _wire as wire
from tidelog._accumulator import InFlight, PendingBatch
from tidelog._network import MessageStream, Transport
from tidelog._status import from_proto
from tidelog.errors import ConnectionLost, TidelogError
from tidelog.types import Acks, Endpoint, NodeId
from tidelog.v1 import common_pb2, data_pb2

MESSAGE_BYTES: Final = 256 * 1024
"""A message takes batches up to this size, and at least one."""

Stream = MessageStream[wire.ProduceRequest, data_pb2.ProduceResponse]


class Books(Protocol):
    """The producer, as its streams see it."""

    acks: Acks

    def take(self, batch: PendingBatch, node: NodeId) -> tuple[InFlight, bytes] | None:
        """The batch and its bytes, to be put on the wire now; None: leave it."""
        ...

    def node_timeout_ms(self, given: InFlight) -> int:
        """How long the node may wait for the acks."""
        ...

    def acknowledged(self, batch_id: int, base_offset: int, append_time: int) -> None:
        """The node has done as asked."""
        ...

    def refused(self, batch_id: int, error: TidelogError) -> None:
        """The node has answered with an error."""
        ...

    def lost(self, batch_id: int, cause: TidelogError) -> None:
        """No answer will come on this stream."""
        ...


class ProduceStream:
    """Batches for one node at one address."""

    def __init__(self, node: NodeId, endpoint: Endpoint, transport: Transport, books: Books) -> None:
        self._node = node
        self._endpoint = endpoint
        self._transport = transport
        self._books = books
        self._outbox: deque[PendingBatch] = deque()
        self._unanswered: set[int] = set()
        self._wake = asyncio.Event()
        self._broken: TidelogError | None = None

    def give(self, batch: PendingBatch) -> bool:
        """Take a batch into the outbox. False once the stream has ended: make another one."""
        if self._broken is not None:
            return False
        self._outbox.append(batch)
        self._wake.set()
        return True

    async def run(self) -> None:
        """Connect, then send and receive until the connection breaks or this task is cancelled."""
        try:
            stream = await self._transport.open_stream(self._endpoint, methods.DATA_PRODUCE_STREAM)
        except TidelogError as cause:
            self._break(cause)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(stream), name=f"read produce answers of {self._endpoint}")
                await self._write(stream)
        finally:
            stream.close()

    def _break(self, cause: TidelogError) -> None:
        if self._broken is not None:
            return
        self._broken = cause
        self._wake.set()
        outbox, self._outbox = list(self._outbox), deque()
        unanswered, self._unanswered = sorted(self._unanswered), set()
        for batch_id in unanswered:
            self._books.lost(batch_id, cause)
        for batch in outbox:
            self._books.lost(batch.batch_id, cause)

    async def _write(self, stream: Stream) -> None:
        while self._broken is None:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox and self._broken is None:
                entries, timeout_ms = self._next_entries()
                if not entries:
                    continue
                request = wire.ProduceRequest(acks=self._books.acks, timeout_ms=timeout_ms, partitions=entries)
                try:
                    await stream.send(request)
                except TidelogError as cause:
                    self._break(cause)
                    stream.close()
                    return
                if self._books.acks is Acks.NONE:
                    for entry in entries:
                        self._unanswered.discard(entry.batch_id)
                        self._books.acknowledged(entry.batch_id, -1, -1)

    def _next_entries(self) -> tuple[list[wire.PartitionProduce], int]:
        entries: list[wire.PartitionProduce] = []
        size, timeout_ms = 0, 0
        while self._outbox and (not entries or size + self._outbox[0].size <= MESSAGE_BYTES):
            batch = self._outbox.popleft()
            taken = self._books.take(batch, self._node)
            if taken is None:
                continue
            given, records = taken
            topic_id = batch.queue.topic_id
            assert topic_id is not None, "a leader is known only together with the topic's id"
            entries.append(
                wire.PartitionProduce(
                    batch_id=batch.batch_id,
                    topic_id=topic_id.bytes,
                    partition=batch.queue.topic_partition.partition,
                    leader_epoch=given.leader_epoch,
                    records=records,
                )
            )
            self._unanswered.add(batch.batch_id)
            size += len(records)
            wanted = self._books.node_timeout_ms(given)
            timeout_ms = min(timeout_ms, wanted) if timeout_ms else wanted
        return entries, timeout_ms

    async def _read(self, stream: Stream) -> None:
        while True:
            try:
                answer = await stream.receive()
            except TidelogError as cause:
                self._break(cause)
                return
            if answer is None:
                self._break(ConnectionLost(f"the node at {self._endpoint} ended the stream of produce requests."))
                return
            for told in answer.partitions:
                self._unanswered.discard(told.batch_id)
                if told.HasField("error"):
                    self._books.refused(told.batch_id, from_proto(_detailed(told)))
                else:
                    self._books.acknowledged(told.batch_id, told.base_offset, told.log_append_time_ms)


def _detailed(told: data_pb2.PartitionProduced) -> common_pb2.Error:
    """The error with what it says about single records."""
    if not told.record_errors:
        return told.error
    detailed = common_pb2.Error()
    detailed.CopyFrom(told.error)
    first = told.record_errors[0]
    detailed.message += f" ({len(told.record_errors)} records refused; record {first.index}: {first.message})"
    return detailed
