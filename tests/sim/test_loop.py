"""The deterministic event loop: asyncio's own tools run on it, in virtual time, the same way each time."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys

import pytest

from testbed.sim.loop import Deadlock, Defect, OutOfTime, Runaway, SimLoop, once_each
from testbed.sim.process import Process, ProcessState

sleep = asyncio.sleep  # noqa: TID251 - this tests asyncio's own sleep


def new_loop(seed: int = 1) -> SimLoop:
    return SimLoop(random.Random(seed))


def test_a_day_passes_at_once() -> None:
    loop = new_loop()
    loop.run_until_complete(sleep(86_400))
    assert loop.time() == 86_400


def test_task_groups_timeouts_queues_and_streams_run_unchanged() -> None:
    loop = new_loop()
    seen: list[object] = []

    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        reader = asyncio.StreamReader(loop=loop)

        async def produce() -> None:
            for number in range(3):
                await sleep(0.5)
                await queue.put(number)

        async def consume() -> None:
            while len(seen) < 3:
                number = await queue.get()
                seen.append((number, loop.time()))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await reader.readline()
        loop.call_later(1, reader.feed_data, b"hello\n")
        seen.append((await reader.readline(), loop.time()))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1)

    loop.run_until_complete(main())
    assert seen == [(0, 0.5), (1, 1.0), (2, 1.5), (b"hello\n", 4.5)]
    assert loop.time() == 5.5


def test_a_failing_task_cancels_its_group() -> None:
    loop = new_loop()
    ended: list[int] = []

    async def wait_for_ever(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(wait_for_ever(number))
            await sleep(1)
            raise ValueError("planned")

    with pytest.raises(ExceptionGroup):
        loop.run_until_complete(main())
    assert sorted(ended) == list(range(100))


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, print)

    with pytest.raises(RuntimeError, match="no threads"):
        new_loop().run_until_complete(main())


def test_waiting_for_nothing_is_a_deadlock() -> None:
    with pytest.raises(Deadlock):
        new_loop().run_until_complete(asyncio.Event().wait())
    with pytest.raises(OutOfTime):
        new_loop().run_until(lambda: False, within=3, what="never")


def test_a_busy_loop_is_a_runaway() -> None:
    async def spin() -> None:
        while True:
            await sleep(0)

    with pytest.raises(Runaway):
        new_loop().run_until_complete(spin())


def test_an_unhandled_exception_ends_the_run() -> None:
    loop = new_loop()
    loop.call_later(1, lambda: 1 // 0)
    with pytest.raises(Defect, match="ZeroDivisionError"):
        loop.run_for(2)


def test_a_wait_for_many_does_not_look_again_at_those_that_are_done() -> None:
    done: set[str] = set()
    looked: list[str] = []

    def is_done(item: str) -> bool:
        looked.append(item)
        return item in done

    are_done = once_each(["a", "b", "c"], is_done)
    assert not are_done()
    done |= {"b", "c"}
    assert not are_done()
    looked.clear()
    assert not are_done()
    assert looked == ["a"]
    done.add("a")
    assert are_done()


def test_a_killed_process_never_runs_again_not_even_its_finally_blocks() -> None:
    loop, process = new_loop(), Process("node-1")
    seen: list[object] = []

    async def work() -> None:
        try:
            while True:
                seen.append(loop.time())
                await sleep(1)
        finally:
            seen.append("finally")

    process.run(loop.create_task, work())
    loop.run_for(2.5)
    process.state = ProcessState.DEAD
    graveyard = loop.tasks_of(process)
    loop.run_for(10)
    assert seen == [0, 1, 2]
    assert len(graveyard) == 1
    loop.dispose()


def test_tasks_that_are_created_while_others_are_disposed_of_are_disposed_of_too(
    recwarn: pytest.WarningsRecorder,
) -> None:
    loop, process = new_loop(), Process("node-1")

    async def farewell() -> None:
        raise AssertionError("a disposed task does not run")

    async def work() -> None:
        try:
            await sleep(1)
        finally:
            loop.create_task(farewell())

    process.run(loop.create_task, work())
    loop.run_for(0.5)
    loop.dispose()
    gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


def test_a_paused_process_misses_nothing() -> None:
    loop, process = new_loop(), Process("node-1")
    seen: list[object] = []
    process.run(loop.call_later, 1, seen.append, "a")
    process.run(loop.call_later, 2, seen.append, "b")
    loop.call_later(3, seen.append, "world")
    process.state = ProcessState.PAUSED
    loop.run_for(5)
    assert seen == ["world"]
    loop.resume(process)
    loop.run_for(1)
    assert seen == ["world", "a", "b"]


def steps_of(loop: SimLoop, process: Process, count: int) -> list[tuple[int, float]]:
    """Returns a list that gets the number of each of `count` callbacks, with the time at which it ran; one is due
    every 10 ms."""
    seen: list[tuple[int, float]] = []
    for number in range(count):
        process.run(loop.call_later, number / 100, lambda number=number: seen.append((number, loop.time())))
    return seen


def test_a_slow_process_falls_behind_in_its_order_and_is_not_stopped() -> None:
    loop, process = new_loop(), Process("node-1")
    loop.slow(process, 40_000)
    seen = steps_of(loop, process, 20)
    others = steps_of(loop, Process("node-2"), 20)
    loop.run_for(10)
    assert [number for number, _ in seen] == list(range(20))
    late = [at - number / 100 for number, at in seen]
    assert late[0] == 0
    assert late[9] < late[19]
    assert 0.3 < late[19] < 1.3
    assert [at for _, at in others] == [number / 100 for number in range(20)]


def test_a_slow_process_that_keeps_up_is_late_by_a_step_at_most() -> None:
    loop, process = new_loop(), Process("node-1")
    loop.slow(process, 4_000)
    seen = steps_of(loop, process, 50)
    loop.run_for(10)
    assert all(0 <= at - number / 100 < 0.008 for number, at in seen)


def test_each_callback_takes_its_time_also_one_that_is_ready_at_once() -> None:
    loop, process = new_loop(), Process("node-1")
    loop.slow(process, 1_000)

    async def spin() -> None:
        for _ in range(1000):
            await sleep(0)

    task = process.run(loop.create_task, spin())
    loop.run_until(task.done, within=10)
    assert 0.8 < loop.time() < 1.2


def test_a_slow_process_becomes_fast_again_and_has_missed_nothing() -> None:
    loop, process = new_loop(), Process("node-1")
    loop.slow(process, 1_000_000)
    seen = steps_of(loop, process, 20)
    loop.run_for(1)
    assert len(seen) < 20
    loop.slow(process, 0)
    assert process.state is ProcessState.RUNNING
    loop.run_for(0)
    loop.run_for(0.001)
    assert [number for number, _ in seen] == list(range(20))


def test_a_slow_process_that_was_paused_is_slow_again_and_a_dead_one_does_nothing() -> None:
    loop, process = new_loop(), Process("node-1")
    loop.slow(process, 40_000)
    seen = steps_of(loop, process, 20)
    loop.run_for(0.05)
    before = len(seen)
    process.state = ProcessState.PAUSED
    loop.run_for(5)
    assert len(seen) == before
    loop.resume(process)
    loop.run_for(0.2)
    assert process.state is ProcessState.SLOW
    assert before < len(seen) < 20
    assert [number for number, _ in seen] == list(range(len(seen)))
    process.state = ProcessState.DEAD
    at_death = len(seen)
    loop.run_for(10)
    assert len(seen) == at_death


def test_a_callback_cancelled_before_its_turn_does_not_run() -> None:
    loop, process = new_loop(), Process("node-1")
    loop.slow(process, 500_000)
    seen: list[str] = []
    process.run(loop.call_later, 0, seen.append, "a")
    loop.run_for(0.01)
    cancelled = process.run(loop.call_later, 0, seen.append, "b")
    process.run(loop.call_later, 0.1, seen.append, "c")
    loop.run_for(0.05)
    cancelled.cancel()
    loop.run_for(5)
    assert seen == ["a", "c"]


def test_how_slow_each_step_is_comes_from_the_seed() -> None:
    def times(seed: int) -> list[tuple[int, float]]:
        loop, process = new_loop(seed), Process("node-1")
        loop.slow(process, 40_000)
        seen = steps_of(loop, process, 20)
        loop.run_for(10)
        return seen

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_timers_of_one_instant_run_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[int]:
        loop = new_loop(seed)
        seen: list[int] = []
        for number in range(8):
            loop.call_at(1, seen.append, number)
        loop.run_for(2)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5


SCRIPT = """
import asyncio, random
from testbed.sim.loop import SimLoop
loop = SimLoop(random.Random(7))
seen = []
async def worker(n):
    try:
        await asyncio.tasks.sleep(loop._rng.random())
        seen.append(n)
        if n == 13:
            raise ValueError
        await asyncio.Event().wait()
    finally:
        seen.append(-n)
async def main():
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(200):
                group.create_task(worker(n))
    except* ValueError:
        pass
    futures = [asyncio.ensure_future(asyncio.tasks.sleep(1, n)) for n in range(50)]
    done, _ = await asyncio.wait(futures)
    seen.extend(task.result() for task in done)
loop.run_until_complete(main())
print(seen)
"""


def test_the_same_seed_gives_the_same_run_under_any_hash_seed() -> None:
    """The sets inside asyncio are iterated in an order that does not depend on addresses or hashes."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 500
