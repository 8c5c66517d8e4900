"""Ticks without an effect are skipped; those with an effect come on time."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from node.runtime.ticker import Ticker
from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tidelog.types import Millis

TICK_MS = 50


class Owner:
    """An owner with deadlines, which records when it was called and with how many ticks."""

    def __init__(self) -> None:
        self.loop = SimLoop(random.Random(1))
        self.clock = SimClock(self.loop)
        self.ticker = Ticker(self.clock, TICK_MS, self._tick)
        self.called: list[tuple[int, int]] = []
        self.due_times: list[int] = []
        self.missed: list[int] = []
        self._task = self.loop.create_task(self.ticker.run())

    def _tick(self, now: Millis, ticks: int) -> Millis | None:
        self.called.append((now, ticks))
        self.missed += [due for due in self.due_times if due + 2 * TICK_MS <= now]
        self.due_times = [due for due in self.due_times if due > now]
        return Millis(min(self.due_times)) if self.due_times else None

    def ask(self, due: int) -> None:
        self.due_times.append(due)
        self.ticker.by(Millis(due))

    def run(self, ms: int) -> list[tuple[int, int]]:
        """Let time pass. Returns the calls made meanwhile."""
        before = len(self.called)
        self.loop.run_for(ms / 1000)
        return self.called[before:]

    def close(self) -> None:
        self._task.cancel()
        self.loop.run_until(self._task.done, within=1)
        self.loop.dispose()


def test_an_owner_without_deadlines_is_not_called() -> None:
    owner = Owner()
    assert owner.run(10_000) == [(50, 1)]
    owner.close()


def test_a_deadline_is_met_by_the_first_tick_behind_it_and_the_ticks_before_it_are_slept_through() -> None:
    owner = Owner()
    owner.run(60)
    owner.ask(1_020)
    assert owner.run(2_000) == [(1_050, 20)]
    owner.close()


def test_a_deadline_set_during_a_long_sleep_gets_the_next_tick() -> None:
    owner = Owner()
    owner.run(60)
    owner.ask(5_000)
    owner.run(400)
    owner.ticker.soon()
    assert owner.run(100) == [(500, 9)]
    assert owner.run(10_000) == [(5_000, 90)], "the one that slept longer does not call a second time"
    owner.close()


def test_a_later_wish_does_not_put_off_an_earlier_one() -> None:
    owner = Owner()
    owner.run(60)
    owner.ask(500)
    owner.ask(900)
    assert [now for now, _ in owner.run(2_000)] == [500, 900]
    owner.close()


def test_one_task_sleeps_however_often_an_earlier_call_is_requested() -> None:
    """Each request after a pause left a task that slept on for hours."""
    owner = Owner()
    owner.run(1_000)
    tasks = len(asyncio.all_tasks(owner.loop))
    for _ in range(20):
        owner.ticker.soon()
        assert len(owner.run(1_000)) == 1
    for ahead in range(20, 0, -1):
        owner.ask(int(owner.clock.monotonic_ms()) + 1_000 * ahead)
    owner.run(10)
    assert len(asyncio.all_tasks(owner.loop)) == tasks
    assert len(owner.run(21_000)) == 20
    owner.close()


def test_a_tick_that_raises_ends_the_ticker() -> None:
    loop = SimLoop(random.Random(1))

    def fail(_: Millis, __: int) -> Millis | None:
        raise ValueError("broken")

    task = loop.create_task(Ticker(SimClock(loop), TICK_MS, fail).run())
    loop.run_until(task.done, within=1)
    assert isinstance(task.exception(), BaseExceptionGroup)
    loop.dispose()


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3_000)), max_size=30))
def test_no_deadline_is_missed_and_ticks_are_counted(wishes: list[tuple[int, int]]) -> None:
    owner = Owner()
    for pause, ahead in wishes:
        owner.run(pause)
        owner.ask(owner.clock.monotonic_ms() + ahead)
    owner.run(4_000)
    owner.close()
    assert owner.missed == []
    assert owner.due_times == []
    ends = [now for now, _ in owner.called]
    assert all(now % TICK_MS == 0 for now in ends), "only ticks"
    assert len(set(ends)) == len(ends)
    counted = [sum(ticks for _, ticks in owner.called[: number + 1]) for number in range(len(ends))]
    assert counted == [now // TICK_MS for now in ends]


def test_a_request_for_a_tick_after_the_end_is_ignored() -> None:
    """A node that stops still gets requests until its listener is closed."""
    owner = Owner()
    owner.run(1_000)
    owner._task.cancel()
    while not owner._task.done():
        owner.loop.step()
        owner.ticker.soon()
        owner.ticker.by(Millis(1_200))
    assert owner.run(1_000) == []
    owner.loop.dispose()


def test_a_tick_that_fails_ends_the_ticks_with_its_error() -> None:
    owner = Owner()

    def fail(now: Millis, ticks: int) -> Millis | None:
        raise ValueError("this tick fails")

    owner.ticker._tick = fail
    owner.loop.run_until(owner._task.done, within=1)
    error = owner._task.exception()
    assert isinstance(error, ExceptionGroup)
    assert [str(each) for each in error.exceptions] == ["this tick fails"]
    owner.loop.dispose()
