"""Clients that ask one node for as much as they may, over connections of their own: unary fetches of 64 MiB, streams
that fetch 16 MiB at a time, streams that are never read, producers of 256 KiB batches."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import grpc

from tidelog.protocol import methods, wire
from tidelog.protocol.rpc import CallKind, Method
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceBatch, ProduceRequest
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Millis, Offset

MIB = 1 << 20
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 128 * MIB),
    ("grpc.max_send_message_length", 128 * MIB),
)


def _batch_of(size: int) -> bytes:
    value = random.Random(size).randbytes(size)
    return build_batch([Record(Offset(0), Millis(1_700_000_000_000), b"key", value)])


LARGE, USUAL = _batch_of(MIB - 1_000), _batch_of(MIB // 4)
"""What lies in the log, and what producers send."""


class Greedy:
    """All of them. `answers` counts by kind, `largest` is the largest answer (bytes of records) by kind."""

    def __init__(self, address: str, topic_id: bytes, partitions: int) -> None:
        self._address, self._topic_id, self._partitions = address, topic_id, partitions
        self.answers: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()

    async def run(self, counts: dict[str, int], until: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """So many of each kind, until `until` has returned."""
        kinds = {"unary": self._unary, "stream": self._stream, "stuck": self._stuck, "produce": self._produce}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._connected(kinds[kind], number))
                for kind, count in counts.items()
                for number in range(count)
            ]
            await until()
            for task in tasks:
                task.cancel()

    async def fill(self, batches: int) -> None:
        """Write so many batches to each partition."""
        async with grpc.aio.insecure_channel(self._address, options=OPTIONS) as channel:
            for number in range(batches * self._partitions):
                await self._call(channel, methods.DATA_PRODUCE)(self._request(number, LARGE))

    @staticmethod
    def _call(channel: grpc.aio.Channel, method: Method[Any, Any]) -> Any:
        make = channel.unary_unary if method.kind is CallKind.UNARY else channel.stream_stream
        return make(
            method.path,
            request_serializer=wire.writer(method.request),
            response_deserializer=wire.reader(method.answer),
        )

    def _request(self, number: int, records: bytes) -> ProduceRequest:
        entry = ProduceBatch(
            correlation_id=number,
            topic_id=self._topic_id,
            partition=number % self._partitions,
            records=records,
        )
        return ProduceRequest(acks=1, timeout_ms=10_000, partitions=[entry])

    def _fetch(self) -> data_pb2.FetchRequest:
        return data_pb2.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            partitions=[
                data_pb2.FetchPartition(
                    fetch_id=index + 1,
                    topic_id=self._topic_id,
                    partition=index,
                    current_leader_epoch=-1,
                    last_fetched_epoch=-1,
                    max_bytes=16 * MIB,
                )
                for index in range(self._partitions)
            ],
        )

    def _note(self, kind: str, answer: FetchAnswer) -> None:
        self.answers[kind] += 1
        self.largest[kind] = max(self.largest[kind], sum(len(each.records) for each in answer.partitions))

    async def _connected(self, work: Callable[[grpc.aio.Channel, int], Coroutine[Any, Any, None]], number: int) -> None:
        async with grpc.aio.insecure_channel(self._address, options=OPTIONS) as channel:
            await work(channel, number)

    async def _unary(self, channel: grpc.aio.Channel, _number: int) -> None:
        while True:
            self._note("unary", await self._call(channel, methods.DATA_FETCH)(self._fetch()))

    async def _stream(self, channel: grpc.aio.Channel, _number: int) -> None:
        call = self._call(channel, methods.DATA_FETCH_STREAM)()
        while True:
            await call.write(self._fetch())
            self._note("stream", await call.read())

    async def _stuck(self, channel: grpc.aio.Channel, _number: int) -> None:
        call = self._call(channel, methods.DATA_FETCH_STREAM)()
        await call.write(self._fetch())
        await asyncio.get_running_loop().create_future()  # never reads

    async def _produce(self, channel: grpc.aio.Channel, number: int) -> None:
        while True:
            await self._call(channel, methods.DATA_PRODUCE)(self._request(number, USUAL))
            self.answers["produce"] += 1
