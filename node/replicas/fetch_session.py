"""The open fetches of one stream or unary call.

Invariants:
  1. A fetch is answered once: when enough can be read, when it is rejected, or at its deadline. A later fetch of the
     same partition replaces an open one, which is then not answered.
  2. A follower's positions are applied when its fetch arrives, not when it is answered.
  3. Records are read only for the next message, into memory granted by the node's budget: a slow reader occupies the
     memory of one message. While many answers wait to be sent, no further requests are taken (`wait_room`).

Not here: the stream (data_handlers.py), leadership and readable offsets (partition.py), the timer (ticker.py).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from node.observability.meters.request_meter import MeteredRequest
from node.replicas.cold_reads import ColdReads
from node.replicas.replica_config import ReplicaConfig
from node.replicas.waiting_fetch import FollowerIdentity, WaitingFetch
from node.requests.types.context import RequestContext
from node.requests.types.fetch import FetchedPartition, FetchingReplica, FetchRequest, PartitionFetch
from node.runtime.clock import Clock
from node.runtime.limits import SLOW_READER_MS, UNSENT_MAX, ensure_few
from node.runtime.memory_budget import ANSWER_COPIES, Kind, Share
from replication.partition.leader_events import Session
from storage.isolation import FetchIsolation
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.types import NO_LEADER_EPOCH, Isolation, Millis, Offset

if TYPE_CHECKING:
    from node.replicas.replica_manager import ReplicaManager

_log = logging.getLogger("node.fetch_session")

BYTES_MAX: Final = 16 << 20
"""The largest `max_bytes` of one fetch: the memory for one answer."""


READS_UP_TO: Final = {
    Isolation.READ_UNCOMMITTED: FetchIsolation.HIGH_WATERMARK,
    Isolation.READ_COMMITTED: FetchIsolation.LAST_STABLE_OFFSET,
}
"""The upper bound of a consumer's reads."""

DEADLINES_MIN: Final = 1_000
"""Deadlines of answered fetches are removed once there are more deadlines than this, and 4 per open fetch."""


class FetchSession:
    """The fetches of one stream or call, their answers, and the waits between them."""

    def __init__(
        self,
        manager: ReplicaManager,
        context: RequestContext,
        number: Session,
        clock: Clock,
        config: ReplicaConfig,
    ) -> None:
        self._manager = manager
        self._context = context
        self.number: Final = number
        self._clock = clock
        self._config = config
        self._request: MeteredRequest | None = None
        self._identity: tuple[FetchingReplica, FollowerIdentity] | None = None  # of the last request
        self._open: dict[tuple[bytes, int], WaitingFetch] = {}
        self._ready: dict[WaitingFetch, None] = {}
        self._short: dict[WaitingFetch, None] = {}
        self._made: list[FetchedPartition] = []
        self._deadlines: list[tuple[Millis, int, WaitingFetch]] = []
        self._arrivals = 0
        self._last_sent = Millis(0)
        self._sending: tuple[Millis, Callable[[], None]] | None = None
        """When the send of the current answer began, and a function that closes the stream."""
        self._sign_of_life_ms = 0
        """On a follower's stream: the interval of keep-alive answers. Without them the follower reconnects."""
        self.sign_of_life_due = False
        self.cold = ColdReads(self.ready, self._charge, self._wake_up)
        """Reads from disk."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self.closed = False
        self._replaced: TidelogError | None = None

    @property
    def idle(self) -> bool:
        """True if no fetch is open and no answer waits to be sent."""
        return not self._open and not self._made

    @property
    def kind(self) -> Kind:
        """The kind of memory that the answers use."""
        return Kind.CONSUMER_FETCH if self._identity is None else Kind.FOLLOWER_FETCH

    def _charge(self, size: int) -> Share:
        return self._manager.memory.charge(self.kind, ANSWER_COPIES * size)

    def _wake_up(self) -> None:
        self._wake.set()

    # --- requests ---

    def begin(self, request: FetchRequest) -> MeteredRequest:
        """Measure a message of a stream, as a context around `take`. A follower's fetch may wait without limit."""
        wait_ms = request.max_wait_ms if request.replica is None else None
        self._request = self._context.begin(entries=len(request.partitions), wait_ms=wait_ms)
        return self._request

    def take(self, request: FetchRequest) -> None:
        """Open the fetches of a request and apply its durable positions. Raises InvalidRequest if the request as a
        whole is malformed, or if a later stream has replaced this one."""
        self.ensure_latest()
        follower = self._follower(request.replica)
        isolation = FetchIsolation.LOG_END if follower is not None else READS_UP_TO[request.isolation_level]
        ensure_few(request.partitions, "fetches")
        ensure_few(request.durable_positions, "durable positions")
        now = self._clock.monotonic_ms()
        if follower is not None:
            if not self._sign_of_life_ms:
                self._last_sent = now
            self._sign_of_life_ms = max(1, min(request.max_wait_ms, self._config.replication.fetch_wait_ms))
            self._manager.wake_by(Millis(now + self._sign_of_life_ms))
        deadline = Millis(now + max(0, min(request.max_wait_ms, self._config.max_wait_ms)))
        for item in request.partitions:
            self._open_one(item, request, deadline, follower, isolation, now)
        if request.durable_positions:
            if follower is None:
                raise InvalidRequest("a consumer's fetch contains durable positions; only a follower may send them")
            for report in request.durable_positions:
                partition = self._manager.find(report.topic_id, report.partition)
                if partition is not None:
                    partition.follower_durable(follower, report, now)

    def _follower(self, replica: FetchingReplica | None) -> FollowerIdentity | None:
        if replica is None:
            return None
        if self._identity is None or self._identity[0] != replica:
            identity = FollowerIdentity(replica.node_id, replica.incarnation, self.number)
            self._identity = replica, identity
        self._manager.follower_streams.take_over(self, self._identity[1], self._manager.image)
        return self._identity[1]

    def _open_one(
        self,
        item: PartitionFetch,
        request: FetchRequest,
        deadline: Millis,
        follower: FollowerIdentity | None,
        isolation: FetchIsolation,
        now: Millis,
    ) -> None:
        fetch = WaitingFetch(
            self,
            item.fetch_id,
            item.topic_id,
            item.partition,
            item.fetch_offset,
            item.last_fetched_epoch,
            item.current_leader_epoch,
            max(1, min(item.max_bytes or self._config.replication.fetch_bytes_max, BYTES_MAX)),
            request.min_bytes,
            deadline,
            follower,
            isolation,
            request.rack,
            refused=item.refused,
            request=self._request,
        )
        key = (item.topic_id, item.partition)
        earlier = self._open.pop(key, None)
        if earlier is not None:
            self._drop(earlier)
        self._open[key] = fetch
        try:
            partition = self._manager.locate(item.topic_id, item.partition, self._context.listener)
            fetch.partition = partition
            if follower is not None:
                answer = partition.follower_fetched(fetch, follower, item, now)
            else:
                answer = partition.reader_fetched(fetch)
        except TidelogError as error:
            self.refuse(fetch, error)
            return
        if answer is not None:
            self._close(fetch, answer)
            return
        if follower is None:
            self._arrivals += 1
            heapq.heappush(self._deadlines, (deadline, self._arrivals, fetch))
            self._manager.wake_by(deadline)
            if len(self._deadlines) > DEADLINES_MIN + 4 * len(self._open):
                self._forget_deadlines()
        if not partition.waits_at_end(fetch, now):
            self.ready(fetch)

    def _forget_deadlines(self) -> None:
        """Remove the deadlines of fetches that are no longer open."""
        self._deadlines = [entry for entry in self._deadlines if self._is_open(entry[2])]
        heapq.heapify(self._deadlines)

    def _is_open(self, fetch: WaitingFetch) -> bool:
        return self._open.get((fetch.topic_id, fetch.index)) is fetch

    # --- answers ---

    def ready(self, fetch: WaitingFetch) -> None:
        """Try to answer this fetch in the next message."""
        self._ready[fetch] = None
        self._wake.set()

    def refuse(self, fetch: WaitingFetch, error: TidelogError) -> None:
        """Answer with an error."""
        self._close(fetch, self._error_answer(fetch, error))

    def tell(self, news: FetchedPartition) -> None:
        """Send an update before other answers."""
        self._made.append(news)
        self._wake.set()

    def _error_answer(self, fetch: WaitingFetch, error: TidelogError) -> FetchedPartition:
        partition = fetch.partition
        self._context.meter.count_error(error)
        if partition is not None:
            partition.topic_meter.failed_fetches += 1
        return FetchedPartition(
            fetch.fetch_id,
            fetch.topic_id,
            fetch.index,
            NO_LEADER_EPOCH if partition is None else partition.leader_epoch,
            Offset(-1),
            Offset(-1),
            Offset(-1) if partition is None else partition.log_start,
            self._manager.with_leader(error, partition, self._context.listener),
        )

    def _close(self, fetch: WaitingFetch, answer: FetchedPartition) -> None:
        self._drop(fetch)
        self._made.append(answer)
        self._wake.set()

    def _drop(self, fetch: WaitingFetch) -> None:
        if self._is_open(fetch):
            del self._open[fetch.topic_id, fetch.index]
        self._ready.pop(fetch, None)
        self._short.pop(fetch, None)
        if fetch.request is not None and not fetch.ended:
            fetch.request.entry_ended()
        fetch.ended = True
        self.cold.drop(fetch)
        if fetch.partition is not None:
            fetch.partition.stop_waiting(fetch)

    def next_bytes(self, enough: int) -> tuple[int, int]:
        """The bytes of records to reserve memory for before `collect`: wanted, and at least. The least is one batch,
        which is returned even if `max_bytes` is smaller. Both are 0 if no fetch is ready."""
        first = next(iter(self._ready), None)
        if first is None or first.partition is None:
            return 0, 0
        return enough + first.max_bytes, first.partition.log.config.max_message_bytes

    def collect(self, enough: int, room: int | None = None) -> list[FetchedPartition]:
        """The answers that are due, at least one, until they contain `enough` bytes of records. Fetches without
        readable records keep waiting.

        room: the bytes that all answers share; None for no limit. While some are left, a fetch gets at least one
        batch; after that, fetches are answered without records."""
        answers = self._begin_message()
        size = 0
        while self._ready:
            fetch = next(iter(self._ready))
            if room is not None:
                fetch.max_bytes = min(fetch.max_bytes, max(room - size, 0))
            size += self._look_at(fetch, answers)
            if size >= enough:
                break
        return answers

    def collect_read(self) -> list[FetchedPartition]:
        """As `collect`, for fetches whose records were read from disk; their memory is already charged."""
        answers = self._begin_message()
        for fetch in self.cold.read:
            self._look_at(fetch, answers)
        return answers

    def _begin_message(self) -> list[FetchedPartition]:
        """The answers that are complete, to begin the next message with."""
        answers, self._made = self._made, []
        self._room.set()
        self._last_sent = self._clock.monotonic_ms()
        self.sign_of_life_due = False
        return answers

    def _look_at(self, fetch: WaitingFetch, answers: list[FetchedPartition]) -> int:
        """Answer a ready fetch, or let it wait. Returns the bytes of records in the answer."""
        self._ready.pop(fetch, None)
        assert fetch.partition is not None, "a fetch without a partition was rejected when it arrived"
        began_ns = self._context.meter.now_ns()
        try:
            answer = fetch.partition.read_for(fetch, self._last_sent)
        except TidelogError as error:
            answer = self._error_answer(fetch, error)
        if fetch.request is not None:
            fetch.request.worked_since(began_ns)
        if answer is not None:
            self._drop(fetch)
            answers.append(answer)
            size = len(answer.records)
            if fetch.follower is None:
                fetch.partition.topic_meter.bytes_out += size
            return size
        if fetch.short:
            self._short[fetch] = None
            self._manager.wake_soon()
        return 0

    def sending(self, close: Callable[[], None]) -> None:
        """Note that the send of an answer begins. close: closes the stream."""
        now = self._clock.monotonic_ms()
        self._sending = now, close
        self._manager.wake_by(Millis(now + SLOW_READER_MS))

    def sent(self) -> None:
        """Note that the send has ended."""
        self._sending = None

    # --- waiting ---

    async def wait_ready(self) -> None:
        """Return when there may be answers to collect, or the session is closed."""
        while not (self._ready or self._made or self.sign_of_life_due or self.closed):
            self._wake.clear()
            await self._wake.wait()

    async def wait_cold(self) -> None:
        """Return when a disk read has ended, none is in progress, or the session is closed."""
        while self.cold.is_busy and not self.cold.read and not self.closed:
            self._wake.clear()
            await self._wake.wait()

    async def wait_room(self) -> None:
        """Return when fewer than UNSENT_MAX answers wait to be sent."""
        while len(self._made) >= UNSENT_MAX:
            self._room.clear()
            await self._room.wait()

    def tick(self, now: Millis) -> None:
        """Act on the clock: answer fetches at their deadline, try short ones again, request keep-alive answers. Close
        the stream of a reader that does not take its answer while other requests wait for memory."""
        if self._sending is not None and now - self._sending[0] >= SLOW_READER_MS:
            since, close = self._sending
            self._sending = now, close
            if self._manager.memory.is_short:
                _log.warning(
                    "closing the connection of %s: it has not read an answer for %d ms while other requests wait for "
                    "memory",
                    self._context.connection,
                    now - since,
                )
                close()
        heap = self._deadlines
        while heap and heap[0][0] <= now:
            fetch = heapq.heappop(heap)[2]
            if self._is_open(fetch):
                fetch.answer_anyway()
        if self._sign_of_life_ms and self._open and now - self._last_sent >= self._sign_of_life_ms:
            self.sign_of_life_due = True
            self._wake.set()
        while self._short:
            fetch, _ = self._short.popitem()
            fetch.short = False
            self.ready(fetch)

    def due(self, now: Millis) -> Millis | None:
        """When the next `tick` is needed if nothing happens before; None: not at all."""
        if self._short:
            return now
        heap = self._deadlines
        while heap and not self._is_open(heap[0][2]):
            heapq.heappop(heap)
        due = heap[0][0] if heap else None
        if self._sending is not None:
            slow = Millis(self._sending[0] + SLOW_READER_MS)
            due = slow if due is None else min(due, slow)
        if self._sign_of_life_ms and self._open:
            sign = Millis(self._last_sent + self._sign_of_life_ms)
            due = sign if due is None else min(due, sign)
        return due

    def replace(self, outdated: InvalidRequest) -> None:
        """A later stream of the same follower takes the place of this one, which ends with the error."""
        self._replaced = outdated
        self.close()

    def ensure_latest(self) -> None:
        """Raises InvalidRequest where another stream has taken the place of this one."""
        if self._replaced is not None:
            raise self._replaced

    def close(self) -> None:
        """Drop all fetches; none is answered after this."""
        self.closed = True
        for fetch in list(self._open.values()):
            fetch.request = None  # an unanswered fetch is not counted
            self._drop(fetch)
        self._wake.set()
