"""Incremental fetch sessions: what a client fetches and what it has been told, so that its requests and the answers
name only the partitions of which something has changed. State only, no I/O.

Invariants:
  1. A session belongs to one principal at one listener. For others it does not exist.
  2. A request continues a session only with the epoch that the answer before it has announced.
  3. There are at most `slots` sessions. A new one replaces one that is stale, or that has fewer partitions and is not
     young; otherwise the client gets none, and names all partitions in each request.
  4. All sessions together have at most `partitions_max` partitions, those of one principal half of them, and one has at
     most `ENTRIES_MAX`. Kafka has no such limit. Names are no longer than those of topics: a partition has few bytes.

Not here: the fetches (incremental_fetches.py).
Source: KIP-227, KIP-516, Kafka's FetchSession.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias

from node.api.fetch import PartitionFetch, SessionFetch
from node.runtime.limits import ENTRIES_MAX
from tidelog.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from tidelog.record_exchange import FetchedPartition, TopicReference
from tidelog.types import INT32_MAX, TOPIC_NAME_LENGTH_MAX, Millis, Offset
from tidelog.values import dataclass

PARTITIONS_MAX: Final = 100_000
"""Partitions of all sessions of a node: some 80 MB with their open fetches, and at most 30 MB more with their names."""

EVICTION_MS: Final = 120_000
"""A session that is not used for this long is stale, and one that is older is not young. As in Kafka."""

Key: TypeAlias = tuple[TopicReference, int]
"""A partition, as requests name it."""


class Owner(NamedTuple):
    """Whose session it is."""

    listener: str
    principal: str


@dataclass(slots=True)
class SessionPartition:
    """One partition of a session."""

    fetch: PartitionFetch
    """As the client has last asked."""
    high_watermark: Offset = Offset(-1)
    log_start: Offset = Offset(-1)
    """As the client was last told; -1: tell it again."""

    def tell(self, answer: FetchedPartition) -> bool:
        """Note an answer. Returns False if it says nothing new, so that it need not be sent."""
        is_news = (
            len(answer.records) > 0
            or answer.error is not None
            or answer.diverging is not None
            or answer.preferred_read_replica >= 0
            or self.lacks(answer.high_watermark, answer.log_start_offset)
        )
        # After an error the next answer must be sent even if nothing else is new: the client learns that it is over.
        self.high_watermark = Offset(-1) if answer.error is not None else answer.high_watermark
        self.log_start = answer.log_start_offset
        return is_news

    def lacks(self, high_watermark: Offset, log_start: Offset) -> bool:
        """True if the client does not know both."""
        return (self.high_watermark, self.log_start) != (high_watermark, log_start)


@dataclass(slots=True, eq=False)
class IncrementalSession:
    """One session."""

    session_id: int
    owner: Owner
    by_id: bool
    """Its partitions are named by the ids of topics."""
    partitions: dict[Key, SessionPartition]
    created_ms: Millis
    used_ms: Millis
    epoch: int = 1
    """The one of the next request."""

    def update(self, asked: Iterable[PartitionFetch], forgotten: Iterable[Key]) -> None:
        """Add or replace what is asked for, then remove what is forgotten. Unknown partitions cannot be forgotten."""
        for fetch in asked:
            known = self.partitions.get((fetch.topic_id, fetch.partition))
            if known is None:
                self.partitions[fetch.topic_id, fetch.partition] = SessionPartition(fetch)
            else:
                known.fetch = fetch
        for key in forgotten:
            self.partitions.pop(key, None)


class SessionCache:
    """The sessions of a node."""

    def __init__(self, slots: int, rng: random.Random, *, partitions_max: int = PARTITIONS_MAX) -> None:
        """slots: how many sessions there may be; 0: none."""
        self._slots, self._rng = slots, rng
        self._partitions_max, self._share_max = partitions_max, partitions_max // 2
        self._sessions: OrderedDict[int, IncrementalSession] = OrderedDict()
        """The one whose last use is longest ago comes first."""
        self.partitions = 0
        """Of all sessions."""
        self._shares = Counter[Owner]()
        """The partitions of each owner."""
        self.evictions = 0
        self.on_closed: Callable[[IncrementalSession], None] = lambda _session: None
        """Called with each session that ends."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        owner: Owner,
        asked: Sequence[PartitionFetch],
        told: Mapping[Key, FetchedPartition],
        *,
        by_id: bool,
        now: Millis,
    ) -> IncrementalSession | None:
        """A new session after a request for all of its partitions, and its answer. None if there is no place for it."""
        partitions = {(each.topic_id, each.partition): SessionPartition(each) for each in asked}
        if not partitions or not _are_short(asked) or not self._make_place(owner, len(partitions), now):
            return None
        for key, partition in partitions.items():
            partition.tell(told[key])
        session = IncrementalSession(self._new_id(), owner, by_id, partitions, now, now)
        self._sessions[session.session_id] = session
        self._add(owner, len(partitions))
        return session

    def proceed(
        self, request: SessionFetch, asked: Sequence[PartitionFetch], owner: Owner, now: Millis
    ) -> IncrementalSession | None:
        """The session that a request continues, with what the request changes. None if it has no partition any more and
        is therefore closed. Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError."""
        session = self._find(request.session_id, owner)
        if session is None:
            raise FetchSessionIdNotFound(
                f"there is no fetch session {request.session_id} of {owner.principal}: it was closed, or another one "
                "took its place; name all partitions again"
            )
        if request.epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session.session_id} continues with epoch {session.epoch}, not {request.epoch}; name "
                "all partitions again"
            )
        if request.by_id != session.by_id:
            raise FetchSessionTopicIdError(
                f"fetch session {session.session_id} names topics by {'id' if session.by_id else 'name'}; name all "
                "partitions again"
            )
        if not _are_short(asked):
            self._end(session)
            raise FetchSessionIdNotFound(
                f"fetch session {session.session_id} is closed: a topic is named with more than "
                f"{TOPIC_NAME_LENGTH_MAX} characters, or others than those of ASCII; name all partitions again"
            )
        before = len(session.partitions)
        session.update(asked, request.forgotten)
        self._add(owner, len(session.partitions) - before)
        if not session.partitions:
            self._end(session)
            return None
        if (
            len(session.partitions) > ENTRIES_MAX
            or self.partitions > self._partitions_max
            or self._shares[owner] > self._share_max
        ):
            self._end(session)
            raise FetchSessionIdNotFound(
                f"fetch session {session.session_id} is closed: the sessions of a node have at most "
                f"{self._partitions_max} partitions, those of one principal {self._share_max}, and one has at most "
                f"{ENTRIES_MAX}; name all partitions again"
            )
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        session.used_ms = now
        self._sessions.move_to_end(session.session_id)
        return session

    def close(self, session_id: int, owner: Owner) -> None:
        """End a session, if this owner has one with this id."""
        session = self._find(session_id, owner)
        if session is not None:
            self._end(session)

    def _find(self, session_id: int, owner: Owner) -> IncrementalSession | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def _end(self, session: IncrementalSession) -> None:
        del self._sessions[session.session_id]
        self._add(session.owner, -len(session.partitions))
        self.on_closed(session)

    def _add(self, owner: Owner, count: int) -> None:
        self.partitions += count
        self._shares[owner] += count
        if not self._shares[owner]:
            del self._shares[owner]

    def _make_place(self, owner: Owner, size: int, now: Millis) -> bool:
        """Whether there is a place for a session with `size` partitions, if need be after others have been evicted.
        None is if that does not suffice."""
        evicted = self._to_evict(owner, size, now)
        for session in evicted or ():
            self.evictions += 1
            self._end(session)
        return evicted is not None

    def _to_evict(self, owner: Owner, size: int, now: Millis) -> list[IncrementalSession] | None:
        """The sessions that make place for one with `size` partitions; None if there would be none even so."""
        if not self._slots:
            return None
        sessions = len(self._sessions) + 1 - self._slots
        partitions = self.partitions + size - self._partitions_max
        share = self._shares[owner] + size - self._share_max
        evicted: list[IncrementalSession] = []
        if max(sessions, partitions, share) <= 0:
            return evicted
        for each in self._evictable(size, now):
            if sessions <= 0 and partitions <= 0 and each.owner != owner:
                continue
            evicted.append(each)
            sessions, partitions = sessions - 1, partitions - len(each.partitions)
            share -= len(each.partitions) if each.owner == owner else 0
            if max(sessions, partitions, share) <= 0:
                return evicted
        return None

    def _evictable(self, size: int, now: Millis) -> list[IncrementalSession]:
        """In this order: those that are stale, and smaller ones that are not young."""
        stale = list(takewhile(lambda each: now - each.used_ms > EVICTION_MS, self._sessions.values()))
        smaller = [
            each
            for each in islice(self._sessions.values(), len(stale), None)
            if each.used_ms - each.created_ms > EVICTION_MS and len(each.partitions) < size
        ]
        return stale + sorted(smaller, key=lambda each: (len(each.partitions), each.session_id))

    def _new_id(self) -> int:
        while True:  # at most 10,000 of two billion numbers are in use
            session_id = self._rng.randint(1, INT32_MAX)
            if session_id not in self._sessions:
                return session_id


def _are_short(asked: Iterable[PartitionFetch]) -> bool:
    """Whether no topic has a name that is longer than any may be. A name may be as long as a request, and a session
    would keep it although there is no such topic."""
    for name in (each.topic_id for each in asked):
        if isinstance(name, str) and not (name.isascii() and len(name) <= TOPIC_NAME_LENGTH_MAX):
            return False
    return True
