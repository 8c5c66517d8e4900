"""The open fetches of one stream or unary call.

Invariants:
  1. A fetch is answered once: when enough can be read, when it is rejected, or at its deadline. A later fetch of the
     same partition replaces an open one, which is then not answered.
  2. A follower's positions are applied when its fetch arrives, not when it is answered.
  3. Records are read only for the next message, into memory granted by the node's budget: a slow reader occupies the
     memory of one message. While many answers wait to be sent, no further requests are taken (`wait_room`).

Not here: the stream (data_handlers.py), the states of a fetch (node/replicas/fetch_state.py), leadership and readable
offsets (replica.py), the timer (ticker.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from node.api.fetch import FetchingReplica, FetchRequest, PartitionFetch
from node.api.table import DATA_FETCH
from node.replicas.fetch_state import READ, READING, SHORT, FetchCause
from node.replicas.follower_streams import FollowerStreams
from node.replicas.replica import Replica
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.replicas.waiting_fetch import FetchOutbox, FollowerIdentity, WaitingFetch, read_answer
from node.requests.context import RequestContext
from node.requests.permitted import ensure_permitted, locate_permitted
from node.runtime.limits import SLOW_READER_MS, UNSENT_MAX, ensure_few
from node.runtime.memory_budget import Kind, Share
from node.runtime.request_meter import MeteredRequest
from replication.partition.leader_events import Session
from storage.isolation import FetchIsolation
from storage.log.log_read import LogRead
from tidelog.clock import Clock
from tidelog.errors import (
    InvalidRequest,
    NodeShuttingDown,
    OffsetNotAvailable,
    OffsetOutOfRange,
    TidelogError,
    TopicAuthorizationFailed,
)
from tidelog.record_exchange import FetchedPartition, TopicReference
from tidelog.types import NO_LEADER_EPOCH, Isolation, Millis, NodeId, Offset

_log = logging.getLogger("node.fetch_session")

BYTES_MAX: Final = 16 << 20
"""The largest `max_bytes` of one fetch: the memory for one answer."""


READS_UP_TO: Final = {
    Isolation.READ_UNCOMMITTED: FetchIsolation.HIGH_WATERMARK,
    Isolation.READ_COMMITTED: FetchIsolation.LAST_STABLE_OFFSET,
}
"""The upper bound of a consumer's reads."""

_END: Final = FetchCause.END


class FetchSession:
    """The fetches of one stream or call, their answers, and the waits between them."""

    def __init__(
        self,
        manager: ReplicaManager,
        streams: FollowerStreams,
        context: RequestContext,
        clock: Clock,
        config: ReplicaConfig,
    ) -> None:
        self._manager = manager
        self._streams = streams
        self._context = context
        self.copies: Final = context.answer_copies
        self.number: Final[Session] = streams.next_number()
        self._clock = clock
        self._config = config
        self._is_metered_apart = False
        """True once a replica fetches on the stream: its requests have counters of their own."""
        self._request: MeteredRequest | None = None
        self._identity: tuple[FetchingReplica, FollowerIdentity] | None = None  # of the last request
        self._open: dict[tuple[TopicReference, int], tuple[WaitingFetch, Replica]] = {}
        self._wake = asyncio.Event()
        self.outbox = FetchOutbox(self._wake.set, self._charge, self._refuse)
        self._at_store: dict[WaitingFetch, Millis] = {}
        """Fetches of consumers that wait for the object store, and until when; the first one has waited the longest."""
        self._deadline: Millis | None = None
        """No open fetch of a consumer has an earlier deadline."""
        self._last_sent = Millis(0)
        self._sending: tuple[Millis, Callable[[], None]] | None = None
        """When the send of the current answer began, and a function that closes the stream."""
        self._sign_of_life_ms = 0
        """On a follower's stream: the interval of keep-alive answers. Without them the follower reconnects."""
        self.sign_of_life_due = False
        self._room = asyncio.Event()
        self.closed = False
        self._replaced: TidelogError | None = None

    @property
    def idle(self) -> bool:
        """True if no fetch is open and no answer waits to be sent."""
        return not self._open and not self.outbox.answers

    @property
    def follower_id(self) -> NodeId | None:
        """The follower that fetches on this stream; None for a consumer."""
        return None if self._identity is None else self._identity[1].node_id

    @property
    def kind(self) -> Kind:
        """The kind of memory that the answers use."""
        return Kind.CONSUMER_FETCH if self._identity is None else Kind.FOLLOWER_FETCH

    def _charge(self, size: int) -> Share:
        return self._manager.memory.charge(self.kind, self.copies * size)

    # --- requests ---

    def begin(self, request: FetchRequest) -> MeteredRequest:
        """Measure a message of a stream, as a context around `take`. A follower's fetch may wait without limit, and has
        no quota."""
        if request.replica is not None and self._context.for_nodes and not self._is_metered_apart:
            self._context.throttle.exempt = True
            self._context = replace(self._context, meter=self._context.meter.of_followers())
            self._is_metered_apart = True
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
            self._manager.ticker.by(Millis(now + self._sign_of_life_ms))
        deadline = Millis(now + max(0, min(request.max_wait_ms, self._config.max_wait_ms)))
        if follower is None:
            self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
            self._manager.ticker.by(deadline)
        for item in request.partitions:
            self._open_one(item, request, deadline, follower, isolation, now)
        if request.durable_positions:
            if follower is None:
                raise InvalidRequest("a consumer's fetch contains durable positions; only a follower may send them")
            for report in request.durable_positions:
                partition = self._manager.registry.find(report.topic_id, report.partition)
                if partition is not None:
                    partition.follower_durable(follower, report, now)

    def _follower(self, replica: FetchingReplica | None) -> FollowerIdentity | None:
        if replica is None:
            return None
        self._context.ensure_for_nodes("Data.FetchStream of a replica")
        if self._identity is None or self._identity[0] != replica:
            identity = FollowerIdentity(replica.node_id, replica.incarnation, self.number)
            self._identity = replica, identity
        self._streams.take_over(self._identity[1], self.replace, self._manager.image)
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
            self.outbox,
            item.correlation_id,
            item.topic_id,
            item.partition,
            item.fetch_offset,
            item.last_fetched_epoch,
            item.current_leader_epoch,
            self._bytes_max(item),
            request.min_bytes,
            deadline,
            follower,
            isolation,
            request.rack,
            item.refused,
            self._request,
        )
        key = (item.topic_id, item.partition)
        if key in self._open:
            self._end(self._open[key][0])
        try:
            if follower is None:
                partition = locate_permitted(self._manager, self._context, DATA_FETCH, item.topic_id, item.partition)
            else:  # the authorizer has allowed the whole request
                partition = self._manager.registry.locate(item.topic_id, item.partition, self._context.listener)
        except TidelogError as error:
            self.outbox.add(self._error_answer(fetch, None, error))
            if self._request is not None:
                self._request.entry_ended()
            return
        self._open[key] = fetch, partition
        try:
            if follower is not None:
                answer = partition.follower_fetched(fetch, follower, item, now)
            else:
                answer = partition.reader_fetched(fetch)
        except TidelogError as error:
            self._refuse(fetch, error)
            return
        if answer is not None:
            self._end(fetch)
            self.outbox.add(answer)
        elif not partition.waits_at_end(fetch, now):
            fetch.wake()

    def _bytes_max(self, item: PartitionFetch) -> int:
        return max(1, min(item.max_bytes or self._config.replication.fetch_bytes_max, BYTES_MAX))

    # --- answers ---

    def _refuse(self, fetch: WaitingFetch, error: TidelogError) -> None:
        """Answer with an error."""
        partition = self._end(fetch)
        if fetch.follower is None:  # ACLs may have changed while it waited
            try:
                ensure_permitted(self._context, DATA_FETCH, fetch.topic_id, partition)
            except TidelogError as refusal:
                error = refusal
        self.outbox.add(self._error_answer(fetch, partition, error))

    def _error_answer(self, fetch: WaitingFetch, partition: Replica | None, error: TidelogError) -> FetchedPartition:
        is_failure = fetch.follower is None or not self._manager.is_behind(
            fetch.topic_id, fetch.index, fetch.leader_epoch
        )
        if is_failure:
            self._context.meter.count_error(error)
        epoch, log_start, watermark, stable = NO_LEADER_EPOCH, Offset(-1), Offset(-1), Offset(-1)
        if partition is not None and is_failure:
            partition.topic_meter.failed_fetches += 1
        if isinstance(error, TopicAuthorizationFailed):
            partition = None  # the answer must not reveal anything about it
        if partition is not None:
            epoch, log_start = partition.leader_epoch, partition.log_start
            if isinstance(error, OffsetOutOfRange | OffsetNotAvailable):  # the reader looks for another position
                watermark, stable = partition.log.high_watermark, partition.log.last_stable_offset
        error = self._manager.registry.with_leader(error, partition, self._context.listener)
        return FetchedPartition(
            fetch.topic_id,
            fetch.index,
            epoch,
            watermark,
            stable,
            log_start,
            error,
            correlation_id=fetch.correlation_id,
        )

    def _end(self, fetch: WaitingFetch) -> Replica:
        """Forget a fetch that may wait at its replica. Returns the replica."""
        partition = self._forget(fetch)
        partition.stop_waiting(fetch)
        return partition

    def _forget(self, fetch: WaitingFetch) -> Replica:
        self.outbox.move(fetch, _END)
        _, partition = self._open.pop((fetch.topic_id, fetch.index))
        if fetch.request is not None:
            fetch.request.entry_ended()
        return partition

    def next_bytes(self, enough: int) -> tuple[int, int]:
        """The bytes of records to reserve memory for before `collect`: wanted, and at least. The least is one batch,
        which is returned even if `max_bytes` is smaller. Both are 0 if no fetch is ready."""
        first = next(iter(self.outbox.ready), None)
        if first is None:
            return 0, 0
        _, partition = self._open[first.topic_id, first.index]
        return enough + first.max_bytes, max(1, partition.log.config.max_message_bytes)

    def collect(self, answers: list[FetchedPartition], enough: int, room: int | None = None) -> int:
        """Add the answers that are due, at least one, until they contain `enough` bytes of records. Fetches without
        readable records keep waiting. Returns the bytes of records that were added.

        room: the bytes that all answers share; None for no limit. While some are left, a fetch gets at least one
        batch; after that, fetches are answered without records."""
        self._begin_message(answers)
        size = 0
        ready = self.outbox.ready
        while ready:
            fetch = next(iter(ready))
            if room is not None:
                fetch.max_bytes = min(fetch.max_bytes, max(room - size, 0))
            size += self._try(fetch, answers)
            if size >= enough:
                break
        return size

    def collect_read(self, answers: list[FetchedPartition], enough: int, room: int | None = None) -> int:
        """As `collect`, for fetches whose records were read from disk; their memory is already charged. The rest goes
        into the next messages: together they may exceed the largest one."""
        self._begin_message(answers)
        size = 0
        for fetch in list(self.outbox.read):
            if fetch.state is READ:  # a disk failure at an earlier one has ended those of the same directory
                if room is not None and size >= room:
                    fetch.max_bytes = 0
                elif size >= enough:
                    break
                size += self._try(fetch, answers)
        return size

    def _begin_message(self, answers: list[FetchedPartition]) -> None:
        """Begin the next message with the answers that are complete. None of them has records."""
        answers += self.outbox.answers
        self.outbox.answers.clear()
        self._room.set()
        self._last_sent = self._clock.monotonic_ms()
        self.sign_of_life_due = False

    def _try(self, fetch: WaitingFetch, answers: list[FetchedPartition]) -> int:
        """Answer a fetch, or let it wait. Returns the bytes of records in the answer."""
        _, partition = self._open[fetch.topic_id, fetch.index]
        began_ns = self._context.meter.now_ns()
        partition.stop_waiting(fetch)  # a failure of the read may end the leadership, which refuses waiting fetches
        try:
            if fetch.follower is None:  # ACLs may have changed while it waited
                ensure_permitted(self._context, DATA_FETCH, fetch.topic_id, partition)
            answer = partition.read_for(fetch, self._last_sent)
        except TidelogError as error:
            answer = self._error_answer(fetch, partition, error)
        if fetch.request is not None:
            fetch.request.worked_since(began_ns)
        if answer is None:
            if fetch.state is SHORT:
                self._manager.ticker.soon()
            elif fetch.state is READING and fetch.store_until is not None and fetch.follower is None:
                self._at_store[fetch] = fetch.store_until
                self._manager.ticker.by(fetch.store_until)
            return 0
        self._forget(fetch)
        answers.append(answer)
        size = len(answer.records)
        if fetch.follower is None:
            partition.topic_meter.bytes_out += size
            partition.log.flow.bytes_out += size
        else:
            partition.topic_meter.replication_bytes_out += size
        return size

    def sending(self, close: Callable[[], None]) -> None:
        """Note that the send of an answer begins. close: closes the stream."""
        now = self._clock.monotonic_ms()
        self._sending = now, close
        self._manager.ticker.by(Millis(now + SLOW_READER_MS))

    def sent(self) -> None:
        """Note that the send has ended."""
        self._sending = None

    # --- waiting ---

    async def wait_ready(self) -> None:
        """Return when there may be answers to collect, or the session is closed."""
        outbox = self.outbox
        while not (outbox.ready or outbox.read or outbox.answers or self.sign_of_life_due or self.closed):
            self._wake.clear()
            await self._wake.wait()

    async def wait_cold(self) -> None:
        """Return when a disk read has ended, none is in progress, or the session is closed."""
        while self.outbox.reads and not self.outbox.read and not self.closed:
            self._wake.clear()
            await self._wake.wait()

    async def wait_room(self) -> None:
        """Return when fewer than UNSENT_MAX answers wait to be sent."""
        while len(self.outbox.answers) >= UNSENT_MAX:
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
        if self._deadline is not None and now >= self._deadline:
            self._answer_overdue(now)
        self._give_up_store(now)
        if self._sign_of_life_ms and self._open and now - self._last_sent >= self._sign_of_life_ms:
            self.sign_of_life_due = True
            self._wake.set()
        while self.outbox.short:
            self.outbox.move(next(iter(self.outbox.short)), FetchCause.TICK)

    def _give_up_store(self, now: Millis) -> None:
        """End the wait of the fetches for which the object store has taken too long. What it still reads for them is in
        the cache of the next fetch."""
        while self._at_store:
            fetch, until = next(iter(self._at_store.items()))
            if fetch.state is READING and now < until:
                break
            del self._at_store[fetch]
            if fetch.state is READING:
                self._answer_without_store(fetch)
                self._wake.set()

    def _answer_without_store(self, fetch: WaitingFetch) -> None:
        replica = self._end(fetch)
        self.outbox.add(read_answer(fetch, replica.log, replica.leader_epoch, LogRead(b"", fetch.next_offset, ())))

    def _answer_overdue(self, now: Millis) -> None:
        """Answer each consumer's fetch whose deadline has passed, and look for the next deadline."""
        self._deadline = None
        for fetch, _ in self._open.values():
            if fetch.follower is not None:
                continue
            if now >= fetch.deadline:
                fetch.answer_anyway()
            elif self._deadline is None or fetch.deadline < self._deadline:
                self._deadline = fetch.deadline

    def answer_anyway(self) -> None:
        """Answer every open fetch now, with or without records."""
        for fetch, _ in self._open.values():
            fetch.answer_anyway()

    def due(self, now: Millis) -> Millis | None:
        """When the next `tick` is needed if nothing happens before; None: not at all."""
        if self.outbox.short:
            return now
        due_times = [] if self._deadline is None or not self._open else [self._deadline]
        due_times += list(self._at_store.values())[:1]
        if self._sending is not None:
            due_times.append(Millis(self._sending[0] + SLOW_READER_MS))
        if self._sign_of_life_ms and self._open:
            due_times.append(Millis(self._last_sent + self._sign_of_life_ms))
        return min(due_times, default=None)

    def replace(self, outdated: InvalidRequest) -> None:
        """End this session with an error: a later stream of the same follower has taken over."""
        self._replaced = outdated
        self.close()

    def ensure_latest(self) -> None:
        """Raises InvalidRequest if a later stream has taken over from this one."""
        if self._replaced is not None:
            raise self._replaced

    def close(self) -> None:
        """Drop all fetches; none is answered after this."""
        self.closed = True
        for fetch, _ in list(self._open.values()):
            fetch.request = None  # an unanswered fetch is not counted
            self._end(fetch)
        self._wake.set()


class FetchSessions:
    """The open fetch sessions of a node."""

    def __init__(
        self,
        manager: ReplicaManager,
        *,
        clock: Clock,
        config: ReplicaConfig,
        on_follower_lost: Callable[[NodeId], None] = lambda _node: None,
    ) -> None:
        """on_follower_lost: called when the stream of a follower has ended, perhaps because its process has."""
        self._manager = manager
        self._clock = clock
        self._config = config
        self._sessions: dict[FetchSession, None] = {}
        self.follower_streams = FollowerStreams()
        self._on_follower_lost = on_follower_lost
        manager.tick_with(self._tick, self._due)

    def open(self, context: RequestContext) -> FetchSession:
        """A new session for the fetches of one stream or call. Raises NodeShuttingDown."""
        session = FetchSession(self._manager, self.follower_streams, context, self._clock, self._config)
        self.admit(session)
        return session

    def admit(self, session: FetchSession) -> None:
        """A session has a request to answer: call its `tick`. Raises NodeShuttingDown."""
        if self._manager.stopping:
            raise NodeShuttingDown("the node is stopping: fetch from the next leader")
        self._sessions[session] = None

    def dismiss(self, session: FetchSession) -> None:
        """A session has no request to answer at the moment."""
        self._sessions.pop(session, None)

    def close(self, session: FetchSession) -> None:
        """Close the session of a closed stream."""
        self.dismiss(session)
        session.close()
        if session.follower_id is not None:
            self._on_follower_lost(session.follower_id)

    def stop(self) -> None:
        """Close every session. The manager has stopped: it has answered all fetches, and no session can be opened."""
        for session in list(self._sessions):
            session.close()

    def _tick(self, now: Millis) -> None:
        for session in self._sessions:
            session.tick(now)

    def _due(self, now: Millis) -> Millis | None:
        """When the next tick is needed; None: not at all."""
        return min((due for session in self._sessions if (due := session.due(now)) is not None), default=None)
