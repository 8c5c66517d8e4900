"""The end of a simulated process."""

from __future__ import annotations

import gc

from tests.sim.world import Simulation


def test_a_task_that_waits_for_its_turn_dies_in_silence_with_its_slow_process() -> None:
    """Only its turn refers to the task. It is kept like the others: asyncio would report a collected task as
    forgotten."""
    with Simulation(1) as sim:
        sim.start(nodes=3)
        process = sim.machines[1].process
        assert process is not None
        sim.slow_process(1, 60_000)
        sim.run_for(0.5)

        async def work() -> None:
            raise AssertionError("a dead process runs no code")

        def begin() -> None:
            sim.loop.create_task(work())

        process.run(begin)
        sim.run_for(0.01)
        sim.kill(1)
        gc.collect()
        sim.run_for(1)
