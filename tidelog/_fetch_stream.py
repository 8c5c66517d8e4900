"""One node's fetch stream: many fetches open at once, each answered by itself.

Kept true: every fetch that was opened here is answered, refused or reported failed. The stream ends with its
connection, and its task with the stream: the next fetch for the node makes a new one.
Left to others: every decision (_fetch_core.py); what the bytes hold (consumer.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from tidelog import _methods as methods
from tidelog import _wire as wire
from tidelog._fetch_core import OpenFetch
from tidelog._network import MessageStream, Transport
from tidelog._status import from_proto
from tidelog.errors import ConnectionLost, TidelogError
from tidelog.types import Endpoint, TopicPartition
from tidelog.v1 import data_pb2

Stream = MessageStream[data_pb2.FetchRequest, wire.FetchResponse]
Answered: TypeAlias = Callable[[TopicPartition, int, wire.PartitionFetched | TidelogError], None]
"""Called with the partition, the number of its fetch, and the answer or why there is none."""


class FetchStream:
    """Fetches from one address."""

    def __init__(
        self, endpoint: Endpoint, transport: Transport, answered: Answered, *, max_wait_ms: int, min_bytes: int
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._answered = answered
        self._max_wait_ms, self._min_bytes = max_wait_ms, min_bytes
        self._outbox: list[OpenFetch] = []
        self._open: dict[int, TopicPartition] = {}
        self._wake = asyncio.Event()
        self._broken: TidelogError | None = None

    def open(self, fetch: OpenFetch) -> bool:
        """Take a fetch into the outbox. False once the stream has ended: make another one."""
        if self._broken is not None:
            return False
        self._outbox.append(fetch)
        self._wake.set()
        return True

    async def run(self) -> None:
        """Connect, then send and receive until the connection breaks or this task is cancelled."""
        try:
            stream = await self._transport.open_stream(self._endpoint, methods.DATA_FETCH_STREAM)
        except TidelogError as cause:
            self._break(cause)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(stream), name=f"read fetch answers of {self._endpoint}")
                await self._write(stream)
        finally:
            stream.close()

    def _break(self, cause: TidelogError) -> None:
        if self._broken is not None:
            return
        self._broken = cause
        self._wake.set()
        waiting, self._outbox = self._outbox, []
        opened, self._open = self._open, {}
        for number, topic_partition in opened.items():
            self._answered(topic_partition, number, cause)
        for fetch in waiting:
            self._answered(fetch.topic_partition, fetch.number, cause)

    async def _write(self, stream: Stream) -> None:
        while self._broken is None:
            await self._wake.wait()
            self._wake.clear()
            if not self._outbox:
                continue
            fetches, self._outbox = self._outbox, []
            self._open.update((fetch.number, fetch.topic_partition) for fetch in fetches)
            request = data_pb2.FetchRequest(
                max_wait_ms=self._max_wait_ms,
                min_bytes=self._min_bytes,
                isolation_level=data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
                partitions=[
                    data_pb2.FetchPartition(
                        fetch_id=fetch.number,
                        topic_id=fetch.topic_id.bytes,
                        partition=fetch.topic_partition.partition,
                        current_leader_epoch=fetch.leader_epoch,
                        fetch_offset=fetch.offset,
                        last_fetched_epoch=-1,
                        held_offset=-1,
                        log_start_offset=-1,
                        max_bytes=fetch.max_bytes,
                    )
                    for fetch in fetches
                ],
            )
            try:
                await stream.send(request)
            except TidelogError as cause:
                self._break(cause)
        stream.close()

    async def _read(self, stream: Stream) -> None:
        while True:
            try:
                answer = await stream.receive()
            except TidelogError as cause:
                self._break(cause)
                return
            if answer is None:
                self._break(ConnectionLost(f"the node at {self._endpoint} ended the stream of fetches."))
                return
            for told in answer.partitions:
                topic_partition = self._open.pop(told.fetch_id, None)
                if topic_partition is not None:
                    self._answered(
                        topic_partition, told.fetch_id, told if told.error is None else from_proto(told.error)
                    )
