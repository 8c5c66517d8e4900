"""The metadata quorum writes on its own executor: it continues while the writer of a log directory is busy."""

from __future__ import annotations

from testbed.sim.executor import DiskPace, SimExecutor
from testbed.sim.world import Simulation


def test_metadata_is_committed_while_the_writer_of_the_directory_is_blocked() -> None:
    """Checkpoints and files of deleted topics blocked the only writer of the first directory, and every election
    waited."""
    with Simulation(1, voters=1) as sim:
        sim.start(nodes=1)
        node = sim.machines[0].node
        assert node is not None
        writer = node._logs.directories[0].executor
        assert isinstance(writer, SimExecutor)
        writer._pace = DiskPace(stalled=True)
        done: list[object] = []
        writer.submit(lambda: None, done.append)
        client = sim.client()
        client.start(client.create_topic("late", 1, 1, {}), "creates late")
        sim.run_until(
            lambda: node.image is not None and node.image.topic("late") is not None,
            within=5,
            what="the new topic is committed",
        )
        assert done == [], "the earlier work of the writer is not done yet"
