"""A listener of another protocol: a request and an answer is a line of JSON. It has framing and codecs, nothing else.

    {"api": "Data.Produce", "client_id": "loader", "acks": -1, "batches": [["orders", 0, "..."]]}
    {"throttle_time_ms": 0, "batches": [{"base_offset": 7}]}    or
    {"error": "TOPIC_AUTHORIZATION_FAILED", "message": "..."}

A connection has several requests open. Its answers come in the order of its requests; one with acks=0 has none. A
throttled connection is muted instead of delayed.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from node.api.caller import Caller
from node.api.fetch import FetchRequest, PartitionFetch
from node.api.metadata import GetMetadataAnswer, GetMetadataRequest
from node.api.produce import ProduceAnswer
from node.api.table import ADMIN_GET_METADATA, APIS, DATA_FETCH, DATA_PRODUCE
from node.boundary.boundary import Boundary, EncodedAnswer, Request
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.record_exchange import FetchAnswer, FetchedPartition, ProduceBatch, ProduceRequest
from tidelog.types import Isolation, Offset

OPEN_MAX = 5  # requests of one connection that are served at once


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def outcome(error: TidelogError | None, **fields: object) -> dict[str, object]:
    refusal = {} if error is None else {"error": error.kafka_name or type(error).__name__, "message": error.message}
    return {**fields, **refusal}


class LineCodec:
    """The codec of one request; this one refuses an API that the protocol does not have."""

    tells_throttle = True

    def decode(self, data: bytes) -> Any:
        try:
            return self.read(json.loads(data))
        except (KeyError, ValueError) as error:
            raise InvalidRequest(f"the line is no request: {error!r}") from None

    def encode(self, answer: Any, throttle_time_ms: int) -> bytes:
        return line(throttle_time_ms=throttle_time_ms, **self.write(answer))

    def read(self, fields: dict[str, Any]) -> Any:
        raise InvalidRequest(f"lines of JSON have no {fields['api']}")

    def write(self, answer: Any) -> dict[str, object]:
        raise NotImplementedError


class MetadataCodec(LineCodec):
    def read(self, fields: dict[str, Any]) -> GetMetadataRequest:
        return GetMetadataRequest(topics=tuple(fields["topics"]))

    def write(self, answer: GetMetadataAnswer) -> dict[str, object]:
        return {
            topic.name: outcome(topic.error, leaders=[each.state.leader for each in topic.partitions])
            for topic in answer.topics
        }


class ProduceCodec(LineCodec):
    acks = 0

    def read(self, fields: dict[str, Any]) -> ProduceRequest:
        self.acks = int(fields["acks"])
        batches = [ProduceBatch(topic, index, bytes.fromhex(records)) for topic, index, records in fields["batches"]]
        return ProduceRequest(self.acks, 10_000, batches)

    def encode(self, answer: ProduceAnswer, throttle_time_ms: int) -> bytes:
        return b"" if self.acks == 0 else super().encode(answer, throttle_time_ms)

    def write(self, answer: ProduceAnswer) -> dict[str, object]:
        return {"batches": [outcome(each.error, base_offset=each.base_offset) for each in answer.partitions]}


class FetchCodec(LineCodec):
    def read(self, fields: dict[str, Any]) -> FetchRequest:
        fetches = [PartitionFetch(topic, index, Offset(offset)) for topic, index, offset in fields["positions"]]
        wait_ms, least, most = (fields[name] for name in ("max_wait_ms", "min_bytes", "max_bytes"))
        return FetchRequest(None, wait_ms, least, Isolation.READ_UNCOMMITTED, fetches, max_bytes=most)

    def write(self, answer: FetchAnswer) -> dict[str, object]:
        return {"partitions": [self._fetched(each) for each in answer.partitions]}

    def _fetched(self, each: FetchedPartition) -> dict[str, object]:
        known = {"high_watermark": each.high_watermark, "log_start_offset": each.log_start_offset}
        return outcome(each.error, partition=each.partition, records=bytes(each.records).hex(), **known)


class LineListener:
    codecs: ClassVar = {
        ADMIN_GET_METADATA.name: MetadataCodec,
        DATA_PRODUCE.name: ProduceCodec,
        DATA_FETCH.name: FetchCodec,
    }

    def __init__(self, boundary: Boundary, principal: str) -> None:
        """principal: of all callers. Any protocol could prove it; this one believes it."""
        self._boundary, self._principal = boundary, principal
        self._reading = asyncio.Event()
        self._reading.set()

    @property
    def is_muted(self) -> bool:
        return not self._reading.is_set()

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 20)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")
        caller = Caller("lines", f"{host}:{port}", self._principal, for_nodes=False, host=host, mutes=True)
        answers: asyncio.Queue[asyncio.Task[EncodedAnswer] | None] = asyncio.Queue(OPEN_MAX)
        with suppress(ConnectionError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write(writer, answers))
                while data := await reader.readline():
                    fields = json.loads(data)
                    codec = self.codecs.get(fields["api"], LineCodec)()
                    caller = replace(caller, client_id=fields.get("client_id", ""))
                    await answers.put(tasks.create_task(self._serve(fields["api"], Request(data, codec), caller)))
                    await self._reading.wait()
                await answers.put(None)

    async def _serve(self, api: str, request: Request, caller: Caller) -> EncodedAnswer:
        try:
            return await self._boundary.serve(APIS[api], request, caller)
        except TidelogError as error:
            return EncodedAnswer(line(**outcome(error)), None, 0)

    async def _write(self, to: asyncio.StreamWriter, queue: asyncio.Queue[asyncio.Task[EncodedAnswer] | None]) -> None:
        while (serving := await queue.get()) is not None:
            answer = await serving
            if answer.throttle_time_ms:
                self._reading.clear()
                asyncio.get_running_loop().call_later(answer.throttle_time_ms / 1_000, self._reading.set)
            to.write(answer.data)
            await to.drain()
        to.close()
