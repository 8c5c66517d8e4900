"""Requests that come while the last transaction of their transactional id is being completed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from node.coordinators.transactions.completing import WAIT_MS, CompletingTransactions
from testbed.sim.loop import SimLoop
from tidelog.errors import ConcurrentTransactions, NotCoordinator, TidelogError
from tidelog.types import PartitionIndex

P = PartitionIndex(3)


class World:
    """A coordinator that answers each request with itself, or with the error that the test says."""

    def __init__(self) -> None:
        self.loop = SimLoop(random.Random(1))
        self.submitted: list[Any] = []
        self.refusal: TidelogError | None = None
        self.error: TidelogError | None = None
        self.transactions = CompletingTransactions(self.submit)

    def submit(self, partition: PartitionIndex, request: Any) -> asyncio.Future[Any]:
        assert partition == P
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(request)
        answer: asyncio.Future[Any] = self.loop.create_future()
        if self.error is None:
            answer.set_result(request)
        else:
            answer.set_exception(self.error)
        return answer

    def again(self, request: str, transactional_id: str = "t1") -> asyncio.Task[Any]:
        async def ask() -> Any:
            return await self.transactions.again(P, transactional_id, request)

        task = self.loop.create_task(ask())
        self.loop.run_for(0.001)
        return task


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.raise_defects()


def test_requests_are_decided_in_the_turn_in_which_the_markers_are_reported(world: World) -> None:
    world.transactions.begin(P, "t1")
    world.transactions.begin(P, "t2")
    tasks = [world.again("first"), world.again("second"), world.again("other", "t2")]
    assert world.submitted == []
    world.transactions.end(P, "t1")
    assert world.submitted == ["first", "second"]
    world.loop.run_for(0.001)
    assert [tasks[0].result(), tasks[1].result()] == ["first", "second"]
    assert not tasks[2].done()
    world.loop.run_for(WAIT_MS / 1_000)
    assert world.submitted == ["first", "second", "other"]  # each was decided once


def test_a_transaction_that_is_complete_by_now_delays_nothing(world: World) -> None:
    world.transactions.begin(P, "t1")
    world.transactions.end(P, "t1")
    assert world.again("late").result() == "late"


def test_after_a_while_the_answer_is_the_one_that_it_would_have_had_at_once(world: World) -> None:
    world.transactions.begin(P, "t1")
    task = world.again("early")
    world.error = ConcurrentTransactions("still")
    world.loop.run_for((WAIT_MS - 10) / 1_000)
    assert not task.done()
    world.loop.run_for(0.02)
    assert task.exception() is world.error
    world.transactions.end(P, "t1")
    assert world.submitted == ["early"]


def test_what_waits_for_a_coordinator_that_is_dropped_is_refused(world: World) -> None:
    world.transactions.begin(P, "t1")
    task = world.again("early")
    world.refusal = NotCoordinator("elsewhere")
    world.transactions.drop(P)
    world.loop.run_for(0.001)
    assert task.exception() is world.refusal
    world.transactions.drop(P)


def test_a_caller_that_leaves_is_not_decided_for(world: World) -> None:
    world.transactions.begin(P, "t1")
    task = world.again("early")
    task.cancel()
    world.loop.run_for(0.001)
    world.transactions.end(P, "t1")
    assert world.submitted == []
