"""The simulated executor: in order, in virtual time, and gone with its process."""

from __future__ import annotations

import random
from functools import partial

from tests.sim.executor import DiskPace, SimExecutor
from tests.sim.loop import SimLoop
from tests.sim.process import Process, ProcessState


def a_disk(workers: int = 1) -> tuple[SimLoop, Process, DiskPace, SimExecutor]:
    loop, process, pace = SimLoop(random.Random(1)), Process("node-1"), DiskPace()
    return loop, process, pace, SimExecutor(loop, random.Random(2), process, pace, workers)


def test_one_worker_works_in_order_and_takes_time() -> None:
    loop, _, pace, executor = a_disk()
    worked: list[int] = []
    reported: list[object] = []

    def work(number: int) -> int:
        worked.append(number)
        return number

    for number in range(20):
        executor.submit(partial(work, number), reported.append)
    assert worked == []
    loop.run_for(1)
    assert worked == reported == list(range(20))
    assert pace.delay_us[0] * 20 < loop.now_us


def test_a_failure_is_reported_as_a_value() -> None:
    loop, _, _, executor = a_disk()
    reported: list[object] = []
    executor.submit(lambda: 1 // 0, reported.append)
    loop.run_for(1)
    assert isinstance(reported[0], ZeroDivisionError)


def test_a_crash_may_fall_between_work_and_report() -> None:
    outcomes = set()
    for seed in range(60):
        loop, process = SimLoop(random.Random(1)), Process("node-1")
        executor = SimExecutor(loop, random.Random(seed), process, DiskPace(delay_us=(1000, 1000)))
        worked: list[str] = []
        reported: list[object] = []
        executor.submit(lambda worked=worked: worked.append("x"), reported.append)  # type: ignore[misc]
        loop.run_for(0.0005)
        process.state = ProcessState.DEAD
        loop.run_for(1)
        outcomes.add((len(worked), len(reported)))
    assert outcomes == {(0, 0), (1, 0)}


def test_a_stuck_disk_reports_nothing_until_it_goes_on() -> None:
    loop, _, pace, executor = a_disk()
    reported: list[object] = []
    executor.submit(lambda: 1, reported.append)
    pace.stalled = True
    executor.submit(lambda: 2, reported.append)
    loop.run_for(10)
    assert reported == []
    pace.stalled = False
    executor.resume()
    loop.run_for(1)
    assert reported == [1, 2]


def test_a_disk_that_goes_on_does_nothing_for_a_process_that_has_died() -> None:
    for seed in range(20):
        loop, process, pace = SimLoop(random.Random(1)), Process("node-1"), DiskPace(stalled=True)
        executor = SimExecutor(loop, random.Random(seed), process, pace)
        worked: list[str] = []
        executor.submit(lambda worked=worked: worked.append("x"), lambda _: None)  # type: ignore[misc]
        process.state = ProcessState.DEAD
        pace.stalled = False
        executor.resume()
        loop.run_for(1)
        assert worked == []
