"""The transport of an application's clients: tells which record batches a node has acknowledged.

Invariants: nothing that the clients can see is changed. Not here: the judgement (acknowledgements.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.protocol import methods
from tidelog.protocol.network import MessageStream, Transport
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import Acks, Endpoint

Acknowledged = Callable[[ProduceBatch, int], None]
"""Called with each batch that was acknowledged with acks=all, and the offset of its first record."""


class ObservedTransport:
    """See tidelog/protocol/network.py."""

    def __init__(self, inner: Transport, acknowledged: Acknowledged) -> None:
        self._inner, self._acknowledged = inner, acknowledged

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        return await self._inner.call(to, method, request, timeout_ms=timeout_ms)

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> MessageStream[Request, Answer]:
        stream: Any = await self._inner.open_stream(to, method)
        if method == methods.DATA_PRODUCE_STREAM:
            stream = _ProduceStream(stream, self._acknowledged)
        observed: MessageStream[Request, Answer] = stream
        return observed

    async def close(self) -> None:
        await self._inner.close()


class _ProduceStream:
    """One produce stream, from the side of the client."""

    def __init__(self, inner: MessageStream[Any, Any], acknowledged: Acknowledged) -> None:
        self._inner, self._acknowledged = inner, acknowledged
        self._unanswered: dict[int, ProduceBatch] = {}

    async def send(self, message: ProduceRequest, /) -> None:
        if message.acks == Acks.ALL:
            self._unanswered.update((batch.correlation_id, batch) for batch in message.partitions)
        await self._inner.send(message)

    async def receive(self) -> Any:
        answer = await self._inner.receive()
        for result in () if answer is None else answer.partitions:
            batch = self._unanswered.pop(result.batch_id, None)
            if batch is not None and not result.HasField("error"):
                self._acknowledged(batch, result.base_offset)
        return answer

    async def end(self) -> None:
        await self._inner.end()

    def close(self) -> None:
        self._inner.close()
