"""The driver of the fetch core: carries out its effects and reports their outcomes as events.

Invariant: each effect is answered by one event, or its task ends with the reader.
Not here: the decisions (fetch_core.py), the streams (fetch_stream.py), the metadata (cluster.py), the use of the
batches (consumer.py, spark/ranges/reading.py).
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from tidelog.client.client_metrics import ConsumerMetrics
from tidelog.client.connection import ClientOptions, Service
from tidelog.client.core_events import FindLeader, TimePassed
from tidelog.client.cursor import Cursor, Where
from tidelog.client.fetch_core import FetchCore
from tidelog.client.fetch_events import (
    BatchesFetched,
    CheckEpoch,
    EpochChecked,
    Event,
    Failed,
    FetchBatches,
    FetchPolicy,
    FindPlace,
    LeaderVerified,
    PlaceFound,
    Ready,
    ReportDoubt,
    ReportStall,
    VerifyLeader,
)
from tidelog.client.fetch_stream import FetchStream
from tidelog.client.offset_lookup import list_positions, timestamp_of
from tidelog.client.read_committed import hide_aborted
from tidelog.errors import CorruptRecord, LeaderNotAvailable, NotLeaderOrFollower, TidelogError, UnknownLeaderEpoch
from tidelog.protocol import methods
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchedPartition
from tidelog.records import RecordBatch, iter_batches
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Endpoint,
    EpochEnd,
    Isolation,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    TopicPartition,
)

_log = logging.getLogger("tidelog.client")

Query = TypeVar("Query", FindPlace, CheckEpoch, VerifyLeader)

TICK_MS: Final = 100
"""Interval of timeout checks: timeouts and backoffs of the core have this precision."""


class FetchClient(Service):
    """Base of the clients that fetch: the consumer, and the reader of a Spark task."""

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        policy: FetchPolicy,
        *,
        min_bytes: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        rack: str = "",
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(bootstrap, **client)
        self._policy = policy
        self._min_bytes, self._isolation, self._rack = min_bytes, isolation, rack
        self._core = FetchCore(policy, self._rng)
        self._counts = ConsumerMetrics()
        self._streams: dict[Endpoint, FetchStream] = {}
        self._ready = asyncio.Event()
        """Set when a cursor has data or an error, and when the reader has ended."""

    def _refuse(self, cursor: Cursor, batch: RecordBatch, error: TidelogError) -> None:
        """Reject a batch that cannot be decoded: it is fetched again, and the node that sent it verifies its log. If
        that does not help, the cursor fails with the error."""
        where = self._cluster.view.nodes.get(cursor.leader)
        kind = type(error) if error.written is False else CorruptRecord
        refusal = kind(
            f"{cursor.topic_partition}, read from node {cursor.leader} at {where}: {error.message}. "
            f"{self._how_to_skip(batch)}"
        )
        refusal.__cause__ = error
        self._core.refuse(cursor, refusal, self._clock.monotonic_ms())

    @abstractmethod
    def _how_to_skip(self, batch: RecordBatch) -> str:
        """The sentence of an error that names the way around a corrupt batch."""

    def _background(self) -> dict[str, Coroutine[Any, Any, None]]:
        self._cluster.on_change(self._on_metadata)
        return {"fetch": self._tick()}

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            self._handle(TimePassed(self._clock.monotonic_ms()))

    def _handle(self, event: Event) -> None:
        todo = deque(self._core.handle(event))
        while todo:
            effect = todo.popleft()
            match effect:
                case FindLeader(topic_partition, is_outdated):
                    if is_outdated:
                        self._cluster.distrust_last()
                    self._cluster.request_refresh(topic_partition.topic)
                case FindPlace():
                    self._spawn(self._query(self._find_place, effect), f"find a place in {effect.topic_partition}")
                case CheckEpoch():
                    self._spawn(self._query(self._check_epoch, effect), f"check {effect.topic_partition}")
                case VerifyLeader(topic_partition):
                    self._spawn(self._query(self._confirm_leader, effect), f"confirm the leader of {topic_partition}")
                case FetchBatches():
                    try:
                        self._open(effect)
                    except LeaderNotAvailable as error:
                        at = self._clock.monotonic_ms()
                        todo.extend(self._core.handle(Failed(effect.topic_partition, effect.number, error, at)))
                case ReportDoubt():
                    _report(effect)
                case ReportStall():
                    _report_stall(effect)
                case Ready():
                    self._ready.set()

    def _open(self, fetch: FetchBatches) -> None:
        """Queue the fetch on the stream of its node. Raises LeaderNotAvailable."""
        endpoint = self._cluster.view.endpoint(fetch.node, fetch.topic_partition)
        stream = self._streams.get(endpoint)
        if stream is None or not stream.give(fetch):
            assert self._transport is not None
            stream = self._streams[endpoint] = FetchStream(
                endpoint,
                self._transport,
                self._clock,
                self._answered,
                partial(self._throttled, fetch.node),
                max_wait_ms=self._policy.max_wait_ms,
                min_bytes=self._min_bytes,
                isolation=self._isolation,
                rack=self._rack,
            )
            stream.give(fetch)
            self._spawn(stream.run(), f"fetch from {endpoint}")

    def _throttled(self, node: NodeId, throttle_time_ms: int) -> None:
        now = self._clock.monotonic_ms()
        self._core.patient_until[node] = Millis(now + throttle_time_ms + self._policy.request_timeout_ms)

    def _answered(self, topic_partition: TopicPartition, number: int, answer: FetchedPartition | TidelogError) -> None:
        at = self._clock.monotonic_ms()
        if isinstance(answer, TidelogError):
            self._cluster.note_leader(topic_partition, answer.leader)
            self._handle(Failed(topic_partition, number, answer, at))
            return
        try:
            batches = tuple(iter_batches(answer.records))
            if answer.records and not batches:
                raise CorruptRecord("the answer of a node does not contain a whole batch")
            batches = hide_aborted(batches, answer.aborted)
        except TidelogError as error:
            refusal = type(error)(
                f"{topic_partition}: {error.message}; the fetched bytes are corrupt, fetch them again"
            )
            self._handle(Failed(topic_partition, number, refusal, at))
            return
        committed_only = self._isolation is Isolation.READ_COMMITTED
        self._counts.fetched(topic_partition, len(answer.records), batches)
        self._handle(
            BatchesFetched(
                topic_partition,
                number,
                batches,
                answer.leader_epoch,
                answer.high_watermark,
                answer.last_stable_offset if committed_only else answer.high_watermark,
                answer.log_start_offset,
                at,
                NodeId(answer.preferred_read_replica) if self._rack and not batches else NO_NODE,
                answer.diverging,
            )
        )

    def _on_metadata(self, failure: TidelogError | None) -> None:
        for key in list(self._core.cursors):
            self._handle(self._cluster.leader_known(key, failure))

    async def _find(self, key: TopicPartition, where: Where) -> Offset:
        return (await self._list_offsets({key: where if isinstance(where, int) else timestamp_of(where)}))[key]

    async def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        positions = await list_positions(
            self._cluster,
            wanted,
            timeout_ms=self._policy.request_timeout_ms,
            isolation=self._isolation,
            known=self._known_epoch,
        )
        return {key: position.end_offset for key, position in positions.items()}

    def _known_epoch(self, key: TopicPartition) -> LeaderEpoch:
        """The newest leader epoch in which records of a partition were read or committed."""
        cursor, topic = self._core.cursors.get(key), self._cluster.view.topics.get(key.topic)
        # A deleted topic does not count: the epochs of the next one with its name begin again.
        if cursor is None or topic is None or cursor.topic_id not in (None, topic.topic_id):
            return NO_LEADER_EPOCH
        # Nor does an epoch that was reported because no node knows it: the query would wait for it.
        return NO_LEADER_EPOCH if isinstance(cursor.error, UnknownLeaderEpoch) else cursor.known_epoch

    async def _query(self, work: Callable[[Query], Coroutine[Any, Any, Event]], effect: Query) -> None:
        """Pass the result of an effect, or its failure, to the core."""
        try:
            event = await work(effect)
        except TidelogError as error:
            self._cluster.note_leader(effect.topic_partition, error.leader)
            event = Failed(effect.topic_partition, effect.number, error, self._clock.monotonic_ms())
        self._handle(event)

    async def _find_place(self, effect: FindPlace) -> Event:
        offset = await self._find(effect.topic_partition, effect.where)
        return PlaceFound(effect.topic_partition, effect.number, offset, self._clock.monotonic_ms())

    async def _check_epoch(self, effect: CheckEpoch) -> Event:
        key = effect.topic_partition
        entry = data_pb2.EpochQuestion(
            topic_id=effect.topic_id.bytes,
            partition=key.partition,
            current_leader_epoch=effect.leader_epoch,
            leader_epoch=effect.epoch,
        )
        answer = await self._cluster.transport.call(
            self._cluster.view.endpoint(effect.node, key),
            methods.DATA_OFFSET_FOR_LEADER_EPOCH,
            data_pb2.OffsetForLeaderEpochRequest(partitions=[entry]),
            timeout_ms=self._policy.request_timeout_ms,
        )
        (result,) = answer.partitions
        if error := error_of(result):
            raise error
        end = EpochEnd(LeaderEpoch(result.end.epoch), Offset(result.end.end_offset))
        return EpochChecked(key, effect.number, end, self._clock.monotonic_ms())

    async def _confirm_leader(self, effect: VerifyLeader) -> Event:
        key, node = effect.topic_partition, effect.node
        await self._cluster.refresh_beside(node, key.topic)
        if not self._cluster.view.is_led_by(key, effect.topic_id, node, effect.leader_epoch):
            raise NotLeaderOrFollower(f"node {node} does not lead {key} any more, as far as another node knows")
        return LeaderVerified(key, effect.number, self._clock.monotonic_ms())

    def _on_defect(self) -> None:
        self._ready.set()

    async def close(self) -> None:
        """Stop the background tasks and close the connections. Calls that wait raise InvalidRequest."""
        await super().close()
        self._ready.set()


def _report(doubt: ReportDoubt) -> None:
    _log.warning(
        "%s: nothing is read from offset %d on. Node %d, which leads in epoch %d as far as is known, answers that it "
        "is out of range (%s), and no other node confirms that it leads (%s): it may be deposed and lack committed "
        "records. Start the other nodes, or make them reachable from this client; or seek to an offset of node %d",
        doubt.topic_partition,
        doubt.offset,
        doubt.node,
        doubt.leader_epoch,
        doubt.denial.message.rstrip("."),
        doubt.cause.message.rstrip("."),
        doubt.node,
    )


def _report_stall(stall: ReportStall) -> None:
    _log.warning(
        "%s: nothing was read from offset %d on for %.0f s%s, the fetch is repeated: %s",
        stall.topic_partition,
        stall.offset,
        stall.stalled_ms / 1_000,
        f", nor from {stall.others} other partitions" if stall.others else "",
        stall.cause.message,
    )
