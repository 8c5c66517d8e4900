"""What a node keeps of incremental fetch sessions (KIP-227): random clients against a model, and the rules of Kafka."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from node.api.fetch import PartitionFetch, SessionFetch
from node.requests.incremental_sessions import (
    EVICTION_MS,
    IncrementalSession,
    Key,
    Owner,
    SessionCache,
    SessionPartition,
)
from node.runtime.limits import ENTRIES_MAX
from tidelog.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    TidelogError,
    UnknownTopicId,
)
from tidelog.record_exchange import FetchedPartition
from tidelog.types import INT32_MAX, EpochEnd, LeaderEpoch, Millis, Offset

OWNER = Owner("KAFKA", "User:a")
OTHERS = (OWNER, Owner("KAFKA", "User:b"), Owner("OUTSIDE", "User:a"))


def fetch_of(number: int, offset: int = 0) -> PartitionFetch:
    return PartitionFetch("orders", number, Offset(offset), max_bytes=100)


def answer_of(number: int, high_watermark: int = 9, log_start: int = 0, **fields: Any) -> FetchedPartition:
    return FetchedPartition(
        "orders", number, LeaderEpoch(1), Offset(high_watermark), Offset(high_watermark), Offset(log_start), **fields
    )


def cache_of(slots: int = 10, **limits: int) -> SessionCache:
    return SessionCache(slots, random.Random(1), **limits)


def opened(cache: SessionCache, *numbers: int, now: int = 0, owner: Owner = OWNER) -> IncrementalSession | None:
    told: dict[Key, FetchedPartition] = {("orders", each): answer_of(each) for each in numbers}
    return cache.open(owner, [fetch_of(each) for each in numbers], told, by_id=False, now=Millis(now))


def some(session: IncrementalSession | None) -> IncrementalSession:
    assert session is not None
    return session


# --- what an answer must have -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "is_news"),
    [
        (answer_of(0), False),
        (answer_of(0, records=b"batch"), True),
        (answer_of(0, high_watermark=10), True),
        (answer_of(0, log_start=1), True),
        (answer_of(0, preferred_read_replica=0), True),
        (answer_of(0, diverging=EpochEnd(LeaderEpoch(1), Offset(3))), True),
        (answer_of(0, error=UnknownTopicId("gone")), True),
    ],
)
def test_what_says_nothing_new_is_not_sent(answer: FetchedPartition, is_news: bool) -> None:
    partition = SessionPartition(fetch_of(0), Offset(9), Offset(0))
    assert partition.tell(answer) is is_news
    assert partition.tell(answer._replace(records=b"", preferred_read_replica=-1, diverging=None, error=None)) is (
        answer.error is not None
    ), "the end of an error is news"


# --- places -------------------------------------------------------------------------------------------------------


def test_a_full_cache_gives_no_session_to_a_client_with_as_many_partitions() -> None:
    cache = cache_of(2)
    first, second = opened(cache, 1, 2), opened(cache, 3, 4)
    assert first is not None and second is not None
    assert opened(cache, *range(9), now=EVICTION_MS) is None, "the others are young, and none is stale"
    assert (len(cache), cache.partitions, cache.evictions) == (2, 4, 0)


def test_a_stale_session_makes_place_for_any_other() -> None:
    cache = cache_of(2)
    first, second = some(opened(cache, 1, 2)), some(opened(cache, 3, 4))
    ended: list[IncrementalSession] = []
    cache.on_closed = ended.append
    cache.proceed(SessionFetch(first.session_id, 1, by_id=False), [], OWNER, Millis(5))
    assert opened(cache, 5, now=EVICTION_MS + 1) is not None
    assert ended == [second], "it was used longest ago"


def test_a_larger_session_takes_the_place_of_the_smallest_that_is_not_young() -> None:
    cache = cache_of(3)
    small, large = some(opened(cache, 1)), some(opened(cache, 2, 3, 4))
    used = EVICTION_MS + 1
    for each in (small, large):
        cache.proceed(SessionFetch(each.session_id, 1, by_id=False), [], OWNER, Millis(used))
    young = some(opened(cache, 5, now=used))
    assert opened(cache, 6, now=used) is None, "as many partitions are not more"
    larger = some(opened(cache, 6, 7, now=used))
    with pytest.raises(FetchSessionIdNotFound):
        cache.proceed(SessionFetch(small.session_id, 2, by_id=False), [], OWNER, Millis(used))
    for each, epoch in ((large, 2), (young, 1), (larger, 1)):
        assert cache.proceed(SessionFetch(each.session_id, epoch, by_id=False), [], OWNER, Millis(used)) is each


def test_without_slots_there_are_no_sessions() -> None:
    assert opened(cache_of(0), 1) is None


def test_a_request_of_no_partition_begins_no_session() -> None:
    assert opened(cache_of()) is None


def test_partitions_are_limited_too() -> None:
    """Kafka limits sessions alone, so that a client may fill the memory."""
    cache = cache_of(partitions_max=10)
    first = some(opened(cache, *range(3)))
    assert opened(cache, *range(5), owner=OTHERS[1]) is not None
    assert opened(cache, *range(3), owner=OTHERS[2]) is None
    assert opened(cache, *range(2), owner=OTHERS[2]) is not None
    grows = SessionFetch(first.session_id, 1, by_id=False)
    with pytest.raises(FetchSessionIdNotFound, match="at most 10 partitions"):
        cache.proceed(grows, [fetch_of(3)], OWNER, Millis(0))
    assert (len(cache), cache.partitions) == (2, 7), "the client names all partitions again, and gets no session"


def test_half_of_the_partitions_remain_for_other_principals() -> None:
    """One could take all of them for as long as it uses its sessions."""
    cache, other = cache_of(partitions_max=10), OTHERS[1]
    assert opened(cache, *range(6)) is None
    mine = some(opened(cache, *range(4)))
    assert opened(cache, *range(2)) is None
    assert opened(cache, *range(5), owner=other) is not None
    with pytest.raises(FetchSessionIdNotFound, match="those of one principal 5"):
        cache.proceed(
            SessionFetch(mine.session_id, 1, by_id=False), [fetch_of(each) for each in (7, 8)], OWNER, Millis(0)
        )
    assert opened(cache, *range(5)) is not None


def test_no_session_is_evicted_if_that_does_not_suffice() -> None:
    cache = cache_of(partitions_max=20)
    for owner in OTHERS:
        assert opened(cache, *range(5), owner=owner) is not None
    stale, now = some(opened(cache, *range(3), owner=OTHERS[1])), EVICTION_MS + 1
    for each in [*cache._sessions.values()][:3]:
        cache.proceed(SessionFetch(each.session_id, 1, by_id=False), [], each.owner, Millis(EVICTION_MS))
    assert opened(cache, *range(9), now=now, owner=OTHERS[2]) is None, "15 and 9 are more than 20"
    assert (len(cache), cache.evictions) == (4, 0)
    assert opened(cache, *range(5), now=now, owner=OTHERS[2]) is not None
    assert stale.session_id not in cache._sessions
    assert (len(cache), cache.partitions) == (4, 20)


def test_only_sessions_of_the_same_principal_make_place_in_its_share() -> None:
    cache, now = cache_of(partitions_max=20), EVICTION_MS + 1
    theirs, mine = some(opened(cache, 1, owner=OTHERS[1])), some(opened(cache, *range(8)))
    assert opened(cache, *range(8), now=now) is not None
    assert theirs.session_id in cache._sessions
    assert mine.session_id not in cache._sessions


def test_a_session_cannot_grow_beyond_what_a_request_may_have() -> None:
    cache = cache_of()
    first = some(opened(cache, *range(ENTRIES_MAX)))
    with pytest.raises(FetchSessionIdNotFound, match="name all partitions again"):
        cache.proceed(SessionFetch(first.session_id, 1, by_id=False), [fetch_of(ENTRIES_MAX)], OWNER, Millis(0))
    assert not len(cache)


@pytest.mark.parametrize("name", ["x" * 250, "\N{GRINNING FACE}" * 249])
def test_names_that_no_topic_has_are_not_kept(name: str) -> None:
    """A name may be as long as a request. The client names all partitions again, and gets no session."""
    cache, long = cache_of(), [fetch_of(1), fetch_of(1)._replace(topic_id=name)]
    told = {(each.topic_id, each.partition): answer_of(1) for each in long}
    assert cache.open(OWNER, long, told, by_id=False, now=Millis(0)) is None
    session = some(opened(cache, 1))
    with pytest.raises(FetchSessionIdNotFound, match="name all partitions again"):
        cache.proceed(SessionFetch(session.session_id, 1, by_id=False), long, OWNER, Millis(0))
    assert (len(cache), cache.partitions) == (0, 0)
    longest = fetch_of(1)._replace(topic_id="x" * 249)
    assert cache.open(OWNER, [longest], {("x" * 249, 1): answer_of(1)}, by_id=False, now=Millis(0)) is not None


# --- epochs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [2, -2, INT32_MAX, -(2**31)])
def test_a_request_that_is_not_the_next_one_changes_nothing(epoch: int) -> None:
    cache = cache_of()
    session = some(opened(cache, 1))
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.proceed(SessionFetch(session.session_id, epoch, by_id=False), [fetch_of(2)], OWNER, Millis(0))
    assert [*session.partitions] == [("orders", 1)]
    assert session.epoch == 1


def test_after_the_last_epoch_comes_the_first() -> None:
    cache = cache_of()
    session = some(opened(cache, 1))
    session.epoch = INT32_MAX
    cache.proceed(SessionFetch(session.session_id, INT32_MAX, by_id=False), [], OWNER, Millis(0))
    assert session.epoch == 1


# --- random clients -----------------------------------------------------------------------------------------------


@dataclass
class Expected:
    """A session as the model has it."""

    owner: Owner
    by_id: bool
    created: int
    used: int
    offsets: dict[Key, int] = field(default_factory=dict)
    epoch: int = 1


NUMBERS = st.sets(st.integers(0, 5), max_size=4)
SLOTS, PARTITIONS = 3, 9


class RandomClients(RuleBasedStateMachine):
    """Clients open, continue and end sessions; the model follows the rules in the words of KIP-227."""

    @initialize()
    def begin(self) -> None:
        self.cache = SessionCache(SLOTS, random.Random(7), partitions_max=PARTITIONS)
        self.ended: list[int] = []
        self.cache.on_closed = lambda session: self.ended.append(session.session_id)
        self.now, self.model = 0, dict[int, Expected]()
        self.past: list[int] = [0, -1, INT32_MAX]

    @rule(ms=st.sampled_from((1, EVICTION_MS // 2, EVICTION_MS + 1)))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(numbers=NUMBERS, owner=st.sampled_from(OTHERS), by_id=st.booleans())
    def a_session_is_asked_for(self, numbers: set[int], owner: Owner, by_id: bool) -> None:
        expected = self._evicted_for(owner, len(numbers))
        told: dict[Key, FetchedPartition] = {("orders", each): answer_of(each) for each in numbers}
        fetches = [fetch_of(each) for each in numbers]
        session = self.cache.open(owner, fetches, told, by_id=by_id, now=Millis(self.now))
        assert (session is not None) is expected
        if session is not None:
            assert session.session_id > 0
            assert session.session_id not in self.model
            offsets: dict[Key, int] = {("orders", each): 0 for each in numbers}
            self.model[session.session_id] = Expected(owner, by_id, self.now, self.now, offsets)
            self.past.append(session.session_id)

    def _evicted_for(self, owner: Owner, size: int) -> bool:
        """Whether there is a place after evictions, which the model makes: one after the other, as long as it is short
        of what the next one has."""
        before = dict(self.model)
        while size:
            is_full = len(self.model) >= SLOTS or size + self._partitions > PARTITIONS
            if not is_full and size + self._share_of(owner) <= PARTITIONS // 2:
                return True
            candidates = [each for each in self.model if is_full or self.model[each].owner == owner]
            stale = [each for each in candidates if self.now - self.model[each].used > EVICTION_MS]
            smaller = [
                each
                for each in candidates
                if self.model[each].used - self.model[each].created > EVICTION_MS
                and len(self.model[each].offsets) < size
            ]
            if stale:
                del self.model[min(stale, key=self.ended_order.index)]
            elif smaller:
                del self.model[min(smaller, key=lambda each: (len(self.model[each].offsets), each))]
            else:
                break
        self.model = before
        return False

    @property
    def ended_order(self) -> list[int]:
        """Sessions by their last use, also of those that were used at the same time."""
        return [*self.cache._sessions]

    def _share_of(self, owner: Owner) -> int:
        return sum(len(each.offsets) for each in self.model.values() if each.owner == owner)

    @property
    def _partitions(self) -> int:
        return sum(len(each.offsets) for each in self.model.values())

    @rule(
        data=st.data(),
        owner=st.sampled_from((OWNER, OWNER, *OTHERS)),
        lag=st.sampled_from((0, 0, 0, 1, -1, INT32_MAX)),
        by_id=st.sampled_from((None, None, True, False)),
        asked=NUMBERS,
        forgotten=NUMBERS,
        offset=st.integers(1, 9),
    )
    def a_session_is_continued(
        self,
        data: st.DataObject,
        owner: Owner,
        lag: int,
        by_id: bool | None,
        asked: set[int],
        forgotten: set[int],
        offset: int,
    ) -> None:
        number = data.draw(st.sampled_from(self.past))
        known = self.model.get(number)
        epoch = 1 if known is None else known.epoch + lag
        named = by_id if by_id is not None else (known is not None and known.by_id)
        request = SessionFetch(number, epoch, named, [("orders", each) for each in forgotten])
        error: type[TidelogError] | None = None
        if known is None or known.owner != owner:
            error = FetchSessionIdNotFound
        elif lag:
            error = InvalidFetchSessionEpoch
        elif named is not known.by_id:
            error = FetchSessionTopicIdError
        else:
            known.offsets.update({("orders", each): offset for each in asked})
            for each in forgotten:
                known.offsets.pop(("orders", each), None)
            if self._partitions > PARTITIONS or self._share_of(owner) > PARTITIONS // 2:
                error = FetchSessionIdNotFound
            if error is not None or not known.offsets:
                del self.model[number]
            known.epoch, known.used = known.epoch + 1, self.now
        fetches, now = [fetch_of(each, offset) for each in asked], Millis(self.now)
        if error is not None:
            with pytest.raises(error):
                self.cache.proceed(request, fetches, owner, now)
            return
        session = self.cache.proceed(request, fetches, owner, now)
        assert (session is None) is (number not in self.model)

    @rule(data=st.data(), owner=st.sampled_from(OTHERS))
    def a_session_is_ended(self, data: st.DataObject, owner: Owner) -> None:
        number = data.draw(st.sampled_from(self.past))
        self.cache.close(number, owner)
        if number in self.model and self.model[number].owner == owner:
            del self.model[number]

    @invariant()
    def the_cache_is_as_the_model(self) -> None:
        sessions = self.cache._sessions
        assert {
            number: (each.epoch, {key: part.fetch.fetch_offset for key, part in each.partitions.items()})
            for number, each in sessions.items()
        } == {number: (each.epoch, each.offsets) for number, each in self.model.items()}
        assert len(self.cache) == len(self.model) <= SLOTS
        assert self.cache.partitions == self._partitions <= PARTITIONS
        assert self.cache._shares == {each.owner: self._share_of(each.owner) for each in self.model.values()}
        assert all(share <= PARTITIONS // 2 for share in self.cache._shares.values())
        assert {*self.ended} == {*self.past[3:]} - {*self.model}, "each end is told"
        assert len(self.ended) == len({*self.ended}), "once"


TestRandomClients = RandomClients.TestCase
