"""A simulated machine: the end of its process, and what its clock has shown."""

from __future__ import annotations

import gc

from testbed.sim.world import Simulation


def test_a_waiting_task_of_a_killed_slow_process_is_dropped_without_a_report() -> None:
    """Only the scheduled callback refers to the task. The simulator keeps a reference to it, because asyncio reports a
    pending task that is garbage-collected."""
    with Simulation(1) as sim:
        sim.start(nodes=3)
        process = sim.machines[1].process
        assert process is not None
        sim.slow_process(1, 60_000)
        sim.run_for(0.5)

        async def work() -> None:
            raise AssertionError("an ended process runs no code")

        def begin() -> None:
            sim.loop.create_task(work())

        process.run(begin)
        sim.run_for(0.01)
        sim.kill(1)
        gc.collect()
        sim.run_for(1)


def test_a_removal_that_was_decided_before_the_clock_was_set_back_is_explained_by_its_time_then() -> None:
    """A retention round reads the clock once and is at the disk for some milliseconds after that."""
    with Simulation(1) as sim:
        sim.start(nodes=3)
        machine = sim.machines[1]
        sim.run_for(2)
        before = machine.clock.wall_ms()
        sim.jump_clock(1, -210_000)
        sim.run_for(0.01)
        assert machine.latest_wall_ms(sim.loop.now_us) == before
        sim.run_for(1)
        assert machine.latest_wall_ms(sim.loop.now_us) == machine.clock.wall_ms(), "by then the round is over"
