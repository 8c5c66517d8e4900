"""The node's memory for records: never more than the limit but for one request alone, in the order of the kinds, and
nothing is lost when somebody goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.runtime.memory_budget import CEILINGS, AnswerCharge, Kind, MemoryBudget, Share
from tidelog.clock import MachineClock

LIMIT = 8_000


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def _a_turn() -> None:
    await MachineClock().sleep_ms(0)


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Run all tasks that can run."""
    for _ in range(3):
        loop.run_until_complete(_a_turn())


def test_a_request_larger_than_the_budget_is_served_alone(loop: asyncio.AbstractEventLoop) -> None:
    budget = MemoryBudget(LIMIT)
    small = loop.run_until_complete(budget.take(Kind.CONSUMER_FETCH, 10))
    large = loop.create_task(budget.take(Kind.CONSUMER_FETCH, 3 * LIMIT, 2 * LIMIT))
    behind = loop.create_task(budget.take(Kind.CONSUMER_FETCH, 10))
    turn(loop)
    assert not large.done()
    assert not behind.done(), "later requests do not starve it"
    small.release()
    turn(loop)
    assert large.result().size == 2 * LIMIT
    assert not behind.done()
    large.result().release()
    turn(loop)
    assert behind.result().size == 10


def test_followers_find_memory_whatever_consumers_and_producers_take(loop: asyncio.AbstractEventLoop) -> None:
    budget = MemoryBudget(LIMIT)
    for kind in (Kind.CONSUMER_FETCH, Kind.PRODUCE):
        waits = [loop.create_task(budget.take(kind, 100, 100)) for _ in range(200)]
        turn(loop)
        assert not waits[-1].done()
    follower = loop.run_until_complete(budget.take(Kind.FOLLOWER_FETCH, 1_000, 1_000))
    assert follower.size == 1_000
    for task in asyncio.all_tasks(loop):
        task.cancel()
    turn(loop)


def test_the_fuller_the_budget_the_smaller_the_answers(loop: asyncio.AbstractEventLoop) -> None:
    budget = MemoryBudget(LIMIT)
    sizes = [loop.run_until_complete(budget.take(Kind.CONSUMER_FETCH, LIMIT, 50)).size for _ in range(20)]
    assert sizes[0] == LIMIT * 6 // 8 // 8
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= 50


def test_an_answer_keeps_its_share_as_long_as_it_exists(loop: asyncio.AbstractEventLoop) -> None:
    budget = MemoryBudget(LIMIT)
    share = loop.run_until_complete(budget.take(Kind.CONSUMER_FETCH, 600))
    charge = AnswerCharge(budget, Kind.CONSUMER_FETCH, 3)
    charge.add(100, share)
    assert charge.size == 300
    assert budget.figures.used[Kind.CONSUMER_FETCH] == 300
    del charge
    assert budget.figures.used[Kind.CONSUMER_FETCH] == 0


class Budget(RuleBasedStateMachine):
    """Any order of asking, charging, cancelling, giving back."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.budget = MemoryBudget(LIMIT)
        self.asked: list[tuple[Kind, int, asyncio.Task[Share]]] = []
        self.shares: list[Share] = []
        self.charged: list[Share] = []

    def settle(self) -> None:
        turn(self.loop)
        for entry in [entry for entry in self.asked if entry[2].done()]:
            self.asked.remove(entry)
            if not entry[2].cancelled():
                self.shares.append(entry[2].result())

    @rule(
        kind=st.sampled_from(list(CEILINGS)),
        wanted=st.integers(1, 2 * LIMIT),
        least=st.integers(1, 2 * LIMIT),
        is_impatient=st.booleans(),
    )
    def ask(self, kind: Kind, wanted: int, least: int, *, is_impatient: bool) -> None:
        task = self.loop.create_task(self.budget.take(kind, wanted, least))
        self.asked.append((kind, least, task))
        if is_impatient:
            self.loop.run_until_complete(_a_turn())
        self.settle()

    @rule(size=st.integers(0, LIMIT // 2), kind=st.sampled_from([Kind.PRODUCE, Kind.PRODUCER_STATE]))
    def charge(self, size: int, kind: Kind) -> None:
        self.charged.append(self.budget.charge(kind, size))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), released=st.sampled_from(["not", "before", "behind"]))
    def cancel(self, data: st.DataObject, released: str) -> None:
        """Also in the very turn in which it is granted, before that or behind it."""
        _, _, task = data.draw(st.sampled_from(self.asked))
        if released == "before" and self.shares:
            self.shares.pop().release()
        task.cancel()
        if released == "behind" and self.shares:
            self.shares.pop().release()
        self.settle()

    @precondition(lambda self: self.shares or self.charged)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        share = data.draw(st.sampled_from([*self.shares, *self.charged]))
        (self.shares if share in self.shares else self.charged).remove(share)
        share.release()
        share.release()
        self.settle()

    @precondition(lambda self: self.shares)
    @rule(data=st.data(), part=st.integers(0, 4))
    def shrink(self, data: st.DataObject, part: int) -> None:
        share = data.draw(st.sampled_from(self.shares))
        share.resize(share.size * part // 4)
        self.settle()

    @invariant()
    def it_adds_up(self) -> None:
        figures = self.budget.figures
        assert sum(figures.used.values()) == sum(share.size for share in (*self.shares, *self.charged))
        assert sum(figures.waiting.values()) == len(self.asked)
        granted, charged = [share.size for share in self.shares if share.size], sum(each.size for each in self.charged)
        assert sum(granted) <= LIMIT or len(granted) == 1 or charged, "more than one is above the limit"

    @invariant()
    def every_wait_has_a_reason(self) -> None:
        """The first waiting request in the order of the kinds waits because it does not fit and is not alone."""
        used = sum(share.size for share in (*self.shares, *self.charged))
        state = self.budget.figures.used[Kind.PRODUCER_STATE]
        for kind, ceiling in CEILINGS.items():
            first = next((least for waiting, least, _ in self.asked if waiting is kind), None)
            if first is not None:
                assert used > state, "no other connection has charges"
                assert LIMIT * ceiling // 8 - used < first, f"there is room for {kind}"
                return

    def teardown(self) -> None:
        """When all memory is returned, all waiting requests are served in order."""
        for share in (*self.shares, *self.charged):
            share.release()
        self.shares, self.charged = [], []
        for _ in range(len(self.asked)):
            self.settle()
            while self.shares:
                self.shares.pop().release()
        self.settle()
        assert not self.asked, "somebody waits for ever"
        self.loop.close()


TestBudget = Budget.TestCase
TestBudget.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
