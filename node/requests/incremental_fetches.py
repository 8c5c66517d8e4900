"""Fetches of incremental fetch sessions (KIP-227). Between the requests of a session, its fetches stay open at the
replicas: a request costs as much as the partitions that it names, and those that have something new.

Invariants:
  1. Each partition of a session has an open fetch, or the next request opens one; of those with errors, some.
  2. Between two requests of a session no memory is occupied by records, and no timer runs for them.
  3. One request of a session is handled at a time: a later one ends an earlier one.
  4. An error ends the wait of a request once. As long as it lasts it is told again, but slowly, and with few others.
  5. What is read has the isolation level and the least number of bytes of the present request, whichever opened the
     fetch.

Not here: which partitions a session has, and what its client knows (incremental_sessions.py); the fetches of a call
(fetch_session.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from node.api.fetch import NEW_SESSION, FetchRequest, SessionFetch
from node.replicas.fetch_state import CALLED, QUEUED, READ, READING, WAITING, FetchCause
from node.replicas.follower_streams import FollowerStreams
from node.replicas.replica import Replica
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.replicas.waiting_fetch import WaitingFetch, read_answer
from node.requests.context import RequestContext
from node.requests.fetch_answers import add_next, limited
from node.requests.fetch_session import READS_UP_TO, FetchSession, FetchSessions
from node.requests.incremental_sessions import IncrementalSession, Key, Owner, SessionCache
from node.runtime.limits import UNARY_FETCH_BYTES_MAX, ensure_few
from node.runtime.memory_budget import AnswerCharge, Kind
from storage.isolation import FetchIsolation
from storage.log.log_read import LogRead
from tidelog.clock import Clock
from tidelog.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, InvalidRequest, NodeShuttingDown
from tidelog.record_exchange import FetchAnswer, FetchedPartition
from tidelog.types import Millis

REOPEN_MS: Final = 10_000
"""After this long the fetches of a session that wait are opened again. Until then they do not notice a nearer replica,
or a permission that was taken away while there are no records."""

REOPENED_MAX: Final = 500
"""Fetches that one request opens again because they are old, or had another rack or isolation level: some 5 ms. All of
a session with 10,000 partitions would stop the node for a tenth of a second."""

SUSPEND_MS: Final = 90_000
"""The fetches of a session that is not used for this long are closed: its client may be gone."""

AGAIN_MAX: Final = 200
"""Partitions with an error that one request tries again: a request without a partition must not cost thousands."""

AGAIN_MS: Final = 100
"""How long a request waits while partitions have errors that its client knows. As long as clients wait after an error
by default: such a partition is tried by the next request only."""

RACK_LENGTH_MAX: Final = 255
"""No node has a longer rack. A rack may be as long as a request, and the open fetches would keep it."""

_NEVER: Final = Millis(1 << 62)
_AT_DISK: Final = (QUEUED, CALLED, READING, READ)


def _key_of(answer: FetchedPartition) -> Key:
    return answer.topic_id, answer.partition


class LastingFetches(FetchSession):
    """The open fetches of one incremental fetch session."""

    def __init__(
        self,
        manager: ReplicaManager,
        streams: FollowerStreams,
        context: RequestContext,
        clock: Clock,
        config: ReplicaConfig,
        session: IncrementalSession,
    ) -> None:
        super().__init__(manager, streams, context, clock, config)
        self._session = session
        known = session.partitions
        self._failed: dict[Key, None] = {key: None for key, each in known.items() if each.high_watermark < 0}
        """Partitions without an open fetch whose error the client knows, the one that was tried last at the end."""
        self._to_open: dict[Key, bool] = {key: True for key in known if key not in self._failed}
        """The others without an open fetch. True: it is tried before those that are ready, because the last answer had
        no room for its records. It would starve behind them, which are ready again and again."""
        self._again: list[FetchedPartition] = []
        """Errors that the client knows."""
        self._tried: dict[WaitingFetch, None] = {}
        """Fetches that are new, or were woken for nothing: the client may lack a high watermark or log start offset."""
        self._isolation, self._min_bytes, self._rack = FetchIsolation.HIGH_WATERMARK, 1, ""
        """Of the present request."""
        self._to_reopen: Iterator[Key] = iter(())
        """The partitions whose fetches are to be opened again."""
        self._reopen_at = Millis(0)
        self._ends_at: Millis | None = None
        """The deadline of the present request; None if it has passed, or there is none."""
        self._turn = 0
        """The number of the last request."""
        self.is_asked = self.is_overdue = False
        """True while a request is handled, and when it is to be answered with what there is."""

    def next_turn(self) -> int:
        """A request is to be answered now. Returns its turn. An earlier one ends."""
        self._turn += 1
        self.is_asked = True
        self._wake.set()
        return self._turn

    def open(self, request: FetchRequest, forgotten: Iterable[Key], context: RequestContext) -> None:
        """Open the fetches of a request."""
        self._context = context
        # With 0 bytes each request would answer all fetches, and open all again; the wait is over at once instead.
        wait_ms = max(0, min(request.max_wait_ms, self._config.max_wait_ms)) if request.min_bytes > 0 else 0
        rack = request.rack if len(request.rack) <= RACK_LENGTH_MAX else ""
        request = request._replace(rack=rack, min_bytes=max(1, request.min_bytes))
        self.outbox.answers.clear()  # errors since the last request: these fetches are opened again
        self._tried.clear()
        now, isolation = self._clock.monotonic_ms(), READS_UP_TO[request.isolation_level]
        if (isolation, rack) != (self._isolation, self._rack) or now >= self._reopen_at:
            self._to_reopen = iter(list(self._open))  # those first that were opened first
            self._reopen_at = Millis(now + REOPEN_MS)
        self._isolation, self._min_bytes, self._rack = isolation, request.min_bytes, rack
        for key in forgotten:
            if key in self._open:
                self._end(self._open[key][0])
            self._to_open.pop(key, None)
            self._failed.pop(key, None)
        self._open_all(request, now)
        if self._failed:
            wait_ms = min(wait_ms, AGAIN_MS)
        self._ends_at = Millis(now + wait_ms)
        self.is_overdue = not wait_ms
        self._manager.ticker.by(self._ends_at)

    def _open_all(self, request: FetchRequest, now: Millis) -> None:
        """Open the fetches that the request names, those that are not open, and some that are to be opened again."""
        to_open, self._to_open = self._to_open, {}
        for each in request.partitions:
            key = each.topic_id, each.partition
            to_open.setdefault(key, False)
            self._failed.pop(key, None)
        for key in islice(self._to_reopen, REOPENED_MAX):
            opened = self._open.get(key)
            if opened is not None and opened[0].state is WAITING:  # others are opened again once they are answered
                to_open.setdefault(key, False)
        again = dict.fromkeys(islice(self._failed, AGAIN_MAX))
        for key in (*to_open, *again):
            known = self._session.partitions.get(key)
            if known is None:  # it was named, and forgotten in the same request
                continue
            self._open_one(known.fetch, request, _NEVER, None, self._isolation, now)
            self._to_open.pop(key, None)  # it has replaced an earlier fetch, or was refused
            self._failed.pop(key, None)
            opened = self._open.get(key)
            if opened is not None:
                self._tried[opened[0]] = None
            elif key in again:
                self._failed[key] = None
            else:
                self._to_open[key] = False
        for key in reversed([key for key, is_first in to_open.items() if is_first and key in self._open]):
            self.outbox.try_first(self._open[key][0])
        self._again = [each for each in self.outbox.answers if each.error is not None and _key_of(each) in again]
        if self._again:
            self.outbox.answers[:] = [
                each for each in self.outbox.answers if each.error is None or _key_of(each) not in again
            ]

    def has_turn(self, turn: int) -> bool:
        """True if no later request has begun."""
        return turn == self._turn

    def ensure_turn(self, turn: int) -> None:
        """Raises the reason if the request of this turn must not be answered: InvalidFetchSessionEpoch if a later one
        has begun, FetchSessionIdNotFound if the session has ended, NodeShuttingDown."""
        number = self._session.session_id
        if not self.has_turn(turn):
            raise InvalidFetchSessionEpoch(f"fetch session {number}: a later request has come while this one waited")
        if self._manager.stopping:
            raise NodeShuttingDown("the node is stopping: fetch from the next leader")
        if self.closed:
            raise FetchSessionIdNotFound(f"fetch session {number} has ended; name all partitions again")

    @property
    def is_busy(self) -> bool:
        """True if there is something to collect, or will be when a disk has answered."""
        outbox = self.outbox
        return bool(outbox.answers or outbox.ready or outbox.read or outbox.reads)

    def answer_short(self) -> None:
        """Answer the fetches that have fewer bytes than asked for."""
        for fetch in list(self.outbox.short):
            fetch.answer_anyway()

    def end_turn(self, answer: FetchAnswer, limit: int) -> None:
        """Leave of the collected answers what the client does not know, and add what it lacks of other partitions."""
        partitions = self._session.partitions
        answer.partitions[:] = limited(answer.partitions, limit)
        told = {_key_of(each) for each in answer.partitions}
        for fetch in self._tried:
            key = fetch.topic_id, fetch.index
            opened = self._open.get(key)
            if key not in told and opened is not None and opened[0] is fetch:
                replica = opened[1]
                if partitions[key].lacks(replica.log.high_watermark, replica.log_start):
                    nothing = LogRead(b"", fetch.next_offset, ())
                    answer.partitions.append(read_answer(fetch, replica.log, replica.leader_epoch, nothing))
        for each in answer.partitions:
            key = _key_of(each)
            if key not in self._to_open:
                continue
            if each.error is not None:
                del self._to_open[key]
                self._failed[key] = None
            elif each.records:
                self._to_open[key] = False
        answer.partitions[:] = [
            each for each in (*answer.partitions, *self._again) if partitions[_key_of(each)].tell(each)
        ]
        self.rest()

    def rest(self) -> None:
        """No request is handled: give memory back, and need no ticks."""
        self._ends_at = None
        self.is_asked = self.is_overdue = False
        self._tried.clear()
        self._again.clear()
        if self.outbox.uses_disk:
            for fetch, _ in list(self._open.values()):
                if fetch.state in _AT_DISK:
                    self._end(fetch)
        while self.outbox.short:
            self.outbox.move(next(iter(self.outbox.short)), FetchCause.TICK)

    # --- as of FetchSession ---

    def tick(self, now: Millis) -> None:
        """Try short fetches again; at its deadline the request is answered."""
        while self.outbox.short:
            self.outbox.move(next(iter(self.outbox.short)), FetchCause.TICK)
        if self._ends_at is not None and now >= self._ends_at:
            self._ends_at, self.is_overdue = None, True
            self._wake.set()
        self._give_up_store(now)

    def _answer_without_store(self, fetch: WaitingFetch) -> None:
        self._end(fetch)  # the next request opens it again

    def due(self, now: Millis) -> Millis | None:
        """As FetchSession's."""
        if self.outbox.short:
            return now
        return min(
            (*(() if self._ends_at is None else (self._ends_at,)), *list(self._at_store.values())[:1]), default=None
        )

    async def wait_turn(self, turn: int) -> None:
        """Return when there may be answers to collect, or the request is overdue. Raises as `ensure_turn`."""
        outbox = self.outbox
        while not (outbox.ready or outbox.read or outbox.answers or self.is_overdue):
            self.ensure_turn(turn)
            self._wake.clear()
            await self._wake.wait()
        self.ensure_turn(turn)

    def _try(self, fetch: WaitingFetch, answers: list[FetchedPartition]) -> int:
        fetch.isolation = self._isolation
        if fetch.min_bytes > 0:  # else it is answered anyway
            fetch.min_bytes = self._min_bytes
        size = super()._try(fetch, answers)
        if fetch.state is WAITING:
            self._tried[fetch] = None
            fetch.max_bytes = self._bytes_max(self._session.partitions[fetch.topic_id, fetch.index].fetch)
        return size

    def _forget(self, fetch: WaitingFetch) -> Replica:
        self._to_open[fetch.topic_id, fetch.index] = True
        return super()._forget(fetch)


class IncrementalFetches:
    """Answers fetch requests that begin, continue or end sessions."""

    def __init__(
        self,
        manager: ReplicaManager,
        calls: FetchSessions,
        cache: SessionCache,
        *,
        clock: Clock,
        config: ReplicaConfig,
        fetch_all: Callable[[FetchRequest, RequestContext], Awaitable[FetchAnswer]],
    ) -> None:
        """calls: the open fetches of the node. fetch_all: answers a request that names all of its partitions."""
        self._manager, self._calls, self._cache = manager, calls, cache
        self._clock, self._config, self._fetch_all = clock, config, fetch_all
        self._open: OrderedDict[int, tuple[Millis, LastingFetches]] = OrderedDict()
        """By the id of the session, with the time of its last request; the oldest comes first."""
        cache.on_closed = self._closed
        manager.tick_with(self._suspend_unused, self._suspend_due)

    async def fetch(self, request: FetchRequest, asked: SessionFetch, context: RequestContext) -> FetchAnswer:
        """The answer. Raises as `SessionCache.proceed`, InvalidRequest."""
        ensure_few(request.partitions, "fetches")
        ensure_few(asked.forgotten, "partitions to forget")
        owner = Owner(context.listener, context.principal)
        if asked.continues:
            if request.replica is not None:
                raise InvalidRequest("a follower fetches on a stream, not with unary calls")
            session = self._cache.proceed(asked, request.partitions, owner, self._clock.monotonic_ms())
            if session is None:
                return await self._fetch_all(request, context)
            return await self._continue(session, request, asked, context)
        self._cache.close(asked.session_id, owner)
        answer = await self._fetch_all(request, context)
        if asked.epoch != NEW_SESSION:
            return answer
        told = {_key_of(each): each for each in answer.partitions}
        begun = self._cache.open(owner, request.partitions, told, by_id=asked.by_id, now=self._clock.monotonic_ms())
        return answer if begun is None else answer._replace(session_id=begun.session_id)

    async def _continue(
        self, session: IncrementalSession, request: FetchRequest, asked: SessionFetch, context: RequestContext
    ) -> FetchAnswer:
        fetches = self._fetches_of(session, context)
        limit = min(request.max_bytes or UNARY_FETCH_BYTES_MAX, UNARY_FETCH_BYTES_MAX)
        charge = AnswerCharge(self._manager.memory, Kind.CONSUMER_FETCH, fetches.copies)
        answer = FetchAnswer([], charge, session_id=session.session_id)
        self._calls.admit(fetches)
        turn = fetches.next_turn()
        try:
            fetches.open(request, asked.forgotten, context)
            least_bytes = min(request.min_bytes, limit)
            while not (answer.partitions or fetches.is_overdue or fetches.outbox.short_bytes >= least_bytes):
                await fetches.wait_turn(turn)
                await self._collect(answer, charge, fetches, limit, turn)
                fetches.ensure_turn(turn)
            while charge.size < limit * fetches.copies:
                fetches.answer_short()  # also those that were tried for the first time since the wait has ended
                if not fetches.is_busy:
                    break
                if not (fetches.outbox.answers or fetches.outbox.ready or fetches.outbox.read):
                    await fetches.wait_cold()
                    fetches.ensure_turn(turn)
                await self._collect(answer, charge, fetches, limit, turn)
                fetches.ensure_turn(turn)
            fetches.end_turn(answer, limit)
        except BaseException:
            charge.release()
            if fetches.has_turn(turn):
                fetches.rest()
            raise
        finally:
            if fetches.has_turn(turn):
                self._calls.dismiss(fetches)
        return answer

    async def _collect(
        self, answer: FetchAnswer, charge: AnswerCharge, fetches: LastingFetches, limit: int, turn: int
    ) -> None:
        _, least = fetches.next_bytes(0)
        rest = limit - charge.size // fetches.copies
        await add_next(
            answer,
            charge,
            fetches,
            self._manager.memory,
            rest,
            limit,
            least,
            room=rest,
            ensure_wanted=lambda: fetches.ensure_turn(turn),  # else it would take what belongs to a later request
        )

    def _fetches_of(self, session: IncrementalSession, context: RequestContext) -> LastingFetches:
        opened = self._open.pop(session.session_id, None)
        if opened is None or opened[1].closed:
            fetches = LastingFetches(
                self._manager, self._calls.follower_streams, context, self._clock, self._config, session
            )
        else:
            _, fetches = opened
        now = self._clock.monotonic_ms()
        self._open[session.session_id] = now, fetches
        self._manager.ticker.by(Millis(now + SUSPEND_MS))
        return fetches

    def _closed(self, session: IncrementalSession) -> None:
        opened = self._open.pop(session.session_id, None)
        if opened is not None:
            opened[1].close()
            self._calls.dismiss(opened[1])

    def _suspend_unused(self, now: Millis) -> None:
        while self._open:
            number, (used, fetches) = next(iter(self._open.items()))
            if now - used < SUSPEND_MS:
                break
            del self._open[number]
            if fetches.is_asked:  # the request waits for memory, or for a slow disk
                self._open[number] = now, fetches
            else:
                fetches.close()

    def _suspend_due(self, _now: Millis) -> Millis | None:
        return Millis(next(iter(self._open.values()))[0] + SUSPEND_MS) if self._open else None
