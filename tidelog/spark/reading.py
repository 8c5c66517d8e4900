"""One range of committed records from the partition's leader to this process, as the bytes lie on disk.

Kept true: yields whole batches that together cover the range's offsets, each once, in order; follows the leader when it
changes; a partition that cannot be read for `patience_ms` is an error that says why, never a shorter answer.
Left to others: decoding and dropping what lies outside the range (columns.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Final

from tidelog.client.connection import Service
from tidelog.errors import (
    InconsistentTopicId,
    LogTruncated,
    OffsetOutOfRange,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.network import Clock, MessageStream, Transport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.protocol.wire import Buffer, FetchResponse
from tidelog.records import walk_headers
from tidelog.spark.planning import OffsetRange
from tidelog.types import NO_LEADER_EPOCH, Endpoint, LeaderEpoch, Offset

FETCH_WAIT_MS: Final = 500
"""How long a node may hold a fetch that finds nothing: a new leader may not know yet that all is committed."""
PATIENCE_MS: Final = 60_000
"""How long a range may make no progress before its task fails; Spark then tries the task again."""
BACKOFF_MS: Final = 100

FetchStream = MessageStream[data_pb2.FetchRequest, FetchResponse]


class RangeReader(Service):
    """Reads ranges of partitions, one after the other. Use it inside `async with`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        fetch_bytes: int,
        patience_ms: int = PATIENCE_MS,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        """fetch_bytes: how much one fetch asks for; two are under way at a time."""
        super().__init__(bootstrap, transport=transport, clock=clock, rng=rng)
        self._fetch_bytes = fetch_bytes
        self._patience_ms = patience_ms

    async def read(self, wanted: OffsetRange) -> AsyncGenerator[Buffer, None]:
        """The range's batches, in buffers of some `fetch_bytes`.

        Raises OffsetOutOfRange where records aged out since the query was planned, LogTruncated where the log lost some
        of them, UnknownTopicOrPartition or InconsistentTopicId where the topic was deleted or made again,
        RequestTimedOut where nothing came in time.
        """
        position = wanted.start
        progress_at = self._clock.monotonic_ms()
        failure: TidelogError | None = None
        while position < wanted.end:
            try:
                async with aclosing(self._from_leader(wanted, position)) as pieces:
                    async for piece, position in pieces:
                        progress_at, failure = self._clock.monotonic_ms(), None
                        yield piece
                        if position >= wanted.end:
                            return
            except TidelogError as error:
                if _is_final(error):
                    raise _explained(error, wanted, position) from error
                failure = error
            if self._clock.monotonic_ms() - progress_at > self._patience_ms:
                raise RequestTimedOut(
                    f"{wanted.topic_partition}: no record from offset {position} on came within "
                    f"{self._patience_ms} ms, the range ends at {wanted.end}"
                    + (f" ({failure.message})" if failure else "")
                    + "; see `tidelog cluster status`"
                ) from failure
            await self._clock.sleep_ms(BACKOFF_MS)
            await self._look_again(wanted)

    async def _look_again(self, wanted: OffsetRange) -> None:
        try:
            await self._cluster.refresh(wanted.topic_partition.topic)
        except TidelogError:
            return  # nobody answers now: the next attempt says so, or somebody does

    async def _from_leader(self, wanted: OffsetRange, position: Offset) -> AsyncGenerator[tuple[Buffer, Offset], None]:
        """Buffers and the position behind each, from the present leader, until the range or the stream ends."""
        topic = wanted.topic_partition.topic
        known = await self._cluster.wait_topic(topic, timeout_ms=self._patience_ms)
        if known.topic_id != wanted.topic_id:
            raise InconsistentTopicId(
                f"topic {topic!r} now has id {known.topic_id}, the query was planned on {wanted.topic_id}"
            )
        endpoint, partition = self._cluster.view.leader(wanted.topic_partition)
        await self._ensure_planned(wanted, endpoint, partition.leader_epoch)
        stream: FetchStream = await self._cluster.transport.open_stream(endpoint, methods.DATA_FETCH_STREAM)
        try:
            fetch_id = 0
            await stream.send(self._request(wanted, position, partition.leader_epoch, fetch_id))
            while (answer := await stream.receive()) is not None:
                for fetched in answer.partitions:
                    if fetched.fetch_id != fetch_id:
                        continue
                    if fetched.error is not None:
                        raise from_proto(fetched.error)
                    fetch_id += 1
                    piece = fetched.records
                    position = _position_behind(piece, position, fetched.high_watermark, wanted)
                    if position < wanted.end:
                        await stream.send(self._request(wanted, position, partition.leader_epoch, fetch_id))
                    if piece or position >= wanted.end:
                        yield piece, position
        finally:
            stream.close()

    async def _ensure_planned(self, wanted: OffsetRange, endpoint: Endpoint, leader_epoch: LeaderEpoch) -> None:
        """Raise LogTruncated where the log of this leader epoch may hold other records than the query was planned on:
        it does not know the planned epoch, or ends it within the range. A log that knows no epoch as old has deleted
        the records by age or size; reading them says so."""
        if wanted.planned_epoch == NO_LEADER_EPOCH:
            return
        question = data_pb2.EpochQuestion(
            topic_id=wanted.topic_id.bytes,
            partition=wanted.topic_partition.partition,
            current_leader_epoch=leader_epoch,
            leader_epoch=wanted.planned_epoch,
        )
        answer = await self._cluster.transport.call(
            endpoint,
            methods.DATA_OFFSET_FOR_LEADER_EPOCH,
            data_pb2.OffsetForLeaderEpochRequest(partitions=[question]),
            timeout_ms=self._patience_ms,
        )
        told = answer.partitions[0]
        if told.HasField("error"):
            raise from_proto(told.error)
        if told.end.end_offset < wanted.end or told.end.epoch not in (wanted.planned_epoch, NO_LEADER_EPOCH):
            raise LogTruncated(
                f"planned on records of leader epoch {wanted.planned_epoch}, but the log of leader epoch "
                f"{leader_epoch} holds epoch {told.end.epoch} up to offset {told.end.end_offset}"
            )

    def _request(self, wanted: OffsetRange, position: Offset, epoch: int, fetch_id: int) -> data_pb2.FetchRequest:
        return data_pb2.FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            partitions=[
                data_pb2.FetchPartition(
                    fetch_id=fetch_id,
                    topic_id=wanted.topic_id.bytes,
                    partition=wanted.topic_partition.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=position,
                    last_fetched_epoch=-1,
                    durable_offset=-1,
                    log_start_offset=-1,
                    max_bytes=self._fetch_bytes,
                )
            ],
        )


def _position_behind(piece: Buffer, position: Offset, high_watermark: int, wanted: OffsetRange) -> Offset:
    """Where to read on. Nothing below a watermark that covers the range means a hole up to its end."""
    last = position - 1
    for header in walk_headers(piece):
        last = header.last_offset
    if last < position and high_watermark >= wanted.end:
        return wanted.end
    return Offset(max(position, last + 1))


def _is_final(error: TidelogError) -> bool:
    return error.retry is Retry.NEVER or isinstance(error, InconsistentTopicId | UnknownTopicOrPartition)


def _explained(error: TidelogError, wanted: OffsetRange, position: Offset) -> TidelogError:
    """The error in the words of the query."""
    what = f"{wanted.topic_partition}, reading offsets {wanted.start} to {wanted.end}, now at {position}"
    if isinstance(error, OffsetOutOfRange):
        return OffsetOutOfRange(
            f"{what}: records aged out after the query was planned ({error.message}); run it again, "
            'or keep them longer ("retention.ms", "retention.bytes" of the topic)'
        )
    if isinstance(error, LogTruncated):
        return LogTruncated(
            f"{what}: the log was truncated after the query was planned (an unclean election): {error.message}; run "
            "the query again to read what is committed now"
        )
    if isinstance(error, InconsistentTopicId | UnknownTopicOrPartition):
        return type(error)(
            f"{what}: the topic was deleted, or deleted and made again, after the query was planned "
            f"({error.message}); run the query again"
        )
    return type(error)(f"{what}: {error.message}")
