"""The workers of simulated pipelines."""

from __future__ import annotations

from testbed.sim.world import Simulation
from tests.sim.pipeline_stories import pipeline


def test_a_worker_that_was_told_to_stop_owns_nothing_that_lasts() -> None:
    """A world that waits for owners replaces such a worker; with its present partitions alone it would not, and the
    pipeline would end without one."""
    with Simulation(1) as sim:
        line = pipeline(sim, workers=1, pause=0.5)
        (worker,) = line.workers
        assert line.group.is_settled
        worker.stop()
        assert len(list(line.group.unsettled())) == 4
        sim.run_until(lambda: worker.is_over, what="the worker has ended")
        line.worker(0)
        line.group.settle()
