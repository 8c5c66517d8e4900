"""A node says why it is not ready."""

from __future__ import annotations

from pathlib import Path

from tests.node.real_nodes import RealNodes


async def test_a_node_is_not_ready_before_there_is_a_controller_and_when_it_stops(tmp_path: Path) -> None:
    nodes = RealNodes(tmp_path, 3)
    try:
        await nodes.start(0)
        first = nodes.nodes[0].node
        needs = "node 0 is not registered: it needs an active controller (tidelog cluster status)"
        await nodes.wait_until(lambda: first.why_not_ready() == needs)
        await nodes.start(1)
        await nodes.start(2)
        await nodes.wait_until(lambda: first.why_not_ready() == "")
        first.stop()
        assert first.why_not_ready() == "node 0 is being stopped", "before its leaderships have moved"
    finally:
        await nodes.kill_all()
